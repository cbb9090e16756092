//! The few system calls that aya does not offer: program ids in a program array, a link's interface, waiting for readers.
#![allow(
    unsafe_code,
    reason = "bpf(2), membarrier(2), statfs(2) and clock_getres(2) have no safe wrapper for these uses"
)]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

const BPF_MAP_LOOKUP_ELEM: libc::c_int = 1;
const BPF_OBJ_GET: libc::c_int = 7;
const BPF_PROG_TEST_RUN: libc::c_int = 10;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_int = 15;
/// `BPF_FS_MAGIC` of linux/magic.h.
const BPF_FS_MAGIC: i64 = 0xcafe_4a11;

#[repr(C)]
struct Lookup {
    map_fd: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ObjectGet {
    path: u64,
    fd: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct TestRun {
    program: u32,
    result: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
    rest: [u32; 4],
}

#[repr(C)]
struct GetInfo {
    fd: u32,
    len: u32,
    info: u64,
}

/// `struct bpf_link_info` as far as its XDP part.
#[repr(C)]
#[derive(Default)]
struct LinkInfo {
    kind: u32,
    id: u32,
    program: u32,
    pad: u32,
    ifindex: u32,
    rest: [u32; 27],
}

fn bpf<T>(command: libc::c_int, attr: &T) -> io::Result<()> {
    // SAFETY: `attr` is a live value of the length passed, laid out as this command's part of union bpf_attr.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attr), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Opens any pinned object; aya keeps a link's descriptor to itself.
pub(crate) fn open_pin(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let attr = ObjectGet { path: path.as_ptr() as u64, fd: 0, flags: 0 };
    // SAFETY: `attr` is a live value of the length passed, and its path a terminated string.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, BPF_OBJ_GET, &raw const attr, size_of::<ObjectGet>()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that the kernel has just made for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Name of an interface of the calling thread's network namespace (`if_indextoname`).
pub(super) fn interface_name(index: u32) -> Option<String> {
    let mut name = [0u8; libc::IF_NAMESIZE];
    // SAFETY: the buffer has the IF_NAMESIZE bytes that the call may write.
    let found = unsafe { libc::if_indextoname(index, name.as_mut_ptr().cast()) };
    let length = name.iter().position(|b| *b == 0)?;
    (!found.is_null()).then(|| String::from_utf8_lossy(&name[..length]).into_owned())
}

/// Id of the program in a slot of a program array, `None` when the slot is empty.
pub(super) fn program_in_slot(array: BorrowedFd<'_>, slot: u32) -> io::Result<Option<u32>> {
    let mut id = 0u32;
    let attr = Lookup {
        map_fd: array.as_raw_fd() as u32,
        pad: 0,
        key: &raw const slot as u64,
        value: &raw mut id as u64,
        flags: 0,
    };
    match bpf(BPF_MAP_LOOKUP_ELEM, &attr) {
        Ok(()) => Ok(Some(id)),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Runs a program once on data of the caller's, in a context of the caller's (`BPF_PROG_TEST_RUN`); aya takes no program that it
/// has not loaded or found pinned. Returns the program's answer, and how many bytes of `output` are filled.
pub(super) fn test_run(
    program: BorrowedFd<'_>,
    input: &[u8],
    output: &mut [u8],
    context: &[u8],
) -> io::Result<(u32, usize)> {
    let mut attr = TestRun {
        program: program.as_raw_fd() as u32,
        data_size_in: input.len() as u32,
        data_size_out: output.len() as u32,
        data_in: input.as_ptr() as u64,
        data_out: output.as_mut_ptr() as u64,
        repeat: 1,
        ctx_size_in: context.len() as u32,
        ctx_in: context.as_ptr() as u64,
        ..TestRun::default()
    };
    // SAFETY: `attr` is a live value of the length passed, and its pointers lead to buffers of the lengths beside them; the
    // kernel writes to `attr` and to `output` alone.
    let done =
        unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_TEST_RUN, &raw mut attr, size_of::<TestRun>()) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((attr.result, attr.data_size_out as usize))
}

/// Interface of a tcx link (0 once the interface is gone): `struct bpf_link_info` holds it where an XDP link's stands.
pub(crate) fn tcx_link(link: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
    xdp_link(link)
}

/// Interface of an XDP link (0 once the interface is gone) and the id of its program.
pub(super) fn xdp_link(link: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
    let mut info = LinkInfo::default();
    let attr = GetInfo {
        fd: link.as_raw_fd() as u32,
        len: size_of::<LinkInfo>() as u32,
        info: &raw mut info as u64,
    };
    bpf(BPF_OBJ_GET_INFO_BY_FD, &attr)?;
    Ok((info.ifindex, info.program))
}

/// Returns once every CPU has left whatever program run it was in (`membarrier(2)`, `MEMBARRIER_CMD_GLOBAL`: an RCU grace
/// period, which XDP runs are read-side sections of).
pub(crate) fn wait_for_readers() -> io::Result<()> {
    const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;
    // SAFETY: no pointers are passed.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether a path lies on a BPF file system.
pub(super) fn is_bpffs(path: &Path) -> io::Result<bool> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut stat = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: a terminated string and room for the answer.
    if unsafe { libc::statfs(path.as_ptr(), stat.as_mut_ptr()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: statfs succeeded, so it filled the structure.
    let stat = unsafe { stat.assume_init() };
    Ok(stat.f_type == BPF_FS_MAGIC)
}

/// Index of an interface of this network namespace.
pub(crate) fn interface_index(name: &str) -> io::Result<u32> {
    let name = CString::new(name)?;
    // SAFETY: a terminated string.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if index == 0 { Err(io::Error::last_os_error()) } else { Ok(index) }
}

/// Takes an exclusive lock on an open directory; it goes with the descriptor.
pub(super) fn lock(directory: &std::fs::File) -> io::Result<()> {
    // SAFETY: a live descriptor.
    let result = unsafe { libc::flock(directory.as_raw_fd(), libc::LOCK_EX) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The clock of the programs, `bpf_ktime_get_ns`: nanoseconds of `CLOCK_MONOTONIC`.
pub(super) fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for the answer; this clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// The kernel's jiffies a second (`CONFIG_HZ`): its coarse clocks advance by one jiffy (`KTIME_LOW_RES`).
pub(super) fn jiffies_per_second() -> io::Result<u64> {
    let mut tick = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for the answer.
    if unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut tick) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let nanoseconds = u64::try_from(tick.tv_nsec).unwrap_or(0).max(1);
    Ok((1_000_000_000 + nanoseconds / 2) / nanoseconds)
}

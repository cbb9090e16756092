//! A Linux packet socket on one interface: whole frames in and out, VLAN tags put back where the kernel took them off.
#![allow(unsafe_code, reason = "packet sockets with auxiliary data have no safe wrapper")]

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, SystemTime};

use crate::error::{Error, Result};

/// Longest frame that is read whole: 64 KiB of IP packet (as offloads build them) and its link header.
pub(crate) const FRAME_LIMIT: usize = 65_536 + 64;

/// Bytes that may wait in the socket before the kernel drops frames.
const QUEUE: libc::c_int = 16 << 20;

/// What a socket is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Sending; nothing is received.
    Send,
    /// Receiving what arrives at the interface.
    ReceiveArriving,
    /// Receiving what arrives and what leaves.
    ReceiveAll,
}

/// One frame from the socket.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) at: SystemTime,
    pub(crate) bytes: Vec<u8>,
    pub(crate) outgoing: bool,
    /// The kernel left the transport checksum to hardware that does not exist.
    pub(crate) partial_checksum: bool,
    /// The frame was longer than [`FRAME_LIMIT`]; this many bytes of it are lost.
    pub(crate) cut: usize,
}

/// A packet socket bound to an interface of the namespace it was opened in.
#[derive(Debug)]
pub(crate) struct PacketSocket {
    fd: OwnedFd,
    interface: String,
}

impl PacketSocket {
    /// Opens a socket in the calling thread's namespace.
    pub(crate) fn open(interface: &str, purpose: Use) -> Result<Self> {
        let failed = |operation| {
            move |cause: io::Error| Error::system(operation, format!("interface {interface:?}"), cause)
        };
        let index = nix::net::if_::if_nametoindex(interface)
            .map_err(|errno| failed("find")(io::Error::from(errno)))? as libc::c_int;
        // Protocol 0 receives nothing: frames of other interfaces cannot slip in before the bind.
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no pointers; the result is checked before it is owned.
        let raw = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if raw < 0 {
            return Err(failed("open packet socket (needs CAP_NET_RAW) on")(io::Error::last_os_error()));
        }
        // SAFETY: `raw` was just returned by socket(2) and nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        let socket = Self { fd, interface: interface.to_owned() };
        let protocol = if purpose == Use::Send { 0 } else { (libc::ETH_P_ALL as u16).to_be() };
        if purpose != Use::Send {
            socket.prepare_receiving(index, purpose).map_err(failed("set packet socket options on"))?;
        }
        // SAFETY: sockaddr_ll is plain numbers, for which all zeros is a value.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as libc::c_ushort;
        address.sll_protocol = protocol;
        address.sll_ifindex = index;
        // SAFETY: the pointer and the length describe `address`, which outlives the call.
        let bound = unsafe {
            libc::bind(
                socket.fd.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        if bound < 0 {
            return Err(failed("bind packet socket to")(io::Error::last_os_error()));
        }
        Ok(socket)
    }

    fn prepare_receiving(&self, index: libc::c_int, purpose: Use) -> io::Result<()> {
        let on: libc::c_int = 1;
        self.set(libc::SOL_PACKET, libc::PACKET_AUXDATA, &on)?;
        self.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &on)?;
        if purpose == Use::ReceiveArriving {
            self.set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &on)?;
        }
        // The forced form goes beyond the system's limit but needs CAP_NET_ADMIN; a smaller queue still works.
        self.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &QUEUE)
            .or_else(|_| self.set(libc::SOL_SOCKET, libc::SO_RCVBUF, &QUEUE))?;
        // SAFETY: packet_mreq is plain numbers, for which all zeros is a value.
        let mut promiscuous: libc::packet_mreq = unsafe { zeroed() };
        promiscuous.mr_ifindex = index;
        promiscuous.mr_type = libc::PACKET_MR_PROMISC as libc::c_ushort;
        self.set(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &promiscuous)
    }

    fn set<T>(&self, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
        // SAFETY: the pointer and the length describe `value`, which outlives the call.
        let result = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                level,
                name,
                std::ptr::from_ref(value).cast(),
                size_of::<T>() as libc::socklen_t,
            )
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Name of the interface.
    pub(crate) fn interface(&self) -> &str {
        &self.interface
    }

    /// Sends one frame, link header first. `Err` is the kernel's answer.
    pub(crate) fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: the pointer and the length describe `frame`, which outlives the call.
        let sent = unsafe { libc::send(self.fd.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        match usize::try_from(sent) {
            Ok(length) if length == frame.len() => Ok(()),
            Ok(_) => Err(io::ErrorKind::WriteZero.into()),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }

    /// The next waiting frame, or `None` if none waits. `buffer` is [`FRAME_LIMIT`] bytes of scratch space.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Received>> {
        // u64 for the alignment that control messages need.
        let mut control = [0u64; 32];
        // SAFETY: both are plain numbers and pointers, for which all zeros is a value.
        let (mut from, mut message): (libc::sockaddr_ll, libc::msghdr) = unsafe { (zeroed(), zeroed()) };
        let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        message.msg_name = (&raw mut from).cast();
        message.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        // SAFETY: every pointer in `message` describes a local that outlives the call, with its length.
        let length = unsafe { libc::recvmsg(self.fd.as_raw_fd(), &raw mut message, libc::MSG_TRUNC) };
        let Ok(length) = usize::try_from(length) else {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
        };
        let kept = length.min(buffer.len());
        let mut frame = Received {
            at: SystemTime::now(),
            bytes: buffer[..kept].to_vec(),
            outgoing: from.sll_pkttype == libc::PACKET_OUTGOING,
            partial_checksum: false,
            cut: length - kept,
        };
        // SAFETY: `message` was filled by recvmsg(2), so the CMSG functions stay within its control buffer; the data of
        // a header of this level and type is the structure that is read.
        unsafe {
            let mut header = libc::CMSG_FIRSTHDR(&raw const message);
            while let Some(current) = header.as_ref() {
                match (current.cmsg_level, current.cmsg_type) {
                    (libc::SOL_PACKET, libc::PACKET_AUXDATA) => frame.apply(&control_data(current)),
                    (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                        let time: libc::timespec = control_data(current);
                        frame.at =
                            SystemTime::UNIX_EPOCH + Duration::new(time.tv_sec as u64, time.tv_nsec as u32);
                    }
                    _ => {}
                }
                header = libc::CMSG_NXTHDR(&raw const message, header);
            }
        }
        Ok(Some(frame))
    }

    /// Frames the kernel dropped for want of room since the last call.
    pub(crate) fn take_drops(&self) -> io::Result<u64> {
        // SAFETY: tpacket_stats is plain numbers, for which all zeros is a value.
        let mut statistics: libc::tpacket_stats = unsafe { zeroed() };
        let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: both pointers describe locals that outlive the call.
        let result = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut statistics).cast(),
                &raw mut length,
            )
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(statistics.tp_drops.into()) }
    }
}

/// The data of a control message, which may lie unaligned.
///
/// # Safety
/// `header` lies in a control buffer, and a `T`, made of plain numbers, follows it.
unsafe fn control_data<T>(header: *const libc::cmsghdr) -> T {
    // SAFETY: the caller promises a whole `T` behind the header, for which all zeros is a value, too.
    unsafe {
        let mut value: T = zeroed();
        std::ptr::copy_nonoverlapping(libc::CMSG_DATA(header), (&raw mut value).cast(), size_of::<T>());
        value
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Received {
    /// Puts back the outer VLAN tag, which the kernel keeps beside the frame (packet(7), `PACKET_AUXDATA`).
    fn apply(&mut self, aux: &libc::tpacket_auxdata) {
        self.partial_checksum = aux.tp_status & libc::TP_STATUS_CSUMNOTREADY != 0;
        if aux.tp_status & libc::TP_STATUS_VLAN_VALID == 0 || self.bytes.len() < 12 {
            return;
        }
        let known = aux.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
        let tpid = if known { aux.tp_vlan_tpid } else { libc::ETH_P_8021Q as u16 };
        let tag = [tpid.to_be_bytes(), aux.tp_vlan_tci.to_be_bytes()].concat();
        self.bytes.splice(12..12, tag);
    }
}

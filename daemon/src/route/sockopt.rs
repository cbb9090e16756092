//! Socket options of BGP that no safe wrapper offers: TCP-MD5 keys and the minimum TTL.
#![allow(unsafe_code, reason = "setsockopt(2) for options that neither socket2, nix nor rustix wraps")]

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::config::Password;

/// `IPV6_MINHOPCOUNT` of include/uapi/linux/in6.h; the libc crate lacks it.
const IPV6_MINHOPCOUNT: libc::c_int = 73;

/// `struct tcp_md5sig` of include/uapi/linux/tcp.h.
#[repr(C)]
struct TcpMd5Sig {
    address: libc::sockaddr_storage,
    flags: u8,
    prefix_length: u8,
    key_length: u16,
    interface_index: libc::c_int,
    key: [u8; Password::MAX],
}

/// Signs every segment to and from `peer` with `key` (RFC 2385). Must come before `connect`, since the SYN is signed too.
///
/// # Errors
/// The kernel's, `EPERM` where its configuration lacks TCP-MD5 among them.
pub fn set_md5(socket: BorrowedFd<'_>, peer: SocketAddr, key: &Password) -> io::Result<()> {
    // The kernel matches on the address alone.
    let address = socket2::SockAddr::from(SocketAddr::new(peer.ip(), 0)).as_storage();
    let bytes = key.bytes();
    let mut option = TcpMd5Sig {
        // SAFETY: both are `struct sockaddr_storage` of the C library: same size, same layout, plain old data.
        address: unsafe { std::mem::transmute::<socket2::SockAddrStorage, libc::sockaddr_storage>(address) },
        flags: 0,
        prefix_length: 0,
        key_length: bytes.len() as u16,
        interface_index: 0,
        key: [0; Password::MAX],
    };
    option.key[..bytes.len()].copy_from_slice(bytes);
    set(socket, libc::IPPROTO_TCP, libc::TCP_MD5SIG, &option)
}

/// Sends with TTL or hop limit 255 and accepts only 255 (GTSM, RFC 5082): nobody off the link can reach the session.
///
/// # Errors
/// The kernel's.
pub fn set_gtsm(socket: BorrowedFd<'_>, peer: SocketAddr) -> io::Result<()> {
    let maximum: libc::c_int = 255;
    if peer.is_ipv6() {
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, &maximum)?;
        set(socket, libc::IPPROTO_IPV6, IPV6_MINHOPCOUNT, &maximum)
    } else {
        set(socket, libc::IPPROTO_IP, libc::IP_TTL, &maximum)?;
        set(socket, libc::IPPROTO_IP, libc::IP_MINTTL, &maximum)
    }
}

fn set<T>(socket: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: `value` is a live value of plain old data, and the length passed is exactly its size.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

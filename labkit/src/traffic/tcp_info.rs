//! The kernel's count of retransmitted segments of a TCP connection.
#![allow(unsafe_code, reason = "TCP_INFO has no safe wrapper")]

use std::os::fd::{AsFd, AsRawFd};

use crate::error::{Error, Result};

/// Segments this end has sent again since the connection began (`tcpi_total_retrans`, tcp(7)).
pub fn retransmissions(socket: &impl AsFd) -> Result<u64> {
    // SAFETY: `tcp_info` is plain data, for which all-zero bytes are a valid value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, which is the size of `info`; the descriptor is open.
    let status = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    if status == 0 {
        Ok(u64::from(info.tcpi_total_retrans))
    } else {
        Err(Error::system("read TCP_INFO of", "connection", std::io::Error::last_os_error()))
    }
}

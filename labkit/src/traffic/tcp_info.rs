//! The kernel's count of segments of a TCP connection that had to be sent again.
#![allow(unsafe_code, reason = "TCP_INFO has no safe wrapper")]

use std::os::fd::{AsFd, AsRawFd};

use crate::error::{Error, Result};

/// Segments of this end that were lost and sent again since the connection began: `tcpi_total_retrans` less those that the
/// other end had got already and says so (`tcpi_dsack_dups`, RFC 2883). The latter come from a machine too busy to acknowledge
/// in time and say nothing about the network.
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
        Ok(u64::from(info.tcpi_total_retrans.saturating_sub(info.tcpi_dsack_dups)))
    } else {
        Err(Error::system("read TCP_INFO of", "connection", std::io::Error::last_os_error()))
    }
}

//! Turns transmit checksum offload off, by the ethtool ioctl.
#![allow(unsafe_code, reason = "an ioctl that passes a pointer inside a structure has no safe wrapper")]

use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use crate::error::{Error, Result};

/// `ETHTOOL_STXCSUM` (`include/uapi/linux/ethtool.h`).
const ETHTOOL_STXCSUM: u32 = 0x17;

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    cmd: u32,
    data: u32,
}

nix::ioctl_write_ptr_bad!(siocethtool, libc::SIOCETHTOOL, libc::ifreq);

/// Makes the kernel compute checksums of what leaves an interface of the calling thread's namespace.
pub(crate) fn tx_checksum_off(interface: &str) -> Result<()> {
    let failed =
        |cause: std::io::Error| Error::system("turn transmit checksum offload off on", interface, cause);
    let socket = UdpSocket::bind((std::net::Ipv6Addr::UNSPECIFIED, 0)).map_err(failed)?;
    if interface.len() >= libc::IFNAMSIZ {
        return Err(failed(std::io::ErrorKind::InvalidInput.into()));
    }
    let mut value = Value { cmd: ETHTOOL_STXCSUM, data: 0 };
    // SAFETY: `ifreq` is plain data, for which all-zero bytes are a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the request names the interface, zero-terminated, and points at a live `ethtool_value`, which is what the
    // kernel reads for ETHTOOL_STXCSUM.
    unsafe { siocethtool(socket.as_raw_fd(), &raw const request) }.map_err(|errno| failed(errno.into()))?;
    Ok(())
}

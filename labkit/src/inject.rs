//! Sending built frames out of an interface inside a namespace.

use std::thread;
use std::time::{Duration, Instant};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

use crate::error::{Error, Result};
use crate::netns::Netns;
use crate::packet::Packet;
use crate::packet_socket::{PacketSocket, Use};
use crate::wait::patiently;

/// Longest wait for a link to run.
const LINK_PATIENCE: Duration = Duration::from_secs(2);

/// Sends frames out of one interface, byte for byte as given.
#[derive(Debug)]
pub struct Injector {
    name: String,
    socket: PacketSocket,
}

impl Injector {
    /// Opens an interface of a namespace for sending.
    ///
    /// Waits up to two seconds for the link to run: a kernel that has not finished bringing it up drops frames without
    /// a word. A link that stays down is opened all the same.
    pub fn open(namespace: &Netns, interface: &str) -> Result<Self> {
        let socket = namespace.run(|| {
            let socket = PacketSocket::open(interface, Use::Send)?;
            wait_until_running(interface);
            Ok::<_, Error>(socket)
        })??;
        Ok(Self { name: format!("{}-{interface}", namespace.name()), socket })
    }

    /// Sends one frame, link header first. A frame beyond the interface's MTU is refused.
    pub fn send(&self, frame: &[u8]) -> Result<()> {
        self.socket.send(frame).map_err(|cause| {
            let object = format!("a frame of {} bytes on {}", frame.len(), self.name);
            let operation = match cause.raw_os_error() {
                Some(libc::EMSGSIZE) => "inject (longer than the interface's MTU)",
                Some(libc::ENETDOWN) => "inject (the interface is down)",
                _ => "inject",
            };
            Error::system(operation, object, cause)
        })
    }

    /// Sends a built packet and returns its bytes.
    pub fn send_packet<T>(&self, packet: &Packet<T>) -> Result<Vec<u8>> {
        let bytes = packet.bytes();
        self.send(&bytes).map(|()| bytes)
    }
}

/// Waits for the flag that the kernel sets when it has a queue for the link, in the calling thread's namespace.
fn wait_until_running(interface: &str) {
    let running = || {
        getifaddrs().is_ok_and(|mut all| {
            all.any(|one| one.interface_name == interface && one.flags.contains(InterfaceFlags::IFF_RUNNING))
        })
    };
    let deadline = Instant::now() + patiently(LINK_PATIENCE);
    while !running() && Instant::now() < deadline {
        thread::park_timeout(Duration::from_millis(1));
    }
}

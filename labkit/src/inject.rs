//! Sending built frames out of an interface inside a namespace.

use crate::error::{Error, Result};
use crate::netns::Netns;
use crate::packet::Packet;
use crate::packet_socket::{PacketSocket, Use};

/// Sends frames out of one interface, byte for byte as given.
#[derive(Debug)]
pub struct Injector {
    name: String,
    socket: PacketSocket,
}

impl Injector {
    /// Opens an interface of a namespace for sending.
    pub fn open(namespace: &Netns, interface: &str) -> Result<Self> {
        let socket = namespace.run(|| PacketSocket::open(interface, Use::Send))??;
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

//! Sockets of a node: opened on a thread inside its namespace, used from anywhere.

use std::net::{IpAddr, SocketAddr};

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBufForce;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};

use super::NodeHandle;
use crate::error::{Error, Result};

/// Connections that a listener keeps until they are accepted.
const BACKLOG: i32 = 1024;
/// Bytes that wait in a UDP socket until they are read. A packet that came through XDP occupies a whole page, so that the
/// kernel's default holds about 50 of them: a reader that is late would look like a network that loses packets.
const UDP_BUFFER: usize = 16 << 20;

impl NodeHandle {
    /// A socket of the node, non-blocking, to be used anywhere.
    pub fn socket(&self, domain: Domain, kind: Type, protocol: Option<Protocol>) -> Result<Socket> {
        self.netns()
            .run(|| Socket::new(domain, kind.nonblocking().cloexec(), protocol))?
            .map_err(|e| Error::system("open socket in node", self.name(), e))
    }

    /// A TCP socket of the node for an address's family, to be bound and connected by the caller.
    pub fn tcp_socket(&self, family_of: IpAddr) -> Result<TcpSocket> {
        let socket =
            self.socket(Domain::for_address((family_of, 0).into()), Type::STREAM, Some(Protocol::TCP))?;
        Ok(TcpSocket::from_std_stream(socket.into()))
    }

    /// Connects from the node.
    pub async fn tcp_connect(&self, to: SocketAddr) -> Result<TcpStream> {
        let socket = self.tcp_socket(to.ip())?;
        socket
            .connect(to)
            .await
            .map_err(|e| Error::system("connect", format!("from node {} to {to}", self.name()), e))
    }

    /// Listens in the node.
    pub fn tcp_listen(&self, on: SocketAddr) -> Result<TcpListener> {
        let failed = |e| Error::system("listen", format!("in node {} on {on}", self.name()), e);
        let socket = self.socket(Domain::for_address(on), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true).map_err(failed)?;
        if on.is_ipv6() {
            socket.set_only_v6(true).map_err(failed)?;
        }
        socket.bind(&on.into()).map_err(failed)?;
        socket.listen(BACKLOG).map_err(failed)?;
        TcpListener::from_std(socket.into()).map_err(failed)
    }

    /// Binds a UDP socket in the node. Thousands of packets wait in it for a late reader.
    pub fn udp_bind(&self, on: SocketAddr) -> Result<UdpSocket> {
        let failed = |e| Error::system("bind UDP socket", format!("in node {} to {on}", self.name()), e);
        let socket = self.socket(Domain::for_address(on), Type::DGRAM, Some(Protocol::UDP))?;
        if on.is_ipv6() {
            socket.set_only_v6(true).map_err(failed)?;
        }
        setsockopt(&socket, RcvBufForce, &UDP_BUFFER).map_err(|e| failed(e.into()))?;
        socket.bind(&on.into()).map_err(failed)?;
        UdpSocket::from_std(socket.into()).map_err(failed)
    }
}

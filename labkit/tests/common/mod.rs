//! Topologies and helpers that several tests share.
#![allow(dead_code, clippy::unwrap_used, reason = "helpers of tests; each test file uses its own part")]

use std::time::Duration;

use labkit::topology::Topology;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Generous: only a hang is longer.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Client, router, server.
pub(crate) fn routed(name: &str) -> Topology {
    Topology::build(name, |t| {
        t.node("client").address("eth0", "2001:db8:1::2/64").route("default via 2001:db8:1::1");
        t.node("router").forwarding().address("eth0", "2001:db8:1::1/64").address("eth1", "2001:db8:2::1/64");
        t.node("server").address("eth0", "2001:db8:2::2/64").route("default via 2001:db8:2::1");
        t.link("client:eth0", "router:eth0", 1500);
        t.link("router:eth1", "server:eth0", 1500);
    })
    .unwrap()
}

/// Sends bytes from one node's socket to another's over TCP and checks what arrives. Returns the peer address seen.
pub(crate) async fn tcp_exchange(
    from: &labkit::NodeHandle,
    to: &labkit::NodeHandle,
    address: &str,
) -> std::io::Result<std::net::SocketAddr> {
    let listener = to.tcp_listen(format!("{address}:7").parse().unwrap()).unwrap();
    let payload: Vec<u8> = (0..100_000_u32).map(|i| i as u8).collect();
    let sent = payload.clone();
    let server = tokio::spawn(async move {
        let (mut stream, peer) = listener.accept().await.unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).await.unwrap();
        (got, peer)
    });
    let connect = from.tcp_connect(format!("{address}:7").parse().unwrap());
    let mut stream = match tokio::time::timeout(Duration::from_secs(3), connect).await {
        Ok(Ok(stream)) => stream,
        other => {
            server.abort();
            return Err(std::io::Error::other(format!("{other:?}")));
        }
    };
    stream.write_all(&sent).await?;
    stream.shutdown().await?;
    let (got, peer) = tokio::time::timeout(SOON, server).await??;
    assert_eq!(got, payload);
    Ok(peer)
}

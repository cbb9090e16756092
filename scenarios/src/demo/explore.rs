//! What `--keep` leaves: a lab with servers that outlive the demo, and how to get around in it.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};

use anyhow::Context as _;
use labkit::topology::Process;

use crate::region::{Live, TENANTS, weir_binary};

/// Serves HTTP for ever: each answer names the server and the client as it sees it.
///
/// # Errors
/// When it cannot listen.
pub fn serve(name: &str, address: &str) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address).with_context(|| format!("listen on {address}"))?;
    for stream in listener.incoming().flatten() {
        let name = name.to_owned();
        // A client that goes away concerns nobody else.
        std::thread::spawn(move || answer(&stream, &name).ok());
    }
    Ok(())
}

fn answer(stream: &TcpStream, name: &str) -> std::io::Result<()> {
    let peer = stream.peer_addr()?;
    for line in BufReader::new(stream).lines() {
        if line?.is_empty() {
            break;
        }
    }
    let body = format!("{name} served {peer}\n");
    write!(&*stream, "HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// Puts servers that stay into all pods, in place of the demo's own.
///
/// # Errors
/// A server that could not be started.
pub fn serve_all(live: &Live) -> anyhow::Result<()> {
    let own = std::env::current_exe().context("find this program")?.display().to_string();
    for (tenant, family, service) in live.services() {
        for worker in 1..=live.region.workers {
            let pod = live.region.pod(worker, tenant);
            let on = service.to_string();
            live.lab.node(&pod)?.spawn(&Process {
                name: format!("server-{}", family.short()),
                command: [own.as_str(), "--serve", &pod, &on].map(Into::into).into(),
                env: [].into(),
                ready: None,
            })?;
        }
    }
    Ok(())
}

/// How to enter a lab that stays.
///
/// # Errors
/// When a node is missing.
pub fn guide(live: &Live) -> anyhow::Result<String> {
    let enter = |node: &str| -> anyhow::Result<String> {
        Ok(format!("nsenter --net={}", live.node(node)?.netns().path().display()))
    };
    let weir = weir_binary(None)?.display().to_string();
    let lab = live.lab.name();
    let mut text = format!("\nThe lab {lab} stays up. Its nodes are network namespaces:\n\n");
    for node in live.lab.nodes() {
        writeln!(text, "  {:<8}nsenter --net={}", node.name(), node.netns().path().display())?;
    }
    writeln!(text, "\nas a client (repeat it: another port, another pod)")?;
    for (_, _, service) in live.services() {
        writeln!(text, "  {} curl -s 'http://{service}/'", enter("client")?)?;
    }
    writeln!(text, "the internet router: equal-cost routes, BGP")?;
    let [vip, _] = TENANTS.map(|tenant| live.vip(tenant));
    writeln!(text, "  {} ip -6 route show {vip}", enter("edge")?)?;
    let frr = live.frr("edge")?.dir();
    writeln!(text, "  vtysh --vty_socket {} -c 'show bgp ipv6 unicast summary'", frr.display())?;
    writeln!(text, "the gateways")?;
    for n in 1..=live.region.gateways {
        let gateway = live.gateway(n)?;
        let pins = gateway.bpffs()?.join("weir");
        let dir = gateway.dir();
        writeln!(text, "  {weir} show vips --pins {}", pins.display())?;
        writeln!(text, "  {weir} show node --admin {}", dir.join("admin.sock").display())?;
        writeln!(
            text,
            "  configuration {}   objects, watched {}",
            dir.join("weir.yaml").display(),
            dir.join("objects.d").display()
        )?;
    }
    writeln!(text, "logs\n  {}", live.lab.logs().display())?;
    writeln!(text, "take it down\n  cargo run -p labkit -- clean {lab}")?;
    Ok(text)
}

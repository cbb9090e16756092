//! Places a VIP on a backend: an address on `lo` inside the endpoint's network namespace, verified before it counts.
//!
//! A backend without IPv4 of its own also gets an IPv4 default route through its IPv6 router (RFC 5549's next hop).

use std::fs::File;
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::TryStreamExt as _;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressAttribute, AddressFlags};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType, RouteVia,
};
use nix::net::if_::if_nametoindex;
use nix::sched::{CloneFlags, setns};
use rtnetlink::{Handle, LinkUnspec};

/// Bit of `placed`: the worker added the address.
pub const ADDRESS: u8 = 1;
/// Bit of `placed`: the worker added the IPv4 default route.
pub const ROUTE: u8 = 2;

/// How long the kernel may take to answer for an address that it has taken.
const WITHIN: Duration = Duration::from_secs(3);

/// Why a VIP could not be placed or removed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such namespace, or not one.
    #[error("enter network namespace {}: {cause}; correct spec.networkNamespace", path.display())]
    Enter {
        /// The path.
        path: PathBuf,
        /// The kernel's answer.
        cause: std::io::Error,
    },
    /// The path leads to the node's own namespace.
    #[error("place {vip} in {}: it is this node's own network namespace; correct spec.networkNamespace", path.display())]
    Own {
        /// The path.
        path: PathBuf,
        /// The VIP.
        vip: IpAddr,
    },
    /// Netlink refused.
    #[error("{operation} {vip} in {}: {cause}", path.display())]
    Netlink {
        /// What was tried.
        operation: &'static str,
        /// The path.
        path: PathBuf,
        /// The VIP.
        vip: IpAddr,
        /// The kernel's answer.
        cause: String,
    },
    /// The kernel took it and does not answer for it.
    #[error("place {vip} in {}: the address is not in effect after {WITHIN:?}", path.display())]
    NotInEffect {
        /// The path.
        path: PathBuf,
        /// The VIP.
        vip: IpAddr,
    },
}

/// A namespace and an address in it.
struct Site<'a> {
    path: &'a Path,
    vip: IpAddr,
}

impl Site<'_> {
    fn netlink(&self, operation: &'static str) -> impl FnOnce(rtnetlink::Error) -> Error {
        let (path, vip) = (self.path.to_path_buf(), self.vip);
        move |cause| Error::Netlink { operation, path, vip, cause: cause.to_string() }
    }

    /// Runs netlink requests inside the namespace, on a thread of its own.
    fn run<T: Send>(&self, f: impl AsyncFnOnce(Handle) -> Result<T, Error> + Send) -> Result<T, Error> {
        let enter = |cause: std::io::Error| Error::Enter { path: self.path.into(), cause };
        let file = File::open(self.path).map_err(enter)?;
        let (there, here) =
            (file.metadata().map_err(enter)?, std::fs::metadata("/proc/self/ns/net").map_err(enter)?);
        if (there.dev(), there.ino()) == (here.dev(), here.ino()) {
            return Err(Error::Own { path: self.path.into(), vip: self.vip });
        }
        let work = || {
            setns(&file, CloneFlags::CLONE_NEWNET).map_err(|e| enter(e.into()))?;
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(enter)?;
            runtime.block_on(async {
                let (connection, handle, _) = rtnetlink::new_connection().map_err(enter)?;
                let connection = tokio::spawn(connection);
                let done = f(handle).await;
                connection.abort();
                done
            })
        };
        std::thread::scope(|scope| {
            let thread = scope.spawn(work);
            thread.join().unwrap_or_else(|_| Err(enter(std::io::Error::other("the thread inside it failed"))))
        })
    }
}

/// Places a VIP and waits until the kernel answers for it. Gives what was added: nothing when it was there already.
///
/// # Errors
/// Why it is not in effect.
pub fn place(path: &Path, vip: IpAddr) -> Result<u8, Error> {
    let site = Site { path, vip };
    site.run(async |handle: Handle| {
        let mut placed = 0;
        let lo = if_nametoindex("lo").map_err(|e| Error::Enter { path: path.into(), cause: e.into() })?;
        if !local(&site, &handle).await? {
            let up = LinkUnspec::new_with_index(lo).up().build();
            handle.link().change(up).execute().await.map_err(site.netlink("bring lo up for"))?;
            let mut request = handle.address().add(lo, vip, if vip.is_ipv4() { 32 } else { 128 });
            if vip.is_ipv6() {
                request.message_mut().attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
            }
            request.execute().await.map_err(site.netlink("place"))?;
            placed |= ADDRESS;
        }
        if vip.is_ipv4() && !has_default(&site, &handle, AddressFamily::Inet).await? {
            placed |= default_through_ipv6(&site, &handle).await?;
        }
        let deadline = tokio::time::Instant::now() + WITHIN;
        while !local(&site, &handle).await? {
            if tokio::time::Instant::now() >= deadline {
                return Err(Error::NotInEffect { path: path.into(), vip });
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(placed)
    })
}

/// Device and inode of a namespace: another one at the same path has others.
///
/// # Errors
/// When the path leads nowhere.
pub fn namespace_id(path: &Path) -> Result<(u64, u64), Error> {
    let of = std::fs::metadata(path).map_err(|cause| Error::Enter { path: path.into(), cause })?;
    Ok((of.dev(), of.ino()))
}

/// Takes away what [`place`] added. A namespace that is gone has taken it along.
///
/// # Errors
/// What the kernel refused.
pub fn remove(path: &Path, vip: IpAddr, placed: u8) -> Result<(), Error> {
    let site = Site { path, vip };
    let done = site.run(async |handle: Handle| {
        if placed & ADDRESS != 0 {
            let mut held = handle.address().get().set_address_filter(vip).execute();
            while let Some(message) = held.try_next().await.map_err(site.netlink("look for"))? {
                handle.address().del(message).execute().await.map_err(site.netlink("remove"))?;
            }
        }
        if placed & ROUTE != 0 {
            let routes = handle.route().get(query(AddressFamily::Inet)).execute();
            let routes: Vec<RouteMessage> =
                routes.try_collect().await.map_err(site.netlink("read routes for"))?;
            let ours = |r: &&RouteMessage| {
                is_default(r)
                    && r.attributes.iter().any(|a| matches!(a, RouteAttribute::Via(RouteVia::Inet6(_))))
            };
            if let Some(route) = routes.iter().find(ours) {
                handle
                    .route()
                    .del(route.clone())
                    .execute()
                    .await
                    .map_err(site.netlink("remove the route for"))?;
            }
        }
        Ok(())
    });
    match done {
        Err(Error::Enter { cause, .. }) if cause.kind() == std::io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

fn query(family: AddressFamily) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family;
    message
}

fn is_default(route: &RouteMessage) -> bool {
    route.header.destination_prefix_length == 0
        && route.header.kind == RouteType::Unicast
        && route.header.table == RouteHeader::RT_TABLE_MAIN
}

/// The kernel delivers the VIP locally: it adds the local route of an IPv6 address a moment after the address.
async fn local(site: &Site<'_>, handle: &Handle) -> Result<bool, Error> {
    let family = if site.vip.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let wanted = match site.vip {
        IpAddr::V4(a) => RouteAddress::Inet(a),
        IpAddr::V6(a) => RouteAddress::Inet6(a),
    };
    let mut routes = handle.route().get(query(family)).execute();
    while let Some(route) = routes.try_next().await.map_err(site.netlink("look for"))? {
        let ours = |a: &RouteAttribute| matches!(a, RouteAttribute::Destination(to) if *to == wanted);
        if route.header.kind == RouteType::Local && route.attributes.iter().any(ours) {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn has_default(site: &Site<'_>, handle: &Handle, family: AddressFamily) -> Result<bool, Error> {
    let routes = handle.route().get(query(family)).execute();
    let routes: Vec<RouteMessage> = routes.try_collect().await.map_err(site.netlink("read routes for"))?;
    Ok(routes.iter().any(is_default))
}

/// An IPv4 default route through the router that IPv6 uses; 0 when there is none, which is the endpoint's own choice.
async fn default_through_ipv6(site: &Site<'_>, handle: &Handle) -> Result<u8, Error> {
    let routes = handle.route().get(query(AddressFamily::Inet6)).execute();
    let routes: Vec<RouteMessage> = routes.try_collect().await.map_err(site.netlink("read routes for"))?;
    let router = |route: &RouteMessage| {
        let mut via: Option<Ipv6Addr> = None;
        let mut device = None;
        for attribute in &route.attributes {
            match attribute {
                RouteAttribute::Gateway(RouteAddress::Inet6(address)) => via = Some(*address),
                RouteAttribute::Oif(index) => device = Some(*index),
                _ => {}
            }
        }
        Some((via?, device?))
    };
    let Some((via, device)) = routes.iter().filter(|r| is_default(r)).find_map(router) else { return Ok(0) };
    let mut message = query(AddressFamily::Inet);
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Static;
    message.header.scope = RouteScope::Universe;
    message.header.kind = RouteType::Unicast;
    message.attributes = vec![RouteAttribute::Via(RouteVia::Inet6(via)), RouteAttribute::Oif(device)];
    handle.route().add(message).execute().await.map_err(site.netlink("add an IPv4 default route for"))?;
    Ok(ROUTE)
}

/// MTU of an interface of the calling thread's namespace, in bytes.
pub async fn mtu(interface: &str) -> Option<u32> {
    use netlink_packet_route::link::LinkAttribute;
    let index = if_nametoindex(interface).ok()?;
    let (connection, handle, _) = rtnetlink::new_connection().ok()?;
    let connection = tokio::spawn(connection);
    let link = handle.link().get().match_index(index).execute().try_next().await.ok().flatten();
    connection.abort();
    link?.attributes.into_iter().find_map(|a| match a {
        LinkAttribute::Mtu(mtu) => Some(mtu),
        _ => None,
    })
}

/// Index of an interface of the calling thread's namespace.
pub fn ifindex(interface: &str) -> Option<u32> {
    if_nametoindex(interface).ok()
}

//! Links, addresses, routes and rules of a namespace, by rtnetlink from a thread inside it.

mod convert;
mod snapshot;

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use ipnet::IpNet;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{InfoData, InfoKind, InfoVeth, LinkAttribute, LinkXdp, State};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::net::if_::if_nametoindex;
use rtnetlink::packet_core::NetlinkPayload;
use rtnetlink::{Handle, LinkMessageBuilder, LinkUnspec, LinkVeth, MulticastGroup};

use crate::error::{Error, Result};
use crate::lab::MAIN_TABLE;
use crate::netns::Netns;
use crate::topology::{Route, Rule};
use crate::wait::patiently;

pub use snapshot::Snapshot;

/// `XDP_FLAGS_DRV_MODE` (`include/uapi/linux/if_link.h`): native XDP or an error.
const XDP_NATIVE: u32 = 1 << 2;

/// Longest wait for what the kernel does a moment after it was asked.
const EFFECT_WITHIN: Duration = Duration::from_secs(5);

/// One end of a veth pair to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VethEnd<'a> {
    /// Namespace the end is created in.
    pub(crate) ns: &'a Netns,
    /// Interface name.
    pub(crate) interface: &'a str,
    /// Its MAC address.
    pub(crate) mac: [u8; 6],
    /// Its index. The two ends' must differ: an interface with the index of its peer looks to the kernel like one with none,
    /// and it then takes up to a second to act on a change of carrier (`linkwatch_urgent_event`, net/core/link_watch.c).
    pub(crate) index: u32,
}

/// A netlink connection of one namespace. It lives and is used only inside [`Netlink::with`].
#[derive(Debug)]
pub struct Netlink {
    handle: Handle,
    namespace: String,
}

impl Netlink {
    /// Connects inside the namespace, runs `f`, and closes.
    pub fn with<T: Send>(ns: &Netns, f: impl AsyncFnOnce(&Self) -> Result<T> + Send) -> Result<T> {
        ns.block_on(async || {
            let (connection, handle, _) = rtnetlink::new_connection()
                .map_err(|e| Error::system("open netlink socket in network namespace", ns.name(), e))?;
            let connection = tokio::spawn(connection);
            let result = f(&Self { handle, namespace: ns.name().into() }).await;
            connection.abort();
            result
        })?
    }

    fn object(&self, what: impl std::fmt::Display) -> String {
        format!("{what} in {}", self.namespace)
    }

    /// Index of an interface of this namespace; the calling thread must be inside it.
    fn index(&self, interface: &str) -> Result<u32> {
        if_nametoindex(interface)
            .map_err(|errno| Error::system("find interface", self.object(interface), errno))
    }

    /// Makes a veth pair, each end directly in its namespace, down. This connection must be in the namespace of `near`.
    pub(crate) async fn add_veth(&self, near: VethEnd<'_>, far: VethEnd<'_>, mtu: u32) -> Result<()> {
        let peer = LinkMessageBuilder::<LinkUnspec>::new()
            .index(far.index)
            .name(far.interface)
            .mtu(mtu)
            .address(far.mac.to_vec())
            .setns_by_fd(far.ns.raw_fd())
            .build();
        let message = LinkMessageBuilder::<LinkVeth>::new_with_info_kind(InfoKind::Veth)
            .index(near.index)
            .name(near.interface)
            .mtu(mtu)
            .address(near.mac.to_vec())
            .set_info_data(InfoData::Veth(InfoVeth::Peer(peer)))
            .build();
        self.handle.link().add(message).execute().await.map_err(|cause| {
            Error::netlink(
                "create link",
                format!("{}:{} to {}:{}", near.ns.name(), near.interface, far.ns.name(), far.interface),
                cause,
            )
        })
    }

    async fn change_link(
        &self,
        operation: &'static str,
        interface: &str,
        change: impl FnOnce(LinkMessageBuilder<LinkUnspec>) -> LinkMessageBuilder<LinkUnspec>,
    ) -> Result<()> {
        let message = change(LinkUnspec::new_with_index(self.index(interface)?)).build();
        self.handle
            .link()
            .change(message)
            .execute()
            .await
            .map_err(|cause| Error::netlink(operation, self.object(interface), cause))
    }

    /// Sets an interface up.
    pub async fn set_up(&self, interface: &str) -> Result<()> {
        self.change_link("set link up", interface, LinkMessageBuilder::up).await
    }

    /// Sets an interface down: its routes go, and so do its IPv6 addresses.
    pub async fn set_down(&self, interface: &str) -> Result<()> {
        self.change_link("set link down", interface, LinkMessageBuilder::down).await
    }

    /// Sets an interface's MTU in bytes.
    pub async fn set_mtu(&self, interface: &str, mtu: u32) -> Result<()> {
        self.change_link("set MTU of", interface, |link| link.mtu(mtu)).await
    }

    /// Reads one attribute of an interface.
    async fn link_attribute<T>(
        &self,
        operation: &'static str,
        interface: &str,
        pick: impl Fn(&LinkAttribute) -> Option<T>,
    ) -> Result<T> {
        let index = self.index(interface)?;
        let found = self.handle.link().get().match_index(index).execute().try_next().await;
        let link = found.map_err(|cause| Error::netlink(operation, self.object(interface), cause))?;
        link.and_then(|link| link.attributes.iter().find_map(pick)).ok_or_else(|| Error::Answer {
            operation,
            object: self.object(interface),
            problem: "the kernel does not say".into(),
        })
    }

    /// Reads an interface's MTU in bytes.
    pub async fn mtu(&self, interface: &str) -> Result<u32> {
        self.link_attribute("read MTU of", interface, |a| match a {
            LinkAttribute::Mtu(mtu) => Some(*mtu),
            _ => None,
        })
        .await
    }

    /// Whether an interface is up and has a carrier, so that it transmits.
    pub async fn is_operational(&self, interface: &str) -> Result<bool> {
        self.link_attribute("read state of", interface, |a| match a {
            LinkAttribute::OperState(state) => Some(*state == State::Up),
            _ => None,
        })
        .await
    }

    /// Waits until an interface is operational: the kernel acts on a change of carrier a moment later, and until then it drops
    /// what is sent.
    pub async fn wait_operational(&self, interface: &str) -> Result<()> {
        let deadline = tokio::time::Instant::now() + patiently(EFFECT_WITHIN);
        while !self.is_operational(interface).await? {
            if tokio::time::Instant::now() >= deadline {
                return Err(Error::Timeout {
                    what: format!("carrier of {}", self.object(interface)),
                    within: patiently(EFFECT_WITHIN),
                    last: "the interface is not operational; is its other end up?".into(),
                });
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    /// Attaches a loaded XDP program to an interface, natively; it stays until the interface goes.
    pub(crate) async fn set_xdp(&self, interface: &str, program: i32) -> Result<()> {
        self.change_link("attach pass-through XDP program to", interface, |link| {
            link.append_extra_attribute(LinkAttribute::Xdp(vec![
                LinkXdp::Fd(program),
                LinkXdp::Flags(XDP_NATIVE),
            ]))
        })
        .await
    }

    /// Adds an address, without duplicate address detection, and waits until the host answers to it.
    pub async fn add_address(&self, interface: &str, address: IpNet) -> Result<()> {
        self.request_address(interface, address).await?;
        self.wait_local(&[address.addr()]).await
    }

    /// Adds an address; an IPv6 one takes effect a moment later, see [`Netlink::wait_local`].
    pub(crate) async fn request_address(&self, interface: &str, address: IpNet) -> Result<()> {
        let mut request =
            self.handle.address().add(self.index(interface)?, address.addr(), address.prefix_len());
        if address.addr().is_ipv6() {
            request.message_mut().attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        request.execute().await.map_err(|cause| {
            Error::netlink("add address", self.object(format!("{address} to {interface}")), cause)
        })
    }

    /// Waits until the kernel delivers these addresses locally. It adds the local route of an IPv6 address from a work queue
    /// (`addrconf_dad_work`, net/ipv6/addrconf.c); until then the address is there but nobody answers to it.
    pub(crate) async fn wait_local(&self, addresses: &[IpAddr]) -> Result<()> {
        let deadline = tokio::time::Instant::now() + patiently(EFFECT_WITHIN);
        loop {
            let mut local = HashSet::new();
            for query in convert::route_queries() {
                let messages = self.handle.route().get(query).execute().try_collect::<Vec<_>>().await;
                let messages = messages
                    .map_err(|cause| Error::netlink("read routes", self.object("local table"), cause))?;
                local.extend(messages.iter().filter_map(convert::local_address));
            }
            let Some(missing) = addresses.iter().find(|address| !local.contains(address)) else {
                return Ok(());
            };
            if tokio::time::Instant::now() >= deadline {
                return Err(Error::Timeout {
                    what: format!("effect of address {}", self.object(missing)),
                    within: patiently(EFFECT_WITHIN),
                    last: "no local route; is its interface up?".into(),
                });
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Removes an address.
    pub async fn del_address(&self, interface: &str, address: IpNet) -> Result<()> {
        let mut message = AddressMessage::default();
        message.header.index = self.index(interface)?;
        message.header.prefix_len = address.prefix_len();
        message.header.family =
            if address.addr().is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        message.attributes.push(AddressAttribute::Local(address.addr()));
        self.handle.address().del(message).execute().await.map_err(|cause| {
            Error::netlink("remove address", self.object(format!("{address} from {interface}")), cause)
        })
    }

    /// Addresses of an interface in the kernel's order, link-local ones included.
    pub async fn addresses(&self, interface: &str) -> Result<Vec<IpNet>> {
        let index = self.index(interface)?;
        let messages: Vec<AddressMessage> = self
            .handle
            .address()
            .get()
            .set_link_index_filter(index)
            .execute()
            .try_collect()
            .await
            .map_err(|cause| Error::netlink("read addresses", self.object(interface), cause))?;
        Ok(messages
            .iter()
            .filter_map(|message| {
                let address: IpAddr = message.attributes.iter().find_map(|a| match a {
                    AddressAttribute::Address(address) => Some(*address),
                    _ => None,
                })?;
                IpNet::new(address, message.header.prefix_len).ok()
            })
            .collect())
    }

    /// Adds a route.
    pub async fn add_route(&self, route: &Route) -> Result<()> {
        let message = convert::route_message(route, |interface| self.index(interface))?;
        self.handle
            .route()
            .add(message)
            .execute()
            .await
            .map_err(|cause| Error::netlink("add route", self.object(route), cause))
    }

    /// Adds a route, or takes the place of the one to the same destination.
    pub async fn replace_route(&self, route: &Route) -> Result<()> {
        let message = convert::route_message(route, |interface| self.index(interface))?;
        self.handle
            .route()
            .add(message)
            .replace()
            .execute()
            .await
            .map_err(|cause| Error::netlink("replace route", self.object(route), cause))
    }

    /// Removes a route.
    pub async fn del_route(&self, route: &Route) -> Result<()> {
        let mut message = convert::route_message(route, |interface| self.index(interface))?;
        // Any protocol: FRR's routes can be removed like those of the lab.
        message.header.protocol = netlink_packet_route::route::RouteProtocol::Unspec;
        self.handle
            .route()
            .del(message)
            .execute()
            .await
            .map_err(|cause| Error::netlink("remove route", self.object(route), cause))
    }

    /// Routes of both families in a table: what forwards or refuses, not the kernel's own local and multicast ones.
    /// Encapsulations are left out.
    pub async fn routes(&self, table: u32) -> Result<Vec<Route>> {
        let mut routes = Vec::new();
        for query in convert::route_queries() {
            let messages = self.handle.route().get(query).execute().try_collect::<Vec<_>>().await;
            let messages =
                messages.map_err(|cause| Error::netlink("read routes", self.object("table"), cause))?;
            routes.extend(messages.iter().filter_map(|message| convert::route_from_message(message, table)));
        }
        Ok(routes)
    }

    /// Adds a policy rule.
    pub async fn add_rule(&self, rule: &Rule) -> Result<()> {
        let mut request = self.handle.rule().add();
        *request.message_mut() = convert::rule_message(rule);
        request.execute().await.map_err(|cause| Error::netlink("add rule", self.object(rule), cause))
    }

    /// Calls `heard` for every change of the namespace's main table that the kernel tells of, until the returned task is aborted.
    pub(crate) fn watch_routes(
        ns: &Netns,
        mut heard: impl FnMut(RouteChange, Route) + Send + 'static,
    ) -> Result<tokio::task::AbortHandle> {
        let failed = |e: std::io::Error| Error::system("watch routes in network namespace", ns.name(), e);
        let (listening, is_listening) = std::sync::mpsc::channel();
        let task = ns.spawn(async move {
            let groups = [MulticastGroup::Ipv6Route, MulticastGroup::Ipv4Route];
            let mut messages = match rtnetlink::new_multicast_connection(&groups) {
                Ok((connection, _, messages)) => {
                    tokio::spawn(connection);
                    // Nobody waits any more when the caller is gone; the next abort ends this.
                    let _ = listening.send(Ok(()));
                    messages
                }
                Err(e) => {
                    let _ = listening.send(Err(e));
                    return;
                }
            };
            while let Some((message, _)) = messages.next().await {
                let (change, message) = match message.payload {
                    NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(route)) => {
                        (RouteChange::Added, route)
                    }
                    NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelRoute(route)) => {
                        (RouteChange::Removed, route)
                    }
                    _ => continue,
                };
                if let Some(route) = convert::route_from_message(&message, MAIN_TABLE) {
                    heard(change, route);
                }
            }
        })?;
        is_listening.recv().unwrap_or_else(|_| Err(std::io::ErrorKind::BrokenPipe.into())).map_err(failed)?;
        Ok(task.abort_handle())
    }
}

/// What happened to a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteChange {
    /// It is new, or took the place of one to the same destination.
    Added,
    /// It is gone.
    Removed,
}

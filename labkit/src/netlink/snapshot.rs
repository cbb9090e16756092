//! What goes with an interface that is set down, and puts it back.

use futures_util::TryStreamExt;
use ipnet::IpNet;
use netlink_packet_route::route::{
    RouteAttribute, RouteFlags, RouteMessage, RouteNextHopFlags, RouteProtocol,
};

use super::{Netlink, convert};
use crate::error::{Error, Result};

/// Addresses and static routes of an interface.
#[derive(Debug)]
pub struct Snapshot {
    addresses: Vec<IpNet>,
    routes: Vec<RouteMessage>,
}

impl Netlink {
    /// Notes what an interface holds: addresses but link-local ones, and static routes, of every table, that use it.
    pub async fn snapshot(&self, interface: &str) -> Result<Snapshot> {
        let index = self.index(interface)?;
        let mut addresses = self.addresses(interface).await?;
        addresses.retain(|address| !matches!(address, IpNet::V6(net) if net.addr().is_unicast_link_local()));
        let mut routes = Vec::new();
        for query in convert::route_queries() {
            let messages = self.handle.route().get(query).execute().try_collect::<Vec<_>>().await;
            let messages =
                messages.map_err(|cause| Error::netlink("read routes", self.object(interface), cause))?;
            routes.extend(messages.into_iter().filter(|m| is_static(m) && uses(m, index)).map(as_new));
        }
        Ok(Snapshot { addresses, routes })
    }

    /// Puts back what is missing of a snapshot.
    pub async fn restore(&self, interface: &str, snapshot: &Snapshot) -> Result<()> {
        let there = self.addresses(interface).await?;
        for address in snapshot.addresses.iter().filter(|address| !there.contains(address)) {
            self.add_address(interface, *address).await?;
        }
        for route in &snapshot.routes {
            let request = self.handle.route().add(route.clone()).replace();
            request
                .execute()
                .await
                .map_err(|cause| Error::netlink("put back route", self.object(interface), cause))?;
        }
        Ok(())
    }
}

fn is_static(message: &RouteMessage) -> bool {
    matches!(message.header.protocol, RouteProtocol::Static | RouteProtocol::Boot)
}

fn uses(message: &RouteMessage, index: u32) -> bool {
    message.attributes.iter().any(|attribute| match attribute {
        RouteAttribute::Oif(oif) => *oif == index,
        RouteAttribute::MultiPath(hops) => hops.iter().any(|hop| hop.interface_index == index),
        _ => false,
    })
}

/// A route as the kernel tells of it, made fit for adding it: without state.
fn as_new(mut message: RouteMessage) -> RouteMessage {
    message.header.flags = RouteFlags::empty();
    message.attributes.retain(|attribute| {
        !matches!(
            attribute,
            RouteAttribute::CacheInfo(_) | RouteAttribute::Preference(_) | RouteAttribute::Expires(_)
        )
    });
    for attribute in &mut message.attributes {
        if let RouteAttribute::MultiPath(hops) = attribute {
            for hop in hops {
                hop.flags &= RouteNextHopFlags::Onlink;
            }
        }
    }
    message
}

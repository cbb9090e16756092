//! Full-size segments fit, both ways, over a fabric no wider than the internet.

use std::time::Duration;

use labkit::expect::expect;
use labkit::packet::matcher::{self, Matcher};
use labkit::traffic::Connection;
use scenarios::region::{A, Live, Region, SOON};
use weir_bpf::abi::Reason;

use super::region;

/// A SYN, or SYN ACK, with this MSS.
fn syn(mss: u16) -> Matcher {
    matcher::tcp("a SYN with the MSS", move |tcp| {
        tcp.flags & 2 != 0 && tcp.options.windows(4).any(|w| w == [&[2, 4], &mss.to_be_bytes()[..]].concat())
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn full_size_segments_fit_over_a_fabric_of_1500_bytes() {
    let live = Live::ready("wsizes", Region { fabric_mtu: 1500, ..region(1) }).unwrap();
    let client = live.node("client").unwrap();
    let at_client = live.capture("client", "eth0").unwrap();
    let before = live.reasons(1).unwrap();
    let mut connection = Connection::open(&client, live.service(A)).await.unwrap();
    connection.transfer(1 << 20, Duration::from_secs(20)).await.unwrap();
    // What the pod offers is lowered to what a gateway can encapsulate: 1500 - 40 - 60.
    expect(&at_client).within(SOON).packet(syn(1400).and(matcher::right_checksums())).unwrap();
    let after = live.reasons(1).unwrap();
    for reason in [Reason::PacketTooBig, Reason::TooBigSilent, Reason::RateLimited] {
        assert_eq!(after[&reason], before[&reason], "{}: nothing was too big", reason.name());
    }
    assert_eq!(connection.retransmissions().unwrap(), 0);
}

//! An uplink whose frames carry VLAN tags: the program on the parent interface serves them.

use labkit::expect::expect;
use labkit::packet::{flags, matcher};
use scenarios::region::{A, Live, PORT, Region, SOON};

use super::client_and_vip;

#[tokio::test(flavor = "multi_thread")]
async fn tagged_frames_of_an_uplink_are_served_and_answered_with_their_tags() {
    let live = Live::ready("vlan", Region { gateways: 1, ..Region::default() }).unwrap();
    let (client, vip) = client_and_vip(&live, A);
    let edge = live.sender("edge", "eth1").unwrap();
    let (uplink, fabric) = (live.capture("edge", "eth1").unwrap(), live.capture("spine", "eth1").unwrap());

    for (port, tags) in [(50_001_u16, 1), (50_002, 2)] {
        let frame = edge.frame().vlan(100);
        let frame = if tags == 2 { frame.vlan(200) } else { frame };
        let tagged = frame.ipv6(client, vip).tcp(port, PORT).flags(flags::SYN);
        let bytes = edge.send(&tagged).unwrap();
        // The fabric sees the packet, and none of the uplink's tags.
        let inner = bytes[14 + 4 * tags..].to_vec();
        let out = expect(&fabric).within(SOON).packet(matcher::inner_exactly(&inner)).unwrap();
        assert_eq!(out.bytes[12..14], [0x86, 0xdd], "untagged");
    }
    let ping = edge.frame().vlan(100).ipv6(client, vip).echo_request(9, 1);
    edge.send(&ping).unwrap();
    let reply = expect(&uplink).within(SOON).packet(matcher::icmp_type(129)).unwrap();
    assert_eq!(reply.bytes[12..16], [0x81, 0, 0, 100], "the answer goes back into the VLAN it came from");
}

//! Step 1 and 2: the frame and the fixed header.

use weir_bpf::abi::Reason;

use super::super::build::{ACK, FROM, SYN, TO, cut, ethernet, frame, ip, tagged};
use super::super::world::{CLIENT, Ingress, VIP_A};
use super::{Of, Table};

const WEB: Of<'static> = Of { rule: "web", client: CLIENT, port: 40001 };
const TAG: [u8; 4] = [0x81, 0x00, 0x20, 0x05];
const SERVICE_TAG: [u8; 4] = [0x88, 0xa8, 0x0f, 0xff];

pub(super) fn add(table: &mut Table<'_>) {
    let packet = ip(CLIENT, VIP_A).tcp((40001, 443), ACK, b"hello");
    let whole = frame(&packet);

    table.left("frame: nothing", Vec::new(), Reason::Malformed);
    table.left("frame: 13 bytes", cut(whole.clone(), 13), Reason::Malformed);
    table.left("frame: link header alone", cut(whole.clone(), 14), Reason::Malformed);
    table.left("frame: one byte of IPv6", cut(whole.clone(), 15), Reason::Malformed);
    table.left("frame: IPv6 header short by one", cut(whole.clone(), 14 + 39), Reason::Malformed);
    table.left(
        "frame: short and to a group",
        cut(ethernet([1; 6], FROM, &[], 0x86dd, &[]), 13),
        Reason::Malformed,
    );

    let to = |mac| ethernet(mac, FROM, &[], 0x86dd, &packet);
    table.left("mac: IPv6 multicast", to([0x33, 0x33, 0, 0, 0, 1]), Reason::NotForHost);
    table.left("mac: broadcast", to([0xff; 6]), Reason::NotForHost);
    table.left("mac: group bit alone", to([0x01, 0, 0, 0, 0, 0]), Reason::NotForHost);
    table.left(
        "mac: group before ethertype",
        ethernet([0xff; 6], FROM, &[], 0x0806, &[0; 28]),
        Reason::NotForHost,
    );
    // A group bit in the source is not looked at; 0xfe as destination has every bit but the group's.
    let odd_macs = ethernet([0xfe; 6], [0xff; 6], &[], 0x86dd, &packet);
    let expect = table.to_backend(Ingress::Uplink, WEB, &packet, &[], Reason::Forwarded);
    table.add("mac: all but the group bit", Ingress::Uplink, odd_macs, expect);

    let not_ip = |ethertype| ethernet(TO, FROM, &[], ethertype, &packet);
    table.left("ethertype: ARP", not_ip(0x0806), Reason::NotIp);
    table.left("ethertype: LLDP", not_ip(0x88cc), Reason::NotIp);
    table.left("ethertype: 802.3 length", not_ip(46), Reason::NotIp);
    table.left("ethertype: bytes swapped", not_ip(0xdd86), Reason::NotIp);
    table.left("ethertype: IPv4 with IPv6 behind", not_ip(0x0800), Reason::Malformed);
    table.left("ethertype: IPv4, nothing after", ethernet(TO, FROM, &[], 0x0800, &[]), Reason::Malformed);
    table.left(
        "ethertype: IPv4 tagged, IPv6 behind",
        ethernet(TO, FROM, &[TAG], 0x0800, &packet),
        Reason::Malformed,
    );
    table.left(
        "ethertype: ARP tagged twice",
        ethernet(TO, FROM, &[TAG, TAG], 0x0806, &packet),
        Reason::NotIp,
    );

    for (name, tags) in [
        ("vlan: one tag", &[TAG][..]),
        ("vlan: one service tag", &[SERVICE_TAG]),
        ("vlan: service and customer tag", &[SERVICE_TAG, TAG]),
        ("vlan: two equal tags", &[TAG, TAG]),
    ] {
        let expect = table.to_backend(Ingress::Uplink, WEB, &packet, &[], Reason::Forwarded);
        table.add(name, Ingress::Uplink, tagged(tags, &packet), expect);
    }
    table.left("vlan: three tags", tagged(&[SERVICE_TAG, TAG, TAG], &packet), Reason::Malformed);
    table.left("vlan: tag cut", cut(tagged(&[TAG], &packet), 16), Reason::Malformed);
    table.left("vlan: tag cut in the ethertype", cut(tagged(&[TAG], &packet), 17), Reason::Malformed);
    table.left("vlan: second tag cut", cut(tagged(&[TAG, TAG], &packet), 21), Reason::Malformed);
    table.left("vlan: nothing after the tag", cut(tagged(&[TAG], &packet), 18), Reason::Malformed);

    for (name, first) in
        [("version: 4", 0x45), ("version: 7", 0x70), ("version: 0", 0x00), ("version: 14", 0xe0)]
    {
        let mut wrong = ip(CLIENT, VIP_A).tcp((40001, 443), SYN, &[]);
        wrong[0] = first;
        table.left(name, frame(&wrong), Reason::Malformed);
    }
}

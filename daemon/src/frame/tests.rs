//! Frames built, decoded, written and read again.

use std::net::IpAddr;
use std::time::Duration;

use super::*;

fn ends(client: &str, vip: &str, transport: Transport) -> Endpoints {
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    Endpoints { client: address(client), client_port: 40_000, vip: address(vip), port: 443, transport }
}

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];

fn names(layers: &[Layer]) -> Vec<&str> {
    layers.iter().map(|layer| layer.name.as_str()).collect()
}

#[test]
fn a_built_packet_decodes_to_what_was_asked_for_with_right_checksums() {
    for (client, vip, ip) in
        [("2001:db8:c::7", "2001:db8:100::1", "IPv6"), ("192.0.2.7", "198.51.100.1", "IPv4")]
    {
        for (transport, name) in [(Transport::Tcp, "TCP"), (Transport::Udp, "UDP")] {
            let frame = build(&ends(client, vip, transport), MAC, 600).unwrap();
            assert_eq!(frame.len(), 614, "{ip} {name}");
            let layers = decode(&frame, frame.len());
            assert_eq!(names(&layers), ["Ethernet", ip, name, "payload"]);
            assert_eq!(layers[0].field("destination"), Some("02:00:00:00:00:09"));
            assert_eq!(
                (layers[1].field("source"), layers[1].field("destination")),
                (Some(client), Some(vip))
            );
            assert_eq!(layers[2].field("destination port"), Some("443"));
            assert!(layers[2].field("checksum").unwrap().ends_with("(right)"), "{layers:?}");
        }
    }
    assert!(build(&ends("192.0.2.7", "2001:db8::1", Transport::Tcp), MAC, 0).is_none());
    assert!(build(&ends("192.0.2.7", "192.0.2.8", Transport::Tcp), MAC, 70_000).is_none());
}

#[test]
fn a_wrong_checksum_is_told_with_the_right_one_and_none_is_judged_of_a_cut_frame() {
    let good = build(&ends("2001:db8:c::7", "2001:db8:100::1", Transport::Tcp), MAC, 600).unwrap();
    let right =
        decode(&good, good.len())[2].field("checksum").unwrap().trim_end_matches(" (right)").to_owned();
    let mut bad = good.clone();
    bad[100] ^= 1;
    let told = decode(&bad, bad.len())[2].field("checksum").unwrap().to_owned();
    assert!(told.starts_with(&format!("{right} (WRONG: ")), "{told}");
    let cut = decode(&good[..128], good.len());
    assert_eq!(cut[2].field("checksum"), Some(format!("{right} (not checked)").as_str()));
    let mut v4 = build(&ends("192.0.2.7", "198.51.100.1", Transport::Udp), MAC, 0).unwrap();
    v4[22] ^= 1;
    let layers = decode(&v4, v4.len());
    assert!(layers[1].field("checksum").unwrap().contains("WRONG"), "{layers:?}");
    assert!(layers[2].field("checksum").unwrap().ends_with("(right)"), "{layers:?}");
}

#[test]
fn outer_headers_tags_extensions_and_quotes_are_followed() {
    let inner = build(&ends("2001:db8:c::7", "2001:db8:100::1", Transport::Tcp), MAC, 0).unwrap();
    let outer = |next: u8, payload: &[u8]| {
        let length = (payload.len() as u16).to_be_bytes();
        [&[0x60, 0, 0, 0, length[0], length[1], next, 64][..], &[0x20; 16], &[0x21; 16], payload].concat()
    };
    let frame = [&inner[..12], &[0x81, 0, 0x20, 5, 0x86, 0xdd], &outer(41, &inner[14..])].concat();
    let layers = decode(&frame, frame.len());
    assert_eq!(names(&layers), ["Ethernet", "VLAN", "IPv6", "IPv6", "TCP"]);
    assert_eq!((layers[1].field("priority"), layers[1].field("id")), (Some("1"), Some("5")));
    assert_eq!(layers[4].field("flags"), Some("SYN"));

    let options = [&[6, 0, 1, 4, 0, 0, 0, 0][..], &inner[54..]].concat();
    let frame = [&inner[..14], &outer(60, &options)].concat();
    assert_eq!(names(&decode(&frame, frame.len())), ["Ethernet", "IPv6", "destination options", "TCP"]);

    // A quote that ends behind the ports.
    let error = [&[2, 0, 0, 0, 0, 0, 5, 0x50][..], &inner[14..14 + 44]].concat();
    let frame = [&inner[..14], &outer(58, &error)].concat();
    let layers = decode(&frame, frame.len());
    assert_eq!(names(&layers), ["Ethernet", "IPv6", "ICMPv6", "quoted IPv6", "quoted TCP"]);
    assert_eq!((layers[2].field("type"), layers[2].field("MTU")), (Some("2 (Packet Too Big)"), Some("1360")));
    assert_eq!(layers[4].field("header"), Some("cut after 4 bytes"));
    assert!(layers[2].field("checksum").unwrap().contains("WRONG"));
}

#[test]
fn no_bytes_bring_the_decoder_down() {
    let good = build(&ends("2001:db8:c::7", "2001:db8:100::1", Transport::Tcp), MAC, 200).unwrap();
    let mut seed = 1_u64;
    for round in 0..20_000_usize {
        let mut frame = good[..round % (good.len() + 1)].to_vec();
        for _ in 0..4 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (seed >> 33) as usize % frame.len().max(1);
            if let Some(byte) = frame.get_mut(at) {
                *byte = [0, 4, 6, 17, 41, 43, 44, 58, 60, 0x45, 0xff][(seed >> 20) as usize % 11];
            }
        }
        let decoded = decode(&frame, frame.len() + round % 2);
        assert!(!decoded.is_empty());
    }
}

#[test]
fn hex_dumps_of_common_tools_are_read() {
    let wanted = Some(vec![0x02, 0x00, 0xab, 0xcd, 0x86, 0xdd]);
    for text in [
        "0200abcd86dd",
        "0x0200abcd86dd",
        "02:00:ab:cd:86:dd",
        "02 00 ab cd\n86 dd\n",
        "\t0x0000:  0200 abcd\n\t0x0004:  86dd\n",
        "00000000: 0200 abcd                                ....\n00000004: 86dd  ..\n",
        "0000  02 00 ab cd   ....\n0004  86 dd\n",
    ] {
        assert_eq!(read_hex(text).ok(), wanted, "{text:?}");
    }
    for (text, said) in [("02 0", "3 digits"), ("", "0 digits"), ("zz", "no hexadecimal digit")] {
        let error = read_hex(text).unwrap_err().to_string();
        assert!(error.contains(said) && error.contains("Ethernet header"), "{error}");
    }
}

#[test]
fn a_capture_file_holds_interfaces_directions_and_bytes() {
    let captured = |interface: &str, direction, bytes: Vec<u8>| Captured {
        at: Duration::new(1_700_000_000, 123_456_789),
        interface: Some(interface.into()),
        direction: Some(direction),
        comment: Some("forwarded".into()),
        length: bytes.len() + 3,
        bytes,
    };
    let frames = [
        captured("eth1", Direction::Received, vec![1; 61]),
        captured("eth2", Direction::Sent, vec![2; 100]),
        captured("eth1", Direction::Received, vec![3; 14]),
    ];
    let mut writer = CaptureWriter::new().unwrap();
    let mut file = Vec::new();
    for frame in &frames {
        writer.add(frame).unwrap();
        file.extend(writer.take());
    }
    assert_eq!(read(&file).unwrap(), frames);
    assert!(writer.take().is_empty());
    assert!(read(b"no capture at all, whatever one thinks").unwrap_err().to_string().contains("pcapng"));
}

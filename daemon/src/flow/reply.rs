//! The frames the packet path makes: the outer header, Packet Too Big, the echo reply; and the token bucket that
//! bounds the last two.

use std::net::Ipv6Addr;

use weir_bpf::abi::{Bucket, Config, ENCAP_LEN, NextHop};

use super::FlowHash;
use super::parse::{ICMP, ICMPV6, IPV4_LEN, IPV6_LEN, Ip};

/// Bytes of the packet that a Packet Too Big quotes: 1280 less its own IPv6 and ICMPv6 headers.
const QUOTE_LEN: usize = 1232;
/// Bytes of the packet that an ICMPv4 error quotes: 576 less its own IPv4 and ICMP headers.
const QUOTE_LEN_V4: usize = 548;
const HOP_LIMIT: u8 = 64;
const IN_IPV4: u8 = 4;
const IN_IPV6: u8 = 41;
/// Tokens are counted in billionths.
const TOKEN: u64 = 1_000_000_000;

/// Takes one token from a CPU's bucket; `rate` in tokens a second is also the most it holds. `now_ns` of the same
/// clock as `Bucket::last_ns`.
pub fn take_token(bucket: &mut Bucket, rate: u32, now_ns: u64) -> bool {
    let full = u64::from(rate) * TOKEN;
    let fresh = *bucket == Bucket::default();
    let gained = now_ns.saturating_sub(bucket.last_ns).saturating_mul(u64::from(rate));
    bucket.tokens = if fresh { full } else { bucket.tokens.saturating_add(gained).min(full) };
    bucket.last_ns = now_ns;
    let Some(left) = bucket.tokens.checked_sub(TOKEN) else { return false };
    bucket.tokens = left;
    true
}

/// Fixed header with flow label and traffic class as given (RFC 8200 section 3).
fn header(
    traffic_class: u8,
    flow_label: u32,
    payload_len: u16,
    next_header: u8,
    source: [u8; 16],
    destination: [u8; 16],
) -> [u8; IPV6_LEN] {
    let mut out = [0; IPV6_LEN];
    let first = 6 << 28 | u32::from(traffic_class) << 20 | flow_label;
    out[..4].copy_from_slice(&first.to_be_bytes());
    out[4..6].copy_from_slice(&payload_len.to_be_bytes());
    out[6] = next_header;
    out[7] = HOP_LIMIT;
    out[8..24].copy_from_slice(&source);
    out[24..].copy_from_slice(&destination);
    out
}

/// The encapsulated frame (RFC 2473; RFC 8986 H.Encaps.Red with one segment).
pub(super) fn encapsulate(
    config: &Config,
    inner: Ip<'_>,
    hash: FlowHash,
    sid: [u8; 16],
    hop: &NextHop,
) -> Vec<u8> {
    let mut source = [0; 16];
    source[..8].copy_from_slice(&config.src_hi.to_ne_bytes());
    source[8..].copy_from_slice(&config.src_lo.to_ne_bytes());
    source[14..].copy_from_slice(&hash.source_bits());
    let next = if inner.is_v4() { IN_IPV4 } else { IN_IPV6 };
    let outer =
        header(inner.traffic_class(), hash.flow_label(), inner.stated_len() as u16, next, source, sid);
    let mut out = Vec::with_capacity(14 + ENCAP_LEN as usize + inner.bytes().len());
    out.extend_from_slice(&hop.macs);
    out.extend_from_slice(&[0x86, 0xdd]);
    out.extend_from_slice(&outer);
    out.extend_from_slice(inner.bytes());
    out
}

/// Link header of an answer: MACs swapped, tags kept.
fn turned_link(link: &[u8]) -> Vec<u8> {
    [&link[6..12], &link[..6], &link[12..]].concat()
}

/// An IPv4 header without options, of an atomic datagram (RFC 6864 section 4.1).
fn header_v4(total_len: u16, source: [u8; 4], destination: [u8; 4]) -> [u8; IPV4_LEN] {
    let mut out = [0; IPV4_LEN];
    out[0] = 0x45;
    out[2..4].copy_from_slice(&total_len.to_be_bytes());
    out[6] = 0x40;
    (out[8], out[9]) = (HOP_LIMIT, ICMP);
    out[12..16].copy_from_slice(&source);
    out[16..].copy_from_slice(&destination);
    let sum = !fold(words(&out));
    out[10..12].copy_from_slice(&sum.to_be_bytes());
    out
}

/// Source and destination of an IPv4 packet that answers this one.
fn turned_v4(packet: Ip<'_>) -> ([u8; 4], [u8; 4]) {
    let last = |address: Ipv6Addr| {
        let [.., a, b, c, d] = address.octets();
        [a, b, c, d]
    };
    (last(packet.destination()), last(packet.source()))
}

/// The "fragmentation needed" that answers an IPv4 `packet` (RFC 792, RFC 1191); `mtu` as in [`packet_too_big`].
pub(super) fn fragmentation_needed(link: &[u8], packet: Ip<'_>, mtu: u32) -> Vec<u8> {
    let quote = &packet.bytes()[..QUOTE_LEN_V4.min(packet.bytes().len())];
    let mut message = vec![3, 4, 0, 0];
    message.extend_from_slice(&mtu.to_be_bytes());
    message.extend_from_slice(quote);
    let sum = !fold(words(&message));
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let (source, destination) = turned_v4(packet);
    let ip = header_v4((IPV4_LEN + message.len()) as u16, source, destination);
    [&turned_link(link)[..], &ip, &message].concat()
}

/// The echo reply made in place of an IPv4 request without options.
pub(super) fn echo_reply_v4(link: &[u8], packet: Ip<'_>) -> Vec<u8> {
    let (source, destination) = turned_v4(packet);
    let mut ip = packet.bytes().to_vec();
    ip[..IPV4_LEN].copy_from_slice(&header_v4(packet.stated_len() as u16, source, destination));
    ip[IPV4_LEN] = 0;
    adjust(&mut ip[IPV4_LEN + 2..IPV4_LEN + 4], 0x0800, 0);
    [turned_link(link), ip].concat()
}

/// The Packet Too Big that answers an IPv6 `packet` (RFC 4443 section 3.2); `mtu` is what the client's packets may have.
/// The packet has at least [`QUOTE_LEN`] bytes, since it did not fit a hop of at least 1320.
pub(super) fn packet_too_big(link: &[u8], packet: Ip<'_>, mtu: u32) -> Vec<u8> {
    let quote = &packet.bytes()[..QUOTE_LEN.min(packet.bytes().len())];
    let mut message = vec![2, 0, 0, 0];
    message.extend_from_slice(&mtu.to_be_bytes());
    message.extend_from_slice(quote);
    let sum = icmpv6_checksum(packet.destination(), packet.source(), &message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let ip =
        header(0, 0, message.len() as u16, ICMPV6, packet.destination().octets(), packet.source().octets());
    [&turned_link(link)[..], &ip, &message].concat()
}

/// The echo reply made in place of the request (RFC 4443 section 4.2); `offset` is its ICMPv6 header's.
pub(super) fn echo_reply(link: &[u8], packet: Ip<'_>, offset: usize) -> Vec<u8> {
    let mut ip = packet.bytes().to_vec();
    ip[..4].copy_from_slice(&[0x60, 0, 0, 0]);
    ip[7] = HOP_LIMIT;
    ip[8..24].copy_from_slice(&packet.destination().octets());
    ip[24..40].copy_from_slice(&packet.source().octets());
    ip[offset] = 129;
    // The swapped addresses add up to the same sum.
    adjust(&mut ip[offset + 2..offset + 4], 0x8000, 0x8100);
    [turned_link(link), ip].concat()
}

/// Internet checksum over the pseudo-header (RFC 8200 section 8.1) and a message whose checksum field is 0.
fn icmpv6_checksum(source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> u16 {
    let sum = words(&source.octets())
        + words(&destination.octets())
        + words(&(message.len() as u32).to_be_bytes())
        + u32::from(ICMPV6)
        + words(message);
    !fold(sum)
}

/// A checksum field after one 16-bit word of what it covers has changed (RFC 1624 equation 3).
fn adjust(field: &mut [u8], old: u16, new: u16) {
    let sum = u16::from_be_bytes([field[0], field[1]]);
    let adjusted = u32::from(!sum) + u32::from(!old) + u32::from(new);
    field.copy_from_slice(&(!fold(adjusted)).to_be_bytes());
}

/// Sum of the 16-bit words, not folded.
fn words(bytes: &[u8]) -> u32 {
    bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]))).sum()
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

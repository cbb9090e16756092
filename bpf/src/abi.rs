//! The layout shared by the BPF programs and user space, and the only place where user space states it.
//!
//! Every type here mirrors a C type of `bpf/c/abi.h`; the test `abi_equals_btf` compares names, sizes,
//! offsets and enumerators with the BTF of the compiled object, so a difference cannot ship.

use bytemuck::{Pod, Zeroable};

/// Version of everything in this file: map names, key and value layouts, word packing, reasons.
/// It is part of the directory name under which maps are pinned; a change makes a running gateway fill
/// new maps before it flips to the new program.
pub const LAYOUT_VERSION: u32 = if cfg!(feature = "next-layout") { 0xffff } else { 2 };

/// Version of the root program and its slot array; frozen, since it is shared with other programs' owners.
pub const ROOT_VERSION: u32 = 1;
/// Slots in the root's program array.
pub const ROOT_SLOTS: u32 = 8;
/// Slot of the load balancer.
pub const SLOT_LB: u32 = 0;
/// Slot of an egress program that shares the uplink.
pub const SLOT_EGRESS: u32 = 1;

/// Ring slots in one element of the `rings` array (a 64-byte cache line).
pub const SLOTS_PER_BLOCK: u32 = 16;
/// Index 0 of `backends` and `nexthops` is never used: it says "none".
pub const NONE: u32 = 0;
/// Interned names are padded with zeros to this many bytes.
pub const NAME_LEN: usize = 256;

/// Protocol (IPv6-Frag, 44) of the entries in `vip_index` that lead fragments.
pub const FRAGMENTS: u8 = 44;

/// Interface role bit: internet side.
pub const ROLE_UPLINK: u32 = 1;
/// Interface role bit: SRv6 side.
pub const ROLE_FABRIC: u32 = 2;

/// Bytes of the outer IPv6 header.
pub const ENCAP_LEN: u32 = 40;
/// A next hop with a smaller MTU cannot be signalled to IPv6 clients (1280 + [`ENCAP_LEN`]); IPv4 has the same floor, so that
/// a VIP of one family is not served where the other is not.
pub const MIN_FABRIC_MTU: u32 = 1280 + ENCAP_LEN;

/// Key of `vip_index`. Three kinds of entries are none of a (VIP, protocol, port): port 0 with protocol 0 says "this address is
/// ours"; port 0 with another protocol is a rule of a protocol without ports; protocol [`FRAGMENTS`] leads fragments, and the
/// "port" is the protocol of the datagram that they are parts of.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Pod, Zeroable)]
pub struct VipKey {
    /// Address in network order; IPv4 as `::ffff:a.b.c.d`.
    pub addr: [u8; 16],
    /// Destination port in network order.
    pub port: [u8; 2],
    /// IP protocol number, 0 in the ownership entry, [`FRAGMENTS`] in an entry for fragments.
    pub proto: u8,
    /// Always 0.
    pub pad: u8,
}

/// Key of `reply_sources`: a backend's SID.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Pod, Zeroable)]
pub struct SidBytes {
    /// Network order.
    pub bytes: [u8; 16],
}

/// Element of `rings`: backend indices of [`SLOTS_PER_BLOCK`] consecutive slots.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct RingBlock {
    /// Index into `backends`, or [`NONE`].
    pub slot: [u32; SLOTS_PER_BLOCK as usize],
}

/// Element of `backends`. Immutable once a ring can name it, but for `nh` and `pmtu`, which are flipped by one store.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Backend {
    /// Destination of the outer header, network order.
    pub sid: [u8; 16],
    /// [`pack_nh`]: first index into `nexthops` and how many consecutive ones share the load; 0 when unresolved.
    pub nh: u32,
    /// MTU learned for the path to this SID, bytes of the outer packet; 0 when none was learned.
    pub pmtu: u32,
    /// Reserved, 0.
    pub flags: u32,
    /// Reserved, 0.
    pub pad: u32,
}

/// Element of `nexthops`: immutable once a backend can name it.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct NextHop {
    /// Destination MAC, then source MAC: the first 12 bytes of the frame.
    pub macs: [u8; 12],
    /// Interface to transmit on.
    pub ifindex: u32,
    /// Bytes of the largest outer IP packet this hop takes.
    pub mtu: u32,
    /// Reserved, 0.
    pub flags: u32,
}

/// Element of the per-CPU `vip_counters` and `backend_counters`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Counter {
    /// Packets sent to a backend.
    pub packets: u64,
    /// Bytes of their inner IP packets.
    pub bytes: u64,
}

/// Element of `vip_meta`: what a VIP index stands for. Read by user space only.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct VipMeta {
    /// The key in `vip_index` that leads here.
    pub key: VipKey,
    /// Always 0.
    pub pad: u32,
    /// Interned `namespace/name` of the rule.
    pub rule: u64,
}

/// Value of `ring_meta`, by a region's first slot: what ring the region holds. Read by user space only.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct RingMeta {
    /// Digest of everything the ring was built from; equal inputs have equal rings.
    pub ring_key: [u8; 16],
    /// Digest of class, seed and the identities in the slots, shown to people and compared between gateways.
    pub digest: [u8; 16],
}

/// Element of `backend_meta`: whose SID a backend index holds. Read by user space only.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct BackendMeta {
    /// Backend address inside its VPC; IPv4 as `::ffff:a.b.c.d`.
    pub addr: [u8; 16],
    /// Interned VPC reference; 0 when the index is free.
    pub vpc: u64,
    /// Interned VPC attachment reference.
    pub attachment: u64,
    /// Interned name of the node that holds it.
    pub node: u64,
}

/// Value of `names`: a zero-padded string.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub struct Name {
    /// UTF-8, padded with zeros.
    pub text: [u8; NAME_LEN],
}

/// Constants of the `lb` program, set before it is loaded (`weir_cfg` in its read-only data).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Config {
    /// NH key words (`flow::HashKey`).
    pub nh: [u32; 12],
    /// Odd multiplier of the hash's finaliser.
    pub fin: u64,
    /// First 8 bytes of the outer source address as they stand in memory: SRv6 block and node id.
    pub src_hi: u64,
    /// Last 8 bytes of the outer source address as they stand in memory; the last two bytes are 0 and take hash bits.
    pub src_lo: u64,
    /// The self-test SID's last 8 bytes as they stand in memory (its first 8 are `src_hi`).
    pub selftest_lo: u64,
    /// Roles of this interface, [`ROLE_UPLINK`] | [`ROLE_FABRIC`].
    pub role: u32,
    /// Packet Too Big and echo replies a CPU may send in a second; 0 sends none.
    pub icmp_rate: u32,
    /// Jiffies without a heartbeat after which the program asks the kernel's FIB instead of `nexthops`; 0 never.
    pub heartbeat_jiffies: u32,
    /// Build of the daemon that loaded the program, for `weir show node`.
    pub build: u32,
}

/// Element 0 of `state`: words the daemon writes while the program runs (memory-mapped).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Shared {
    /// `bpf_jiffies64` at the daemon's last heartbeat, written by the program `beat`; 0 before the first.
    pub heartbeat: u64,
    /// Self-test frames that came back.
    pub selftest_seen: u64,
}

/// Element 0 of the per-CPU `buckets`: the token bucket for generated ICMP.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Bucket {
    /// `bpf_ktime_get_coarse_ns` at the last refill.
    pub last_ns: u64,
    /// Tokens left, in billionths.
    pub tokens: u64,
}

/// What the metadata of a traced frame begins with ("weirtrac" in memory). On the wire no frame has metadata.
pub const TRACE_MAGIC: u64 = u64::from_le_bytes(*b"weirtrac");

/// The metadata in front of a frame that `weir trace` runs: the program counts nothing for it, changes nothing, and fills this
/// in. Fields that it does not get to stay as they are.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Trace {
    /// [`TRACE_MAGIC`].
    pub magic: u64,
    /// The reason that it would count.
    pub reason: u32,
    /// VIP index that was hit.
    pub vip: u32,
    /// Slot in `rings`.
    pub slot: u32,
    /// Backend index in that slot.
    pub backend: u32,
    /// Interface that it would leave through.
    pub ifindex: u32,
    /// MTU that it was held against, bytes of the outer packet.
    pub mtu: u32,
}

impl Trace {
    /// What no reason, index or slot is.
    pub const NONE: u32 = u32::MAX;

    /// A marker with nothing filled in.
    pub const fn new() -> Self {
        let none = Self::NONE;
        Self { magic: TRACE_MAGIC, reason: none, vip: none, slot: none, backend: none, ifindex: 0, mtu: 0 }
    }
}

impl Default for Trace {
    fn default() -> Self {
        Self::new()
    }
}

/// Constants of the `lb` program for what is watched (`weir_watch` in its read-only data).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Watch {
    /// Events a second that a CPU may write for a reason to drop; 0 writes none.
    pub drop_samples: u32,
    /// Always 0.
    pub pad: u32,
}

/// Bytes of a dropped frame that its event holds.
pub const DROP_BYTES: usize = 128;
/// Bytes of `events`.
pub const EVENT_RING: u32 = 256 * 1024;

/// Element of the per-CPU `samplers`, by reason: which drops become events.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Sampler {
    /// Events that may be written.
    pub bucket: Bucket,
    /// Drops since the last event that were not sampled.
    pub unsampled: u64,
    /// Events for which `events` had no room.
    pub lost: u64,
}

/// Item of the ring buffer `events`: a dropped frame.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct DropEvent {
    /// `bpf_ktime_get_coarse_ns`.
    pub at_ns: u64,
    /// Reason.
    pub reason: u32,
    /// Interface that the frame came from.
    pub ifindex: u32,
    /// Bytes of the frame.
    pub length: u32,
    /// Drops of this CPU for this reason before this one, since its last event, that were not sampled.
    pub unsampled: u32,
    /// The frame's first bytes, as many as it has.
    pub bytes: [u8; DROP_BYTES],
}

/// Constants of the program that captures (`weir_capture` in its read-only data): what is captured, and until when.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct CaptureFilter {
    /// VIP in network order; IPv4 as `::ffff:a.b.c.d`.
    pub addr: [u8; 16],
    /// `bpf_ktime_get_ns` after which nothing is captured any more, whatever becomes of the daemon.
    pub until_ns: u64,
    /// Port of the VIP in network order, 0 for every one.
    pub port: [u8; 2],
    /// Always 0.
    pub pad: [u8; 6],
}

/// Bytes of a frame that are captured at most: a jumbo frame with its outer header.
pub const CAPTURE_BYTES: usize = 9216;

/// A frame as it came in.
pub const CAPTURE_RECEIVED: u16 = 0;
/// A frame as it was handed to the driver.
pub const CAPTURE_SENT: u16 = 1;
/// No frame: the one that came in under this id was not sent.
pub const CAPTURE_ENDED: u16 = 2;

/// What an item of the ring buffer `captures` begins with; `captured` bytes of the frame follow.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct CaptureHead {
    /// `bpf_ktime_get_ns`.
    pub at_ns: u64,
    /// The same for a frame that came in and what was made of it.
    pub id: u64,
    /// Interface that it came from, or was sent to.
    pub ifindex: u32,
    /// Bytes of the frame.
    pub length: u32,
    /// Bytes that follow.
    pub captured: u32,
    /// [`CAPTURE_RECEIVED`], [`CAPTURE_SENT`] or [`CAPTURE_ENDED`].
    pub kind: u16,
    /// Reason under which it left the program; not yet known of a frame that came in.
    pub reason: u16,
}

/// Element 0 of the per-CPU `capture_cpu` of the program that captures.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct CaptureCpu {
    /// Frames for which `captures` had no room.
    pub lost: u64,
    /// Interface that the last frame was redirected to.
    pub redirect: u32,
    /// Always 0.
    pub pad: u32,
}

/// Key of `fragments`: a datagram whose first fragment was seen.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Pod, Zeroable)]
pub struct FragmentKey {
    /// Source in network order; IPv4 as `::ffff:a.b.c.d`.
    pub src: [u8; 16],
    /// Destination, likewise.
    pub dst: [u8; 16],
    /// Identification as it stands in the packet; of IPv4 the low two bytes in memory order.
    pub id: u32,
    /// Of IPv4 the header's protocol (RFC 791), of IPv6 0 (RFC 8200 section 4.5).
    pub proto: u32,
}

/// Value of `fragments`: what later fragments do not say. Never a backend: an index may have passed to another tenant since.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Fragment {
    /// Client port and VIP port as they stand in the packet, 0 of a protocol without ports.
    pub ports: u32,
    /// Protocol behind all headers.
    pub proto: u32,
}
/// Value of `learned`, by SID: what a router of the fabric last said of the path there.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Learned {
    /// `bpf_ktime_get_coarse_ns` when it said so.
    pub at_ns: u64,
    /// Bytes of the outer packet that fit.
    pub mtu: u32,
    /// Always 0.
    pub pad: u32,
}

/// SIDs of which `learned` remembers something; the ones used least go first.
pub const LEARNED_ENTRIES: u32 = 1024;

/// Session affinity: what of a packet is hashed.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Affinity {
    /// Client address, both ports, protocol.
    None = 0,
    /// Client address.
    ClientIp = 1,
    /// Client address and protocol.
    ClientIpAndProtocol = 2,
}

/// A VIP's state word: one aligned store in `vip_state` flips a VIP to another ring.
///
/// Bits 0–31 first slot of the ring region, a multiple of [`SLOTS_PER_BLOCK`]; 32–48 slots in the ring, 0 when the
/// VIP is not loaded; 49–50 affinity; the rest 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VipWord(pub u64);

impl VipWord {
    /// Packs a word.
    pub const fn new(base: u32, size: u32, affinity: Affinity) -> Self {
        Self(base as u64 | (size as u64) << 32 | (affinity as u64) << 49)
    }
    /// First slot of the ring region.
    pub const fn base(self) -> u32 {
        self.0 as u32
    }
    /// Slots in the ring; 0 when nothing is loaded.
    pub const fn size(self) -> u32 {
        (self.0 >> 32) as u32 & 0x1_ffff
    }
    /// What is hashed.
    pub const fn affinity(self) -> Affinity {
        match (self.0 >> 49) & 3 {
            1 => Affinity::ClientIp,
            2 => Affinity::ClientIpAndProtocol,
            _ => Affinity::None,
        }
    }
}

/// Packs [`Backend::nh`]: bits 0–23 first next hop, 24–31 how many consecutive ones.
pub const fn pack_nh(first: u32, count: u8) -> u32 {
    first | (count as u32) << 24
}

/// Takes [`Backend::nh`] apart: first index and count.
pub const fn unpack_nh(nh: u32) -> (u32, u8) {
    (nh & 0xff_ffff, (nh >> 24) as u8)
}

macro_rules! reasons {
    ($(#[doc = $help:literal] $name:ident = $n:literal, $text:literal;)*) => {
        /// Why a packet left the program; index into the per-CPU array `reasons`. Every exit counts exactly one.
        #[repr(u32)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Reason { $(#[doc = $help] $name = $n,)* }
        impl Reason {
            /// All reasons in index order.
            pub const ALL: &[Reason] = &[$(Reason::$name,)*];
            /// The reason's name in metrics, tables and packet cases.
            pub const fn name(self) -> &'static str { match self { $(Reason::$name => $text,)* } }
            /// One line for people.
            pub const fn help(self) -> &'static str { match self { $(Reason::$name => $help,)* } }
        }
    };
}

reasons! {
    #[doc = "encapsulated and sent to a backend"]
    Forwarded = 0, "forwarded";
    #[doc = "ICMP error about a flow sent to that flow's backend"]
    IcmpSteered = 1, "icmp_steered";
    #[doc = "echo request to a VIP answered"]
    EchoReply = 2, "echo_reply";
    #[doc = "Packet Too Big, or ICMPv4 fragmentation needed, sent to the client"]
    PacketTooBig = 3, "packet_too_big";
    #[doc = "left to the next slot or the stack: not IP"]
    NotIp = 4, "not_ip";
    #[doc = "dropped: IPv4 options with a source route that is not spent, or that cannot be read"]
    IpOptions = 5, "ip_options";
    #[doc = "left to the next slot or the stack: frame not addressed to this host"]
    NotForHost = 6, "not_for_host";
    #[doc = "left to the next slot or the stack: no IP header could be read"]
    Malformed = 7, "malformed";
    #[doc = "left to the next slot or the stack: destination is no VIP"]
    NotVip = 8, "not_vip";
    #[doc = "this node's own self-test frame came back"]
    SelfTest = 9, "self_test";
    #[doc = "dropped: native IPv6 packet with an IPv4-mapped address"]
    MappedAddress = 10, "mapped_address";
    #[doc = "dropped: from or to the region's SRv6 block on an uplink"]
    Srv6Block = 11, "srv6_block";
    #[doc = "dropped: no rule for this port of a VIP"]
    NoRule = 12, "no_rule";
    #[doc = "dropped: protocol that no rule of the VIP serves"]
    UnsupportedProtocol = 13, "unsupported_protocol";
    #[doc = "dropped: packet to a VIP shorter than its headers say"]
    Truncated = 14, "truncated";
    #[doc = "dropped: more extension headers than are walked, or a source route"]
    ExtensionHeaders = 15, "extension_headers";
    #[doc = "dropped: fragment that cuts its first headers, or of an ICMP message, or of a fragment"]
    Fragment = 16, "fragment";
    #[doc = "dropped: rule known but its ring is not loaded"]
    NotLoaded = 17, "not_loaded";
    #[doc = "dropped: rule has no backend to send to"]
    NoBackend = 18, "no_backend";
    #[doc = "dropped: no next hop towards the backend's node"]
    NoNextHop = 19, "no_next_hop";
    #[doc = "dropped: fabric MTU under 1320, too small to be signalled to a client"]
    FabricMtu = 20, "fabric_mtu";
    #[doc = "dropped: too big, and no Packet Too Big may be sent for it"]
    TooBigSilent = 21, "too_big_silent";
    #[doc = "dropped: generated ICMP is over its rate limit"]
    RateLimited = 22, "rate_limited";
    #[doc = "dropped: ICMP message to a VIP that is neither echo request nor error"]
    IcmpUnhandled = 23, "icmp_unhandled";
    #[doc = "dropped: ICMP error that quotes no packet of a VIP's flow"]
    IcmpBadQuote = 24, "icmp_bad_quote";
    #[doc = "dropped: the driver gave no room for the outer header"]
    NoHeadroom = 25, "no_headroom";
    #[doc = "dropped: a map the program needs has no such element (a fault)"]
    Internal = 26, "internal";
    #[doc = "dropped: IPv4 packet too big for the fabric that allows fragmentation, which is not done here"]
    TooBigNoDf = 27, "too_big_no_df";
    #[doc = "dropped: later fragment whose first one this gateway has not seen lately"]
    FragmentUnknown = 28, "fragment_unknown";
    #[doc = "Packet Too Big of the fabric about an encapsulated packet, taken in"]
    FabricPtb = 29, "fabric_ptb";
    #[doc = "reply of a backend decapsulated and sent to its client"]
    ReplyForwarded = 30, "reply_forwarded";
    #[doc = "dropped: reply that no rule covers"]
    ReplyRefused = 31, "reply_refused";
    #[doc = "dropped: reply whose client this node has no route to"]
    ReplyNoRoute = 32, "reply_no_route";
}

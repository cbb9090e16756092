//! The layout shared by the worker's BPF programs and user space, and the only place where user space states it.
//!
//! Every type here mirrors a C type of `bpf/c/worker_abi.h`; the test `worker_abi_equals_btf` compares names, sizes,
//! offsets and enumerators with the BTF of the compiled object.

use bytemuck::{Pod, Zeroable};

/// Version of everything in this file. It is part of the directory name under which the worker's maps are pinned.
pub const WORKER_LAYOUT_VERSION: u32 = 1;
/// The worker's slot in the shared root of a fabric interface.
pub const SLOT_WORKER: u32 = 2;
/// Prefixes that outer sources may have, at most.
pub const GATEWAYS: usize = 32;
/// Bytes of a name in [`Meta`], padded with zeros.
pub const NAME_LEN: usize = 128;
/// Bytes of an interface's name in [`Meta`], padded with zeros (`IFNAMSIZ`).
pub const INTERFACE_LEN: usize = 16;
/// [`SidKey::pad`] of the entry that says "this SID is ours".
pub const OWN_SID: [u8; 2] = [1, 0];
/// [`Mark::mark`]: "the worker took this packet out of its outer header".
pub const MARK: u32 = 0x57e1_7001;
/// Value in `w_sources`: the endpoint's own address, not a VIP.
pub const OWN_ADDRESS: u32 = u32::MAX;
/// Bytes of the outer header that a reply gets on its way to an edge.
pub const WORKER_ENCAP_LEN: u32 = 40;

/// Key of `w_sids`. With [`OWN_SID`] in `pad`, and a VIP of zeros, it is the entry that says "this SID is ours".
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Pod, Zeroable)]
pub struct SidKey {
    /// Destination of the inner packet, network order; IPv4 as `::ffff:a.b.c.d`.
    pub vip: [u8; 16],
    /// Function and argument: bits 65–80 of the SID.
    pub sid: [u8; 2],
    /// 0, or [`OWN_SID`].
    pub pad: [u8; 2],
}

/// Key of `w_sources`: what an endpoint may send from.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Pod, Zeroable)]
pub struct SourceKey {
    /// Source address, network order; IPv4 as `::ffff:a.b.c.d`.
    pub addr: [u8; 16],
    /// Index into `w_endpoints`.
    pub endpoint: u32,
}

/// Key of `w_services`: which translated VIP a reply of an endpoint belongs to.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Pod, Zeroable)]
pub struct PortKey {
    /// Index into `w_endpoints`.
    pub endpoint: u32,
    /// Port of VIP and backend, network order.
    pub port: [u8; 2],
    /// IP protocol number.
    pub proto: u8,
    /// 4 or 6.
    pub family: u8,
}

/// Element of `w_bindings`: immutable while a key leads to it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Binding {
    /// The VIP; IPv4 as `::ffff:a.b.c.d`.
    pub vip: [u8; 16],
    /// The endpoint's own address.
    pub backend: [u8; 16],
    /// Index into `w_endpoints`.
    pub endpoint: u32,
    /// Function and argument of the endpoint's SID.
    pub sid: [u8; 2],
    /// [`Flag`] bits.
    pub flags: u8,
    /// Always 0.
    pub pad: u8,
}

/// Element of `w_endpoints`: immutable while a binding leads to it, but for `ifindex`, which is flipped by one store.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Endpoint {
    /// Neighbour that a tap's packets are for: the endpoint's own address.
    pub next_hop: [u8; 16],
    /// Host side of the endpoint's interface; 0 while there is none.
    pub ifindex: u32,
    /// [`Kind`].
    pub kind: u32,
}

/// What `decap` leaves in a frame's metadata for `deliver`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Mark {
    /// [`MARK`].
    pub mark: u32,
    /// Index into `w_endpoints`.
    pub endpoint: u32,
}

/// A prefix of at most 64 bits, both fields in the order of the packet's bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Prefix {
    /// First 64 bits of the address.
    pub hi: u64,
    /// Which of them count.
    pub mask: u64,
}

impl Prefix {
    /// Matches no address.
    pub const NONE: Self = Self { hi: u64::MAX, mask: 0 };
}

/// The one element of `w_params`: what may change while the programs run.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Params {
    /// Whose packets are taken out of their outer headers; the rest is [`Prefix::NONE`].
    pub gateways: [Prefix; GATEWAYS],
    /// Destination of replies that go over an edge.
    pub reply_sid: [u8; 16],
    /// [`Reply`].
    pub reply: u32,
    /// Interface towards the edge.
    pub fabric_ifindex: u32,
    /// Bytes of the largest IP packet on the fabric.
    pub fabric_mtu: u32,
    /// Bytes of the largest packet that an endpoint may send back: the MSS that clients offer is lowered to it. 0: not at all.
    pub to_pod_max: u32,
    /// Bytes of the largest packet that a client may send through a gateway: the MSS that endpoints offer is lowered to it.
    pub from_pod_max: u32,
    /// ICMP errors that a CPU may send in a second; 0 sends none.
    pub icmp_rate: u32,
}

/// Element of the per-CPU `w_in` and `w_out`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Counter {
    /// Packets.
    pub packets: u64,
    /// Bytes of their IP packets.
    pub bytes: u64,
}

/// Element of the per-CPU `w_buckets`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Bucket {
    /// When tokens were last added, in nanoseconds.
    pub last_ns: u64,
    /// Billionths of a token.
    pub tokens: u64,
}

/// Element of `w_meta`: what a binding's index stands for. Read by user space only.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub struct Meta {
    /// VPC.
    pub vpc: [u8; NAME_LEN],
    /// Attachment of the VPC.
    pub attachment: [u8; NAME_LEN],
    /// Path of the network namespace in which the VIP was placed; empty when it was not.
    pub netns: [u8; NAME_LEN],
    /// Host side of the endpoint's interface.
    pub interface: [u8; INTERFACE_LEN],
    /// The VIP.
    pub vip: [u8; 16],
    /// The endpoint's own address.
    pub backend: [u8; 16],
    /// Function and argument of the SID.
    pub sid: [u8; 2],
    /// Whether the index is in use.
    pub used: u8,
    /// Bit 0: the worker placed the VIP; bit 1: it placed the IPv4 default route, too.
    pub placed: u8,
    /// Index into `w_endpoints`.
    pub endpoint: u32,
}

/// Constants of the programs.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Config {
    /// This node's own address in its locator: source of the errors it sends.
    pub source: [u8; 16],
    /// First 64 bits of this node's SIDs, in the order of the packet's bytes.
    pub locator_hi: u64,
    /// Build that loaded the program, for people.
    pub build: u64,
}

/// How packets reach an endpoint.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Into the network namespace behind a veth (`bpf_redirect_peer`).
    Veth = 0,
    /// Out of a tap, to the neighbour that is the endpoint's own address (`bpf_redirect_neigh`).
    Tap = 1,
}

/// Which way replies go.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// By this node's routes.
    Direct = 0,
    /// In an outer header to an edge node.
    Edge = 1,
}

/// Bits of [`Binding::flags`].
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flag {
    /// The VIP sits on the backend.
    None = 0,
    /// VIP and backend address are exchanged at the boundary.
    Translate = 1,
}

macro_rules! reasons {
    ($(#[doc = $help:literal] $name:ident = $n:literal, $text:literal;)*) => {
        /// Why a packet left one of the worker's programs; index into the per-CPU array `w_reasons`.
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
    #[doc = "taken out of its outer header, on its way to an endpoint"]
    Decapsulated = 0, "decapsulated";
    #[doc = "left to the next slot or the stack: not IPv6"]
    NotIp = 1, "not_ip";
    #[doc = "left to the next slot or the stack: frame not addressed to this host"]
    NotForHost = 2, "not_for_host";
    #[doc = "left to the next slot or the stack: no IPv6 header could be read"]
    Malformed = 3, "malformed";
    #[doc = "left to the next slot or the stack: destination is no SID of this node"]
    NotSid = 4, "not_sid";
    #[doc = "left to the next slot or the stack: SID of this node that no binding uses"]
    UnknownSid = 5, "unknown_sid";
    #[doc = "dropped: outer source is no gateway of the region"]
    ForeignSource = 6, "foreign_source";
    #[doc = "dropped: outer header with a routing header"]
    RoutingHeader = 7, "routing_header";
    #[doc = "dropped: packet to a SID that holds no IP packet"]
    NotEncapsulated = 8, "not_encapsulated";
    #[doc = "dropped: frame shorter than its outer header says"]
    Truncated = 9, "truncated";
    #[doc = "dropped: inner header broken, or longer than what holds it"]
    BadInner = 10, "bad_inner";
    #[doc = "dropped: inner IPv6 packet with an IPv4-mapped address"]
    MappedAddress = 11, "mapped_address";
    #[doc = "dropped: inner destination is no VIP bound under this SID"]
    NotBound = 12, "not_bound";
    #[doc = "dropped: congestion marked on the way, and the inner packet cannot carry the mark"]
    Congestion = 13, "congestion";
    #[doc = "dropped: the endpoint's interface is gone"]
    NoEndpoint = 14, "no_endpoint";
    #[doc = "dropped: the driver gives no room for metadata"]
    NoMetadata = 15, "no_metadata";
    #[doc = "dropped: cannot be translated (a fragment, or neither TCP nor UDP)"]
    Untranslatable = 16, "untranslatable";
    #[doc = "handed to an endpoint"]
    Delivered = 17, "delivered";
    #[doc = "reply of an endpoint, left to this node's routes"]
    ReplyDirect = 18, "reply_direct";
    #[doc = "reply of an endpoint, sent to the edge"]
    ReplyEdge = 19, "reply_edge";
    #[doc = "left to the stack: an endpoint speaks as itself, not as a VIP"]
    ReplyOwn = 20, "reply_own";
    #[doc = "left to the stack: an endpoint's packet that stays on its link"]
    ReplyLocal = 21, "reply_local";
    #[doc = "left to the stack: an endpoint's frame that is not IP"]
    ReplyNotIp = 22, "reply_not_ip";
    #[doc = "dropped: an endpoint's frame shorter than an IP header"]
    ReplyTruncated = 23, "reply_truncated";
    #[doc = "dropped: an endpoint's packet from an address that is neither its own nor a VIP bound to it"]
    SpoofedSource = 24, "spoofed_source";
    #[doc = "dropped: an endpoint's packet into the region's SRv6 block"]
    IntoBlock = 25, "into_block";
    #[doc = "Packet Too Big sent to an endpoint"]
    PacketTooBig = 26, "packet_too_big";
    #[doc = "ICMPv4 fragmentation needed sent to an endpoint"]
    FragmentationNeeded = 27, "fragmentation_needed";
    #[doc = "dropped: reply too big to encapsulate, and no error may be sent for it"]
    TooBigSilent = 28, "too_big_silent";
    #[doc = "dropped: generated ICMP is over its rate limit"]
    RateLimited = 29, "rate_limited";
    #[doc = "dropped: a map the programs need has no such element, or the kernel refused a change (a fault)"]
    Internal = 30, "internal";
}

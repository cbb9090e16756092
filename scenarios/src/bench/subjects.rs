//! What is timed: the controls of `bpf/controls.bpf.c` and the load balancer, all with one VIP, one ring and 64 backends.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU64;
use std::path::Path;

use anyhow::{Context as _, ensure};
use aya::maps::{Array, HashMap};
use aya::programs::ProgramFd;
use aya::{Ebpf, EbpfLoader};
use bytemuck::{Pod, Zeroable};
use weir::dataplane::Limits;
use weir::dataplane::bpf::{Mode, Params, TestRig};
use weir::flow::{HashKey, MemTables};
use weir::maglev::{self, Eligible, Member, RingSpec, Seed};
use weir::model::{BackendId, RingSize};
use weir_bpf::abi::{
    Affinity, Backend, Config, NextHop, ROLE_UPLINK, Reason, SLOTS_PER_BLOCK, VipWord, Watch, pack_nh,
};

use super::trampoline::{XDP_REDIRECT, XDP_TX, program};
use crate::packets::build::{self, ACK, FROM, TCP, TO};

static CONTROLS: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/controls.bpf.o"));

/// Backends of each VIP, unless a shape says otherwise.
pub const BACKENDS: u32 = 64;
const VIP: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, 0, 0x10);
const CLIENT: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xc, 0, 0, 0, 0, 0);
const VIP4: [u8; 4] = [198, 51, 100, 16];
const CLIENT4: [u8; 4] = [203, 0, 113, 0];
const PORT: u16 = 443;
/// Outer source: block, node and its function; the last two bytes take hash bits.
const SOURCE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xff01, 1, 0xe000, 0x80, 0, 0);
/// A test run without a context comes in on the loopback interface, whose number is 1 in every namespace.
const INGRESS: u32 = 1;
const MACS: [u8; 12] = [2, 0xa0, 0, 0, 0, 1, 2, 0xb0, 0, 0, 0, 2];
const MTU: u32 = 9000;

/// Address family of the clients' packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv6.
    V6,
    /// IPv4.
    V4,
}

impl Family {
    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V6 => "ipv6",
            Self::V4 => "ipv4",
        }
    }
    /// The least forwarder for it.
    pub const fn minimal(self) -> &'static str {
        match self {
            Self::V6 => "minimal",
            Self::V4 => "minimal4",
        }
    }
}

/// The frame that varies over the flows: a TCP segment with 64 bytes.
pub fn frame(family: Family) -> Vec<u8> {
    match family {
        Family::V6 => {
            let packet = build::ip(CLIENT, VIP).tcp((40_000, PORT), ACK, &[0x5a; 64]);
            [&TO[..], &FROM, &[0x86, 0xdd], &packet].concat()
        }
        Family::V4 => {
            // The TCP checksum is nobody's business on the way.
            let segment = build::ip(CLIENT, VIP).tcp_segment((40_000, PORT), ACK, &[0x5a; 64]);
            let length = (20 + segment.len() as u16).to_be_bytes();
            let header = [&[0x45, 0][..], &length, &[0, 1, 0x40, 0, 64, TCP, 0, 0], &CLIENT4, &VIP4].concat();
            [&TO[..], &FROM, &[0x08, 0x00], &header, &segment].concat()
        }
    }
}

/// SID of backend `n`, from 1.
fn sid(n: u32) -> [u8; 16] {
    let [high, low] = [(n >> 16) as u16, n as u16];
    Ipv6Addr::new(0x2001, 0xdb8, 0xff01, 0x100 + low % 0xd000, 0xe001 + high, low, 0, 0).octets()
}

/// Backend, from 0, of each slot: the product's own Maglev.
fn ring(class: RingSize, backends: u32) -> Vec<u32> {
    let id = |n: u32| BackendId {
        vpc: "bench".into(),
        attachment: "default".into(),
        address: IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, (n >> 16) as u16, n as u16)),
    };
    let ids: Vec<_> = (0..backends).map(id).collect();
    let member = |id| Member { id, weight: NonZeroU64::MIN, eligible: Eligible::Yes };
    let spec = RingSpec::new(class, Seed([7; 16]), ids.iter().map(member).collect());
    maglev::build(&spec).owners().map(|owner| owner.map_or(0, u32::from)).collect()
}

/// The `n`th VIP.
fn vip(family: Family, n: u32) -> Ipv6Addr {
    match family {
        Family::V6 => Ipv6Addr::from(u128::from(VIP) ^ u128::from(n)),
        Family::V4 => Ipv4Addr::from(u32::from_be_bytes(VIP4) ^ n).to_ipv6_mapped(),
    }
}

fn halves(octets: [u8; 16]) -> [u64; 2] {
    [0, 8].map(|at| u64::from_ne_bytes(std::array::from_fn(|i| octets[at + i])))
}

/// `struct outer` of the controls.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Outer {
    macs: u64,
    source: [u64; 2],
    macs_end: u32,
    pad: u32,
}

/// The loaded controls.
pub struct Controls(Ebpf);

impl Controls {
    /// Their names, the first being what all others are net of.
    pub const NAMES: [&str; 4] = ["tx", "adjust", "minimal", "minimal4"];

    /// Loads them and fills their maps.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn load() -> anyhow::Result<Self> {
        let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| *MACS.get(at + i).unwrap_or(&0)));
        let outer =
            Outer { macs: word(0), source: halves(SOURCE.octets()), macs_end: word(8) as u32, pad: 0 };
        let mut object = EbpfLoader::new()
            .override_global("outer", bytemuck::bytes_of(&outer), true)
            .load(CONTROLS)
            .context("load the controls' object")?;
        for name in Self::NAMES {
            program(&mut object, name)?.load().with_context(|| format!("load {name}"))?;
        }
        let slots = ring(RingSize::S65537, BACKENDS);
        let mut services: HashMap<_, [u8; 20], [u32; 2]> =
            HashMap::try_from(object.map_mut("services").context("find the map services")?)?;
        for family in [Family::V6, Family::V4] {
            let mut key = [0; 20];
            key[..16].copy_from_slice(&vip(family, 0).octets());
            key[16..18].copy_from_slice(&PORT.to_be_bytes());
            key[18] = TCP;
            services.insert(key, [0, slots.len() as u32], 0).context("fill services")?;
        }
        let mut entries: Array<_, u32> =
            Array::try_from(object.map_mut("ring").context("find the map ring")?)?;
        for (slot, server) in (0..).zip(&slots) {
            entries.set(slot, server + 1, 0).context("fill ring")?;
        }
        let mut servers: Array<_, [u8; 16]> =
            Array::try_from(object.map_mut("servers").context("find the map servers")?)?;
        for n in 1..=BACKENDS {
            servers.set(n, sid(n), 0).context("fill servers")?;
        }
        Ok(Self(object))
    }

    /// One of them.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn program(&mut self, name: &str) -> anyhow::Result<ProgramFd> {
        Ok(program(&mut self.0, name)?.fd()?.try_clone()?)
    }
}

/// What the load balancer is loaded with.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Family of its VIPs.
    pub family: Family,
    /// VIPs, each with a ring of its own.
    pub vips: u32,
    /// Backends in all, shared out evenly over the VIPs, or all of them each VIP's when that many have a ring's room.
    pub backends: u32,
    /// Ring class of each VIP.
    pub class: RingSize,
    /// Whether the fabric is another interface than the uplink.
    pub redirect: bool,
}

impl Shape {
    /// One VIP with the controls' ring, sent out where it came in.
    pub const fn one(family: Family) -> Self {
        Self { family, vips: 1, backends: BACKENDS, class: RingSize::S65537, redirect: false }
    }
    /// The verdict of each packet.
    pub const fn verdict(self) -> u32 {
        if self.redirect { XDP_REDIRECT } else { XDP_TX }
    }
}

/// The load balancer, heartbeat and counters on.
pub struct Weir(TestRig);

impl Weir {
    /// Loads it under a pin path on a BPF file system and fills its maps.
    ///
    /// # Errors
    /// What the kernel refused, or a packet that fared otherwise than the controls'.
    pub fn load(pins: &Path, shape: Shape) -> anyhow::Result<Self> {
        let key = HashKey::from_region_key(&[0x5a; 32]);
        let [src_hi, src_lo] = halves(SOURCE.octets());
        let constants = Config {
            nh: key.nh,
            fin: key.fin,
            src_hi,
            src_lo,
            selftest_lo: u64::MAX,
            role: ROLE_UPLINK,
            icmp_rate: 1000,
            heartbeat_jiffies: u32::MAX,
            ..Config::zeroed()
        };
        let ring_slots = shape.vips * shape.class.slots().next_multiple_of(SLOTS_PER_BLOCK);
        let limits = Limits {
            vips: (2 * shape.vips).max(4096),
            backends: (shape.backends + 1).max(1024),
            ring_slots,
            next_hops: 256,
            ..Limits::default()
        };
        // As a gateway has it by default.
        let watch = Watch { drop_samples: 10, pad: 0 };
        let params = Params {
            pins: pins.into(),
            interfaces: Vec::new(),
            limits,
            mode: Mode::Native,
            constants,
            watch,
        };
        let mut rig = TestRig::load(&params).context("load the load balancer")?;
        let mut tables = MemTables::new();
        let ifindex = if shape.redirect { INGRESS + 1 } else { INGRESS };
        // As many hops as workers would have: they come from other places in memory than one hop would.
        let hops: Vec<u32> = (0..BACKENDS)
            .map(|_| tables.add_next_hop(NextHop { macs: MACS, ifindex, mtu: MTU, flags: 0 }))
            .collect();
        for n in 1..=shape.backends {
            let nh = pack_nh(hops[(n % BACKENDS) as usize], 1);
            tables.add_backend(Backend { sid: sid(n), nh, ..Backend::default() });
        }
        let each = (shape.backends / shape.vips).max(shape.backends.min(BACKENDS));
        let slots = ring(shape.class, each);
        for n in 0..shape.vips {
            let first = 1 + (n * each) % shape.backends;
            let slots: Vec<u32> = slots.iter().map(|slot| first + slot).collect();
            let base = tables.add_ring(&slots);
            let word = VipWord::new(base, shape.class.slots(), Affinity::None);
            tables.add_vip(vip(shape.family, n), PORT, TCP, word);
        }
        rig.maps.write_image(&tables).context("fill the load balancer's maps")?;
        rig.beat().context("set the heartbeat")?;
        let frame = frame(shape.family);
        let out = rig.run(0, &frame).context("run one packet")?;
        let (inner, outer) = (&frame[14..], out.frame.get(54..));
        ensure!(
            out.action == shape.verdict() && outer == Some(inner),
            "one packet was not encapsulated and sent: {out:02x?}"
        );
        Ok(Self(rig))
    }

    /// The program.
    ///
    /// # Errors
    /// When it is not loaded.
    pub fn program(&mut self) -> anyhow::Result<ProgramFd> {
        Ok(self.0.program()?.fd()?.try_clone()?)
    }

    /// Packets that it counted as forwarded.
    pub fn forwarded(&self) -> u64 {
        self.0.maps.reason_total(Reason::Forwarded)
    }
}

//! What is timed: the controls of `bpf/controls.bpf.c` and the load balancer, all with one VIP, one ring and 64 backends.

use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
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
use weir_bpf::abi::{Affinity, Backend, Config, NextHop, ROLE_UPLINK, Reason, VipWord, Watch, pack_nh};

use super::trampoline::program;
use crate::packets::build::{self, ACK, FROM, TCP, TO};

static CONTROLS: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/controls.bpf.o"));

/// Backends of the VIP.
pub const BACKENDS: u16 = 64;
const VIP: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, 0, 0x10);
const CLIENT: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xc, 0, 0, 0, 0, 0);
const PORT: u16 = 443;
/// Outer source: block, node and its function; the last two bytes take hash bits.
const SOURCE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xff01, 1, 0xe000, 0x80, 0, 0);
/// A test run without a context comes in on the loopback interface, whose number is 1 in every namespace.
const INGRESS: u32 = 1;
const MACS: [u8; 12] = [2, 0xa0, 0, 0, 0, 1, 2, 0xb0, 0, 0, 0, 2];
const MTU: u32 = 9000;

/// The frame that varies over the flows: a TCP segment with 64 bytes.
pub fn frame() -> Vec<u8> {
    let packet = build::ip(CLIENT, VIP).tcp((40_000, PORT), ACK, &[0x5a; 64]);
    [&TO[..], &FROM, &[0x86, 0xdd], &packet].concat()
}

fn sid(backend: u16) -> [u8; 16] {
    Ipv6Addr::new(0x2001, 0xdb8, 0xff01, 0x100 + backend, 0xe001, 0, 0, 0).octets()
}

/// Backend, from 1, of each slot: the product's own Maglev.
fn ring() -> Vec<u32> {
    let id = |n: u16| BackendId {
        vpc: "bench".into(),
        attachment: "default".into(),
        address: IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n)),
    };
    let ids: Vec<_> = (1..=BACKENDS).map(id).collect();
    let member = |id| Member { id, weight: NonZeroU32::MIN, eligible: Eligible::Yes };
    let spec = RingSpec::new(RingSize::S65537, Seed([7; 16]), ids.iter().map(member).collect());
    maglev::build(&spec).owners().map(|owner| owner.map_or(0, |o| u32::from(o) + 1)).collect()
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
    pub const NAMES: [&str; 3] = ["tx", "adjust", "minimal"];

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
        let mut key = [0; 20];
        key[..16].copy_from_slice(&VIP.octets());
        key[16..18].copy_from_slice(&PORT.to_be_bytes());
        key[18] = TCP;
        let slots = ring();
        let mut services: HashMap<_, [u8; 20], [u32; 2]> =
            HashMap::try_from(object.map_mut("services").context("find the map services")?)?;
        services.insert(key, [0, slots.len() as u32], 0).context("fill services")?;
        let mut entries: Array<_, u32> =
            Array::try_from(object.map_mut("ring").context("find the map ring")?)?;
        for (slot, server) in (0..).zip(&slots) {
            entries.set(slot, server, 0).context("fill ring")?;
        }
        let mut servers: Array<_, [u8; 16]> =
            Array::try_from(object.map_mut("servers").context("find the map servers")?)?;
        for n in 1..=BACKENDS {
            servers.set(n.into(), sid(n), 0).context("fill servers")?;
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

/// The load balancer with the same VIP, ring and backends, heartbeat and counters on.
pub struct Weir(TestRig);

impl Weir {
    /// Loads it under a pin path on a BPF file system and fills its maps.
    ///
    /// # Errors
    /// What the kernel refused, or a packet that fared otherwise than the controls'.
    pub fn load(pins: &Path) -> anyhow::Result<Self> {
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
            build: 0,
        };
        let limits = Limits { vips: 4096, backends: 1024, ring_slots: 1 << 17, next_hops: 256 };
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
        for n in 1..=BACKENDS {
            // As many hops as workers would have: they come from other places in memory than one hop would.
            let hop = tables.add_next_hop(NextHop { macs: MACS, ifindex: INGRESS, mtu: MTU, flags: 0 });
            tables.add_backend(Backend { sid: sid(n), nh: pack_nh(hop, 1), ..Backend::default() });
        }
        let base = tables.add_ring(&ring());
        let word = VipWord::new(base, RingSize::S65537.slots(), Affinity::None);
        tables.add_vip(VIP, PORT, TCP, word);
        rig.maps.write_image(&tables).context("fill the load balancer's maps")?;
        rig.beat().context("set the heartbeat")?;
        let frame = frame();
        let out = rig.run(0, &frame).context("run one packet")?;
        let (inner, outer) = (&frame[14..], out.frame.get(54..));
        ensure!(
            out.action == 3 && outer == Some(inner),
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

//! A stateful neighbour of the load balancer on its uplinks: a small stand-in for an egress shard.

use std::net::Ipv6Addr;

use anyhow::{Context as _, Result};
use aya::maps::{Array, MapData};
use aya::programs::Xdp;
use aya::{Ebpf, EbpfLoader};
use labkit::NodeHandle;
use weir::dataplane::bpf::{Mode, Pins, Root};
use weir_bpf::abi::SLOT_EGRESS;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/nat.bpf.o"));

/// An interface of the shard's node and the other end of its link.
#[derive(Clone, Debug)]
pub struct Side {
    /// Interface of the shard's node.
    pub interface: String,
    /// MAC address of the router at the other end.
    pub router: [u8; 6],
}

/// What a shard does.
#[derive(Clone, Debug)]
pub struct Shard {
    /// Address that packets leave with.
    pub address: Ipv6Addr,
    /// Inside hosts: their first 64 bits.
    pub inside_net: Ipv6Addr,
    /// Where they are.
    pub inside: Side,
    /// Where the internet is.
    pub outside: Side,
}

/// `nat` of `bpf/nat.bpf.c`.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Settings {
    shard: [u8; 16],
    inside: [u8; 8],
    inside_if: u32,
    outside_if: u32,
    inside_macs: [u8; 12],
    outside_macs: [u8; 12],
}

/// The shard's programs, in the egress slots of both interfaces. They hold their slots until they leave; their tables are
/// pinned beside the root, and the next shard of the node goes on with them.
pub struct Nat {
    node: NodeHandle,
    pins: Pins,
    objects: Vec<(String, Ebpf)>,
}

impl Nat {
    /// Loads the programs and puts them into their slots; those that are there are replaced.
    ///
    /// # Errors
    /// What could not be loaded or attached.
    pub fn join(node: &NodeHandle, shard: &Shard) -> Result<Self> {
        let base = node.bpffs()?;
        let pins = Pins::open(&base.join("weir"))?;
        let tables = base.join("nat");
        std::fs::create_dir_all(&tables)?;
        let own = |side: &Side| node.mac(&side.interface).context("an uplink has no MAC address");
        let (inside, outside) = (own(&shard.inside)?, own(&shard.outside)?);
        let macs = |to: [u8; 6], from: [u8; 6]| {
            let mut macs = [0; 12];
            macs[..6].copy_from_slice(&to);
            macs[6..].copy_from_slice(&from);
            macs
        };
        let index = |side: &Side| -> Result<u32> {
            let name = side.interface.clone();
            Ok(node.netns().run(move || nix::net::if_::if_nametoindex(name.as_str()))??)
        };
        let mut inside_net = [0; 8];
        inside_net.copy_from_slice(&shard.inside_net.octets()[..8]);
        let settings = Settings {
            shard: shard.address.octets(),
            inside: inside_net,
            inside_if: index(&shard.inside)?,
            outside_if: index(&shard.outside)?,
            inside_macs: macs(shard.inside.router, inside),
            outside_macs: macs(shard.outside.router, outside),
        };
        let mut objects = Vec::new();
        for side in [&shard.inside, &shard.outside] {
            let mut loader = EbpfLoader::new();
            loader.override_global("nat", bytemuck::bytes_of(&settings), true);
            for map in ["ports", "hosts", "counts"] {
                loader.map_pin_path(map, tables.join(map));
            }
            let mut object = loader.load(OBJECT)?;
            program(&mut object)?.load()?;
            let fd = program(&mut object)?.fd()?.try_clone()?;
            node.netns().run(|| -> Result<()> {
                let _lock = pins.lock()?;
                Root::ensure(&pins, &side.interface, Mode::Native)?.set(SLOT_EGRESS, &fd)?;
                Ok(())
            })??;
            objects.push((side.interface.clone(), object));
        }
        Ok(Self { node: node.clone(), pins, objects })
    }

    fn count(&self, what: u32) -> Result<u64> {
        let (_, object) = self.objects.first().context("no program is loaded")?;
        let map = object.map("counts").context("the program has no map `counts`")?;
        let counts: Array<&MapData, u64> = Array::try_from(map)?;
        Ok(counts.get(&what, 0)?)
    }

    /// Ports given out since the tables were made.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn ports(&self) -> Result<u64> {
        self.count(0)
    }

    /// Packets sent out, and sent back in.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn translated(&self) -> Result<(u64, u64)> {
        Ok((self.count(1)?, self.count(2)?))
    }

    /// Empties the slots; a root goes when nobody else uses it.
    ///
    /// # Errors
    /// What could not be removed.
    pub fn leave(self) -> Result<()> {
        let interfaces: Vec<String> = self.objects.iter().map(|(name, _)| name.clone()).collect();
        let pins = self.pins.clone();
        self.node.netns().run(move || -> Result<()> {
            let _lock = pins.lock()?;
            interfaces.iter().try_for_each(|name| Ok(Root::open(&pins, name)?.leave(SLOT_EGRESS)?))
        })?
    }
}

fn program(object: &mut Ebpf) -> Result<&mut Xdp> {
    Ok(object.program_mut("egress").context("the object has no program `egress`")?.try_into()?)
}

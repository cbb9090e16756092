//! A stand-in for another owner of an uplink: it puts a program of its own into the egress slot of the shared root.

use std::net::{Ipv6Addr, SocketAddrV6};

use anyhow::{Context as _, Result};
use aya::maps::{Array, MapData};
use aya::programs::links::FdLink;
use aya::programs::{Xdp, XdpMode};
use aya::{Ebpf, EbpfLoader};
use labkit::NodeHandle;
use weir::dataplane::bpf::{Mode, Pins, Root};
use weir_bpf::abi::SLOT_EGRESS;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/egress.bpf.o"));

/// Hop limit of packets that the program has claimed.
pub const MARK: u8 = 77;

/// The program, loaded. It holds its slot until it leaves, also when this is dropped without a word.
pub struct Egress {
    node: NodeHandle,
    pins: Pins,
    interface: String,
    object: Ebpf,
}

impl Egress {
    /// Loads a program that claims UDP packets to an address and port, and puts it into the slot of a node's interface; the
    /// root is attached when there is none. A program that is in the slot is replaced.
    ///
    /// # Errors
    /// What could not be loaded or attached.
    pub fn join(node: &NodeHandle, interface: &str, claim: SocketAddrV6) -> Result<Self> {
        let pins = Pins::open(&node.bpffs()?.join("weir"))?;
        let mut object = load(*claim.ip(), claim.port())?;
        let fd = program(&mut object)?.fd()?.try_clone()?;
        node.netns().run(|| -> Result<()> {
            let _lock = pins.lock()?;
            Root::ensure(&pins, interface, Mode::Native)?.set(SLOT_EGRESS, &fd)?;
            Ok(())
        })??;
        Ok(Self { node: node.clone(), pins, interface: interface.into(), object })
    }

    /// Packets claimed so far.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn claimed(&self) -> Result<u64> {
        let map = self.object.map("claimed").context("the program has no map `claimed`")?;
        let claimed: Array<&MapData, u64> = Array::try_from(map)?;
        Ok(claimed.get(&0, 0)?)
    }

    /// Empties the slot; the root goes when nobody else uses it.
    ///
    /// # Errors
    /// What could not be removed.
    pub fn leave(self) -> Result<()> {
        self.node.netns().run(|| -> Result<()> {
            let _lock = self.pins.lock()?;
            Root::open(&self.pins, &self.interface)?.leave(SLOT_EGRESS)?;
            Ok(())
        })?
    }
}

fn load(address: Ipv6Addr, port: u16) -> Result<Ebpf> {
    let mut claim = [0; 18];
    claim[..16].copy_from_slice(&address.octets());
    claim[16..].copy_from_slice(&port.to_be_bytes());
    let mut object = EbpfLoader::new().override_global("claim", &claim[..], true).load(OBJECT)?;
    program(&mut object)?.load()?;
    Ok(object)
}

fn program(object: &mut Ebpf) -> Result<&mut Xdp> {
    Ok(object.program_mut("egress").context("the object has no program `egress`")?.try_into()?)
}

/// A program attached straight to an interface, as by somebody who knows of no shared root. It goes when this is dropped.
pub struct Foreign {
    /// Its id.
    pub id: u32,
    _link: FdLink,
    _object: Ebpf,
}

impl Foreign {
    /// Attaches it to a node's interface.
    ///
    /// # Errors
    /// When another is there.
    pub fn attach(node: &NodeHandle, interface: &str) -> Result<Self> {
        let mut object = load(Ipv6Addr::UNSPECIFIED, 0)?;
        let program = program(&mut object)?;
        let id = program.info()?.id();
        let link = node.netns().run(|| program.attach(interface, XdpMode::Driver))??;
        let link = program.take_link(link)?.try_into()?;
        Ok(Self { id, _link: link, _object: object })
    }
}

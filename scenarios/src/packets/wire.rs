//! The arm over the wire: the program sits on a node's interfaces, frames come in over a link, and what goes out is captured at
//! the other end. What the program left shows where the node's own stack would take it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use aya::programs::XdpMode;
use aya::programs::xdp::XdpLinkId;
use labkit::NodeHandle;
use labkit::capture::{Capture, Frame};
use labkit::inject::Injector;
use weir::dataplane::bpf::TestRig;
use weir_bpf::abi::Reason;

use super::test_run::{params, totals};
use super::{Arm, Case, Increments, Ingress, Outcome, Verdict, World, XDP_PASS};

/// Interfaces of both nodes: the uplink's link and the fabric's.
const LINKS: [&str; 2] = ["eth1", "eth2"];
/// Longest wait for what must come.
const SOON: Duration = Duration::from_secs(5);
/// Time between two looks.
const LOOK: Duration = Duration::from_micros(100);
const XDP_DROP: u32 = 1;
const XDP_TX: u32 = 3;
const XDP_REDIRECT: u32 = 4;

/// What a frame that came out shows: the action, the interface of a redirect, the bytes.
type Seen = (u32, Option<u32>, Vec<u8>);

/// One end of a link.
struct End {
    capture: Capture,
    /// The interface's own address: frames from it are the kernel's, not a case's.
    mac: [u8; 6],
    /// First frame that no case has looked at.
    next: u64,
}

impl End {
    fn open(node: &NodeHandle, interface: &str) -> anyhow::Result<Self> {
        let mac = node.mac(interface).with_context(|| format!("{interface} has no address"))?;
        Ok(Self { capture: Capture::open(node.netns(), interface)?, mac, next: 0 })
    }

    /// Frames that have arrived since the last look, but for those that the kernel `there` made.
    fn arrived(&mut self, there: [u8; 6]) -> anyhow::Result<Vec<Arc<Frame>>> {
        // Everything that waits in the socket is read before the answer.
        self.capture.forget()?;
        let new = self.capture.tap().since(self.next);
        if let Some(last) = new.last() {
            self.next = last.number + 1;
        }
        Ok(new.into_iter().filter(|f| f.bytes.get(6..12) != Some(&there[..])).collect())
    }
}

/// Runs cases on the program between two nodes that are linked by `eth1` (the uplink) and `eth2` (the fabric).
pub struct WireArm {
    node: NodeHandle,
    rigs: Vec<(Ingress, TestRig, u32)>,
    indices: (u32, u32),
    attached: Option<(Ingress, XdpLinkId)>,
    injectors: Vec<Injector>,
    /// Ends of the links on the node that has the program, and on the other.
    here: Vec<End>,
    there: Vec<End>,
    ifindex: [u32; 2],
}

impl WireArm {
    /// An arm with the program on `node`; frames come from `peer`.
    ///
    /// # Errors
    /// When a socket cannot be opened.
    pub fn new(node: NodeHandle, peer: &NodeHandle) -> anyhow::Result<Self> {
        let ends =
            |node: &NodeHandle| LINKS.iter().map(|link| End::open(node, link)).collect::<anyhow::Result<_>>();
        let injectors = LINKS.iter().map(|link| Ok(Injector::open(peer.netns(), link)?));
        Ok(Self {
            rigs: Vec::new(),
            indices: (0, 0),
            attached: None,
            injectors: injectors.collect::<anyhow::Result<_>>()?,
            here: ends(&node)?,
            there: ends(peer)?,
            ifindex: [0; 2],
            node,
        })
    }

    fn rig(&mut self, ingress: Ingress) -> anyhow::Result<&mut TestRig> {
        let rig = self.rigs.iter_mut().find(|(i, ..)| *i == ingress);
        rig.map(|(_, rig, _)| rig).context("no world was loaded")
    }

    /// The link that frames of an ingress come in by.
    const fn link(ingress: Ingress) -> usize {
        match ingress {
            Ingress::Fabric => 1,
            Ingress::Uplink | Ingress::Both | Ingress::Quiet => 0,
        }
    }

    /// Puts the ingress's program on its interface, and takes the one before off.
    fn attach(&mut self, ingress: Ingress) -> anyhow::Result<()> {
        if self.attached.as_ref().is_some_and(|(now, _)| *now == ingress) {
            return Ok(());
        }
        if let Some((before, link)) = self.attached.take() {
            self.rig(before)?.program()?.detach(link).context("detach the program")?;
        }
        let Self { node, rigs, .. } = self;
        let rig = rigs.iter_mut().find(|(i, ..)| *i == ingress).context("no world was loaded")?;
        let program = rig.1.program()?;
        let link = node.netns().run(|| program.attach(LINKS[Self::link(ingress)], XdpMode::Driver))?;
        self.attached = Some((ingress, link.context("attach the program")?));
        Ok(())
    }

    fn counted(&mut self, ingress: Ingress) -> anyhow::Result<u64> {
        let rig = self.rig(ingress)?;
        Ok(Reason::ALL.iter().map(|reason| rig.maps.reason_total(*reason)).sum())
    }

    /// Sends a frame and waits until the program has counted it.
    fn send(&mut self, ingress: Ingress, frame: &[u8]) -> anyhow::Result<()> {
        let before = self.counted(ingress)?;
        self.injectors[Self::link(ingress)].send(frame)?;
        let begin = Instant::now();
        while self.counted(ingress)? == before {
            ensure!(begin.elapsed() < SOON, "no frame was counted");
            std::thread::park_timeout(LOOK);
        }
        Ok(())
    }

    /// What has come out: the action it shows, the interface of a redirect, the frame.
    fn came(&mut self, ingress: Ingress) -> anyhow::Result<Option<Seen>> {
        let mut seen = Vec::new();
        for (k, ifindex) in self.ifindex.into_iter().enumerate() {
            let (ours, theirs) = (self.here[k].mac, self.there[k].mac);
            for frame in self.there[k].arrived(ours)? {
                let same = k == Self::link(ingress);
                let (action, redirect) = if same { (XDP_TX, None) } else { (XDP_REDIRECT, Some(ifindex)) };
                seen.push((action, redirect, frame.bytes.clone()));
            }
            for frame in self.here[k].arrived(theirs)? {
                seen.push((XDP_PASS, None, frame.bytes.clone()));
            }
        }
        if seen.len() > 1 {
            bail!("one frame came in, {} went out: {seen:02x?}", seen.len());
        }
        Ok(seen.pop())
    }
}

impl Arm for WireArm {
    fn load(&mut self, world: &World) -> anyhow::Result<()> {
        let last = |keys: Option<&u32>| keys.map_or(0, |i| i + 1);
        self.indices = (last(world.tables.words.keys().last()), last(world.tables.backends.keys().last()));
        self.ifindex = [world.ifindex(Ingress::Uplink), world.ifindex(Ingress::Fabric)];
        let bpffs = self.node.bpffs()?;
        for ingress in Ingress::ALL {
            let pins = bpffs.join(format!("wire-{ingress:?}").to_lowercase());
            let params = params(world, ingress, &pins);
            let mut rig = self.node.netns().run(|| TestRig::load(&params))??;
            rig.maps.write_image(&world.tables)?;
            self.rigs.push((ingress, rig, world.ifindex(ingress)));
        }
        Ok(())
    }

    fn run(&mut self, case: &Case) -> anyhow::Result<Outcome> {
        self.attach(case.ingress)?;
        let indices = self.indices;
        self.rig(case.ingress)?.maps.forget_fragments()?;
        for earlier in &case.earlier {
            self.send(case.ingress, earlier)?;
            self.came(case.ingress)?;
        }
        if let Some(stray) = self.came(case.ingress)? {
            bail!("before {}: a frame that no case accounts for: {stray:02x?}", case.name);
        }
        let before = totals(self.rig(case.ingress)?, indices);
        self.send(case.ingress, &case.frame)?;
        let begin = Instant::now();
        let mut out = self.came(case.ingress)?;
        // A frame that is dropped shows nowhere; any other is waited for.
        while out.is_none() && case.expect.verdict != Verdict::Drop && begin.elapsed() < SOON {
            std::thread::park_timeout(LOOK);
            out = self.came(case.ingress)?;
        }
        let after = totals(self.rig(case.ingress)?, indices);
        let (action, redirect, frame) = out.unwrap_or((XDP_DROP, None, Vec::new()));
        Outcome::new(action, redirect, frame, Increments::between(&before, &after))
    }
}

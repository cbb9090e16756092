//! The trampoline (`bpf/trampoline.bpf.c`) around one subject: times it and checks that each packet fared as it should.

use anyhow::{Context as _, bail, ensure};
use aya::maps::{Array, MapData, ProgramArray};
use aya::programs::{ProgramFd, TestRun as _, TestRunOptions, Xdp};
use aya::{Ebpf, EbpfLoader};
use bytemuck::{Pod, Zeroable};

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/trampoline.bpf.o"));

/// Packets of one run of the trampoline, `PACKETS` there.
pub const PACKETS: u32 = 16;
/// Bytes of header that it lays, `HEADER` there.
pub const HEADER: usize = 74;
/// `XDP_TX`.
pub const XDP_TX: u32 = 3;
/// `XDP_REDIRECT`.
pub const XDP_REDIRECT: u32 = 4;

/// What is varied over the packets, and what must come of each.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Flows, a power of two.
    pub flows: u32,
    /// VIPs that they go to, a power of two, by consecutive addresses.
    pub vips: u32,
    /// The verdict.
    pub verdict: u32,
}

/// `struct setup` there.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Setup {
    macs: u64,
    ip: u64,
    source: [u64; 2],
    target: [u64; 2],
    window: u64,
    macs_end: u32,
    ports: u32,
    sequence: u32,
    options: u32,
    kind: u32,
    length: u32,
    flow_mask: u32,
    vip_mask: u32,
    verdict: u32,
    ipv4: u32,
}

/// A loaded trampoline with its subject.
pub struct Trampoline {
    object: Ebpf,
    /// An array without a descriptor would lose its program.
    _subject: ProgramArray<MapData>,
    frame: Vec<u8>,
    verdict: u32,
}

impl Trampoline {
    /// Puts `subject` behind a trampoline that varies `frame`, an IPv6 or IPv4 packet, over flows and VIPs.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn new(subject: &ProgramFd, frame: &[u8], load: Load) -> anyhow::Result<Self> {
        let Load { flows, vips, verdict } = load;
        ensure!(flows.is_power_of_two() && vips.is_power_of_two(), "{load:?} has no powers of two");
        ensure!(frame.len() >= HEADER, "the frame has {} bytes, {HEADER} are laid", frame.len());
        let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| frame[at + i]));
        let half = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| frame[at + i]));
        let high = |at: usize| u64::from(half(at)) << 32;
        let ipv4 = frame[12..14] == [8, 0];
        let setup = Setup {
            macs: word(0),
            macs_end: half(8),
            kind: u32::from(u16::from_ne_bytes([frame[12], frame[13]])),
            ip: word(14),
            source: if ipv4 { [word(38), high(26)] } else { [word(22), word(30)] },
            target: if ipv4 { [word(46), high(30)] } else { [word(38), word(46)] },
            ports: half(if ipv4 { 34 } else { 54 }),
            sequence: half(if ipv4 { 22 } else { 58 }),
            window: word(if ipv4 { 54 } else { 62 }),
            options: half(if ipv4 { 62 } else { 70 }),
            length: frame.len() as u32,
            flow_mask: flows - 1,
            vip_mask: vips - 1,
            verdict,
            ipv4: ipv4.into(),
        };
        let mut object = EbpfLoader::new()
            .override_global("setup", bytemuck::bytes_of(&setup), true)
            .load(OBJECT)
            .context("load the trampoline's object")?;
        program(&mut object, "bench")?.load().context("load the trampoline")?;
        let array = object.take_map("subject").context("find the map subject")?;
        let mut array = ProgramArray::try_from(array).context("open the map subject")?;
        array.set(0, subject, 0).context("put the subject behind the trampoline")?;
        Ok(Self { object, _subject: array, frame: frame.into(), verdict })
    }

    /// Sends `packets` through the subject: nanoseconds a packet by the kernel's own clock.
    ///
    /// # Errors
    /// When the run fails, or a packet got another verdict than it should.
    pub fn time(&mut self, packets: u32) -> anyhow::Result<f64> {
        let mut options = TestRunOptions::new();
        options.data_in = Some(&self.frame);
        options.repeat = packets.div_ceil(PACKETS);
        let result = program(&mut self.object, "bench")?.test_run(options).context("run the trampoline")?;
        if result.return_value != self.verdict {
            bail!("the last packet's verdict was {}, not {}", result.return_value, self.verdict);
        }
        Ok(result.duration.as_nanos() as f64 / f64::from(PACKETS))
    }

    /// Packets sent so far.
    ///
    /// # Errors
    /// When one of them got another verdict than it should, or the head could not be moved back after it.
    pub fn packets(&self) -> anyhow::Result<u64> {
        let map = self.object.map(".bss").context("find the trampoline's counters")?;
        let outcome: Array<_, [u64; 3]> = Array::try_from(map).context("open the trampoline's counters")?;
        let [packets, wrong, unmoved] = outcome.get(&0, 0).context("read the trampoline's counters")?;
        ensure!(
            wrong == 0 && unmoved == 0,
            "of {packets} packets {wrong} got a wrong verdict, {unmoved} kept a moved head"
        );
        Ok(packets)
    }
}

/// A program of an object.
///
/// # Errors
/// When there is none of that name.
pub(super) fn program<'a>(object: &'a mut Ebpf, name: &str) -> anyhow::Result<&'a mut Xdp> {
    let program = object.program_mut(name).with_context(|| format!("find the program {name}"))?;
    program.try_into().with_context(|| format!("{name} is no XDP program"))
}

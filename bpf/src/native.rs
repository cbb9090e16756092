//! The packet path's own C headers, compiled for this machine: tests and fuzzers run frames through them without a kernel.
#![allow(unsafe_code, reason = "calls the C half with pointers into buffers that outlive the call")]

use std::collections::BTreeMap;

use bytemuck::Zeroable as _;

use crate::abi::{
    Backend, Bucket, Config, Counter, Fragment, FragmentKey, Learned, NextHop, Reason, RingBlock, Shared,
    VipKey,
};

/// Bytes before the frame that the path may grow into, as drivers give (XDP_PACKET_HEADROOM).
pub const HEADROOM: usize = 256;

/// What the program returned for "not ours": the next slot, then the stack.
pub const LEFT: u32 = 0;

/// All tables and clocks that one run sees.
#[derive(Clone, Debug)]
pub struct Tables {
    /// Program constants.
    pub config: Config,
    /// `vip_index`.
    pub vips: Vec<(VipKey, u32)>,
    /// `vip_state`.
    pub words: Vec<u64>,
    /// `rings`.
    pub blocks: Vec<RingBlock>,
    /// `backends`.
    pub backends: Vec<Backend>,
    /// `nexthops`.
    pub hops: Vec<NextHop>,
    /// `vip_counters` of one CPU.
    pub vip_counters: Vec<Counter>,
    /// `backend_counters` of one CPU.
    pub backend_counters: Vec<Counter>,
    /// `reasons` of one CPU.
    pub reasons: Vec<u64>,
    /// `state`.
    pub state: Shared,
    /// `buckets` of one CPU.
    pub bucket: Bucket,
    /// `fragments`, which here forgets nothing: the keys in the order in which they came …
    pub fragment_keys: Vec<FragmentKey>,
    /// … and the values.
    pub fragments: Vec<Fragment>,
    /// `bpf_jiffies64`.
    pub jiffies: u64,
    /// `bpf_ktime_get_coarse_ns`.
    pub now_ns: u64,
    /// What `bpf_fib_lookup` answers, when it knows a hop.
    pub fib: Option<NextHop>,
    /// `learned`, by SID.
    pub learned: BTreeMap<[u8; 16], Learned>,
}

impl Tables {
    /// Empty tables; index 0 of backends and next hops is there, as in the kernel.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            vips: Vec::new(),
            words: Vec::new(),
            blocks: Vec::new(),
            backends: vec![Backend::default()],
            hops: vec![NextHop::default()],
            vip_counters: Vec::new(),
            backend_counters: Vec::new(),
            reasons: vec![0; Reason::ALL.len()],
            state: Shared::default(),
            bucket: Bucket::default(),
            fragment_keys: Vec::new(),
            fragments: Vec::new(),
            jiffies: 1,
            now_ns: 1,
            fib: None,
            learned: BTreeMap::new(),
        }
    }
}

/// What became of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// XDP action, or [`LEFT`].
    pub action: u32,
    /// Reason counted.
    pub reason: u32,
    /// Interface of a redirect, 0 otherwise.
    pub redirect: u32,
    /// The frame as it stands after the run.
    pub frame: Vec<u8>,
}

#[repr(C)]
struct World {
    config: Config,
    keys: *const VipKey,
    indices: *mut u32,
    words: *mut u64,
    blocks: *mut RingBlock,
    backends: *mut Backend,
    hops: *mut NextHop,
    vip_counters: *mut Counter,
    backend_counters: *mut Counter,
    reasons: *mut u64,
    state: *mut Shared,
    bucket: *mut Bucket,
    fragment_keys: *mut FragmentKey,
    fragments: *mut Fragment,
    n_keys: u32,
    n_words: u32,
    n_blocks: u32,
    n_backends: u32,
    n_hops: u32,
    n_fragments: u32,
    max_fragments: u32,
    jiffies: u64,
    now_ns: u64,
    fib: NextHop,
    fib_known: u32,
    learned_sid: [u8; 16],
    learned_mtu: u32,
    ingress: u32,
    redirect: u32,
    data: *mut u8,
    end: *mut u8,
    buf: *mut u8,
    limit: *mut u8,
}

unsafe extern "C" {
    fn weir_native_run(world: *mut World) -> i32;
    fn weir_native_world_size() -> u32;
}

/// Runs one frame that came in on interface `ingress`. Counters in `tables` grow as they would in the kernel.
pub fn run(tables: &mut Tables, ingress: u32, frame: &[u8]) -> Outcome {
    // SAFETY: takes no argument, returns a constant.
    let size = unsafe { weir_native_world_size() } as usize;
    assert_eq!(size, size_of::<World>(), "env_native.h and native.rs disagree on struct world");
    tables.vip_counters.resize(tables.words.len(), Counter::default());
    tables.backend_counters.resize(tables.backends.len(), Counter::default());
    let known = tables.fragments.len();
    tables.fragment_keys.resize(known + 1, FragmentKey::zeroed());
    tables.fragments.resize(known + 1, Fragment::zeroed());
    let (keys, mut indices): (Vec<_>, Vec<_>) = tables.vips.iter().copied().unzip();
    let mut buffer = vec![0xaa; HEADROOM];
    buffer.extend_from_slice(frame);
    let start = buffer.as_mut_ptr();
    let (data, limit) = (start.wrapping_add(HEADROOM), start.wrapping_add(HEADROOM + frame.len()));
    let mut world = World {
        config: tables.config,
        keys: keys.as_ptr(),
        indices: indices.as_mut_ptr(),
        words: tables.words.as_mut_ptr(),
        blocks: tables.blocks.as_mut_ptr(),
        backends: tables.backends.as_mut_ptr(),
        hops: tables.hops.as_mut_ptr(),
        vip_counters: tables.vip_counters.as_mut_ptr(),
        backend_counters: tables.backend_counters.as_mut_ptr(),
        reasons: tables.reasons.as_mut_ptr(),
        state: &raw mut tables.state,
        bucket: &raw mut tables.bucket,
        fragment_keys: tables.fragment_keys.as_mut_ptr(),
        fragments: tables.fragments.as_mut_ptr(),
        n_keys: keys.len() as u32,
        n_words: tables.words.len() as u32,
        n_blocks: tables.blocks.len() as u32,
        n_backends: tables.backends.len() as u32,
        n_hops: tables.hops.len() as u32,
        n_fragments: known as u32,
        max_fragments: known as u32 + 1,
        jiffies: tables.jiffies,
        now_ns: tables.now_ns,
        fib: tables.fib.unwrap_or_default(),
        fib_known: tables.fib.is_some().into(),
        learned_sid: [0; 16],
        learned_mtu: 0,
        ingress,
        redirect: 0,
        data,
        end: limit,
        buf: start,
        limit,
    };
    // SAFETY: every pointer leads into a buffer above that outlives the call, with its length beside it.
    let result = unsafe { weir_native_run(&raw mut world) } as u32;
    tables.fragment_keys.truncate(world.n_fragments as usize);
    tables.fragments.truncate(world.n_fragments as usize);
    if world.learned_mtu != 0 {
        let now = Learned { at_ns: tables.now_ns, mtu: world.learned_mtu, pad: 0 };
        tables.learned.insert(world.learned_sid, now);
    }
    let (from, to) = (world.data as usize - start as usize, world.end as usize - start as usize);
    Outcome {
        action: result & 0xff,
        reason: result >> 8,
        redirect: world.redirect,
        frame: buffer[from..to].to_vec(),
    }
}

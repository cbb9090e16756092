//! The worker's XDP half compiled for this machine: tests run frames through it without a kernel.
#![allow(unsafe_code, reason = "calls the C half with pointers into buffers that outlive the call")]

use bytemuck::Zeroable as _;

use crate::native::HEADROOM;
use crate::worker_abi::{Binding, Config, Counter, Endpoint, Params, PortKey, Prefix, Reason, SidKey};

/// What the program returned for "not ours": the next slot, then the stack.
pub const LEFT: u32 = 7;

/// All tables that one run sees.
#[derive(Clone, Debug)]
pub struct Tables {
    /// Program constants.
    pub config: Config,
    /// `w_params`.
    pub params: Params,
    /// `w_sids`.
    pub sids: Vec<(SidKey, u32)>,
    /// `w_services`.
    pub services: Vec<(PortKey, u32)>,
    /// `w_bindings`.
    pub bindings: Vec<Binding>,
    /// `w_endpoints`.
    pub endpoints: Vec<Endpoint>,
    /// `w_in` of one CPU.
    pub counters: Vec<Counter>,
    /// `w_reasons` of one CPU.
    pub reasons: Vec<u64>,
}

impl Tables {
    /// Empty tables: no gateway, no binding.
    pub fn new(config: Config) -> Self {
        let mut params = Params::zeroed();
        params.gateways.fill(Prefix::NONE);
        Self {
            config,
            params,
            sids: Vec::new(),
            services: Vec::new(),
            bindings: Vec::new(),
            endpoints: Vec::new(),
            counters: Vec::new(),
            reasons: vec![0; Reason::ALL.len()],
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
    /// Endpoint in the frame's metadata; 0 when it was not marked.
    pub marked: u32,
    /// The frame as it stands after the run.
    pub frame: Vec<u8>,
}

#[repr(C)]
struct World {
    config: Config,
    params: Params,
    keys: *const SidKey,
    indices: *mut u32,
    bindings: *mut Binding,
    endpoints: *mut Endpoint,
    counters: *mut Counter,
    reasons: *mut u64,
    services: *const PortKey,
    service_indices: *mut u32,
    n_keys: u32,
    n_bindings: u32,
    n_endpoints: u32,
    n_services: u32,
    marked: u32,
    data: *mut u8,
    end: *mut u8,
    buf: *mut u8,
}

unsafe extern "C" {
    fn weir_native_worker_run(world: *mut World) -> i32;
    fn weir_native_worker_world_size() -> u32;
}

/// Runs one frame. Counters in `tables` grow as they would in the kernel.
pub fn run(tables: &mut Tables, frame: &[u8]) -> Outcome {
    // SAFETY: takes no argument, returns a constant.
    let size = unsafe { weir_native_worker_world_size() } as usize;
    assert_eq!(
        size,
        size_of::<World>(),
        "worker_env_native.h and native_worker.rs disagree on struct w_world"
    );
    tables.counters.resize(tables.bindings.len(), Counter::default());
    let (keys, mut indices): (Vec<_>, Vec<_>) = tables.sids.iter().copied().unzip();
    let (services, mut service_indices): (Vec<_>, Vec<_>) = tables.services.iter().copied().unzip();
    let mut buffer = vec![0xaa; HEADROOM];
    buffer.extend_from_slice(frame);
    let start = buffer.as_mut_ptr();
    let mut world = World {
        config: tables.config,
        params: tables.params,
        keys: keys.as_ptr(),
        indices: indices.as_mut_ptr(),
        bindings: tables.bindings.as_mut_ptr(),
        endpoints: tables.endpoints.as_mut_ptr(),
        counters: tables.counters.as_mut_ptr(),
        reasons: tables.reasons.as_mut_ptr(),
        services: services.as_ptr(),
        service_indices: service_indices.as_mut_ptr(),
        n_keys: keys.len() as u32,
        n_bindings: tables.bindings.len() as u32,
        n_endpoints: tables.endpoints.len() as u32,
        n_services: services.len() as u32,
        marked: 0,
        data: start.wrapping_add(HEADROOM),
        end: start.wrapping_add(HEADROOM + frame.len()),
        buf: start,
    };
    // SAFETY: every pointer leads into a buffer above that outlives the call, with its length beside it.
    let result = unsafe { weir_native_worker_run(&raw mut world) } as u32;
    let (from, to) = (world.data as usize - start as usize, world.end as usize - start as usize);
    let (action, reason, marked) = (result & 0xff, result >> 8, world.marked);
    Outcome { action, reason, marked, frame: buffer[from..to].to_vec() }
}

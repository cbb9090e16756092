//! Weir's BPF programs and the layout they share with user space.

pub mod abi;
pub mod native;
pub mod native_worker;
pub mod worker_abi;

/// Bytes of an ELF object, aligned as its reader needs them.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

static LB_OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/lb.o")));
static CAPTURE_OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/capture.o")));
static WORKER_OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/worker.o")));
static ROOT_OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/root.o")));

/// The load balancer: programs `lb` and `beat`, and all maps.
pub fn lb_object() -> &'static [u8] {
    &LB_OBJECT.0
}

/// The load balancer's second build, which also writes the frames of one VIP to the ring buffer `captures`.
pub fn capture_object() -> &'static [u8] {
    &CAPTURE_OBJECT.0
}

/// The worker: programs `decap`, `deliver` and `from_endpoint`, and all their maps.
pub fn worker_object() -> &'static [u8] {
    &WORKER_OBJECT.0
}

/// The root: program `root` and its `slots`.
pub fn root_object() -> &'static [u8] {
    &ROOT_OBJECT.0
}

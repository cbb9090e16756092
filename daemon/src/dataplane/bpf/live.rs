//! The program in an interface's slot, run on single frames: for `weir trace`.

use std::os::fd::{AsFd as _, BorrowedFd};

use aya::programs::{ProgramFd, ProgramInfo, loaded_programs};
use weir_bpf::abi::{self, Trace};

use super::{Pins, Root, sys};
use crate::dataplane::{Error, chain};

/// Bytes of metadata in front of a traced frame.
const META: usize = size_of::<Trace>();
/// What a frame may grow by: an outer header, or an ICMP error's.
const ROOM: usize = 1024;
/// Bytes of the shortest frame that the kernel runs: an Ethernet header.
const SHORTEST: usize = 14;

/// The program that packets of an interface run now.
pub struct LiveProgram {
    program: ProgramFd,
    interface: String,
    ifindex: u32,
    others: Vec<(u32, String)>,
}

/// What the program made of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRun {
    /// XDP action.
    pub action: u32,
    /// What the program wrote down.
    pub trace: Trace,
    /// The frame as it stands after the run.
    pub frame: Vec<u8>,
}

impl LiveProgram {
    /// Opens the program in the load balancer's slot of an interface. The caller is in the gateway's network namespace.
    pub fn open(pins: &Pins, interface: &str) -> Result<Self, Error> {
        let missing =
            || Error::NotServing { interface: interface.into(), served: pins.interfaces().join(", ") };
        if !pins.interfaces().iter().any(|name| name == interface) {
            return Err(missing());
        }
        let ifindex = sys::interface_index(interface)
            .map_err(|_| Error::NoInterface { interface: interface.into() })?;
        let root = Root::open(pins, interface)?;
        let id = root.program(abi::SLOT_LB).ok_or_else(missing)?;
        let programs = || loaded_programs().filter_map(Result::ok);
        let info = programs().find(|info| info.id() == id).ok_or_else(missing)?;
        let name = |info: ProgramInfo| info.name_as_str().unwrap_or_default().to_owned();
        let others = (abi::SLOT_LB + 1..abi::ROOT_SLOTS).filter_map(|slot| Some((slot, root.program(slot)?)));
        let others = others
            .map(|(slot, id)| (slot, programs().find(|info| info.id() == id).map(name).unwrap_or_default()))
            .collect();
        let failed = |e: aya::programs::ProgramError| Error::Load { program: "lb", reason: chain(&e) };
        let program = info.fd().map_err(failed)?;
        Ok(Self { program, interface: interface.into(), ifindex, others })
    }

    /// Interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Its index.
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// Its MAC address, where it has one.
    pub fn mac(&self) -> [u8; 6] {
        let text = std::fs::read_to_string(format!("/sys/class/net/{}/address", self.interface));
        let text = text.unwrap_or_default();
        let mut bytes = text.trim().split(':').map(|part| u8::from_str_radix(part, 16).unwrap_or_default());
        std::array::from_fn(|_| bytes.next().unwrap_or_default())
    }

    /// Slots of other programs on the interface, which get what the load balancer leaves, with the programs' names.
    pub fn others(&self) -> &[(u32, String)] {
        &self.others
    }

    /// Runs a frame as if it had come in on the interface. Counts nothing, sends nothing, changes nothing.
    pub fn run(&self, frame: &[u8]) -> Result<TraceRun, Error> {
        trace(self.program.as_fd(), self.ifindex, frame)
    }
}

/// Runs a frame behind the marker in its metadata.
pub(super) fn trace(program: BorrowedFd<'_>, ifindex: u32, frame: &[u8]) -> Result<TraceRun, Error> {
    let refused = |reason: String| Error::Load { program: "lb on a frame of one's own", reason };
    if frame.len() < SHORTEST {
        return Err(refused(format!(
            "{} bytes are no frame: an Ethernet header has {SHORTEST}",
            frame.len()
        )));
    }
    let input = [bytemuck::bytes_of(&Trace::new()), frame].concat();
    // struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex
    let context: [u32; 6] = [META as u32, input.len() as u32, 0, ifindex, 0, 0];
    let mut output = vec![0; input.len() + ROOM];
    let (action, length) = sys::test_run(program, &input, &mut output, bytemuck::bytes_of(&context))
        .map_err(|e| refused(format!("run it on a frame: {e}")))?;
    output.truncate(length);
    let Some((trace, frame)) = output.split_at_checked(META) else {
        return Err(refused(format!("the kernel gave back {} bytes", output.len())));
    };
    let trace: Trace = bytemuck::pod_read_unaligned(trace);
    if trace.magic != abi::TRACE_MAGIC || trace.reason == Trace::NONE {
        let remedy = "use the weir program of the running daemon, which loaded the one in the slot";
        return Err(refused(format!("the program in the slot does not know traced frames; {remedy}")));
    }
    Ok(TraceRun { action, trace, frame: frame.to_vec() })
}

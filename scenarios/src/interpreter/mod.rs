//! An interpreter for the load balancer's own BPF program: it runs the compiled object's instructions one by one and counts
//! them, so that the cost of a packet is a number that does not depend on the machine.
//!
//! One executed instruction is one of the object's after linking, a 64-bit load being one; a helper call is one
//! too, whatever it does. Instruction set: RFC 9669. Helpers that a packet of the cases never reaches are refused.

pub mod isa;
pub mod maps;
pub mod memory;

use std::collections::{BTreeMap, HashMap, HashSet};

use anyhow::{Context as _, Result, bail, ensure};
use aya_obj::Object;
use isa::Insn;
use maps::{Kind, Map};
use memory::Memory;

/// Bytes of a frame of the stack.
const STACK: usize = 512;
/// Bytes before and after the packet that it may grow into.
const HEADROOM: usize = 256;
/// Most instructions of a run.
const PATIENCE: u64 = 1_000_000;

/// `BPF_PSEUDO_MAP_FD`, `BPF_PSEUDO_MAP_VALUE`: what a 64-bit load means by its source register.
const MAP: usize = 1;
const MAP_VALUE: usize = 2;

/// A program, its maps, and the packet it runs on.
#[derive(Debug)]
pub struct Machine {
    insns: Vec<Insn>,
    memory: Memory,
    /// By name.
    names: BTreeMap<String, usize>,
    maps: Vec<Map>,
    stack: Vec<u64>,
    packet: Packet,
    ctx: u64,
    /// `bpf_ktime_get_coarse_ns` and `bpf_jiffies64`.
    pub now_ns: u64,
    ifindex: u32,
    redirect: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Packet {
    start: u64,
    end: u64,
    lowest: u64,
    highest: u64,
}

/// What became of a packet.
#[derive(Clone, Debug)]
pub struct Run {
    /// What the program returned.
    pub action: u32,
    /// Interface of a redirect, 0 without.
    pub redirect: u32,
    /// The frame as it was left.
    pub frame: Vec<u8>,
    /// Instructions executed.
    pub executed: u64,
}

impl Machine {
    /// Links a program of an object whose global `variable` is set to `value`. `entries` gives maps another capacity.
    ///
    /// # Errors
    /// When the object cannot be linked, or holds a map of a kind that is not known here.
    pub fn new(
        object: &[u8],
        program: &str,
        (variable, value): (&str, &[u8]),
        entries: &[(&str, u32)],
    ) -> Result<Self> {
        let mut object = Object::parse(object).context("parse the object")?;
        object.patch_map_data(HashMap::from([(variable, (value, true))])).context("set the constants")?;
        let mut memory = Memory::default();
        let (mut names, mut maps) = (BTreeMap::new(), Vec::new());
        for (name, map) in &object.maps {
            names.insert(name.clone(), maps.len());
            let capacity =
                entries.iter().find(|(n, _)| n == name).map_or(map.max_entries(), |(_, entries)| *entries);
            let kind = match map.map_type() {
                // Array, per-CPU array.
                2 | 6 => Kind::Array,
                // Hash, LRU hash.
                1 | 9 => Kind::Hash,
                3 => Kind::Programs,
                27 => Kind::Ring,
                other => bail!("map {name} is of type {other}"),
            };
            maps.push(if map.data().is_empty() {
                let (key, value) = (map.key_size() as usize, map.value_size() as usize);
                // What only user space reads needs no room here.
                Map::new(&mut memory, kind, key, value, capacity as usize)
            } else {
                Map::section(&mut memory, map.data().to_vec())
            });
        }
        let sections: HashSet<usize> = object.functions.keys().map(|(section, _)| *section).collect();
        let handles: Vec<_> =
            object.maps.iter().map(|(name, map)| (name.clone(), names[name] as i32, map.clone())).collect();
        object
            .relocate_maps(handles.iter().map(|(name, handle, map)| (name.as_str(), *handle, map)), &sections)
            .context("link maps")?;
        object.relocate_calls(&sections).context("link functions")?;
        let key = object.programs.get(program).with_context(|| format!("program {program}"))?.function_key();
        let function = object.functions.get(&key).with_context(|| format!("code of {program}"))?;
        let insns = function.instructions.iter().map(|i| Insn {
            code: i.code,
            dst: i.dst_reg().into(),
            src: i.src_reg().into(),
            off: i.off,
            imm: i.imm,
        });
        let stack = (0..8).map(|_| memory.add(vec![0; STACK]) + STACK as u64).collect();
        // Not read as memory: the three pointers are wider than their fields.
        let ctx = memory.add(Vec::new());
        Ok(Self {
            insns: insns.collect(),
            memory,
            names,
            maps,
            stack,
            packet: Packet::default(),
            ctx,
            now_ns: 1,
            ifindex: 0,
            redirect: 0,
        })
    }

    fn named(&self, name: &str) -> Result<usize> {
        self.names.get(name).copied().with_context(|| format!("map {name}"))
    }

    /// Sets an element of an array.
    ///
    /// # Errors
    /// When there is no such map or element.
    pub fn set(&mut self, map: &str, index: u32, value: &[u8]) -> Result<()> {
        let at = self.maps[self.named(map)?].at(index).with_context(|| map.to_owned())?;
        self.memory.bytes_mut(at, value.len())?.copy_from_slice(value);
        Ok(())
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// When there is no such map, or it is full.
    pub fn put(&mut self, map: &str, key: &[u8], value: &[u8]) -> Result<()> {
        let map_index = self.named(map)?;
        ensure!(self.maps[map_index].put(&mut self.memory, key, value)?, "{map} is full");
        Ok(())
    }

    /// Removes every key of a map.
    ///
    /// # Errors
    /// When there is no such map.
    pub fn clear(&mut self, map: &str) -> Result<()> {
        let map_index = self.named(map)?;
        self.maps[map_index].clear();
        Ok(())
    }

    /// All keys of a map, each with its value.
    ///
    /// # Errors
    /// When there is no such map.
    pub fn pairs(&self, map: &str) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.maps[self.named(map)?].pairs(&self.memory)
    }

    /// The first `count` elements of an array.
    ///
    /// # Errors
    /// When there is no such map, or it has fewer.
    pub fn elements(&self, map: &str, count: u32) -> Result<Vec<Vec<u8>>> {
        let map = &self.maps[self.named(map)?];
        let size = map.sizes().1;
        (0..count).map(|i| Ok(self.memory.bytes(map.at(i)?, size)?.to_vec())).collect()
    }

    /// Runs the program on a frame that came in on an interface.
    ///
    /// # Errors
    /// When the program does what a verifier would have refused, or uses what is not known here.
    pub fn run(&mut self, ifindex: u32, frame: &[u8]) -> Result<Run> {
        let mut bytes = vec![0; HEADROOM];
        bytes.extend_from_slice(frame);
        let length = bytes.len() as u64;
        // A tail may grow only to what a frame with headroom leaves of a page; nothing here grows it.
        let lowest = self.memory.add(bytes);
        let start = lowest + HEADROOM as u64;
        self.packet = Packet { start, end: lowest + length, lowest, highest: lowest + length };
        (self.ifindex, self.redirect) = (ifindex, 0);
        let (action, executed) = self.execute()?;
        let Packet { start, end, .. } = self.packet;
        let frame = self.memory.bytes(start, (end - start) as usize)?.to_vec();
        Ok(Run { action, redirect: self.redirect, frame, executed })
    }

    fn execute(&mut self) -> Result<(u32, u64)> {
        let mut regs = [0u64; 11];
        (regs[1], regs[10]) = (self.ctx, self.stack[0]);
        let mut frames: Vec<(usize, [u64; 5])> = Vec::new();
        let (mut at, mut executed) = (0usize, 0u64);
        loop {
            let insn = *self.insns.get(at).with_context(|| format!("jump to instruction {at}"))?;
            executed += 1;
            ensure!(executed < PATIENCE, "more than {PATIENCE} instructions");
            at += 1;
            let other = if insn.code & 8 != 0 { regs[insn.src] } else { insn.imm as i64 as u64 };
            match insn.class() {
                0 => {
                    ensure!(insn.code == 0x18, "load opcode {:#04x}", insn.code);
                    let high = self.insns.get(at).context("second half of a load")?.imm;
                    at += 1;
                    regs[insn.dst] = match insn.src {
                        0 => u64::from(insn.imm as u32) | u64::from(high as u32) << 32,
                        MAP => insn.imm as u64,
                        MAP_VALUE => self.maps[insn.imm as usize].base + high as u64,
                        kind => bail!("64-bit load of kind {kind}"),
                    };
                }
                1 => {
                    ensure!(insn.code & 0xe0 == 0x60, "load opcode {:#04x}", insn.code);
                    regs[insn.dst] = self.load(regs[insn.src], insn)?;
                }
                2 => self.memory.store(offset(regs[insn.dst], insn), insn.width(), insn.imm as i64 as u64)?,
                3 if insn.code & 0xe0 == 0x60 => {
                    self.memory.store(offset(regs[insn.dst], insn), insn.width(), regs[insn.src])?;
                }
                3 => self.atomic(&mut regs, insn)?,
                class @ (4 | 7) => regs[insn.dst] = isa::alu(insn, regs[insn.dst], other, class == 7)?,
                class => match (insn.code & 0xf0, class) {
                    (0x00, 5) => at = target(at, insn.off.into())?,
                    (0x00, _) => at = target(at, insn.imm)?,
                    (0x80, 5) if insn.src == 0 => {
                        regs[0] = self.call(insn.imm, [regs[1], regs[2], regs[3], regs[4], regs[5]])?;
                    }
                    (0x80, 5) => {
                        ensure!(insn.src == 1, "call of kind {}", insn.src);
                        frames.push((at, [regs[6], regs[7], regs[8], regs[9], regs[10]]));
                        regs[10] = *self.stack.get(frames.len()).context("calls nested too deep")?;
                        at = target(at, insn.imm)?;
                    }
                    (0x90, 5) => {
                        let Some((back, kept)) = frames.pop() else { return Ok((regs[0] as u32, executed)) };
                        at = back;
                        regs[6..].copy_from_slice(&kept);
                    }
                    _ => {
                        if isa::taken(insn, regs[insn.dst], other, class == 5)? {
                            at = target(at, insn.off.into())?;
                        }
                    }
                },
            }
        }
    }

    /// A load; the fields of the context are wider than they look.
    fn load(&self, base: u64, insn: Insn) -> Result<u64> {
        let at = offset(base, insn);
        if base != self.ctx {
            return self.memory.load(at, insn.width());
        }
        ensure!(insn.width() == 4, "{} bytes of the context", insn.width());
        Ok(match at - self.ctx {
            0 | 8 => self.packet.start,
            4 => self.packet.end,
            12 => self.ifindex.into(),
            16 | 20 => 0,
            other => bail!("context field at {other}"),
        })
    }

    fn atomic(&mut self, regs: &mut [u64; 11], insn: Insn) -> Result<()> {
        // BPF_ADD, with or without BPF_FETCH.
        ensure!(insn.imm & !1 == 0, "atomic operation {:#x}", insn.imm);
        let at = offset(regs[insn.dst], insn);
        let old = self.memory.load(at, insn.width())?;
        self.memory.store(at, insn.width(), old.wrapping_add(regs[insn.src]))?;
        if insn.imm & 1 != 0 {
            regs[insn.src] = old;
        }
        Ok(())
    }

    /// A helper, by the kernel's number for it.
    fn call(&mut self, helper: i32, args: [u64; 5]) -> Result<u64> {
        let failed = (-22i64) as u64;
        let map = |handle: u64| handle as usize;
        Ok(match helper {
            // map_lookup_elem
            1 => self.maps[map(args[0])].lookup(&self.memory, args[1])?,
            // map_update_elem
            2 => {
                let table = &mut self.maps[map(args[0])];
                let (key, value) = table.sizes();
                let key = self.memory.bytes(args[1], key)?.to_vec();
                let value = self.memory.bytes(args[2], value)?.to_vec();
                if table.put(&mut self.memory, &key, &value)? { 0 } else { failed }
            }
            // tail_call: all slots are empty.
            12 => {
                ensure!(
                    self.maps[map(args[1])].kind == Kind::Programs,
                    "tail call into a map of another kind"
                );
                failed
            }
            // redirect
            23 => {
                self.redirect = args[0] as u32;
                4
            }
            // csum_diff, of one buffer only
            28 => {
                ensure!(args[1] == 0 && args[3].is_multiple_of(4), "csum_diff of two buffers");
                let words = self.memory.bytes(args[2], args[3] as usize)?.chunks_exact(2);
                let sum: u64 = words.map(|w| u64::from(u16::from_le_bytes([w[0], w[1]]))).sum();
                let mut sum = sum + u64::from(args[4] as u32);
                while sum > 0xffff_ffff {
                    sum = (sum & 0xffff_ffff) + (sum >> 32);
                }
                sum
            }
            // xdp_adjust_head, xdp_adjust_tail
            44 => self.adjust(args[1] as i32, 0),
            65 => self.adjust(0, args[1] as i32),
            // jiffies64, ktime_get_ns, ktime_get_coarse_ns
            118 => self.now_ns / 10_000_000,
            5 | 160 => self.now_ns,
            // ringbuf_output, ringbuf_query; ringbuf_reserve, which never finds room.
            130 | 131 | 134 => 0,
            // xdp_get_buff_len, xdp_load_bytes
            188 => self.packet.end - self.packet.start,
            189 => {
                let (from, length) =
                    (self.packet.start + u64::from(args[1] as u32), u64::from(args[3] as u32));
                if from + length > self.packet.end {
                    return Ok(failed);
                }
                let bytes = self.memory.bytes(from, length as usize)?.to_vec();
                self.memory.bytes_mut(args[2], bytes.len())?.copy_from_slice(&bytes);
                0
            }
            other => bail!("helper {other}"),
        })
    }

    /// Moves the packet's bounds.
    fn adjust(&mut self, head: i32, tail: i32) -> u64 {
        let start = self.packet.start.wrapping_add_signed(head.into());
        let end = self.packet.end.wrapping_add_signed(tail.into());
        // An Ethernet header must stay.
        if start < self.packet.lowest || end > self.packet.highest || start + 14 > end {
            return (-22i64) as u64;
        }
        (self.packet.start, self.packet.end) = (start, end);
        0
    }
}

const fn offset(base: u64, insn: Insn) -> u64 {
    base.wrapping_add_signed(insn.off as i64)
}

fn target(at: usize, by: i32) -> Result<usize> {
    at.checked_add_signed(by as isize).context("jump before the program")
}

//! The instruction set (RFC 9669) as far as clang emits it for programs like ours: arithmetic, jumps, loads, stores, atomic
//! adds, calls.

use anyhow::{Result, bail};

/// One instruction, taken apart.
#[derive(Clone, Copy, Debug)]
pub struct Insn {
    /// Opcode.
    pub code: u8,
    /// Destination register.
    pub dst: usize,
    /// Source register.
    pub src: usize,
    /// Offset of a jump or of a memory operand.
    pub off: i16,
    /// Immediate operand.
    pub imm: i32,
}

impl Insn {
    /// Class: the low three bits.
    pub const fn class(self) -> u8 {
        self.code & 7
    }
    /// Bytes of a memory operand.
    pub const fn width(self) -> usize {
        match self.code & 0x18 {
            0x00 => 4,
            0x08 => 2,
            0x10 => 1,
            _ => 8,
        }
    }
}

/// Result of an arithmetic instruction on 64 or 32 bits (`wide`); a 32-bit result clears the upper half.
///
/// # Errors
/// For an opcode that is not known.
pub fn alu(insn: Insn, a: u64, b: u64, wide: bool) -> Result<u64> {
    if insn.code & 0xf0 == 0xd0 {
        // Its width stands in the immediate.
        return Ok(swap(insn, a));
    }
    let (a, b) = if wide { (a, b) } else { (u64::from(a as u32), u64::from(b as u32)) };
    let shift = (b & if wide { 63 } else { 31 }) as u32;
    let value = match insn.code & 0xf0 {
        0x00 => a.wrapping_add(b),
        0x10 => a.wrapping_sub(b),
        0x20 => a.wrapping_mul(b),
        // Division by zero gives zero, its remainder the dividend.
        0x30 if insn.off == 0 => a.checked_div(b).unwrap_or(0),
        0x90 if insn.off == 0 => a.checked_rem(b).unwrap_or(a),
        0x40 => a | b,
        0x50 => a & b,
        0x60 => a << shift,
        0x70 => a >> shift,
        0x80 => a.wrapping_neg(),
        0xa0 => a ^ b,
        0xb0 if insn.off == 0 => b,
        0xc0 if wide => (a as i64 >> shift) as u64,
        0xc0 => (a as i32 >> shift) as u32 as u64,
        _ => bail!("arithmetic opcode {:#04x} with offset {}", insn.code, insn.off),
    };
    Ok(if wide { value } else { u64::from(value as u32) })
}

/// Byte order: this machine's is little-endian in the sense of the instruction set's objects.
fn swap(insn: Insn, a: u64) -> u64 {
    // Source bit 0 in class ALU is "to little endian"; class ALU64 always swaps.
    let to_big = insn.code & 8 != 0 || insn.class() == 7;
    match (insn.imm, to_big) {
        (16, true) => u64::from((a as u16).swap_bytes()),
        (32, true) => u64::from((a as u32).swap_bytes()),
        (_, true) => a.swap_bytes(),
        (16, false) => u64::from(a as u16),
        (32, false) => u64::from(a as u32),
        (_, false) => a,
    }
}

/// Whether a conditional jump is taken.
///
/// # Errors
/// For an opcode that is not known.
pub fn taken(insn: Insn, a: u64, b: u64, wide: bool) -> Result<bool> {
    let (a, b) = if wide { (a, b) } else { (u64::from(a as u32), u64::from(b as u32)) };
    let (sa, sb) = if wide { (a as i64, b as i64) } else { (i64::from(a as i32), i64::from(b as i32)) };
    Ok(match insn.code & 0xf0 {
        0x10 => a == b,
        0x20 => a > b,
        0x30 => a >= b,
        0x40 => a & b != 0,
        0x50 => a != b,
        0x60 => sa > sb,
        0x70 => sa >= sb,
        0xa0 => a < b,
        0xb0 => a <= b,
        0xc0 => sa < sb,
        0xd0 => sa <= sb,
        other => bail!("jump opcode {other:#04x}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn insn(code: u8, imm: i32) -> Insn {
        Insn { code, dst: 0, src: 0, off: 0, imm }
    }

    #[test]
    fn arithmetic_is_that_of_the_standard() {
        let alu32 = |code, a, b| alu(insn(code, 0), a, b, false).unwrap();
        let alu64 = |code, a, b| alu(insn(code, 0), a, b, true).unwrap();
        assert_eq!(alu32(0x04, u64::MAX, 2), 1, "upper half cleared");
        assert_eq!(alu64(0x07, u64::MAX, 2), 1);
        assert_eq!(alu64(0x37, 7, 0), 0, "division by zero");
        assert_eq!(alu64(0x97, 7, 0), 7, "remainder of a division by zero");
        assert_eq!(alu64(0x67, 1, 65), 2, "shifts are taken modulo the width");
        assert_eq!(alu32(0xc4, 0x8000_0000, 4), 0xf800_0000);
        assert_eq!(alu64(0xc7, 0x8000_0000, 4), 0x0800_0000);
        assert_eq!(alu(insn(0xdc, 16), 0x1234, 0, false).unwrap(), 0x3412, "to big endian");
        assert_eq!(alu(insn(0xdc, 32), 0x1234, 0, false).unwrap(), 0x3412_0000);
        assert_eq!(alu(insn(0xdc, 64), 0x0102_0304_0506_0708, 0, false).unwrap(), 0x0807_0605_0403_0201);
        assert!(alu(insn(0xe4, 0), 1, 1, false).is_err());
    }

    #[test]
    fn jumps_compare_as_their_names_say() {
        let jump = |code, a: i64, b: i64, wide| taken(insn(code, 0), a as u64, b as u64, wide).unwrap();
        assert!(jump(0x25, -1, 1, true), "unsigned");
        assert!(!jump(0x65, -1, 1, true), "signed");
        assert!(jump(0x1e, 1 << 32, 0, false), "32 bits only");
        assert!(!jump(0x1d, 1 << 32, 0, true));
        assert!(jump(0x45, 6, 2, true) && !jump(0x45, 4, 2, true));
    }
}

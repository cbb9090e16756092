//! What a program sees as memory: regions apart, each access checked. An address is a region's number above 32 bits of
//! offset, so that pointer arithmetic works as on the machine and one that leaves its region is found.

use anyhow::{Result, bail};

/// Distance between two regions.
const REGION: u64 = 1 << 32;
/// Room before and after each region's start, for pointers that go back before they are used.
const START: u64 = 1 << 16;

/// All regions.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    regions: Vec<Vec<u8>>,
}

impl Memory {
    /// Adds a region and gives the address of its first byte.
    pub fn add(&mut self, bytes: Vec<u8>) -> u64 {
        self.regions.push(bytes);
        self.regions.len() as u64 * REGION + START
    }

    /// Bytes from an address on.
    ///
    /// # Errors
    /// When any of them lies outside its region.
    pub fn bytes(&self, at: u64, len: usize) -> Result<&[u8]> {
        let (region, from) = locate(at)?;
        match self.regions.get(region).and_then(|bytes| bytes.get(from..from.checked_add(len)?)) {
            Some(bytes) => Ok(bytes),
            None => bail!("{len} bytes at {at:#x} are outside region {region}"),
        }
    }

    /// The same, to write to.
    ///
    /// # Errors
    /// When any of them lies outside its region.
    pub fn bytes_mut(&mut self, at: u64, len: usize) -> Result<&mut [u8]> {
        let (region, from) = locate(at)?;
        match self.regions.get_mut(region).and_then(|bytes| bytes.get_mut(from..from.checked_add(len)?)) {
            Some(bytes) => Ok(bytes),
            None => bail!("{len} bytes at {at:#x} are outside region {region}"),
        }
    }

    /// A little-endian number of 1, 2, 4 or 8 bytes.
    ///
    /// # Errors
    /// When it lies outside its region.
    pub fn load(&self, at: u64, len: usize) -> Result<u64> {
        let mut word = [0; 8];
        word[..len].copy_from_slice(self.bytes(at, len)?);
        Ok(u64::from_le_bytes(word))
    }

    /// Stores the low bytes of a number.
    ///
    /// # Errors
    /// When they lie outside their region.
    pub fn store(&mut self, at: u64, len: usize, value: u64) -> Result<()> {
        self.bytes_mut(at, len)?.copy_from_slice(&value.to_le_bytes()[..len]);
        Ok(())
    }
}

fn locate(at: u64) -> Result<(usize, usize)> {
    let region = at / REGION;
    match ((at % REGION).checked_sub(START), region.checked_sub(1)) {
        (Some(from), Some(region)) => Ok((region as usize, from as usize)),
        _ => bail!("{at:#x} is no pointer"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_outside_a_region_cannot_be_read_or_written() {
        let mut memory = Memory::default();
        let at = memory.add(vec![1, 2, 3, 4]);
        let other = memory.add(vec![9; 4]);
        assert_eq!(memory.load(at, 4).unwrap(), 0x0403_0201);
        memory.store(at + 1, 2, 0xffff_aabb).unwrap();
        assert_eq!(memory.bytes(at, 4).unwrap(), [1, 0xbb, 0xaa, 4]);
        for wrong in [at - 1, at + 1, at + 4, 0, 7, other + 1] {
            assert!(memory.load(wrong, 4).is_err(), "{wrong:#x}");
            assert!(memory.store(wrong, 4, 0).is_err(), "{wrong:#x}");
        }
    }
}

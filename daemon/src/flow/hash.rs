//! The keyed flow hash: NH (Black et al., CRYPTO '99) with a keyed finaliser, as `docs/packet-path.md` states it.

use std::net::Ipv6Addr;

use sha2::{Digest, Sha256};
use weir_bpf::abi::{Affinity, Config};

/// Says in the key expansion what the bytes are for, so that the region's key can serve other uses too.
const DOMAIN: &[u8] = b"weir flow hash v1";
/// Unkeyed multiplier of the finaliser (SplitMix64's last one).
const MIX: u64 = 0x94d0_49bb_1331_11eb;

/// Key of the flow hash. Every gateway of a region holds the same one.
#[derive(Clone, PartialEq, Eq)]
pub struct HashKey {
    /// NH key words; the first eight are used for IPv6.
    pub nh: [u32; 12],
    /// Odd multiplier of the finaliser.
    pub fin: u64,
}

impl std::fmt::Debug for HashKey {
    // The key is a secret: it must not reach a log through a derived implementation.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HashKey(..)")
    }
}

impl HashKey {
    /// Expands a region's 32-byte key: SHA-256 in counter mode over the label `weir flow hash v1`, a 32-bit big-endian
    /// counter from 0, and the key. Words are taken little-endian in order, first `nh`, then `fin` with its
    /// lowest bit set.
    pub fn from_region_key(key: &[u8; 32]) -> Self {
        let mut stream = [0u8; 64];
        for (counter, block) in stream.chunks_exact_mut(32).enumerate() {
            let mut sha = Sha256::new();
            sha.update(DOMAIN);
            sha.update((counter as u32).to_be_bytes());
            sha.update(key);
            block.copy_from_slice(&sha.finalize());
        }
        let word = |i: usize| u32_le(&stream, 4 * i);
        let nh = std::array::from_fn(word);
        let fin = (u64::from(word(12)) | u64::from(word(13)) << 32) | 1;
        Self { nh, fin }
    }
}

impl From<&Config> for HashKey {
    fn from(config: &Config) -> Self {
        Self { nh: config.nh, fin: config.fin }
    }
}

/// The two halves of a flow's hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowHash {
    /// High half: chooses the ring slot.
    pub h: u32,
    /// Low half: outer flow label (RFC 6438), outer source bits, next hop among several.
    pub low: u32,
}

impl FlowHash {
    /// Slot of a ring that starts at `base` and has `size` slots: base + (h × size) >> 32.
    pub const fn slot(self, base: u32, size: u32) -> u32 {
        base.wrapping_add(((self.h as u64 * size as u64) >> 32) as u32)
    }
    /// Which of `count` consecutive next hops: ((low & 0xffff) × count) >> 16; 0 when there is one or none.
    pub const fn next_hop(self, count: u8) -> u32 {
        ((self.low & 0xffff) * count as u32) >> 16
    }
    /// Flow label of the outer header: bits 12–31 of the low half.
    pub const fn flow_label(self) -> u32 {
        self.low >> 12
    }
    /// Last two bytes of the outer source address.
    pub const fn source_bits(self) -> [u8; 2] {
        (self.low as u16).to_be_bytes()
    }
}

/// Hashes what `affinity` says of a client's packet to a VIP. Ports in host order. Quoted replies are hashed with
/// their client side first, so that an ICMP error follows its flow.
pub fn hash(
    key: &HashKey,
    affinity: Affinity,
    client: Ipv6Addr,
    client_port: u16,
    vip_port: u16,
    protocol: u8,
) -> FlowHash {
    let (p, t) = match affinity {
        Affinity::None => {
            let ([a, b], [c, d]) = (client_port.to_be_bytes(), vip_port.to_be_bytes());
            (u32::from_le_bytes([a, b, c, d]), u32::from(protocol))
        }
        Affinity::ClientIp => (0, 0),
        Affinity::ClientIpAndProtocol => (0, u32::from(protocol)),
    };
    let address = client.octets();
    let k = &key.nh;
    let product = |x: u32, kx: u32, y: u32, ky: u32| {
        u64::from(x.wrapping_add(kx)).wrapping_mul(u64::from(y.wrapping_add(ky)))
    };
    let mut a = product(u32_le(&address, 0), k[0], u32_le(&address, 4), k[1])
        .wrapping_add(product(u32_le(&address, 8), k[2], u32_le(&address, 12), k[3]))
        .wrapping_add(product(p, k[4], t, k[5]))
        .wrapping_add(u64::from(k[6]) | u64::from(k[7]) << 32);
    a ^= a >> 32;
    a = a.wrapping_mul(key.fin);
    a ^= a >> 29;
    a = a.wrapping_mul(MIX);
    a ^= a >> 32;
    FlowHash { h: (a >> 32) as u32, low: a as u32 }
}

/// The little-endian word at `at`; callers pass offsets inside fixed arrays.
fn u32_le(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

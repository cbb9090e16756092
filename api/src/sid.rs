//! SID layout: bits 1–48 the region's block, 49–64 the node, 65–68 the function, 69–80 the argument, the rest zero.

use std::net::Ipv6Addr;

use ipnet::Ipv6Net;

/// Smallest and largest node id the layout allows.
pub const NODE_IDS: std::ops::RangeInclusive<u16> = 1..=0xdfff;
/// Smallest and largest argument of a SID (12 bits; 0 is no argument).
pub const ARGUMENTS: std::ops::RangeInclusive<u16> = 1..=0xfff;

/// Composes a SID from the region's /48 block.
pub fn compose(block: Ipv6Net, node: u16, function: u8, argument: u16) -> Ipv6Addr {
    let low = u128::from(function & 0xf) << 60 | u128::from(argument & 0xfff) << 48;
    Ipv6Addr::from_bits(block.network().to_bits() | u128::from(node) << 64 | low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sid_has_block_node_function_argument_in_that_order() {
        let block = "2001:db8:ff01::/48".parse().unwrap();
        assert_eq!(compose(block, 0x12, 0xe, 0x345).to_string(), "2001:db8:ff01:12:e345::");
    }
}

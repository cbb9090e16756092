//! What can be set on the layer added last, by its type.

use super::assemble::{Checksum, Entry};
use super::build::Packet;
use super::checksum;
use super::extension::{Fragment, Options, Routing};
use super::header::{Ethernet, Icmp, Ipv4, Ipv6, Tcp, Udp, Vlan};
use super::layer::Layer;

/// Writes `$field` of the last layer.
macro_rules! setter {
    ($(#[$doc:meta])* $variant:ident, $name:ident: $kind:ty => $field:ident) => {
        $(#[$doc])*
        pub fn $name(self, value: $kind) -> Self {
            self.edit(|entry| {
                if let Layer::$variant(header) = &mut entry.layer {
                    header.$field = value;
                }
            })
        }
    };
    ($(#[$doc:meta])* $variant:ident, $name:ident: $kind:ty => $field:ident, then $flag:ident) => {
        $(#[$doc])*
        pub fn $name(self, value: $kind) -> Self {
            self.edit(|entry| {
                entry.$flag = true;
                if let Layer::$variant(header) = &mut entry.layer {
                    header.$field = value;
                }
            })
        }
    };
}

/// The two ways to a checksum other than the right one.
macro_rules! checksum_setters {
    ($($kind:ty),*) => {$(
        impl Packet<$kind> {
            /// Sets the checksum field, right or wrong.
            pub fn checksum(self, value: u16) -> Self {
                self.edit(|entry: &mut Entry| {
                    entry.checksum = Checksum::Set;
                    checksum::set(&mut entry.layer, value);
                })
            }

            /// Makes the checksum wrong, whatever the right one is.
            pub fn wrong_checksum(self) -> Self {
                self.edit(|entry: &mut Entry| entry.checksum = Checksum::Wrong)
            }
        }
    )*};
}

checksum_setters!(Ipv4, Tcp, Udp, Icmp);

impl Packet<Ethernet> {
    setter!(
        /// Sets the EtherType, right or wrong.
        Ethernet, ethertype: u16 => ethertype, then next_set
    );
}

impl Packet<Vlan> {
    setter!(
        /// Sets the priority code point, 0–7.
        Vlan, priority: u8 => priority
    );
    setter!(
        /// Sets the EtherType, right or wrong.
        Vlan, ethertype: u16 => ethertype, then next_set
    );
}

impl Packet<Ipv6> {
    setter!(
        /// Sets DSCP and ECN.
        Ipv6, traffic_class: u8 => traffic_class
    );
    setter!(
        /// Sets the flow label, 20 bits.
        Ipv6, flow_label: u32 => flow_label
    );
    setter!(
        /// Sets the hop limit (64 otherwise).
        Ipv6, hop_limit: u8 => hop_limit
    );
    setter!(
        /// Sets the next header, right or wrong.
        Ipv6, next_header: u8 => next_header, then next_set
    );
    setter!(
        /// Sets the payload length, right or wrong.
        Ipv6, payload_length: u16 => payload_length, then length_set
    );
}

impl Packet<Ipv4> {
    setter!(
        /// Sets DSCP and ECN.
        Ipv4, tos: u8 => tos
    );
    setter!(
        /// Sets the time to live (64 otherwise).
        Ipv4, ttl: u8 => ttl
    );
    setter!(
        /// Sets the identification.
        Ipv4, identification: u16 => identification
    );
    setter!(
        /// Sets the protocol, right or wrong.
        Ipv4, protocol: u8 => protocol, then next_set
    );
    setter!(
        /// Sets the total length, right or wrong.
        Ipv4, total_length: u16 => total_length, then length_set
    );

    /// Sets the don't-fragment bit.
    pub fn dont_fragment(self) -> Self {
        self.edit(|entry| {
            if let Layer::Ipv4(header) = &mut entry.layer {
                header.dont_fragment = true;
            }
        })
    }

    /// Makes the packet a fragment; `offset` is in units of 8 bytes.
    pub fn fragmented(self, offset: u16, more: bool) -> Self {
        self.edit(|entry| {
            if let Layer::Ipv4(header) = &mut entry.layer {
                header.fragment_offset = offset;
                header.more_fragments = more;
            }
        })
    }

    /// Sets raw options, filled with zeros to a multiple of 4 and cut to 40 bytes.
    pub fn options(self, bytes: &[u8]) -> Self {
        self.edit(|entry| {
            if let Layer::Ipv4(header) = &mut entry.layer {
                header.options = super::header::padded(bytes, 4, 40);
            }
        })
    }
}

impl Packet<Options> {
    setter!(
        /// Sets the next header, right or wrong.
        Options, next_header: u8 => next_header, then next_set
    );
}

impl Packet<Routing> {
    setter!(
        /// Sets the next header, right or wrong.
        Routing, next_header: u8 => next_header, then next_set
    );
}

impl Packet<Fragment> {
    setter!(
        /// Sets the next header: a later fragment does not hold what it names.
        Fragment, next_header: u8 => next_header, then next_set
    );
}

impl Packet<Tcp> {
    setter!(
        /// Sets the flags, see [`super::flags`].
        Tcp, flags: u8 => flags
    );
    setter!(
        /// Sets the sequence number.
        Tcp, seq: u32 => seq
    );
    setter!(
        /// Sets the acknowledgement number.
        Tcp, ack: u32 => ack
    );
    setter!(
        /// Sets the window, unscaled.
        Tcp, window: u16 => window
    );

    /// Sets raw options, filled with zeros (end of options) to a multiple of 4 and cut to 40 bytes.
    pub fn options(self, bytes: &[u8]) -> Self {
        self.edit(|entry| {
            if let Layer::Tcp(header) = &mut entry.layer {
                header.options = super::header::padded(bytes, 4, 40);
            }
        })
    }

    /// Sets the maximum segment size option (RFC 9293) as the only one.
    pub fn mss(self, bytes: u16) -> Self {
        let [high, low] = bytes.to_be_bytes();
        self.options(&[2, 4, high, low])
    }
}

impl Packet<Udp> {
    setter!(
        /// Sets the length, right or wrong.
        Udp, length: u16 => length, then length_set
    );
}

//! What a peer announces to us: parsed, counted, and refused. Nothing learned is used or announced again.

use std::collections::BTreeSet;

use ipnet::IpNet;
use rustbgpd_fsm::Event;
use rustbgpd_wire::validate::{ErrorDisposition, validate_update_attributes};
use rustbgpd_wire::{NotificationCode, NotificationMessage, PathAttribute, Prefix, UpdateMessage};

/// What the parser needs to know of the session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context {
    /// Our AS number: a path that holds it has come back to us.
    pub(super) asn: u32,
    /// iBGP.
    pub(super) internal: bool,
    /// AS numbers in paths have four bytes.
    pub(super) four_octet_as: bool,
}

/// Count of one session's received routes; the import policy denies all of them.
#[derive(Debug)]
pub(super) struct Import {
    max: usize,
    prefixes: BTreeSet<IpNet>,
    over_limit: bool,
    dropped: u64,
}

impl Import {
    /// Remembers at most `max` prefixes; `dropped` starts where an earlier session stopped.
    pub(super) fn new(max: u32, dropped: u64) -> Self {
        Self { max: max as usize, prefixes: BTreeSet::new(), over_limit: false, dropped }
    }

    /// Takes an UPDATE, and returns the event for the state machine. Malformed attributes turn its routes into withdraws
    /// (RFC 7606); only an UPDATE whose routes cannot be found ends the session.
    pub(super) fn update(&mut self, update: &UpdateMessage, context: Context) -> Event {
        let parsed = match update.parse_revised(context.four_octet_as, context.internal, false, &[]) {
            Ok(parsed) => parsed,
            Err(error) => return Event::DecodeError(error),
        };
        let body = parsed.update;
        let has_body = !body.announced.is_empty();
        let has_reach = body
            .attributes
            .iter()
            .any(|a| matches!(a, PathAttribute::MpReachNlri(reach) if !reach.announced.is_empty()));

        let mut worst = parsed.malformed.iter().map(|m| m.disposition).max();
        if let Err(error) =
            validate_update_attributes(&body.attributes, has_body || has_reach, has_body, !context.internal)
        {
            if error.disposition == ErrorDisposition::SessionReset {
                return Event::UpdateValidationError(NotificationMessage::new(
                    NotificationCode::UpdateMessage,
                    error.subcode,
                    error.data.into(),
                ));
            }
            worst = worst.max(Some(error.disposition));
        }
        if worst == Some(ErrorDisposition::SessionReset) {
            let code = NotificationCode::UpdateMessage;
            return Event::UpdateValidationError(NotificationMessage::new(code, 0, bytes::Bytes::new()));
        }

        let mut looped = false;
        let mut announced: Vec<IpNet> = body.announced.iter().map(|e| net(Prefix::V4(e.prefix))).collect();
        let mut withdrawn: Vec<IpNet> = body.withdrawn.iter().map(|e| net(Prefix::V4(e.prefix))).collect();
        for attribute in &body.attributes {
            match attribute {
                PathAttribute::AsPath(path) => looped |= path.contains_asn(context.asn),
                PathAttribute::MpReachNlri(reach) => {
                    announced.extend(reach.announced.iter().map(|e| net(e.prefix)));
                }
                PathAttribute::MpUnreachNlri(unreach) => {
                    withdrawn.extend(unreach.withdrawn.iter().map(|e| net(e.prefix)));
                }
                _ => {}
            }
        }
        self.dropped += announced.len() as u64;
        if looped || worst == Some(ErrorDisposition::TreatAsWithdraw) {
            withdrawn.append(&mut announced);
        }
        for prefix in &withdrawn {
            self.prefixes.remove(prefix);
        }
        for prefix in announced {
            if self.prefixes.len() < self.max {
                self.prefixes.insert(prefix);
            } else if !self.prefixes.contains(&prefix) {
                self.over_limit = true;
            }
        }
        Event::UpdateReceived
    }

    /// Prefixes announced at the moment, up to the limit.
    pub(super) fn received(&self) -> u64 {
        self.prefixes.len() as u64
    }

    /// The limit was passed in this session.
    pub(super) fn over_limit(&self) -> bool {
        self.over_limit
    }

    /// Routes refused, ever.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }
}

fn net(prefix: Prefix) -> IpNet {
    match prefix {
        Prefix::V4(p) => ipnet::Ipv4Net::new(p.addr, p.len).map(IpNet::V4).unwrap_or_default(),
        Prefix::V6(p) => ipnet::Ipv6Net::new(p.addr, p.len).map(IpNet::V6).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use rustbgpd_wire::{AsPath, AsPathSegment, Ipv4NlriEntry, Ipv4Prefix, Ipv4UnicastMode, Origin};

    use super::*;

    const CONTEXT: Context = Context { asn: 65010, internal: false, four_octet_as: true };

    fn update(path: &[u32], n: u8) -> UpdateMessage {
        let nlri = Ipv4NlriEntry { path_id: 0, prefix: Ipv4Prefix::new([198, 51, n, 0].into(), 24) };
        let segments = vec![AsPathSegment::AsSequence(path.to_vec())];
        let attributes = [
            PathAttribute::Origin(Origin::Igp),
            PathAttribute::AsPath(AsPath { segments }),
            PathAttribute::NextHop([192, 0, 2, 1].into()),
        ];
        UpdateMessage::try_build(&[nlri], &[], &attributes, true, false, Ipv4UnicastMode::Body).unwrap()
    }

    #[test]
    fn routes_are_counted_and_dropped() {
        let mut import = Import::new(10, 0);
        for n in 0..3 {
            assert!(matches!(import.update(&update(&[65000], n), CONTEXT), Event::UpdateReceived));
        }
        assert_eq!((import.received(), import.dropped()), (3, 3));
    }

    #[test]
    fn a_path_with_our_own_as_does_not_count_and_takes_the_older_one_with_it() {
        let mut import = Import::new(10, 0);
        import.update(&update(&[65000], 1), CONTEXT);
        import.update(&update(&[65000, 65010], 1), CONTEXT);
        assert_eq!((import.received(), import.dropped()), (0, 2));
    }

    #[test]
    fn a_malformed_attribute_withdraws_its_routes_and_keeps_the_session() {
        let mut import = Import::new(10, 0);
        import.update(&update(&[65000], 1), CONTEXT);
        let mut bad = update(&[65000], 1);
        let mut attributes = bad.path_attributes.to_vec();
        assert_eq!(attributes[..4], [0x40, 1, 1, 0]);
        attributes[3] = 9; // no such ORIGIN
        bad.path_attributes = attributes.into();
        assert!(matches!(import.update(&bad, CONTEXT), Event::UpdateReceived));
        assert_eq!(import.received(), 0);
    }

    #[test]
    fn over_the_limit_memory_stops_growing_and_it_is_said() {
        let mut import = Import::new(2, 0);
        for n in 0..2 {
            import.update(&update(&[65000], n), CONTEXT);
        }
        import.update(&update(&[65000], 1), CONTEXT);
        assert!(!import.over_limit());
        import.update(&update(&[65000], 2), CONTEXT);
        assert!(import.over_limit());
        assert_eq!((import.received(), import.dropped()), (2, 4));
    }
}

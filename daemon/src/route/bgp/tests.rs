//! Tests of the supervisor that need no network.

use super::test_support::peer;
use super::*;

#[test]
fn of_two_peers_with_one_address_the_first_is_used_and_the_other_says_why_not() {
    let mut second = peer();
    second.name = "tor2".into();
    second.asn = 65001;
    let mut third = peer();
    third.name = "tor3".into();
    third.address = "2001:db8:11::3".parse().unwrap();
    let (used, refused) = usable(&[peer(), second, third]);
    assert_eq!(used.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["tor1", "tor3"]);
    let error = refused["tor2"].last_error.clone().unwrap();
    assert!(error.contains("tor1") && error.contains("2001:db8:11::1"), "{error}");
}

#[test]
fn a_mapped_ipv4_address_is_the_ipv4_address() {
    let (mut a, mut b) = (peer(), peer());
    a.address = "192.0.2.1".parse().unwrap();
    b.name = "tor2".into();
    b.address = "::ffff:192.0.2.1".parse().unwrap();
    assert_eq!(usable(&[a, b]).0.len(), 1);
}

//! The Rust layout equals the C layout: sizes, offsets and enumerators, read from the BTF of the compiled object.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail as the test does")]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::mem::offset_of;
use std::process::Command;

use serde_json::Value;
use weir_bpf::abi::{
    Affinity, Backend, BackendMeta, Bucket, CaptureCpu, CaptureFilter, CaptureHead, Config, Counter,
    DropEvent, Fragment, FragmentKey, Learned, Name, NextHop, Reason, RingBlock, RingMeta, Sampler, Shared,
    Trace, VipKey, VipMeta, Watch,
};

/// The object's types as `bpftool` prints them, by kind and name.
fn btf(object: &[u8]) -> BTreeMap<(String, String), Value> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(object).unwrap();
    let output = Command::new("bpftool").args(["-j", "btf", "dump", "file"]).arg(file.path()).output();
    let output = output.expect("start bpftool: install the package bpftool (./dev does)");
    assert!(output.status.success(), "bpftool: {}", String::from_utf8_lossy(&output.stderr));
    let dump: Value = serde_json::from_slice(&output.stdout).unwrap();
    let types = dump["types"].as_array().unwrap();
    types
        .iter()
        .map(|t| ((t["kind"].as_str().unwrap().into(), t["name"].as_str().unwrap_or("").into()), t.clone()))
        .collect()
}

/// `struct NAME { field: byte offset … }` and its size.
fn c_struct(types: &BTreeMap<(String, String), Value>, name: &str) -> (u64, BTreeMap<String, u64>) {
    let t = types.get(&("STRUCT".into(), name.into())).unwrap_or_else(|| panic!("no struct {name} in BTF"));
    let fields = t["members"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| (m["name"].as_str().unwrap().to_owned(), m["bits_offset"].as_u64().unwrap() / 8));
    (t["size"].as_u64().unwrap(), fields.collect())
}

macro_rules! same {
    ($types:expr, $rust:ty = $c:literal { $($field:ident),* }) => {
        let (size, fields) = c_struct($types, $c);
        assert_eq!(size, size_of::<$rust>() as u64, "size of struct {}", $c);
        let ours = BTreeMap::from([$((stringify!($field).to_owned(), offset_of!($rust, $field) as u64)),*]);
        assert_eq!(fields, ours, "fields of struct {}", $c);
    };
}

#[test]
fn abi_equals_btf() {
    let types = &btf(weir_bpf::lb_object());
    same!(types, VipKey = "vip_key" { addr, port, proto, pad });
    same!(types, weir_bpf::abi::SidBytes = "sid" { bytes });
    same!(types, RingBlock = "ring_block" { slot });
    same!(types, Backend = "backend" { sid, nh, pmtu, flags, pad });
    same!(types, NextHop = "next_hop" { macs, ifindex, mtu, flags });
    same!(types, Counter = "counter" { packets, bytes });
    same!(types, VipMeta = "vip_meta" { key, pad, rule });
    same!(types, RingMeta = "ring_meta" { ring_key, digest });
    same!(types, BackendMeta = "backend_meta" { addr, vpc, attachment, node });
    same!(types, Name = "name" { text });
    same!(types, Config = "config" { nh, fin, src_hi, src_lo, selftest_lo, role, icmp_rate, heartbeat_jiffies, build });
    same!(types, Shared = "shared" { heartbeat, selftest_seen });
    same!(types, Learned = "learned" { at_ns, mtu, pad });
    same!(types, Bucket = "bucket" { last_ns, tokens });
    same!(types, FragmentKey = "fragment_key" { src, dst, id, proto });
    same!(types, Fragment = "fragment" { ports, proto });
    same!(types, Watch = "watch" { drop_samples, pad });
    same!(types, Trace = "trace" { magic, reason, vip, slot, backend, ifindex, mtu });
    same!(types, Sampler = "sampler" { bucket, unsampled, lost });
    same!(types, DropEvent = "drop_event" { at_ns, reason, ifindex, length, unsampled, bytes });
    let types = &btf(weir_bpf::capture_object());
    same!(types, CaptureFilter = "capture_filter" { addr, until_ns, port, pad });
    same!(types, CaptureHead = "capture_head" { at_ns, id, ifindex, length, captured, kind, reason });
    same!(types, CaptureCpu = "capture_cpu" { lost, redirect, pad });
}

#[test]
fn enumerators_equal_btf() {
    let types = &btf(weir_bpf::lb_object());
    let values = |name: &str| -> BTreeMap<String, u64> {
        let t = &types[&("ENUM".to_owned(), name.to_owned())];
        let entries = t["values"].as_array().unwrap().iter();
        entries.map(|v| (v["name"].as_str().unwrap().to_owned(), v["val"].as_u64().unwrap())).collect()
    };
    let mut ours: BTreeMap<String, u64> =
        Reason::ALL.iter().map(|r| (format!("R_{}", r.name().to_uppercase()), *r as u64)).collect();
    ours.insert("R_COUNT".into(), Reason::ALL.len() as u64);
    assert_eq!(values("reason"), ours);
    let affinity = [Affinity::None, Affinity::ClientIp, Affinity::ClientIpAndProtocol];
    let names = ["AFFINITY_NONE", "AFFINITY_CLIENT_IP", "AFFINITY_CLIENT_IP_AND_PROTOCOL"];
    let ours: BTreeMap<String, u64> =
        names.iter().map(ToString::to_string).zip(affinity.map(|a| a as u64)).collect();
    assert_eq!(values("affinity"), ours);
}

#[test]
fn reasons_are_numbered_without_gaps() {
    for (index, reason) in Reason::ALL.iter().enumerate() {
        assert_eq!(*reason as usize, index, "{}", reason.name());
    }
}

#[test]
fn worker_abi_equals_btf() {
    use weir_bpf::worker_abi as abi;
    let types = &btf(weir_bpf::worker_object());
    same!(types, abi::SidKey = "w_sid_key" { vip, sid, pad });
    same!(types, abi::SourceKey = "w_source_key" { addr, endpoint });
    same!(types, abi::PortKey = "w_port_key" { endpoint, port, proto, family });
    same!(types, abi::Binding = "w_binding" { vip, backend, endpoint, sid, flags, pad });
    same!(types, abi::Endpoint = "w_endpoint" { next_hop, ifindex, kind });
    same!(types, abi::Mark = "w_mark" { mark, endpoint });
    same!(types, abi::Prefix = "w_prefix" { hi, mask });
    same!(types, abi::Params = "w_params" {
        gateways, reply_sid, reply, fabric_ifindex, fabric_mtu, to_pod_max, from_pod_max, icmp_rate
    });
    same!(types, abi::Counter = "w_counter" { packets, bytes });
    same!(types, abi::Bucket = "w_bucket" { last_ns, tokens });
    same!(types, abi::Meta = "w_meta" {
        vpc, attachment, netns, interface, vip, backend, sid, used, placed, endpoint
    });
    same!(types, abi::Config = "w_config" { source, locator_hi, build });
}

#[test]
fn worker_enumerators_equal_btf() {
    use weir_bpf::worker_abi::{Flag, Kind, Reason, Reply};
    let types = &btf(weir_bpf::worker_object());
    let values = |name: &str| -> BTreeMap<String, u64> {
        let t = &types[&("ENUM".to_owned(), name.to_owned())];
        let entries = t["values"].as_array().unwrap().iter();
        entries.map(|v| (v["name"].as_str().unwrap().to_owned(), v["val"].as_u64().unwrap())).collect()
    };
    let mut ours: BTreeMap<String, u64> =
        Reason::ALL.iter().map(|r| (format!("WR_{}", r.name().to_uppercase()), *r as u64)).collect();
    ours.insert("WR_COUNT".into(), Reason::ALL.len() as u64);
    assert_eq!(values("w_reason"), ours);
    let named =
        |pairs: &[(&str, u64)]| pairs.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect::<BTreeMap<_, _>>();
    assert_eq!(
        values("w_kind"),
        named(&[("W_KIND_VETH", Kind::Veth as u64), ("W_KIND_TAP", Kind::Tap as u64)])
    );
    assert_eq!(
        values("w_reply"),
        named(&[("W_REPLY_DIRECT", Reply::Direct as u64), ("W_REPLY_EDGE", Reply::Edge as u64)])
    );
    assert_eq!(
        values("w_flag"),
        named(&[("W_FLAG_NONE", Flag::None as u64), ("W_FLAG_TRANSLATE", Flag::Translate as u64)])
    );
}

//! Last good versions, names, removal, and how little is read when one of many files changes.

use super::*;

/// A rule's text; the VIPs' line is 9, the backends' 12.
pub(crate) fn rule(name: &str, vip: &str, vpc: &str, backends: &[&str]) -> String {
    let backends: Vec<_> = backends.iter().map(|b| format!("{{ address: \"{b}\", port: 443 }}")).collect();
    format!(
        "apiVersion: network.datumapis.com/v1alpha1\nkind: NetworkRule\nmetadata:\n  name: {name}\n  namespace: tenant\n\
         spec:\n  vpcRef: {vpc}\n  vpcAttachmentRef: {vpc}-east\n  vipAddresses: [\"{vip}\"]\n  protocol: tcp\n  port: 443\n  \
         backends: [{}]\n",
        backends.join(", ")
    )
}

/// An endpoint's text; the SID's line is 9.
pub(crate) fn endpoint(name: &str, vpc: &str, address: &str, sid: &str) -> String {
    format!(
        "apiVersion: network.datumapis.com/v1alpha1\nkind: VPCEndpoint\nmetadata: {{ name: {name}, namespace: platform }}\n\
         spec:\n  vpcRef: {vpc}\n  vpcAttachmentRef: {vpc}-east\n  address: \"{address}\"\n  nodeName: worker1\n  sid: \"{sid}\"\n"
    )
}

fn backends(files: &Files, name: &str) -> Option<usize> {
    let (objects, _) = files.snapshot();
    let found = objects.iter().find(|l| l.object.id().name == name)?;
    match &found.object {
        weir_api::CheckedObject::Rule(r) => Some(r.backends.len()),
        _ => None,
    }
}

struct Dir(tempfile::TempDir);

impl Dir {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.path().join(name), text).unwrap();
    }
    fn files(&self) -> Files {
        let mut files = Files::new(self.0.path());
        files.rescan();
        files
    }
}

const VIP: &str = "2001:db8:100::1";

#[test]
fn a_bad_file_keeps_its_last_good_version_and_blocks_no_other() {
    let dir = Dir::new();
    dir.write("a.yaml", &rule("a", VIP, "vpc-a", &["fd00::1"]));
    dir.write("b.yaml", &rule("b", "2001:db8:100::2", "vpc-a", &["fd00::1"]));
    let mut files = dir.files();
    assert!(files.synced());

    dir.write("a.yaml", "kind: [");
    dir.write("b.yaml", &rule("b", "2001:db8:100::2", "vpc-a", &["fd00::1", "fd00::2"]));
    assert!(files.refresh(["a.yaml", "b.yaml"]));
    assert_eq!((backends(&files, "a"), backends(&files, "b")), (Some(1), Some(2)));
    assert!(files.synced(), "a later fault does not undo the first complete reading");
    assert_eq!(files.snapshot().1.len(), 1);

    dir.write("a.yaml", &rule("a", VIP, "vpc-a", &["fd00::1", "fd00::3"]));
    assert!(files.refresh(["a.yaml"]));
    assert_eq!((backends(&files, "a"), files.snapshot().1.len()), (Some(2), 0));
}

#[test]
fn a_file_that_is_bad_from_the_start_leaves_the_source_not_synced_until_it_is_good_or_gone() {
    for heal in [true, false] {
        let dir = Dir::new();
        dir.write("a.yaml", &rule("a", VIP, "vpc-a", &["fd00::1"]));
        dir.write("bad.yaml", "kind: Nothing\n");
        let mut files = dir.files();
        assert!(!files.synced());
        assert_eq!(backends(&files, "a"), Some(1), "the good ones are told all the same");
        if heal {
            dir.write("bad.yaml", &rule("b", "2001:db8:100::2", "vpc-a", &["fd00::1"]));
        } else {
            std::fs::remove_file(dir.0.path().join("bad.yaml")).unwrap();
        }
        assert!(files.refresh(["bad.yaml"]));
        assert!(files.synced());
    }
}

#[test]
fn a_file_that_is_new_and_bad_later_does_not_undo_synced() {
    let dir = Dir::new();
    let mut files = dir.files();
    assert!(files.synced());
    dir.write("bad.yaml", "x");
    files.refresh(["bad.yaml"]);
    assert!(files.synced());
    assert_eq!(files.snapshot().1.len(), 1);
}

#[test]
fn a_rules_ring_size_is_refused_when_it_changes_and_taken_when_the_rule_is_made_anew() {
    let dir = Dir::new();
    let sized = |size: u32, backends: &[&str]| {
        rule("a", VIP, "vpc-a", backends)
            .replace("  port: 443\n", &format!("  port: 443\n  ringSize: {size}\n"))
    };
    dir.write("a.yaml", &sized(4093, &["fd00::1"]));
    let mut files = dir.files();
    dir.write("a.yaml", &sized(16381, &["fd00::1", "fd00::2"]));
    assert!(files.refresh(["a.yaml"]));
    assert_eq!(backends(&files, "a"), Some(1), "the last good version stays whole");
    let words = files.snapshot().1[0].to_string();
    let want = "a.yaml:12: spec.ringSize: 16381 is immutable and was 4093: another ring moves nine flows in ten; write 4093, or remove the rule and make it anew";
    assert!(words.ends_with(want), "{words}");
    // The default is a size like another.
    dir.write("a.yaml", &rule("a", VIP, "vpc-a", &["fd00::1", "fd00::2"]));
    assert!(files.refresh(["a.yaml"]));
    assert_eq!((backends(&files, "a"), files.snapshot().1.len()), (Some(2), 0));
    std::fs::remove_file(dir.0.path().join("a.yaml")).unwrap();
    files.refresh(["a.yaml"]);
    dir.write("a.yaml", &sized(16381, &["fd00::1", "fd00::2"]));
    assert!(files.refresh(["a.yaml"]));
    assert_eq!((backends(&files, "a"), files.snapshot().1.len()), (Some(2), 0));
}

#[test]
fn a_removed_file_takes_its_object_with_it() {
    let dir = Dir::new();
    dir.write("a.yaml", &rule("a", VIP, "vpc-a", &["fd00::1"]));
    let mut files = dir.files();
    std::fs::remove_file(dir.0.path().join("a.yaml")).unwrap();
    assert!(files.refresh(["a.yaml"]));
    assert!(files.snapshot().0.is_empty());
}

#[test]
fn a_renamed_file_is_the_same_object_from_another_place() {
    let dir = Dir::new();
    dir.write("a.yaml", &rule("a", VIP, "vpc-a", &["fd00::1"]));
    let mut files = dir.files();
    std::fs::rename(dir.0.path().join("a.yaml"), dir.0.path().join("z.yaml")).unwrap();
    assert!(files.refresh(["a.yaml", "z.yaml"]));
    let (objects, problems) = files.snapshot();
    assert!(problems.is_empty());
    assert!(objects.iter().next().unwrap().origin.ends_with("z.yaml"));
}

#[test]
fn of_two_files_with_one_object_the_first_by_name_has_the_say() {
    let dir = Dir::new();
    dir.write("b.yaml", &rule("a", VIP, "vpc-a", &["fd00::1", "fd00::2"]));
    let mut files = dir.files();
    dir.write("a.yaml", &rule("a", VIP, "vpc-a", &["fd00::1"]));
    files.rescan();
    assert_eq!(backends(&files, "a"), Some(1));
    let words = files.snapshot().1[0].problem.to_string();
    assert_eq!(
        words,
        "metadata.name: NetworkRule tenant/a is in a.yaml already, which has the say; remove one of the two files, or rename one object"
    );
    std::fs::remove_file(dir.0.path().join("a.yaml")).unwrap();
    files.rescan();
    assert_eq!((backends(&files, "a"), files.snapshot().1.len()), (Some(2), 0));
}

#[test]
fn a_directory_that_cannot_be_read_takes_nothing_away() {
    let dir = Dir::new();
    dir.write("a.yaml", &rule("a", VIP, "vpc-a", &["fd00::1"]));
    let mut files = dir.files();
    let aside = dir.0.path().with_extension("aside");
    std::fs::rename(dir.0.path(), &aside).unwrap();
    assert!(files.rescan());
    assert_eq!(backends(&files, "a"), Some(1));
    assert!(!files.readable());
    std::fs::rename(&aside, dir.0.path()).unwrap();
    assert!(files.rescan());
    assert!(files.readable() && files.snapshot().1.is_empty());
}

#[test]
fn a_missing_directory_at_the_start_is_not_synced() {
    let mut files = Files::new("/nonexistent/objects.d");
    files.rescan();
    assert!(!files.synced());
    assert_eq!(
        files.snapshot().1[0].to_string(),
        "/nonexistent/objects.d: the objects' directory cannot be read: No such file or directory (os error 2); create it"
    );
}

#[rstest::rstest]
#[case("web.yaml", true)]
#[case("web.yml", true)]
#[case(".web.yaml.swp", false)]
#[case(".web.yaml", false)]
#[case("#web.yaml#", false)]
#[case("web.yaml~", false)]
#[case("4913", false)]
#[case("web.yaml.tmp", false)]
fn temporary_files_of_editors_are_no_objects(#[case] name: &str, #[case] wanted: bool) {
    assert_eq!(Files::wanted(OsStr::new(name)), wanted);
}

#[test]
fn of_ten_thousand_files_only_the_changed_one_is_parsed_again() {
    let dir = Dir::new();
    for i in 0..10_000 {
        dir.write(
            &format!("r{i}.yaml"),
            &rule(&format!("r{i}"), &format!("2001:db8:100::{i:x}"), "vpc-a", &["fd00::1"]),
        );
    }
    let mut files = dir.files();
    assert_eq!((files.parses(), files.snapshot().0.len()), (10_000, 10_000));
    dir.write("r77.yaml", &rule("r77", "2001:db8:100::77", "vpc-a", &["fd00::1", "fd00::2"]));
    assert!(files.refresh(["r77.yaml"]));
    assert_eq!((files.parses(), backends(&files, "r77")), (10_001, Some(2)));
    let before = files.snapshot().0;
    assert!(!files.rescan(), "a full reading without a change changes nothing");
    assert_eq!(files.parses(), 10_001);
    let after = files.snapshot().0;
    assert!(
        before.iter().zip(after.iter()).all(|(a, b)| Arc::ptr_eq(a, b)),
        "unchanged objects stay the same"
    );
}

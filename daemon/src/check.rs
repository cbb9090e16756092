//! `weir check`'s offline half: every problem of a configuration and its objects, without touching the system.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use weir_api::locate::Fields;
use weir_api::{FileProblem, Problem};

use crate::config::{Config, ConfigError};
use crate::event::Event;
use crate::resolve::{self, Outcome, Resolution, Site};
use crate::source::files::Files;
use crate::state::{Settings, State};

/// What a check found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Problems and warnings: the configuration's first, then the objects' by file.
    pub problems: Vec<FileProblem>,
    /// Rules that would be served.
    pub rules: usize,
    /// The configuration or the objects' directory could not be read at all.
    pub unreadable: bool,
}

impl Report {
    /// Exit status of `weir check`: 0 nothing is refused (warnings may be), 1 something is refused, 2 it could not be read.
    pub fn exit_code(&self) -> u8 {
        if self.unreadable { 2 } else { u8::from(self.problems.iter().any(FileProblem::is_error)) }
    }
}

/// Checks a configuration, the objects it names, and what the objects say of each other.
pub fn check(path: &Path) -> Report {
    match Config::load(path) {
        Ok(config) => check_objects(path, &config),
        Err(ConfigError::Invalid { problems }) => Report { problems, ..Report::default() },
        Err(ConfigError::Unreadable { path, cause }) => {
            let problem = Problem::error(
                "",
                "",
                format!("cannot be read: {cause}"),
                "give a readable file with --config",
            );
            Report { problems: vec![problem.at(path, 0)], unreadable: true, ..Report::default() }
        }
    }
}

fn check_objects(path: &Path, config: &Config) -> Report {
    let mut files = Files::new(&config.objects);
    files.rescan();
    let (objects, mut problems) = files.snapshot();
    let unreadable = !files.readable();
    let locator = match resolve::locate(&config.node, config.locator, objects.iter()) {
        Ok(locator) => locator,
        Err(why) => {
            let (why, remedy) = why.rsplit_once("; ").unwrap_or((&why, ""));
            problems.push(Problem::error("locator", "", why, remedy).at(path, 0));
            return Report { problems, unreadable, ..Report::default() };
        }
    };
    let settings = Settings {
        site: Site { region: config.region.clone(), block: locator.block },
        sources: BTreeSet::new(),
        graceful_shutdown: Duration::ZERO,
        drain: Duration::ZERO,
    };
    let mut state = State::new(settings);
    state.apply(Event::Objects(objects), Instant::now());
    let index = state.index();
    for (name, resolution) in index.resolutions() {
        let origin = index.origin(name).unwrap_or_default();
        problems.extend(between(resolution).into_iter().map(|p| place(origin, p)));
    }
    problems.extend(index.between_objects().iter().map(|(loaded, p)| place(&loaded.origin, p.clone())));
    for (endpoint, sid) in index.outside_block() {
        let why = format!("lies outside this region's SRv6 block {}", locator.block);
        let remedy = "check it, unless the endpoint is in another region";
        problems.push(place(&endpoint.origin, Problem::warning("spec.sid", sid, why, remedy)));
    }
    problems.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    Report { problems, rules: state.desired().rules.len(), unreadable }
}

/// What is wrong between objects: conflicts refuse a rule, a backend that leads nowhere only costs that backend.
fn between(resolution: &Resolution) -> Vec<Problem> {
    let mut all: Vec<Problem> = match &resolution.outcome {
        Outcome::Refused(problem) => vec![problem.clone()],
        Outcome::Served(_) | Outcome::Elsewhere { .. } => Vec::new(),
    };
    all.extend(resolution.unresolved.iter().map(|(_, why)| {
        Problem::warning(
            "spec.backends",
            "",
            why.as_str(),
            "the other backends serve until the platform's VPCEndpoints say",
        )
    }));
    all
}

fn place(origin: &str, problem: Problem) -> FileProblem {
    let text = std::fs::read_to_string(origin).unwrap_or_default();
    let line = Fields::of(&text).line(&problem.field);
    problem.at(PathBuf::from(origin), line)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::source::files::tests::{endpoint, rule};

    const CONFIG: &str = "node: gw1\nregion: us-east\nlocator: { prefix: \"2001:db8:ff01::/48\", nodeID: 1 }\n\
                          hashKeyFile: key\nuplinks: [eth1]\nfabric: [eth2]\nobjects: objects.d\n";

    fn directory(objects: &[(&str, String)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        write("weir.yaml", CONFIG);
        write("key", &"k".repeat(32));
        std::fs::set_permissions(dir.path().join("key"), std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::create_dir(dir.path().join("objects.d")).unwrap();
        for (name, text) in objects {
            write(&format!("objects.d/{name}"), text);
        }
        dir
    }

    fn run(objects: &[(&str, String)]) -> (Report, Vec<String>) {
        let dir = directory(objects);
        let report = check(&dir.path().join("weir.yaml"));
        let root = format!("{}/", dir.path().display());
        let words = report.problems.iter().map(|p| p.to_string().replace(&root, "")).collect();
        (report, words)
    }

    #[test]
    fn good_configuration_and_objects_are_exit_0() {
        let (report, words) = run(&[
            ("web.yaml", rule("web", "2001:db8:100::1", "vpc-a", &["fd00::1"])),
            ("a1.yaml", endpoint("a1", "vpc-a", "fd00::1", "2001:db8:ff01:11:e001::")),
        ]);
        assert_eq!((report.exit_code(), report.rules, words.len()), (0, 1, 0), "{words:?}");
    }

    #[test]
    fn a_bad_object_and_a_conflict_are_exit_1_with_their_places() {
        let (report, words) = run(&[
            ("a.yaml", rule("a", "2001:db8:100::1", "vpc-a", &["fd00::1"])),
            ("b.yaml", rule("b", "2001:db8:100::1", "vpc-a", &["fd00::1"])),
            ("c.yaml", rule("c", "2001:db8:ff01::5", "vpc-a", &["fd00::1"])),
            ("d.yaml", rule("d", "127.0.0.1", "vpc-a", &["fd00::1"])),
            ("e.yaml", endpoint("e", "vpc-a", "fd00::1", "2001:db8:ff02::1")),
        ]);
        assert_eq!(report.exit_code(), 1);
        assert_eq!(
            words,
            [
                "objects.d/b.yaml:9: spec.vipAddresses: [2001:db8:100::1]:443/tcp is taken by the rule tenant/a, which is older or comes first by name; give another address or port",
                "objects.d/c.yaml:9: spec.vipAddresses: 2001:db8:ff01::5 lies in the region's SRv6 block 2001:db8:ff01::/48; give an address outside it",
                "objects.d/d.yaml:9: spec.vipAddresses[0]: 127.0.0.1 is a loopback address; give a unicast address that routers may carry",
                "objects.d/e.yaml:9: spec.sid: warning: 2001:db8:ff02::1 lies outside this region's SRv6 block 2001:db8:ff01::/48; check it, unless the endpoint is in another region",
            ]
        );
    }

    #[test]
    fn a_backend_that_leads_nowhere_is_a_warning() {
        let (report, words) = run(&[("web.yaml", rule("web", "2001:db8:100::1", "vpc-a", &["fd00::1"]))]);
        assert_eq!((report.exit_code(), report.rules), (0, 1));
        assert_eq!(
            words,
            [
                "objects.d/web.yaml:12: spec.backends: warning: no VPCEndpoint has address fd00::1 in VPC vpc-a; the other backends serve until the platform's VPCEndpoints say"
            ]
        );
    }

    #[test]
    fn sids_and_locators_that_overlap_are_exit_1_and_name_both_objects() {
        let head = "apiVersion: network.datumapis.com/v1alpha1\n";
        let router = format!(
            "{head}kind: BGPRouter\nmetadata: {{ name: r1 }}\nspec:\n  targetRef: {{ kind: Node, name: worker2 }}\n  roles: [fabric]\n  \
             localASN: 65010\n  routerID: 192.0.2.1\n  addressFamilies: [{{ afi: ipv6, safi: unicast }}]\n  srv6Locator: \
             \"2001:db8:ff01::/48\"\n  nodeID: 17\n"
        );
        let shard = format!(
            "{head}kind: NAT66Shard\nmetadata: {{ name: s1 }}\nspec: {{ targetRef: {{ kind: Node, name: gw1 }} }}\nstatus:\n  shardSID: \
             \"2001:db8:ff01:9::1\"\n"
        );
        let (report, words) = run(&[
            ("a.yaml", endpoint("a", "vpc-a", "fd00::1", "2001:db8:ff01:11:e001::")),
            ("r.yaml", router),
            ("s.yaml", shard),
        ]);
        assert_eq!(report.exit_code(), 1);
        assert_eq!(
            words,
            [
                "objects.d/a.yaml:9: spec.sid: SID 2001:db8:ff01:11:e001:: of VPCEndpoint platform/a on node worker1 overlaps 2001:db8:ff01:11::/64, the locator of BGPRouter default/r1 on node worker2; give the endpoint a SID of its node's own",
                "objects.d/s.yaml:6: status.shardSID: 2001:db8:ff01:9::1 of NAT66Shard default/s1 overlaps 2001:db8:ff01::/48, the srv6Locator of BGPRouter default/r1; give the egress tier SIDs of a block of its own",
            ]
        );
    }

    #[test]
    fn what_cannot_be_read_is_exit_2() {
        assert_eq!(check(Path::new("/nonexistent/weir.yaml")).exit_code(), 2);
        let dir = directory(&[]);
        std::fs::remove_dir(dir.path().join("objects.d")).unwrap();
        assert_eq!(check(&dir.path().join("weir.yaml")).exit_code(), 2);
    }
}

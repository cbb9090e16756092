//! What a watch sees of writes, renames and removals, and how it groups them.

use super::*;
use crate::event::ObjectSet;
use crate::source::files::tests::rule;

struct Watched {
    dir: tempfile::TempDir,
    events: mpsc::Receiver<Event>,
    rescan: Rescan,
    stop: CancellationToken,
    synced: bool,
}

const VIP: &str = "2001:db8:100::1";

impl Watched {
    /// A running source over a directory with these files.
    fn start(files: &[(&str, String)], settle: Duration) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let source = FileSource::new(dir.path(), settle, Duration::from_hours(1));
        let (rescan, stop) = (source.rescan_handle(), CancellationToken::new());
        let (tx, events) = mpsc::channel(64);
        tokio::spawn(source.run(tx, stop.clone()));
        Self { dir, events, rescan, stop, synced: false }
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.dir.path().join(name), text).unwrap();
    }

    async fn next(&mut self) -> Event {
        tokio::time::timeout(Duration::from_secs(20), self.events.recv())
            .await
            .expect("an event in time")
            .unwrap()
    }

    /// The next objects, and whether the status told after them says synced.
    async fn objects(&mut self) -> ObjectSet {
        let Event::Objects(objects) = self.next().await else { panic!("objects come first") };
        let Event::Source(status) = self.next().await else { panic!("then the status") };
        self.synced = status.synced;
        objects
    }

    /// Waits until the objects are the ones named.
    async fn until(&mut self, names: &[&str]) {
        loop {
            let objects = self.objects().await;
            let have: Vec<_> = objects.iter().map(|l| l.object.id().name.clone()).collect();
            if have == names {
                return;
            }
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn quick() -> Duration {
    Duration::from_millis(5)
}

#[tokio::test]
async fn the_first_reading_tells_objects_then_synced() {
    let mut w = Watched::start(&[("a.yaml", rule("a", VIP, "vpc-a", &["fd00::1"]))], quick());
    assert_eq!(w.objects().await.len(), 1);
    assert!(w.synced);
}

#[tokio::test]
async fn a_bad_file_at_the_start_is_told_and_withholds_synced() {
    let mut w = Watched::start(&[("a.yaml", "kind: x".into())], quick());
    assert!(w.objects().await.is_empty());
    assert!(!w.synced);
    w.write("a.yaml", &rule("a", VIP, "vpc-a", &["fd00::1"]));
    w.until(&["a"]).await;
    assert!(w.synced);
}

#[tokio::test]
async fn written_renamed_and_removed_files_are_seen() {
    let mut w = Watched::start(&[], quick());
    w.objects().await;
    w.write("a.yaml", &rule("a", VIP, "vpc-a", &["fd00::1"]));
    w.until(&["a"]).await;
    w.write(".b.yaml.tmp", &rule("b", "2001:db8:100::2", "vpc-a", &["fd00::1"]));
    std::fs::rename(w.dir.path().join(".b.yaml.tmp"), w.dir.path().join("b.yaml")).unwrap();
    w.until(&["a", "b"]).await;
    std::fs::rename(w.dir.path().join("b.yaml"), w.dir.path().join("c.yaml.bak")).unwrap();
    w.until(&["a"]).await;
    std::fs::remove_file(w.dir.path().join("a.yaml")).unwrap();
    w.until(&[]).await;
}

#[tokio::test]
async fn changes_close_to_each_other_are_one_transaction() {
    let mut w = Watched::start(&[], Duration::from_millis(500));
    w.objects().await;
    for i in 0..20 {
        w.write(
            &format!("r{i:02}.yaml"),
            &rule(&format!("r{i:02}"), &format!("2001:db8:100::{i:x}1"), "vpc-a", &["fd00::1"]),
        );
    }
    assert_eq!(w.objects().await.len(), 20);
}

#[tokio::test]
async fn a_volume_link_that_swings_is_seen() {
    let mut w = Watched::start(&[], quick());
    w.objects().await;
    let path = |p: &str| w.dir.path().join(p);
    for (version, backends) in [("..v1", &["fd00::1"][..]), ("..v2", &["fd00::1", "fd00::2"])] {
        std::fs::create_dir(path(version)).unwrap();
        std::fs::write(path(version).join("a.yaml"), rule("a", VIP, "vpc-a", backends)).unwrap();
    }
    std::os::unix::fs::symlink("..v1", path("..data")).unwrap();
    std::os::unix::fs::symlink("..data/a.yaml", path("a.yaml")).unwrap();
    let (link, next) = (path("..data"), path("..data_tmp"));
    w.until(&["a"]).await;
    std::os::unix::fs::symlink("..v2", &next).unwrap();
    std::fs::rename(next, link).unwrap();
    let weir_api::CheckedObject::Rule(r) = &w.objects().await.iter().next().unwrap().object.clone() else {
        panic!()
    };
    assert_eq!(r.backends.len(), 2);
}

#[tokio::test]
async fn a_directory_that_was_replaced_is_watched_again_after_a_rescan() {
    let mut w = Watched::start(&[("a.yaml", rule("a", VIP, "vpc-a", &["fd00::1"]))], quick());
    w.objects().await;
    let home = w.dir.path().to_path_buf();
    let aside = home.with_extension("aside");
    std::fs::rename(&home, &aside).unwrap();
    std::fs::create_dir(&home).unwrap();
    w.write("b.yaml", &rule("b", VIP, "vpc-a", &["fd00::1"]));
    w.rescan.ask();
    w.until(&["b"]).await;
    // Several, since a reading that was due already would find one without a watch.
    let mut names = vec!["b"];
    for name in ["c", "d", "e", "f"] {
        w.write(&format!("{name}.yaml"), &rule(name, VIP, "vpc-a", &["fd00::1"]));
        names.push(name);
        w.until(&names).await;
    }
    std::fs::remove_dir_all(aside).unwrap();
}

//! Namespaces made by threads: separate from the caller's and from each other, gone when removed.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::net::{Ipv6Addr, TcpListener};

use labkit::netns::Netns;

/// Removes its namespace whatever happens in the test.
struct Guard(&'static str);
impl Drop for Guard {
    fn drop(&mut self) {
        Netns::remove(self.0).unwrap();
    }
}

fn own_namespace() -> std::path::PathBuf {
    std::fs::read_link("/proc/thread-self/ns/net").unwrap()
}

#[test]
fn a_namespace_is_another_one_and_the_caller_stays_where_it_is() {
    let outside = own_namespace();
    let ns = Netns::create("lktest-a").unwrap();
    let _guard = Guard("lktest-a");
    let inside = ns.run(own_namespace).unwrap();
    assert_ne!(inside, outside);
    assert_eq!(own_namespace(), outside);
    let id = ns.id().unwrap();
    assert_eq!(inside.to_str().unwrap(), format!("net:[{}]", id.1));
    let child = ns.command("readlink").arg("/proc/self/ns/net").output().unwrap();
    assert_eq!(String::from_utf8(child.stdout).unwrap().trim(), inside.to_str().unwrap());
    assert!(Netns::create("lktest-a").is_err(), "the same name was created twice");
}

#[test]
fn futures_and_their_blocking_work_run_inside() {
    let ns = Netns::create("lktest-b").unwrap();
    let _guard = Guard("lktest-b");
    let inside = ns.run(own_namespace).unwrap();
    let outer = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let task = ns
        .spawn(async { (own_namespace(), tokio::task::spawn_blocking(own_namespace).await.unwrap()) })
        .unwrap();
    assert_eq!(outer.block_on(task).unwrap(), (inside.clone(), inside.clone()));
    assert_eq!(ns.block_on(async || own_namespace()).unwrap(), inside);
}

#[test]
fn sockets_belong_to_the_namespace_they_were_opened_in() {
    let ns = Netns::create("lktest-c").unwrap();
    let _guard = Guard("lktest-c");
    let here = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    // Loopback is down in a new namespace: nothing of the outside is reachable.
    let error = ns.run(|| std::net::TcpStream::connect(here)).unwrap().unwrap_err();
    assert!(
        matches!(error.kind(), std::io::ErrorKind::NetworkUnreachable | std::io::ErrorKind::AddrNotAvailable),
        "{error}"
    );
}

#[test]
fn a_removed_namespace_is_gone_and_removing_twice_is_fine() {
    Netns::create("lktest-d").unwrap();
    Netns::remove("lktest-d").unwrap();
    Netns::remove("lktest-d").unwrap();
    assert!(Netns::open("lktest-d").is_err());
    assert!(!std::fs::read_to_string("/proc/self/mounts").unwrap().contains("lktest-d"));
}

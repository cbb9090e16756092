//! Server and client over a real socket.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::{AdminCommand, AdminError, Client, ClientError, Server};
use crate::status::NodeStatus;

struct Daemon {
    status: watch::Sender<Arc<NodeStatus>>,
    stop: oneshot::Sender<()>,
    server: JoinHandle<std::io::Result<()>>,
}

/// A daemon that refuses to reload and agrees to drain.
async fn daemon(socket: &Path) -> Result<Daemon, AdminError> {
    let server = Server::bind(socket).await?;
    let (status, status_rx) = watch::channel(Arc::new(NodeStatus::starting("gw1", "us-east")));
    let (commands, mut asked) = mpsc::channel(4);
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(server.serve(status_rx, commands, async { drop(stopped.await) }));
    tokio::spawn(async move {
        while let Some(command) = asked.recv().await {
            // The client's going away is no fault of the daemon's.
            let _ = match command {
                AdminCommand::Drain(reply) => reply.send(Ok("the gateway leaves".into())),
                AdminCommand::Reload(reply) => reply.send(Err("weir.yaml:3: bad".into())),
                AdminCommand::Drops(_) | AdminCommand::Capture(..) => Ok(()),
            };
        }
    });
    Ok(Daemon { status, stop, server })
}

fn path(dir: &tempfile::TempDir) -> PathBuf {
    dir.path().join("run/weir/gateway.sock")
}

#[tokio::test]
async fn status_and_commands_reach_the_daemon_and_its_answers_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(&path(&dir)).await.unwrap();
    let client = Client::new(&path(&dir));
    assert_eq!(client.status().await.unwrap(), NodeStatus::starting("gw1", "us-east"));
    let later = NodeStatus { ready: true, generation: 7, ..NodeStatus::default() };
    daemon.status.send_replace(Arc::new(later.clone()));
    assert_eq!(client.status().await.unwrap(), later);
    assert_eq!(client.drain().await.unwrap(), "the gateway leaves");
    let refused = client.reload().await.unwrap_err();
    assert!(!refused.unreachable());
    assert!(refused.to_string().ends_with("refuses: weir.yaml:3: bad"), "{refused}");
}

#[tokio::test]
async fn socket_is_for_owner_and_group_and_goes_with_the_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(&path(&dir)).await.unwrap();
    let mode = std::fs::symlink_metadata(path(&dir)).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o660);
    daemon.stop.send(()).unwrap();
    daemon.server.await.unwrap().unwrap();
    assert!(!path(&dir).exists());
    let gone = Client::new(&path(&dir)).status().await.unwrap_err();
    assert!(gone.unreachable());
    let text = gone.to_string();
    assert!(text.contains("gateway.sock: No such file") && text.contains("--admin"), "{text}");
}

#[tokio::test]
async fn a_living_daemon_s_socket_is_not_taken_and_a_dead_one_s_is() {
    let dir = tempfile::tempdir().unwrap();
    let socket = path(&dir);
    let first = daemon(&socket).await.unwrap();
    assert!(matches!(Server::bind(&socket).await, Err(AdminError::InUse { .. })));
    Client::new(&socket).status().await.unwrap();

    // What a killed daemon leaves: a socket on which nobody listens.
    first.stop.send(()).unwrap();
    first.server.await.unwrap().unwrap();
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let dead = Client::new(&socket).status().await.unwrap_err();
    assert!(matches!(dead, ClientError::Unreachable { .. }), "{dead}");
    let second = daemon(&socket).await.unwrap();
    Client::new(&socket).status().await.unwrap();
    drop(second);
}

#[tokio::test]
async fn an_old_daemon_that_ends_late_leaves_the_new_one_s_socket() {
    let dir = tempfile::tempdir().unwrap();
    let socket = path(&dir);
    let old = Server::bind(&socket).await.unwrap();
    std::fs::remove_file(&socket).unwrap();
    let _new = daemon(&socket).await.unwrap();
    drop(old);
    Client::new(&socket).status().await.unwrap();
}

#[tokio::test]
async fn a_file_that_is_no_socket_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("notes");
    std::fs::write(&file, "keep").unwrap();
    let refused = Server::bind(&file).await.unwrap_err();
    assert!(refused.to_string().contains("is no socket; remove it"), "{refused}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "keep");
}

#[tokio::test]
async fn a_stopping_daemon_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::bind(&path(&dir)).await.unwrap();
    let (_status, status) = watch::channel(Arc::new(NodeStatus::default()));
    let (commands, asked) = mpsc::channel(1);
    drop(asked);
    tokio::spawn(server.serve(status, commands, std::future::pending()));
    let refused = Client::new(&path(&dir)).drain().await.unwrap_err();
    assert!(refused.to_string().ends_with("refuses: the gateway is stopping"), "{refused}");
}

#[tokio::test]
async fn an_answer_of_another_protocol_is_named() {
    use tokio::io::AsyncWriteExt as _;
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("other.sock");
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"220 mail.example ready\r\n").await.unwrap();
    });
    let odd = Client::new(&socket).status().await.unwrap_err();
    assert!(matches!(odd, ClientError::Broken { .. }), "{odd}");
}

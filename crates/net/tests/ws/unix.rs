//! A listener at a Unix socket: who may connect, and what becomes of its file.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use breakbulk_link::Frame;
use breakbulk_net::ws::{ConnectOptions, ListenError, ListenOptions, Listener, connect};
use breakbulk_net::{Incoming, ListenSocket, Sink, Transport};

use crate::common::{next_frame, soon};

fn listen(path: &Path, users: &[u32]) -> Result<Listener, ListenError> {
    Listener::new(ListenSocket::unix(path, users)?, ListenOptions::default())
}

#[tokio::test]
async fn a_unix_socket_carries_web_sockets() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let mut listener = listen(&path, &[]).unwrap();
    let options = ConnectOptions {
        unix_socket: Some(path.clone()),
        ..ConnectOptions::default()
    };
    let (client, server) = soon("the handshake", async {
        // Any `Host` is accepted: no web page can connect to a Unix socket.
        tokio::join!(connect("ws://any.example/", &options), listener.accept())
    })
    .await;
    let (_source, mut sink) = client.unwrap().split();
    let server = server.unwrap();
    assert!(server.client.is_loopback());
    sink.send(Frame::Text("hello".into())).await.unwrap();
    let heard = next_frame(&mut server.websocket.split().0).await;
    assert!(matches!(heard, Incoming::Frame(Frame::Text(text)) if text == "hello"));
}

#[tokio::test]
async fn a_socket_file_is_ours_while_we_listen() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let listener = listen(&path, &[]).unwrap();
    assert_eq!(mode(&path), 0o600);
    let refused = listen(&path, &[]).unwrap_err().to_string();
    assert!(refused.starts_with("cannot listen at unix:"), "{refused}");
    drop(listener);
    // The listener's task ends soon, and removes the file.
    soon("the file's removal", async {
        while path.exists() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // Leaves a socket file as a program does that was killed.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let listener = listen(&path, &[7]).unwrap();
    assert_eq!(mode(&path), 0o666);
    // Another program has put its own socket file in the place: that file is not removed.
    std::fs::remove_file(&path).unwrap();
    let other = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let mut ended = listener;
    assert!(
        tokio::time::timeout(std::time::Duration::ZERO, ended.accept())
            .await
            .is_err()
    );
    drop(ended);
    tokio::task::yield_now().await;
    assert!(std::fs::metadata(&path).unwrap().file_type().is_socket());
    drop(other);
    // No file of another kind is removed.
    let file = folder.path().join("f");
    std::fs::write(&file, "mine").unwrap();
    assert!(listen(&file, &[]).is_err());
    assert_eq!(std::fs::read(&file).unwrap(), b"mine");
}

/// The kernel reports which user connects. Only root can run a client as another user: otherwise this tests
/// only that our own user is admitted.
#[tokio::test]
async fn only_listed_users_may_connect() {
    const STRANGER: u32 = 65_534;
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let path = folder.path().join("s");
    let me = std::fs::metadata(folder.path()).map(|it| std::os::unix::fs::MetadataExt::uid(&it));
    let is_root = me.unwrap() == 0;
    for (users, admitted) in [(vec![], false), (vec![7], false), (vec![7, STRANGER], true)] {
        let mut listener = listen(&path, &users).unwrap();
        // The file's mode lets everybody connect, so that it is not what decides.
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
        let script = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); \
                      s.sendall(b'GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n'); print(s.recv(12).decode())";
        let mut asker = Command::new("python3");
        asker.args(["-c", script]).arg(&path);
        if is_root {
            asker.uid(STRANGER).gid(STRANGER);
        }
        let asking = tokio::task::spawn_blocking(move || asker.output().unwrap());
        let answer = soon("an answer", async {
            tokio::select! {
                answer = asking => answer.unwrap(),
                accepted = listener.accept() => panic!("{accepted:?}"),
            }
        })
        .await;
        let said = String::from_utf8(answer.stdout).unwrap();
        // 426: the request is not for a WebSocket. A user who may not connect gets no answer at all.
        let expected = if admitted || !is_root {
            "HTTP/1.1 426\n"
        } else {
            ""
        };
        assert_eq!(
            said.replace("\n\n", "\n").trim_start_matches('\n'),
            expected,
            "{users:?}"
        );
        drop(listener);
        soon("the file's removal", async {
            while path.exists() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

//! A sync server at a Unix socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use crate::common::program;

#[test]
fn a_server_at_a_unix_socket_answers_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let mut command = program();
    let listen = format!("unix:{}", path.display());
    command.args(["loro", "serve", "--listen", &listen]);
    let mut server = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(server.stderr.take().unwrap()).lines();
    let said = log.find(|line| line.as_ref().unwrap().starts_with("listening on "));
    assert_eq!(said.unwrap().unwrap(), format!("listening on {listen}"));
    let mut client = UnixStream::connect(&path).unwrap();
    let request = "GET /poll?peerId=a HTTP/1.1\r\nHost: any.example\r\nConnection: close\r\n\r\n";
    client.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(
        answer.ends_with(r#"{"messages":[],"isNewConnection":true}"#),
        "{answer}"
    );
    let pid = server.id().to_string();
    let asked = Command::new("kill").args(["-TERM", &pid]).status();
    assert!(asked.unwrap().success());
    assert!(server.wait().unwrap().success());
    assert!(!path.exists());
}

//! Tests that a client is told why something did not work.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use breakbulk::message::loro::{ChannelMsg, PeerIdentity, PeerType, encode_frame};
use breakbulk_testkit::bad_path::{BadPath, Weather};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use super::common::{Server, noise, program, run, succeed};

// LORO-32
#[test]
fn a_document_over_a_limit_of_the_server_is_refused_by_that_limit() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::with(None, |command| {
        command.args(["--max-document", "1MiB", "--max-message", "8MiB"]);
    });
    let file = folder.path().join("in.json").display().to_string();
    for (bytes, limit, option) in [
        (3 << 19, "1048576", "--max-document"),
        (10 << 20, "8388608", "--max-message"),
    ] {
        std::fs::write(&file, format!("{{\"text\":\"{}\"}}", noise(bytes))).unwrap();
        for url in server.ways() {
            let output = run(&["loro", "push", &url, "doc", &file, "--timeout", "0"]);
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{url}: {stderr}");
            assert!(stderr.contains(limit), "{url}: {stderr}");
            assert!(stderr.contains(option), "{url}: {stderr}");
            assert!(!stderr.contains("--timeout"), "{url}: {stderr}");
        }
    }
    // Other clients see nothing of the document.
    let output = run(&["loro", "pull", &server.ways()[0], "doc"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("has no document \"doc\""), "{stderr}");
    let (_, said) = server.stop();
    // Each of the four ways tried it once. A client that is still sending may miss the reason of a close, because
    // its connection is reset; it then connects once more.
    for (level, words, times) in [
        ("WARN refused changes", "1048576", 4..=4),
        ("INFO", "8388608", 2..=4),
    ] {
        let told = |line: &&str| line.contains(level) && line.contains(words);
        let count = said.lines().filter(told).count();
        assert!(times.contains(&count), "{count} times: {said}");
    }
}

#[test]
fn a_document_over_the_limit_of_the_client_is_refused_by_that_limit() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(None);
    let file = folder.path().join("in.json").display().to_string();
    std::fs::write(&file, format!("{{\"text\":\"{}\"}}", noise(2 << 20))).unwrap();
    let [url, ..] = &server.ways();
    succeed(&["loro", "push", url, "doc", &file]);
    let arguments = ["loro", "pull", url, "doc", "--max-message", "1MiB"];
    let output = run(&[&arguments[..], &["--timeout", "0"]].concat());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("1048576"), "{stderr}");
    assert!(stderr.contains("--max-message"), "{stderr}");
    assert!(output.stdout.is_empty());
}

#[test]
fn a_right_that_is_missing_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("in.json").display().to_string();
    std::fs::write(&file, "{\"text\":\"one\"}").unwrap();
    let server = Server::start(Some(folder.path()));
    succeed(&["loro", "push", &server.ways()[0], "doc", &file]);
    assert!(server.stop().0);
    let server = Server::with(Some(folder.path()), |command| {
        command.args(["--right", "read:"]);
    });
    std::fs::write(&file, "{\"text\":\"two\"}").unwrap();
    for url in server.ways() {
        let output = run(&["loro", "push", &url, "doc", &file, "--timeout", "0"]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{url}: {stderr}");
        assert!(stderr.contains("right to change"), "{url}: {stderr}");
    }
    // The client was told, and the server's log has nothing about it.
    let (_, said) = server.stop();
    assert!(!said.contains("WARN") && !said.contains("ERROR"), "{said}");
}

/// Sends a request, and leaves once it is answered.
fn request(server: &Server, head: &str, body: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let len = body.len();
    let head = format!(
        "{head}\r\nHost: {}\r\nConnection: close\r\nContent-Length: {len}\r\n\r\n",
        server.address()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_client_that_polls_no_more_does_not_delay_the_shutdown() {
    let server = Server::with(None, |command| {
        command.args(["--grace", "3600"]);
    });
    let answer = request(&server, "GET /poll?peerId=7 HTTP/1.1", b"");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let identity = PeerIdentity {
        peer_id: "7".into(),
        name: None,
        kind: PeerType::User,
    };
    let hello = encode_frame(&ChannelMsg::EstablishRequest { identity }).unwrap();
    let post = "POST /sync HTTP/1.1\r\nX-Peer-Id: 7\r\nContent-Type: application/octet-stream";
    let answer = request(&server, post, &[&[0], &hello[..]].concat());
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // The answer to its greeting waits for a poll that never comes; it ends long before the grace does.
    let (clean, said) = server.stop();
    assert!(clean, "{said}");
}

/// An authority, and a certificate that it signed, as files in a folder.
fn certificate(folder: &Path, name: &str, hosts: &[&str]) -> [String; 3] {
    let write = |what: &str, text: String| {
        let file = folder.join(format!("{name}-{what}.pem"));
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    };
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let leaf = CertificateParams::new(hosts).unwrap();
    let leaf = leaf.signed_by(&key, &issuer).unwrap();
    [
        write("ca", issuer.pem()),
        write("cert", leaf.pem()),
        write("key", key.serialize_pem()),
    ]
}

#[test]
fn a_client_shows_its_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let [ca, cert, key] = certificate(folder.path(), "server", &["127.0.0.1"]);
    let [client_ca, client_cert, client_key] = certificate(folder.path(), "client", &["client"]);
    let [_, other_cert, other_key] = certificate(folder.path(), "other", &["other"]);
    let server = Server::with(None, |command| {
        command.args(["--cert", &cert, "--key", &key, "--client-ca", &client_ca]);
    });
    let file = folder.path().join("in.json").display().to_string();
    std::fs::write(&file, "{\"text\":\"hello\"}").unwrap();
    let address = server.address();
    let urls = [
        format!("wss://{address}/ws"),
        format!("https://{address}?transport=sse"),
        format!("https://{address}?transport=poll"),
    ];
    for url in &urls {
        let shown = ["--ca", &ca, "--cert", &client_cert, "--key", &client_key];
        succeed(&[&["loro", "push", url, "doc", &file][..], &shown].concat());
        let fetched = succeed(&[&["loro", "pull", url, "doc"][..], &shown].concat());
        assert_eq!(fetched, "{\"text\":\"hello\"}\n", "{url}");
        let listed = succeed(&[&["loro", "list", url][..], &shown].concat());
        assert_eq!(listed, "doc\n", "{url}");
        let refused: [&[&str]; 3] = [
            &["--ca", &ca],
            &["--ca", &ca, "--cert", &other_cert, "--key", &other_key],
            &["--cert", &client_cert, "--key", &client_key],
        ];
        for options in refused {
            let output = run(&[&["loro", "pull", url, "doc"][..], options].concat());
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{url} {options:?}: {stderr}");
        }
    }
    // A certificate needs its key.
    let half = program()
        .args(["loro", "pull", &urls[0], "doc", "--cert", &client_cert])
        .output()
        .unwrap();
    assert_eq!(half.status.code(), Some(2));
}

/// A server that is not there, that says nothing, or that is behind a path which takes less than the
/// client sends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_cannot_be_reached_is_told_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("in.json").display().to_string();
    std::fs::write(&file, format!("{{\"text\":\"{}\"}}", noise(200_000))).unwrap();
    let server = Server::start(None);
    let path = BadPath::start(server.address(), Weather::capped(50_000))
        .await
        .unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = free.local_addr().unwrap();
    drop(free);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = (silent.local_addr().unwrap(), silent);
    for (address, timeout, words) in [
        (nobody, "60", &["refuses connections"][..]),
        (silent.0, "1", &["is not done after 1 s", "raise --timeout"]),
        (path.address(), "60", &["50000", "--max-frame"]),
    ] {
        let url = format!("ws://{address}/ws");
        for command in ["push", "pull", "list"] {
            // What is small goes over that path.
            if address == path.address() && command != "push" {
                continue;
            }
            let mut arguments = vec!["loro", command, &url];
            match command {
                "push" => arguments.extend(["doc", &file]),
                "pull" => arguments.push("doc"),
                _ => {}
            }
            arguments.extend(["--timeout", timeout]);
            let output = run(&arguments);
            let stderr = String::from_utf8_lossy(&output.stderr);
            let code = match address {
                address if address == nobody => 2,
                address if address == silent.0 => 124,
                _ => 1,
            };
            assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
            for words in words {
                assert!(stderr.contains(words), "{arguments:?}: {stderr}");
            }
            assert!(output.stdout.is_empty(), "{arguments:?}");
        }
    }
    let output = run(&["loro", "pull", &server.ways()[0], "doc"]);
    assert_eq!(output.status.code(), Some(1), "nothing of it arrived");
}

/// A command that is ended before the server has answered is no success, and sent nothing of the document.
#[test]
fn a_push_that_is_stopped_is_no_success() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("in.json").display().to_string();
    std::fs::write(&file, "{\"text\":\"a secret\"}").unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}/ws", silent.local_addr().unwrap());
    for signal in ["-TERM", "-INT", "-HUP"] {
        let mut push = program()
            .args(["loro", "push", &url, "doc", &file])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut peer, _) = silent.accept().unwrap();
        let mut some = [0; 4];
        peer.read_exact(&mut some).unwrap();
        let pid = push.id().to_string();
        let asked = Command::new("kill").args([signal, &pid]).status();
        assert!(asked.unwrap().success());
        assert!(!push.wait().unwrap().success(), "{signal}");
        let mut sent = Vec::new();
        peer.read_to_end(&mut sent).unwrap();
        let sent = String::from_utf8_lossy(&sent);
        assert!(!sent.contains("a secret"), "{sent}");
    }
}

/// The file that was there stays as it was.
#[test]
fn a_pull_onto_a_full_disk_touches_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(None);
    let input = folder.path().join("in.json").display().to_string();
    std::fs::write(&input, format!("{{\"text\":\"{}\"}}", noise(1 << 20))).unwrap();
    let [url, ..] = &server.ways();
    succeed(&["loro", "push", url, "doc", &input]);
    let disk = folder.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let file = disk.join("out.json");
    std::fs::write(&file, "mine").unwrap();
    // A limit for files stands for a full disk; the signal that comes with it is ignored.
    let script = "trap '' XFSZ; ulimit -f 100; exec \"$0\" loro pull \"$1\" doc \"$2\"";
    let output = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_breakbulk"), url])
        .arg(&file)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("out.json"), "{stderr}");
    assert!(stderr.contains("File too large"), "{stderr}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    assert_eq!(std::fs::read_dir(&disk).unwrap().count(), 1);
}

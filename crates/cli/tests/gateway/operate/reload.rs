//! SIGHUP: what did not change is not touched, and what is wrong changes nothing.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::{Client, Folder, echo, free_port};
use crate::common::PATIENCE;

const KEPT: &str = "
memory = '256MiB'

[[route]]
name = 'kept'
listen = 'unix:$D/kept'
to = '$ANSWER'
";

fn with(more: &str) -> String {
    format!("{KEPT}{more}")
}

const GONE: &str = "
[[route]]
name = 'gone'
listen = 'unix:$D/gone'
to = '$ANSWER'
";

// OPS-4
#[test]
fn clients_of_an_unchanged_route_notice_nothing() {
    let folder = Folder::new();
    folder.write(&with(GONE));
    let gateway = folder.start(2);
    let done = Arc::new(AtomicBool::new(false));
    let counts: Vec<Arc<AtomicUsize>> = (0..4).map(|_| Arc::default()).collect();
    let clients: Vec<_> = counts
        .iter()
        .enumerate()
        .map(|(number, count)| {
            let mut client = Client::unix(&folder.path("kept"));
            let (done, count) = (done.clone(), count.clone());
            std::thread::spawn(move || {
                let mut id = 0;
                while !done.load(Ordering::Relaxed) {
                    let size = [100, 70_000, 1_500_000][(id + number) % 3];
                    client.ask(id, size);
                    client.answer(id, size);
                    id += 1;
                    count.store(id, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(2));
                }
            })
        })
        .collect();
    let go_on = || {
        // Each client gets two more answers.
        let before: Vec<_> = counts.iter().map(|it| it.load(Ordering::Relaxed)).collect();
        let since = Instant::now();
        while counts
            .iter()
            .zip(&before)
            .any(|(now, before)| now.load(Ordering::Relaxed) < before + 2)
        {
            assert!(since.elapsed() < PATIENCE, "the clients wait");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    go_on();
    // In the middle of an answer of 8 MB, at a route that is removed.
    let mut leaving = Client::unix(&folder.path("gone"));
    leaving.ask(7, 8_000_000);
    let mut first = vec![0; 1_000_000];
    leaving.reader.read_exact(&mut first).unwrap();
    folder.write(KEPT);
    gateway.signal("-HUP");
    gateway.line("reloaded: 1 route unchanged; started: none; stopped: gone");
    let since = Instant::now();
    while folder.path("gone").exists() {
        assert!(since.elapsed() < PATIENCE, "it still listens");
        std::thread::sleep(Duration::from_millis(5));
    }
    go_on();
    let mut rest = Vec::new();
    leaving.reader.read_to_end(&mut rest).unwrap();
    let length = "{\"jsonrpc\": \"2.0\", \"id\": 7, \"result\": \"\"}\n".len() + 8_000_000;
    assert_eq!(first.len() + rest.len(), length);
    assert!(rest.ends_with(b"xx\"}\n"));
    gateway.line("route gone has stopped");
    // Added, changed, and written otherwise.
    for (more, expected) in [
        (
            GONE.to_owned(),
            "1 route unchanged; started: gone; stopped: none",
        ),
        (
            format!("{GONE}max-message = '16MiB'"),
            "1 route unchanged; started: gone; stopped: none",
        ),
        (
            format!("{GONE}max-message = 16_777_216 # the same"),
            "2 routes unchanged; started: none; stopped: none",
        ),
        (
            String::new(),
            "1 route unchanged; started: none; stopped: gone",
        ),
    ] {
        folder.write(&with(&more));
        gateway.signal("-HUP");
        gateway.line(&format!("reloaded: {expected}"));
        go_on();
    }
    done.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().unwrap();
    }
    let answers: usize = counts.iter().map(|it| it.load(Ordering::Relaxed)).sum();
    eprintln!("{answers} answers over 4 connections and 5 reloads");
}

// OPS-1, OPS-4
#[test]
fn a_file_that_is_wrong_changes_nothing() {
    let folder = Folder::new();
    folder.write(&with(GONE));
    let gateway = folder.start(2);
    let mut client = Client::unix(&folder.path("gone"));
    let config = folder.config().display().to_string();
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    for (text, expected) in [
        (
            with("[[route]]\nname = 'new'\nlisten = 'wz://8080'\nto = '$ANSWER'\n"),
            format!(
                "{config}:10:10: listen: \"wz\" is no transport; did you mean ws://HOST:PORT/PATH?"
            ),
        ),
        (
            with("max-fram = 7\n"),
            format!("{config}:8:1: \"max-fram\" is no setting of a route; did you mean max-frame?"),
        ),
        (with("= 7\n"), format!("{config}:8:1: this is not TOML: ")),
        (
            String::new(),
            format!("{config}: there is no route; write [[route]]"),
        ),
        // What only shows when it is opened.
        (
            with(&format!(
                "[[route]]\nname = 'new'\nlisten = 'tcp://{port}'\nto = '$ANSWER'\n"
            )),
            format!(
                "{config}:10:10: listen: cannot listen at 127.0.0.1:{port}: Address already in use"
            ),
        ),
        (
            with(&format!(
                "[[route]]\nname = 'new'\nlisten = 'unix:$D/new'\nto = 'tcp://127.0.0.1:{}'\n",
                free_port()
            )),
            format!("{config}:11:6: to: tcp://127.0.0.1:"),
        ),
    ] {
        folder.write(&text);
        gateway.signal("-HUP");
        let line = gateway.line("reload refused, nothing was changed: ");
        assert!(line.contains(&expected), "{line}\n{expected}");
        // Both routes are still there, and so is the session.
        client.ask(1, 1000);
        client.answer(1, 1000);
        let mut other = Client::unix(&folder.path("kept"));
        other.ask(2, 10);
        other.answer(2, 10);
    }
    std::fs::remove_file(folder.config()).unwrap();
    gateway.signal("-HUP");
    let line = gateway.line("reload refused, nothing was changed: ");
    assert!(line.contains("No such file or directory"), "{line}");
    client.ask(3, 10);
    client.answer(3, 10);
}

// OPS-5
#[test]
fn routes_exchange_their_addresses_and_nobody_is_refused() {
    let (folder, one, two) = (Folder::new(), free_port(), free_port());
    let text = |one: u16, two: u16, frame: &str| {
        format!(
            "grace = 3
            [[route]]
            name = 'one'
            listen = 'tcp://127.0.0.1:{one}'
            to = 'unix:$D/echo'
            [[route]]
            name = 'two'
            listen = 'http://127.0.0.1:{two}/mcp'
            to = 'exec:cat'
            max-message = '{frame}'"
        )
    };
    echo(&folder.path("echo"));
    folder.write(&text(one, two, "1MB"));
    let gateway = folder.start(2);
    let done = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = [one, two]
        .into_iter()
        .map(|port| {
            let done = done.clone();
            std::thread::spawn(move || {
                let mut calls = 0;
                while !done.load(Ordering::Relaxed) {
                    drop(TcpStream::connect(("127.0.0.1", port)).expect("nobody is refused"));
                    calls += 1;
                    // A pace, so that the machine has time for others.
                    std::thread::sleep(Duration::from_millis(2));
                }
                calls
            })
        })
        .collect();
    for (one, two, frame) in [(two, one, "1MB"), (one, two, "1MB"), (one, two, "2MB")] {
        let is_swapped = frame == "1MB";
        let mut open = Client::tcp(if is_swapped { two } else { one });
        open.echo();
        folder.write(&text(one, two, frame));
        gateway.signal("-HUP");
        gateway.line(match is_swapped {
            true => "reloaded: 0 routes unchanged; started: one, two; stopped: none",
            false => "reloaded: 1 route unchanged; started: two; stopped: none",
        });
        let mut client = Client::tcp(one);
        client.echo();
        let mut http = TcpStream::connect(("127.0.0.1", two)).unwrap();
        http.write_all(b"PUT /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .unwrap();
        let mut status = [0; 12];
        http.read_exact(&mut status).unwrap();
        assert_eq!(&status, b"HTTP/1.1 405");
    }
    done.store(true, Ordering::Relaxed);
    let calls: usize = callers
        .into_iter()
        .map(|caller| caller.join().unwrap())
        .sum();
    eprintln!("{calls} connections over 3 reloads");
}

// OPS-5
#[test]
fn an_address_is_free_once_its_route_is_gone() {
    let (folder, port) = (Folder::new(), free_port());
    let other =
        format!("[[route]]\nname = 'other'\nlisten = 'ws://127.0.0.1:{port}'\nto = '$ANSWER'\n");
    folder.write(&with(&other));
    let gateway = folder.start(2);
    TcpStream::connect(("127.0.0.1", port)).unwrap();
    folder.write(KEPT);
    gateway.signal("-HUP");
    gateway.line("reloaded: 1 route unchanged; started: none; stopped: other");
    gateway.line("route other has stopped");
    let refused = TcpStream::connect(("127.0.0.1", port)).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    drop(std::net::TcpListener::bind(("127.0.0.1", port)).unwrap());
    // A wider address in place of a narrow one.
    folder.write(&with(&other));
    gateway.signal("-HUP");
    gateway.line("reloaded: 1 route unchanged; started: other; stopped: none");
    folder.write(&with(
        &other
            .replace("127.0.0.1:", "0.0.0.0:")
            .replace("to =", "allow-remote = true\nto ="),
    ));
    gateway.signal("-HUP");
    gateway.line("reloaded: 1 route unchanged; started: other; stopped: none");
    TcpStream::connect(("127.0.0.1", port)).unwrap();
}

// OPS-4
#[test]
fn a_certificate_that_is_renewed_starts_its_route_again() {
    let folder = Folder::new();
    let renew = || {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        std::fs::write(folder.path("cert.pem"), made.cert.pem()).unwrap();
        std::fs::write(folder.path("key.pem"), made.signing_key.serialize_pem()).unwrap();
    };
    renew();
    let secure = "
        cert = '$D/cert.pem'
        key = '$D/key.pem'
        [[route]]
        name = 'secure'
        listen = 'wss://127.0.0.1:0'
        to = '$ANSWER'
        ";
    folder.write(&format!("{secure}{}", KEPT.replace("memory", "# memory")));
    let gateway = folder.start(2);
    gateway.signal("-HUP");
    gateway.line("reloaded: 2 routes unchanged");
    renew();
    gateway.signal("-HUP");
    gateway.line("reloaded: 1 route unchanged; started: secure; stopped: none");
    std::fs::write(folder.path("cert.pem"), "nonsense").unwrap();
    gateway.signal("-HUP");
    let line = gateway.line("reload refused, nothing was changed: ");
    let expected = "cert.pem: no certificates in PEM: the file has none";
    assert!(
        line.contains(expected) && line.contains("gateway.toml:2:16: "),
        "{line}"
    );
}

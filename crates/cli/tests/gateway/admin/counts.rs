//! Tests that the metrics equal what was sent.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use breakbulk_testkit::bad_path::{After, BadPath, Cut, How, Over, Weather};
use tokio::task::spawn_blocking;

use super::{Admin, Metrics, listening, with_admin};
use crate::common::{Listening, Near, lines};
use crate::http::door::server;
use crate::http::wire::{INITIALIZE, INITIALIZED, call};

/// A gateway at its standard streams, with an admin port.
fn near(arguments: &[&str]) -> (Near, Admin) {
    let near = Near::start(with_admin(arguments));
    let line = near.log.line("admin on ");
    let admin = Admin::of(&[line]);
    (near, admin)
}

/// Sends lines one after another, and reads each back.
fn echo(near: &mut Near, sizes: &[usize]) -> Vec<usize> {
    let input = lines(sizes);
    let mut sent = Vec::new();
    for line in input.split_inclusive(|byte| *byte == b'\n') {
        near.write(line);
        assert!(near.read_line().as_bytes() == line);
        sent.push(line.len() - 1);
    }
    sent
}

/// Whether both ends carried these messages in both directions.
fn carried(metrics: &Metrics, sent: &[usize]) -> bool {
    let bytes = sent.iter().sum::<usize>() as f64;
    ["listen", "to"].iter().all(|side| {
        ["in", "out"].iter().all(|direction| {
            metrics.flow("messages", side, direction) == sent.len() as f64
                && metrics.flow("message_bytes", side, direction) == bytes
        })
    })
}

// ADMIN-1
#[test]
fn messages_and_bytes_are_those_of_the_programs_whatever_carries_them() {
    for (listen, to, sizes) in [
        ("whole+ws://0", "whole+", &[10, 1_000, 50_000][..]),
        ("ws://0", "", &[10, 1_000, 300_000, 7]),
        ("tcp://0", "", &[10, 100_000]),
        ("ahp+http://0/t", "", &[10, 100_000]),
    ] {
        let (far, far_admin) = listening(&[
            "--listen",
            listen,
            "--to",
            "exec:cat",
            "--max-frame",
            "20KB",
        ]);
        let to = format!("{to}{}", far.address);
        let (mut near, near_admin) =
            near(&["--listen", "stdio:", "--to", &to, "--max-frame", "20KB"]);
        let sent = echo(&mut near, sizes);
        for admin in [&far_admin, &near_admin] {
            let metrics = admin.until(listen, |metrics| carried(metrics, &sent));
            assert_eq!(metrics.of("breakbulk_sessions", &[]), 1.0);
            assert_eq!(metrics.of("breakbulk_sessions_total", &[]), 1.0);
            // Each message was in the gateway for some time.
            for direction in ["direction=\"in\"", "direction=\"out\""] {
                let count = metrics.of("breakbulk_queue_seconds_count", &[direction]);
                assert_eq!(count, sent.len() as f64, "{listen}");
            }
        }
        // What one gateway handed to the path, the other one received.
        let of = |admin: &Admin, side, direction| {
            let metrics = admin.metrics();
            ["frames", "frame_bytes"].map(|name| metrics.flow(name, side, direction))
        };
        far_admin.until(listen, |_| {
            of(&near_admin, "to", "in") == of(&far_admin, "listen", "in")
                && of(&near_admin, "to", "out") == of(&far_admin, "listen", "out")
        });
        let [frames, bytes] = of(&far_admin, "listen", "in");
        assert!(frames >= sent.len() as f64, "{listen}");
        // In pieces: base64 makes four bytes of three.
        if listen == "ws://0" {
            assert!(bytes <= frames * 20_000.0, "{bytes} in {frames}");
            let pieces = sent.iter().map(|size| size.div_ceil(20_000));
            let least = pieces.sum::<usize>() as f64;
            assert!(
                (least..2.0 * least + 10.0).contains(&frames),
                "{frames} {least}"
            );
        }
        drop(near.stdin.take());
        let metrics = far_admin.until(listen, |metrics| {
            metrics.of("breakbulk_sessions", &[]) == 0.0
        });
        assert!(carried(&metrics, &sent), "what has ended is not forgotten");
        let clean = metrics.of("breakbulk_sessions_ended_total", &["how=\"clean\""]);
        assert_eq!(clean, 1.0, "{listen}");
    }
}

// ADMIN-1
#[test]
fn messages_over_http_are_counted_one_by_one() {
    let (far, far_admin) = listening(&["--listen", "http://127.0.0.1:0/mcp", "--to", &server()]);
    let (mut near, near_admin) = near(&["--listen", "stdio:", "--to", &far.address]);
    let asked = call(1, "echo", r#""text":"a""#);
    near.write(format!("{INITIALIZE}\n").as_bytes());
    let first = near.read_line();
    near.write(format!("{INITIALIZED}\n{asked}\n").as_bytes());
    let second = near.read_line();
    let sent = (INITIALIZE.len() + INITIALIZED.len() + asked.len()) as f64;
    let answered = (first.trim_end().len() + second.trim_end().len()) as f64;
    for admin in [&far_admin, &near_admin] {
        admin.until("http", |metrics| {
            ["listen", "to"].iter().all(|side| {
                let flow = |name, direction| metrics.flow(name, side, direction);
                flow("messages", "in") == 3.0
                    && flow("messages", "out") == 2.0
                    && flow("message_bytes", "in") == sent
                    && flow("message_bytes", "out") == answered
                    && flow("frames", "in") == 3.0
                    && flow("frames", "out") == 2.0
            })
        });
    }
}

fn refused(admin: &Admin, reason: &str) -> f64 {
    let label = format!("reason=\"{reason}\"");
    let metrics = admin.metrics();
    metrics.of("breakbulk_refused_total", &[&label])
}

// ADMIN-1
#[test]
fn refused_clients_are_counted_by_reason() {
    let handshake = |address: &str| {
        let address = address.strip_prefix("ws://").unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        let asked = format!(
            "GET / HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        client.write_all(asked.as_bytes()).unwrap();
        let mut status = String::new();
        BufReader::new(client.try_clone().unwrap())
            .read_line(&mut status)
            .unwrap();
        (client, status)
    };
    // No token.
    let mut command = with_admin(&["--listen", "whole+ws://0", "--to", "exec:cat"]);
    command.env("BREAKBULK_TOKEN", "t");
    let gateway = Listening::start(command);
    let admin = Admin::of(&gateway.before);
    for _ in 0..3 {
        assert!(handshake(&gateway.address).1.contains("401"));
    }
    assert_eq!(refused(&admin, "request"), 3.0);
    assert_eq!(refused(&admin, "no_target"), 0.0);
    // Too many connections.
    let one = [
        "--listen",
        "whole+ws://0",
        "--to",
        "exec:cat",
        "--max-sessions",
        "1",
    ];
    let (gateway, admin) = listening(&one);
    let first = handshake(&gateway.address);
    assert!(first.1.contains("101"));
    assert!(handshake(&gateway.address).1.contains("503"));
    assert_eq!(refused(&admin, "listener_full"), 1.0);
    // No target.
    let (gateway, admin) = listening(&[
        "--listen",
        "whole+ws://0",
        "--to",
        "tcp://127.0.0.1:1",
        "--no-check",
    ]);
    let (mut client, _) = handshake(&gateway.address);
    let _ = client.read_to_end(&mut Vec::new());
    assert_eq!(refused(&admin, "no_target"), 1.0);
    let metrics = admin.metrics();
    assert_eq!(metrics.of("breakbulk_sessions_total", &[]), 0.0);
    let faults = admin.json("/api/state")["faults"].clone();
    assert_eq!(faults.as_array().unwrap().len(), 1, "{faults}");
}

async fn path_to(far: &Listening) -> BadPath {
    let target = far.address.strip_prefix("ws://").unwrap().to_owned();
    BadPath::start(target, Weather::default()).await.unwrap()
}

// ADMIN-1
#[tokio::test]
async fn a_message_counts_once_however_often_its_line_is_lost() {
    let (far, far_admin) = listening(&[
        "--listen",
        "ws://0",
        "--to",
        "exec:cat",
        "--max-frame",
        "20KB",
    ]);
    let path = path_to(&far).await;
    path.cut_after(Cut {
        after: After::Frames(20),
        counting: None,
        over: Over::EachConnection,
        how: How::End,
    });
    let to = format!("ws://{}/", path.address());
    let control = path.control();
    let carrying = spawn_blocking(move || {
        let (mut near, near_admin) =
            near(&["--listen", "stdio:", "--to", &to, "--max-frame", "20KB"]);
        let sent = echo(&mut near, &[10, 300_000, 20_000, 7]);
        for (admin, side) in [(&far_admin, "listen"), (&near_admin, "to")] {
            let metrics = admin.until("resumed", |metrics| carried(metrics, &sent));
            let side = format!("side=\"{side}\"");
            let resumes = metrics.of("breakbulk_resumes_total", &[&side]);
            let lost = metrics.of("breakbulk_lines_lost_total", &[&side]);
            let cuts = control.counts().cuts as f64;
            assert!(
                resumes >= 2.0 && resumes <= cuts,
                "{side}: {resumes} of {cuts}"
            );
            assert!(lost <= cuts, "{side}: {lost} of {cuts}");
            assert_eq!(metrics.of("breakbulk_sessions_total", &[]), 1.0, "{side}");
        }
        drop(near);
    });
    carrying.await.unwrap();
}

// ADMIN-1
#[tokio::test]
async fn a_transfer_that_breaks_off_is_open_and_then_incomplete() {
    let (far, far_admin) = listening(&[
        "--listen",
        "ws://0",
        "--to",
        "exec:cat",
        "--max-frame",
        "20KB",
        "--resume-for",
        "0",
    ]);
    let path = path_to(&far).await;
    let to = format!("ws://{}/", path.address());
    let control = path.control();
    let carrying = spawn_blocking(move || {
        let (mut near, _) = near(&["--listen", "stdio:", "--to", &to, "--max-frame", "20KB"]);
        echo(&mut near, &[10]);
        control.hold();
        let large = lines(&[3_000_000]);
        let mut stdin = near.stdin.take().unwrap();
        let writing = std::thread::spawn(move || drop(stdin.write_all(&large)));
        // Some of it is at the other gateway, and the rest is not.
        control.change(|weather| weather.from_client.pace = Some(200_000));
        control.resume();
        let of_transfers = |metrics: &Metrics| {
            let labels = ["side=\"listen\"", "direction=\"in\""];
            metrics.of("breakbulk_transfers", &labels)
        };
        far_admin.until("open", |metrics| of_transfers(metrics) == 1.0);
        let state = far_admin.json("/api/state");
        let transfer = &state["sessions"][0]["transfers"][0];
        assert_eq!(transfer["side"], "listen");
        assert_eq!(transfer["direction"], "in");
        assert!(transfer["done"].as_u64().unwrap() < 3_000_000, "{transfer}");
        control.cut(How::Reset);
        let metrics = far_admin.until("ended", |metrics| {
            metrics.of("breakbulk_sessions", &[]) == 0.0
        });
        assert_eq!(of_transfers(&metrics), 0.0);
        assert_eq!(metrics.flow("messages", "listen", "in"), 1.0);
        assert!(metrics.flow("frames", "listen", "in") > 2.0);
        let failed = metrics.of("breakbulk_sessions_ended_total", &["how=\"failed\""]);
        assert_eq!(failed, 1.0);
        let incomplete = metrics.of("breakbulk_losses_total", &["what=\"incomplete\""]);
        assert_eq!(incomplete, 1.0);
        drop(near);
        writing.join().unwrap();
    });
    carrying.await.unwrap();
}

/// Debian's own checker: names, types, help texts and histograms.
// ADMIN-1
#[test]
fn promtool_finds_nothing_wrong() {
    let (far, admin) = listening(&[
        "--listen",
        "ws://0",
        "--to",
        "exec:cat",
        "--max-frame",
        "20KB",
    ]);
    let (mut near, _) = near(&["--listen", "stdio:", "--to", &far.address]);
    let sent = echo(&mut near, &[10, 100_000]);
    admin.until("carried", |metrics| carried(metrics, &sent));
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is installed (apt-get install prometheus)");
    let text = admin.get("/metrics");
    let mut stdin = promtool.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    drop(stdin);
    let output = promtool.wait_with_output().unwrap();
    let told = [output.stdout, output.stderr].concat();
    let told = String::from_utf8_lossy(&told).into_owned();
    assert!(output.status.success() && told.is_empty(), "{told}\n{text}");
    // Check that promtool does find something wrong where there is something.
    let histogram = "# TYPE breakbulk_queue_seconds histogram";
    assert!(text.contains(histogram), "{text}");
}

//! The command `probe`, over a path with a planted cap.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

use breakbulk_testkit::bad_path::{BadPath, Weather};
use serde_json::{Value, json};

fn probe(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_breakbulk"));
    command
        .arg("probe")
        .args(arguments)
        .env_remove("BREAKBULK_TOKEN");
    command
}

/// An end that answers, ended with the test.
struct Answering {
    child: Child,
    address: String,
}

impl Answering {
    fn new(listen: &str) -> Self {
        let mut child = probe(&["--listen", listen])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = loop {
            let line = lines.next().unwrap().unwrap();
            if let Some(address) = line.strip_prefix("listening on ") {
                break address.to_owned();
            }
        };
        // Its log is read to its end, so that the pipe never fills up.
        std::thread::spawn(move || lines.count());
        Self { child, address }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn asked(arguments: &[&str]) -> Output {
    let mut command = probe(arguments);
    let ran = tokio::task::spawn_blocking(move || command.output().unwrap());
    ran.await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_found_is_printed_for_people_and_for_machines() {
    let answering = Answering::new("ws://0");
    let host = answering.address.strip_prefix("ws://").unwrap();
    let path = BadPath::start(host, Weather::capped(131_072))
        .await
        .unwrap();
    let target = format!("ws://{}/", path.address());
    let output = asked(&[&target, "--up-to", "300KB"]).await;
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    let found = "131072 bytes pass; one more: closed with 1009 (message of 131073 bytes over the cap of 131072)";
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], format!("up    text    {found}"));
    assert_eq!(lines[1], format!("      binary  {found}"));
    assert_eq!(lines[2], format!("down  text    {found}"));
    assert_eq!(lines[3], format!("      binary  {found}"));
    assert!(lines[4].starts_with("round trip "), "{text}");
    assert_eq!(
        lines[5],
        "like    strfry, nostr-rs-relay (breakbulk caps NAME)"
    );
    assert_eq!(
        lines[6],
        "use     --max-frame 131072, or --preset strfry; at both gateways"
    );
    let output = asked(&[&target, "--up-to", "300KB", "--json"]).await;
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let limits = json!({
        "message": {
            "result": "cap",
            "bytes": 131_072,
            "above": {
                "kind": "close",
                "code": 1009,
                "arrived": null,
                "words": "closed with 1009 (message of 131073 bytes over the cap of 131072)",
            },
        },
        "frame": null,
    });
    for way in ["up", "down"] {
        assert_eq!(report[way], json!({"text": limits, "binary": limits}));
    }
    assert_eq!(report["maxFrame"], 131_072);
    assert_eq!(report["preset"], "strfry");
    assert!(report["roundTripMs"].as_f64().unwrap() > 0.0);
    assert!(report["upBytesPerSecond"].as_u64().unwrap() > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_of_http_are_probed_too() {
    let answering = Answering::new("http://0/probe");
    let output = asked(&[&answering.address, "--up-to", "100KB"]).await;
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "up    text    no limit up to 100000 bytes");
    assert_eq!(lines[1], "down  text    no limit up to 100000 bytes");
    // A connection for each of three round trips, the greeting, and the messages.
    let counted = lines[2].rsplit_once("; ").unwrap().1;
    assert_eq!(counted, "8 messages over 12 connections");
    assert_eq!(
        *lines.last().unwrap(),
        "use     no option is needed for messages of this size"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_that_cannot_begin_ends_with_2() {
    // A port that nobody listens at.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("ws://{}/", free.local_addr().unwrap());
    drop(free);
    for (arguments, words) in [
        (vec![nobody.as_str()], "refuses connections"),
        (vec!["stdio:"], "a probe is for ws://"),
        (vec!["ws:/x"], "write ws:// with its slashes"),
        (vec!["--listen", "stdio:"], "probes are answered at ws://"),
        (vec!["--listen", "ws://0.0.0.0:0"], "token"),
        (vec!["--listen", "http://0.0.0.0:0"], "token"),
        (vec![], "ENDPOINT"),
    ] {
        let output = asked(&arguments).await;
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}

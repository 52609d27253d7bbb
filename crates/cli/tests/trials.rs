//! The commands to try things out with: `relay`, a capped path, and `echo`, an MCP server and its client.

#![cfg(unix)]
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_breakbulk");

/// No test waits longer for a line.
const PATIENCE: Duration = Duration::from_secs(60);

fn breakbulk(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .args(arguments)
        .env_remove("BREAKBULK_TOKEN")
        .env_remove("XDG_STATE_HOME")
        .env("HOME", "");
    command
}

/// A command that listens, with its log; it is ended with the test.
struct Listening {
    child: Child,
    address: String,
    log: mpsc::Receiver<String>,
}

impl Listening {
    fn new(arguments: &[&str]) -> Self {
        let mut child = breakbulk(arguments).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (tell, log) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                eprintln!("{line}");
                let _ = tell.send(line);
            }
        });
        let mut listening = Self {
            child,
            address: String::new(),
            log,
        };
        let line = listening.line("listening on ");
        listening.address = line["listening on ".len()..].to_owned();
        listening
    }

    /// Waits for a line with these words.
    fn line(&self, words: &str) -> String {
        loop {
            let line = self.log.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|error| panic!("no line with {words:?}: {error}"));
            if line.contains(words) {
                return line;
            }
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Asks for so much through a gateway to this target.
fn ask(size: &str, target: &str, options: &[&str]) -> Output {
    let line = [
        "echo", "--ask", size, PROGRAM, "gateway", "--listen", "stdio:", "--to", target,
    ];
    breakbulk(&[&line[..], options].concat()).output().unwrap()
}

/// A gateway before `breakbulk echo`.
fn far(listen: &str) -> Listening {
    let server = format!("exec:{PROGRAM} echo");
    Listening::new(&["gateway", "--listen", listen, "--to", &server])
}

#[test]
fn what_is_over_the_cap_is_closed_with_1009_and_passes_in_frames() {
    // Plain WebSockets: the message is one frame.
    let plain = far("whole+ws://0");
    let relay = Listening::new(&["relay", "--listen", "ws://0", "--to", &plain.address]);
    let address = relay.address.replace("ws://", "whole+ws://");
    let output = ask("2MB", &address, &[]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("1009"), "{}", said(&output));
    let line = relay.line("closed with 1009");
    assert!(line.contains("over the cap of 1000000 bytes"), "{line}");

    // Below the cap the same way is good.
    let output = ask("900KB", &address, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));

    let tunnel = far("ws://0");
    let relay = Listening::new(&["relay", "--listen", "ws://0", "--to", &tunnel.address]);
    let output = ask("20MB", &relay.address, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let printed = String::from_utf8(output.stdout).unwrap();
    let words = "20000000 bytes arrived, each as it was sent, in ";
    assert!(printed.starts_with(words), "{printed}");
    relay.line("no connection is open; passed so far: ");
}

#[test]
fn a_body_over_the_cap_gets_413_and_passes_in_smaller_ones() {
    let far = far("ahp+http://0");
    let target = far.address.replace("ahp+", "");
    let relay = Listening::new(&[
        "relay", "--listen", "http://0", "--to", &target, "--cap", "100KB",
    ]);
    // A POST that is too long, from a client that knows no frames.
    let output = Command::new("curl")
        .args([
            "--silent",
            "--output",
            "/dev/null",
            "--write-out",
            "%{http_code}",
        ])
        .args(["--data-binary", &"x".repeat(100_001), &relay.address])
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "413",
        "{}",
        said(&output)
    );
    relay.line("refused a body over the cap of 100000 bytes (1 so far, the largest 100001 bytes)");

    let address = format!("ahp+{}", relay.address);
    let output = ask("2MB", &address, &["--max-frame", "90KB"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
}

#[test]
fn an_answer_crosses_a_nostr_relay() {
    let relay = Listening::new(&["relay", "--listen", "ws://0", "--nostr"]);
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    let made = breakbulk(&["keygen", key.to_str().unwrap()])
        .output()
        .unwrap();
    let npub = String::from_utf8(made.stdout).unwrap();
    let npub = npub.lines().next().unwrap();
    let listen = format!("cep22+nostr:{}?key={}", relay.address, key.display());
    let server = format!("exec:{PROGRAM} echo");
    let _far = Listening::new(&["gateway", "--listen", &listen, "--to", &server]);
    let target = format!("cep22+nostr:{}?server={npub}", relay.address);
    let output = ask("200KB", &target, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
}

#[test]
fn a_relay_that_is_told_to_stop_ends_with_0() {
    let mut relay = Listening::new(&["relay", "--listen", "ws://0", "--to", "ws://127.0.0.1:1"]);
    let id = relay.child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &id])
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(relay.child.wait().unwrap().code(), Some(0));
}

#[test]
fn wrong_options_are_told() {
    let busy = Listening::new(&["relay", "--listen", "ws://0", "--nostr"]);
    for (arguments, words) in [
        (&["relay"][..], "--to <ENDPOINT>"),
        (&["relay", "--to", "wss://a:1"], "knows no TLS"),
        (
            &["relay", "--to", "http://a:1"],
            "--listen is ws:// and --to is http://",
        ),
        (
            &["relay", "--nostr", "--listen", "http://0"],
            "reached by WebSocket",
        ),
        (
            &["relay", "--nostr", "--to", "ws://a:1"],
            "cannot be used with",
        ),
        (
            &["relay", "--listen", "ws://0.0.0.0:0", "--nostr"],
            "listens on this machine alone",
        ),
        (
            &["relay", "--listen", &busy.address, "--to", "ws://a:1"],
            "choose another one",
        ),
        (
            &["relay", "--listen", &busy.address, "--nostr"],
            "choose another one",
        ),
        (&["echo", "--ask", "1MB"], "<COMMAND>"),
        (&["echo", "cat"], "--ask <SIZE>"),
        (&["echo", "--ask", "2GiB", "cat"], "at most 1.07 GB"),
        (
            &["echo", "--ask", "1MB", "/no/such/program"],
            "/no/such/program",
        ),
    ] {
        let output = breakbulk(arguments).stdin(Stdio::null()).output().unwrap();
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?}: {}",
            said(&output)
        );
        assert!(
            said(&output).contains(words),
            "{arguments:?}: {}",
            said(&output)
        );
    }
}

#[test]
fn what_a_server_does_wrong_is_told() {
    let initialized =
        r#"read line; echo '{"jsonrpc":"2.0","id":1,"result":{}}'; read line; read line;"#;
    for (script, code, words) in [
        ("exit 3", 1, "the command ended before it answered"),
        ("echo hello; exec sleep 60", 1, "a line that is not JSON"),
        (
            r#"echo '{"jsonrpc":"2.0","id":2,"result":{"content":[{"text":"0000000 00x0"}]}}'"#,
            1,
            "the text that arrived has 12 of 12 bytes, and differs at byte 10 from the one that the tool bytes of breakbulk echo gives; a server of your own may give another",
        ),
        (
            r#"echo '{"jsonrpc":"2.0","id":2,"result":{"content":[{"text":"0000"}]}}'"#,
            1,
            "the text that arrived has 4 of 12 bytes, and differs at byte 4 from the one that the tool bytes of breakbulk echo gives; a server of your own may give another",
        ),
        (
            r#"echo '{"jsonrpc":"2.0","id":2,"error":{"code":-32011,"message":"too\u001b large"}}'"#,
            1,
            r"error -32011: too\u{1b} large",
        ),
        (
            "head -c 2000000 /dev/zero",
            1,
            "a line of more than 1048588 bytes",
        ),
        ("exec sleep 60", 124, "no answer came within 1 s"),
    ] {
        let script = match script.starts_with("exit") || script.starts_with("echo hello") {
            true => script.to_owned(),
            false => format!("{initialized} {script}"),
        };
        let line = ["echo", "--ask", "12", "--timeout", "1", "sh", "-c", &script];
        let output = breakbulk(&line).output().unwrap();
        assert_eq!(
            output.status.code(),
            Some(code),
            "{script}: {}",
            said(&output)
        );
        assert!(said(&output).contains(words), "{script}: {}", said(&output));
    }
}

#[test]
fn the_server_answers_line_by_line_and_ends_with_its_input() {
    let mut child = breakbulk(&["echo"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    for (line, answer) in [
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}",
            "{\"id\":1,\"jsonrpc\":\"2.0\",\"result\":{}}",
        ),
        (
            "\n{",
            "{\"error\":{\"code\":-32700,\"message\":\"this line is not JSON\"},\"id\":null,\"jsonrpc\":\"2.0\"}",
        ),
    ] {
        writeln!(stdin, "{line}").unwrap();
        let mut read = String::new();
        stdout.read_line(&mut read).unwrap();
        assert_eq!(read.trim_end(), answer);
    }
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

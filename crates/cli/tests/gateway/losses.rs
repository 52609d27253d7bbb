//! What a client's gateway says, and how it ends, when something is lost at the other end.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout};

use crate::common::{Listening, gateway, lines, signal, wait};

/// A client's gateway, whose standard error is read at its end.
struct Client {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Client {
    fn new(to: &str) -> Self {
        let mut child = gateway(&["--listen", "stdio:", "--to", to])
            .spawn()
            .unwrap();
        Self {
            stdin: child.stdin.take().unwrap(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line
    }

    /// Its exit code and what it said.
    fn end(mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        let mut stderr = self.child.stderr.take().unwrap();
        stderr.read_to_string(&mut said).unwrap();
        (wait(&mut self.child), said)
    }
}

const REQUEST: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"m\"}\n";

fn not_answered(why: &str) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"error\":{{\"code\":-32000,\"message\":\"the request was not answered: {why}\",\"data\":{{\"reason\":\"notAnswered\"}}}}}}\n"
    )
}

// PROG-18
#[test]
fn a_call_that_is_open_when_the_other_end_is_stopped_is_answered_with_an_error() {
    let mut far = Listening::new(&["--listen", "ws://0", "--to", "exec:cat", "--grace", "1"]);
    let mut client = Client::new(&far.address);
    client.stdin.write_all(REQUEST).unwrap();
    // The request has reached the command, and has come back.
    assert_eq!(client.line().as_bytes(), REQUEST);
    far.signal("-TERM");
    let why = "the gateway is stopping, and no answer came within its grace time of 1 s";
    assert_eq!(client.line(), not_answered(why));
    let (code, said) = client.end();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("requests were not answered"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(far.exit_code(), Some(0));
}

// PROG-18
#[test]
fn a_call_that_is_open_when_the_server_exits_is_answered_with_an_error() {
    let server = "exec:sh -c 'read line; exit 0'";
    let far = Listening::new(&["--listen", "ws://0", "--to", server]);
    for (to, words) in [
        (
            server,
            "session ended: the command exited with status 0 (closed with 1000); 1 request was not answered",
        ),
        (
            &far.address,
            "the target closed with 1011: the other side has ended; 1 request was not answered",
        ),
    ] {
        let mut client = Client::new(to);
        client.stdin.write_all(REQUEST).unwrap();
        assert_eq!(
            client.line(),
            not_answered("the other side has ended"),
            "{to}"
        );
        let (code, said) = client.end();
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(words), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn half_of_a_line_that_was_read_is_told_when_the_other_end_is_stopped() {
    let mut far = Listening::new(&["--listen", "ws://0", "--to", "exec:cat"]);
    let mut client = Client::new(&far.address);
    client.stdin.write_all(b"[1]\n").unwrap();
    assert_eq!(client.line(), "[1]\n");
    // All but what the pipe holds is read when this returns.
    client.stdin.write_all(&vec![b'x'; 10_000_000]).unwrap();
    far.signal("-TERM");
    let (code, said) = client.end();
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("bytes that were read make no whole message and are dropped"),
        "{said}"
    );
    assert_eq!(far.exit_code(), Some(0));
}

// PROG-20
#[test]
fn a_command_gives_the_terminal_no_orders() {
    // What it writes last, without a line break, is passed on too.
    let server = r#"exec:sh -c 'printf "a\033[2Jb\nlast\033]0;t\007" >&2'"#;
    let (code, said) = Client::new(server).end();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(said, "a\u{fffd}[2Jb\nlast\u{fffd}]0;t\u{fffd}\n");
}

/// The other end stops while its messages are on their way, and does not wait for a reader that stands
/// still.
#[test]
fn a_transfer_that_the_grace_time_of_the_other_end_cuts_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("line");
    // Of many frames: a client that is stopped just between two messages misses no part of one.
    const SIZE: usize = 25_000_000;
    std::fs::write(&file, lines(&[SIZE])).unwrap();
    let pid = folder.path().join("pid");
    let command = format!(
        "exec:sh -c 'echo $$ > {}; for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do cat {}; done; cat'",
        pid.display(),
        file.display()
    );
    let options = ["--listen", "ws://0", "--to", &command, "--grace", "1"];
    // The client's gateway does not wait long for a line that cannot come.
    let mut far = Listening::new(&[&options[..], &["--resume-for", "1"]].concat());
    let mut client = Client::new(&far.address);
    // One message is here. Then the client's gateway is stopped, and the next messages get stuck on their
    // way.
    assert!(!client.stdout.fill_buf().unwrap().is_empty());
    signal(&client.child, "-STOP");
    far.signal("-TERM");
    assert_eq!(far.exit_code(), Some(0));
    // The command, whose messages these were, is ended.
    let pid = std::fs::read_to_string(pid).unwrap();
    let mut is_there = std::process::Command::new("kill");
    let is_there = is_there.args(["-0", pid.trim()]).output().unwrap();
    assert!(!is_there.status.success(), "the command still runs");
    signal(&client.child, "-CONT");
    let mut read = 0;
    loop {
        match client.stdout.fill_buf().unwrap().len() {
            0 => break,
            taken => {
                read += taken;
                client.stdout.consume(taken);
            }
        }
    }
    assert!(read < 20 * SIZE, "{read} bytes");
    let (code, said) = client.end();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("did not arrive whole"), "{said}");
}

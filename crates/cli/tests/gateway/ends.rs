//! How sessions end: of themselves, by a fault, by a signal.

use std::io::BufRead;
use std::time::Duration;

use crate::common::{Listening, Near, PATIENCE, gateway, lines, requests, run, said, signal, wait};

#[test]
fn a_session_that_fails_midway_is_1_and_says_why() {
    let deaf = "stdio:?framing=content-length";
    for (listen, to, input, words) in [
        (
            "stdio:",
            "exec:sh -c 'exit 3'",
            "",
            "the command exited with status 3",
        ),
        (
            "stdio:",
            "exec:cat",
            "{\"unfinished",
            "within a message: 12 bytes, \"{\\\"unfinished\"…, are dropped; why did the program stop?",
        ),
        (
            deaf,
            "exec:cat",
            "{}\n\n",
            "this stream has JSON lines, not Content-Length headers; use ?framing=lines",
        ),
        (
            "stdio:",
            "exec:cat",
            "Content-Length: 2\r\n\r\n{}",
            "this gateway closed its connection to the program at the standard streams with 1002: this stream has Content-Length headers, not JSON lines; use ?framing=content-length",
        ),
        (
            "stdio:",
            "exec:printf 'Content-Length: 2\r\n\r\n{}'",
            "",
            "this stream has Content-Length headers, not JSON lines; use ?framing=content-length",
        ),
        (
            deaf,
            "exec:cat",
            "Content-Length: 41\r\n\r\n{\"jsonrpc\":\"2.0\",\n\"method\":\"n\",\"params\":[]}",
            "raw line break",
        ),
    ] {
        let output = run(
            gateway(&["--listen", listen, "--to", to, "-q"]),
            input.into(),
        );
        let said = said(&output);
        // It has ended, and with it the connection to the program at its standard streams.
        assert_eq!(output.status.code(), Some(1), "{to}: {said}");
        assert!(said.contains(words), "{to}: {said}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{to}");
    }
}

/// What was written before the disk was full stays; the program's request is not left open in silence.
#[cfg(target_os = "linux")]
#[test]
fn a_standard_output_that_is_full_is_no_success() {
    use std::process::Stdio;

    let full = std::fs::File::options().write(true).open("/dev/full");
    let mut command = gateway(&["--listen", "stdio:", "--to", "exec:cat"]);
    command.stdout(Stdio::from(full.unwrap()));
    let output = run(command, requests(&[10, 10]));
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("No space left on device"), "{said}");
}

#[test]
fn sigterm_lets_what_is_queued_go_out() {
    let far = Listening::new(&[
        "--listen",
        "ws://0",
        "--to",
        "exec:cat",
        "--max-frame",
        "10KB",
    ]);
    let mut near = Near::new(&[
        "--listen",
        "stdio:",
        "--to",
        &far.address,
        "--max-frame",
        "10KB",
    ]);
    let input = lines(&[3_000_000]);
    near.write(&lines(&[1]));
    assert_eq!(near.read_line().as_bytes(), lines(&[1]));
    near.write(&input);
    // The first bytes of the message are back; the rest is in both gateways, and nobody reads it.
    assert!(!near.stdout.fill_buf().unwrap().is_empty());
    signal(&near.child, "-TERM");
    assert!(
        near.read_line().as_bytes() == input,
        "what was on its way is lost"
    );
    assert_eq!(wait(&mut near.child), Some(0));
    far.line("the client closed with 1001: the gateway is stopping");
}

#[test]
fn what_its_reader_does_not_take_in_time_is_no_success() {
    let mut near = Near::new(&["--listen", "stdio:", "--to", "exec:cat", "--grace", "1"]);
    near.write(&lines(&[4_000_000]));
    assert!(!near.stdout.fill_buf().unwrap().is_empty());
    signal(&near.child, "-TERM");
    // Nobody reads on.
    assert_eq!(wait(&mut near.child), Some(1));
}

#[test]
fn a_listener_stops_its_sessions_and_itself() {
    let mut far = Listening::new(&["--listen", "ws://0", "--to", "exec:cat"]);
    let mut near = Near::new(&["--listen", "stdio:", "--to", &far.address]);
    near.write(b"{}\n");
    assert_eq!(near.read_line(), "{}\n");
    far.signal("-INT");
    assert_eq!(far.exit_code(), Some(0));
    assert_eq!(near.read_line(), "");
    assert_eq!(wait(&mut near.child), Some(0));
}

/// A listener with a session whose command does not heed the end of its input: it is waited for.
fn stubborn() -> (Listening, Near) {
    let to = "exec:sh -c 'echo {}; while :; do sleep 60; done'";
    let far = Listening::new(&["--listen", "ws://0", "--to", to, "--resume-for", "1"]);
    let mut near = Near::new(&["--listen", "stdio:", "--to", &far.address]);
    assert_eq!(near.read_line(), "{}\n");
    (far, near)
}

#[test]
fn a_second_signal_does_not_wait() {
    let (mut far, mut near) = stubborn();
    near.write(&requests(&[1]));
    far.signal("-TERM");
    far.line("stopping");
    // A signal counts as the second one as soon as it cannot be an echo of the first.
    while far.child.try_wait().unwrap().is_none() {
        far.signal("-TERM");
        let _ = far.told_within(Duration::from_millis(50));
    }
    assert_eq!(far.exit_code(), Some(1));
    // The other end sees a cut, and tells its program.
    let answer = near.read_line();
    assert!(
        answer.contains(r#""id":0,"error":{"code":-32000"#),
        "{answer}"
    );
    assert_eq!(near.read_line(), "");
    assert_eq!(wait(&mut near.child), Some(1));
}

#[test]
fn a_signal_that_comes_twice_at_once_is_one() {
    let (mut far, _near) = stubborn();
    // As `timeout` does: to the process, then to its group.
    far.signal("-TERM");
    far.signal("-TERM");
    far.signal("-INT");
    assert_eq!(far.exit_code(), Some(0));
}

#[test]
fn a_listener_whose_sessions_failed_and_that_was_stopped_is_0() {
    let mut far = Listening::new(&["--listen", "ws://0", "--to", "exec:sh -c 'exit 3'"]);
    let near = gateway(&["--listen", "stdio:", "--to", &far.address]);
    assert_eq!(run(near, Vec::new()).status.code(), Some(1));
    far.line("session ended: the command exited with status 3 (closed with 1011)");
    far.signal("-TERM");
    assert_eq!(far.exit_code(), Some(0));
}

// PROG-7
#[test]
fn the_last_line_needs_no_line_break() {
    for (to, input, expected) in [
        ("exec:cat", "{\"a\":1}\n{\"b\":2}", "{\"a\":1}\n{\"b\":2}\n"),
        ("exec:printf [1]", "", "[1]\n"),
    ] {
        let near = gateway(&["--listen", "stdio:", "--to", to]);
        let output = run(near, input.into());
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{to}");
        assert_eq!(output.status.code(), Some(0), "{to}: {}", said(&output));
    }
}

#[test]
fn over_a_plain_websocket_answers_are_waited_for_at_the_end_of_input() {
    let answers = r#"exec:sed -u 's/"method":"m","params"/"result"/'"#;
    let input = requests(&[100, 2_000_000]);
    let answered = String::from_utf8(input.clone()).unwrap();
    let answered = answered.replace(r#""method":"m","params""#, r#""result""#);
    let folder = tempfile::tempdir().unwrap();
    let ended = folder.path().join("ended");
    // A program that never answers: its client gets errors, and it sees the end of its input.
    let silent = format!("exec:sh -c 'sed -u d; echo > {}'", ended.display());
    for (program, expected, grace, code) in [
        (answers, answered, "30", 0),
        (&silent, String::new(), "1", 1),
    ] {
        let end = Listening::new(&["--listen", "whole+ws://0", "--to", program]);
        let whole = end.address.replace("ws://", "whole+ws://");
        let near = gateway(&["--listen", "stdio:", "--to", &whole, "--grace", grace]);
        let output = run(near, input.clone());
        let out = String::from_utf8_lossy(&output.stdout);
        match code {
            0 => assert!(out == expected, "{program}"),
            _ => assert_eq!(
                out.matches("within the grace time of 1 s").count(),
                2,
                "{out}"
            ),
        }
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
        let start = std::time::Instant::now();
        while program == silent && !ended.exists() {
            assert!(start.elapsed() < PATIENCE, "its input did not end");
            std::thread::yield_now();
        }
    }
}

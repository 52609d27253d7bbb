//! What is on the standard error of a gateway, by its options.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use crate::common::{gateway, said, signal, wait};

/// A command that writes a terminal's control sequence to its standard error, and sends back each line.
const COMMAND: &str = "exec:sh -c 'printf \"from the command \\033[2J\\n\" >&2; exec cat'";

/// All lines of a gateway that had one client and was stopped.
fn lines(options: &[&str]) -> Vec<String> {
    let mut command = gateway(&["--listen", "tcp://0", "--to", COMMAND]);
    let mut child = command.args(options).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut lines = Vec::new();
    let port = loop {
        let mut line = String::new();
        assert!(stderr.read_line(&mut line).unwrap() > 0, "{lines:?}");
        lines.push(line.trim_end().to_owned());
        let digits = line.split("tcp://127.0.0.1:").nth(1);
        let digits = digits.map(|rest| rest.trim_end_matches(['"', '}', '\n']));
        if let Some(port) = digits.and_then(|digits| digits.parse::<u16>().ok()) {
            break port;
        }
    };
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let message = b"{\"jsonrpc\":\"2.0\",\"method\":\"m\"}\n";
    client.write_all(message).unwrap();
    let mut echo = vec![0; message.len()];
    client.read_exact(&mut echo).unwrap();
    assert_eq!(echo, message);
    drop(client);
    signal(&child, "-TERM");
    assert_eq!(wait(&mut child), Some(0));
    let rest = stderr.lines().map(|line| line.unwrap());
    lines.extend(rest);
    lines
}

// LOG-1 LOG-2
#[test]
fn the_options_say_how_much_is_told() {
    let listening = "listening on tcp://127.0.0.1:";
    let command = "from the command \u{fffd}[2J";
    for (options, told, untold) in [
        (&[][..], &["session started"][..], &["DEBUG", "TRACE"][..]),
        (&["-v"], &["session started"], &["TRACE"]),
        (&["-q"], &[], &["INFO", "session"]),
        (&["--log", "off"], &[], &["INFO", "session"]),
        (
            &["--log", "breakbulk_gateway=info"],
            &["session started"],
            &["DEBUG"],
        ),
        (
            &["--log", "[session{peer}]=info"],
            &["session started"],
            &["DEBUG"],
        ),
    ] {
        let lines = lines(options);
        for words in [listening, command].iter().chain(told) {
            assert!(
                lines.iter().any(|line| line.contains(words)),
                "{options:?} {words}: {lines:#?}"
            );
        }
        for words in untold {
            assert!(
                !lines.iter().any(|line| line.contains(words)),
                "{options:?} {words}: {lines:#?}"
            );
        }
        // No terminal, no colours.
        assert!(
            !lines.iter().any(|line| line.contains('\u{1b}')),
            "{lines:#?}"
        );
    }
}

// LOG-3
#[test]
fn every_line_is_json_where_json_is_asked_for() {
    let lines = lines(&["--log-format", "json"]);
    let lines: Vec<Value> = lines
        .iter()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let find = |message: &str| {
        let found = lines.iter().find(|line| line["message"] == message);
        found.unwrap_or_else(|| panic!("no {message}: {lines:#?}"))
    };
    for line in &lines {
        for member in ["timestamp", "level", "target", "message"] {
            assert!(line[member].is_string(), "{member}: {line}");
        }
    }
    let listening = find("listening on");
    assert!(
        listening["address"]
            .as_str()
            .unwrap()
            .starts_with("tcp://127.0.0.1:")
    );
    assert_eq!(find("from the command \u{fffd}[2J")["from"], "command");
    let started = find("session started");
    assert_eq!(started["level"], "INFO");
    // The session has one name in all its lines.
    let session = &started["session"];
    assert!(session.as_str().unwrap().contains('-'), "{started}");
    let of_session = lines.iter().filter(|line| line["session"] == *session);
    assert!(of_session.count() >= 2, "{lines:#?}");
    assert!(
        started["peer"].as_str().unwrap().contains("127.0.0.1"),
        "{started}"
    );
}

// LOG-1 LOG-3
#[test]
fn a_wrong_filter_is_one_line_and_a_failure_has_the_form_of_the_log() {
    let ends = ["--listen", "tcp://0", "--to", "exec:cat"];
    let wrong = gateway(&ends)
        .args(["--log", "breakbulk=loud"])
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    let text = said(&wrong);
    assert!(
        text.starts_with("breakbulk: --log breakbulk=loud: "),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1, "{text}");

    let ends = ["--listen", "tcp://0", "--to", "nonsense"];
    let failed = gateway(&ends)
        .args(["--log-format", "json"])
        .output()
        .unwrap();
    assert_eq!(failed.status.code(), Some(2));
    let line: Value = serde_json::from_str(said(&failed).trim_end()).unwrap();
    assert_eq!(line["level"], "ERROR");
    assert!(line["message"].as_str().unwrap().contains("--to"), "{line}");
}

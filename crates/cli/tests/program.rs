//! The program as a person or a script meets it: exit codes, what it says, and what it never does.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::process::{Command, Output, Stdio};

/// Several pieces under every cap below.
const MESSAGE: &str = concat!(
    r#"{"jsonrpc":"2.0","id":1,"result":{"text":""#,
    r#"Grüße, 世界 😀 \"quoted\" \\ and more of it, until it takes several pieces. "#,
    r#"Grüße, 世界 😀 \"quoted\" \\ and more of it, until it takes several pieces. "#,
    r#"Grüße, 世界 😀 \"quoted\" \\ and more of it, until it takes several pieces. "#,
    r#"Grüße, 世界 😀 \"quoted\" \\ and more of it, until it takes several pieces. "#,
    r#"Grüße, 世界 😀 \"quoted\" \\ and more of it, until it takes several pieces. "#,
    r#"Grüße, 世界 😀 \"quoted\" \\ and more of it, until it takes several pieces. "#,
    r#"Grüße, 世界 😀 \"quoted\" \\ and more of it, until it takes several pieces. "#,
    r#"Grüße, 世界 😀 \"quoted\" \\ and more of it, until it takes several pieces. "#,
    r#"Grüße, 世界 😀 \"quoted\" \\ and more of it, until it takes several pieces. "#,
    r#"Grüße, 世界 😀 \"quoted\" \\ and more of it, until it takes several pieces. "#,
    r#"Grüße, 世界 😀 \"quoted\" \\ and more of it, until it takes several pieces. "#,
    r#"Grüße, 世界 😀 \"quoted\" \\ and more of it, until it takes several pieces. "#,
    r#""}}"#
);

fn breakbulk(arguments: &str, input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_breakbulk"))
        .args(arguments.split_whitespace())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // A program that refuses its arguments may not read what it is given.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The wires with options that cut [`MESSAGE`] into several pieces.
const WIRES: [&str; 6] = [
    "--wire ahp --max-frame 200 --key g1",
    "--wire tywrap --max-frame 32 --key response:-7",
    "--wire tywrap --max-frame 300 --strict --style ascii",
    "--wire cep22 --max-frame 400 --key token",
    "--wire cep22 --max-frame 1200 --wrap nostr",
    "--wire loro --max-frame 40 --key 0102030405060708",
];

#[test]
fn split_and_join_are_inverse() {
    for wire in WIRES {
        let frames = breakbulk(&format!("split {wire}"), MESSAGE.as_bytes());
        assert!(frames.status.success(), "{wire}: {}", said(&frames));
        let joined = breakbulk(&format!("join {wire}"), &frames.stdout);
        assert!(joined.status.success(), "{wire}: {}", said(&joined));
        assert_eq!(joined.stdout, MESSAGE.as_bytes(), "{wire}");
    }
}

// PROG-2
#[test]
fn frames_are_as_the_formats_write_them() {
    let frames = breakbulk(
        "split --wire ahp --max-frame 120 --key g1",
        br#"{"jsonrpc":"2.0","method":"a"}"#,
    );
    let one = br#"{"jsonrpc":"2.0","method":"a"}"#;
    assert_eq!(frames.stdout, [one.as_slice(), b"\n"].concat());
    // A line break inside cannot travel on a line.
    let frames = breakbulk(
        "split --wire ahp --max-frame 200 --key g1",
        b"{\"jsonrpc\":\"2.0\",\n\"method\":\"a\"}",
    );
    let segment = r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g1","index":0,"total":1,"data":"eyJqc29ucnBjIjoiMi4wIiwKIm1ldGhvZCI6ImEifQ=="}}"#;
    assert_eq!(
        String::from_utf8_lossy(&frames.stdout),
        format!("{segment}\n")
    );
    let frames = breakbulk(
        "split --wire loro --max-frame 17 --key 0102030405060708",
        b"0123456789abcdefghi",
    );
    let expected = b"\0\0\0\x11\x01\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\x05\0\0\0\x13\0\0\0\x11\x02\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\x000123";
    assert_eq!(frames.stdout[..expected.len()], expected[..]);
}

#[test]
fn help_and_versions_are_no_errors() {
    for help in [
        "--help",
        "-h",
        "--version",
        "-V",
        "split --help",
        "help split",
    ] {
        let output = breakbulk(help, b"");
        assert_eq!(output.status.code(), Some(0), "{help}");
        assert!(output.stderr.is_empty(), "{help}: {}", said(&output));
    }
    let version = breakbulk("--version", b"").stdout;
    let version = String::from_utf8(version).unwrap();
    let number = concat!("breakbulk ", env!("CARGO_PKG_VERSION"), "\n");
    assert!(version.starts_with(number), "{version}");
    let commit = version
        .lines()
        .find_map(|line| line.strip_prefix("commit:"));
    let commit = commit.unwrap().trim();
    assert!(commit == "unknown" || commit.len() == 12, "{version}");
    assert!(version.contains("gateway-nostr"), "{version}");
    assert!(version.lines().all(|line| line.len() <= 80), "{version}");
}

/// A shell's script and the pages of `man` know every command.
#[test]
fn completions_and_man_pages_name_all_commands() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = breakbulk(&format!("completions {shell}"), b"");
        assert!(script.status.success(), "{shell}: {}", said(&script));
        let script = String::from_utf8(script.stdout).unwrap();
        for word in ["gateway", "max-frame", "inspect", "keygen", "completions"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
        if shell == "bash" {
            let file = folder.path().join("script");
            std::fs::write(&file, &script).unwrap();
            let read = Command::new("bash").arg("-n").arg(&file).status().unwrap();
            assert!(read.success(), "bash does not read its script");
        }
    }
    let man = folder.path().join("man1");
    std::fs::create_dir(&man).unwrap();
    let made = breakbulk(&format!("man {}", man.display()), b"");
    assert!(made.status.success(), "{}", said(&made));
    for page in [
        "breakbulk.1",
        "breakbulk-gateway.1",
        "breakbulk-loro-serve.1",
    ] {
        let text = std::fs::read_to_string(man.join(page)).unwrap();
        assert!(text.contains(".SH NAME"), "{page}");
        assert!(text.contains("Exit codes"), "{page}");
    }
}

/// Frames say of which format they are.
#[test]
fn join_without_a_wire_finds_it_and_a_wrong_one_is_named() {
    for wire in WIRES {
        let frames = breakbulk(&format!("split {wire}"), MESSAGE.as_bytes()).stdout;
        let joined = breakbulk("join", &frames);
        assert_eq!(
            joined.stdout,
            MESSAGE.as_bytes(),
            "{wire}: {}",
            said(&joined)
        );
        let name = wire.split_whitespace().nth(1).unwrap();
        for other in ["ahp", "tywrap", "cep22", "loro"] {
            if other == name {
                continue;
            }
            let output = breakbulk(&format!("join --wire {other}"), &frames);
            let said = said(&output);
            assert_eq!(output.status.code(), Some(1), "{wire} as {other}: {said}");
            assert!(
                said.contains(&format!("use --wire {name}")),
                "{other}: {said}"
            );
            assert!(output.stdout.is_empty(), "{wire} as {other}");
        }
    }
}

/// Output that nobody would get, or that would spoil a terminal, is refused before the input is read.
#[test]
#[cfg(target_os = "linux")]
fn output_that_cannot_be_used_is_refused() {
    let program = env!("CARGO_BIN_EXE_breakbulk");
    for (line, words) in [
        (
            "split --wire ahp --max-frame 1KB >&-",
            "standard output is closed",
        ),
        ("join --wire ahp >&-", "standard output is closed"),
    ] {
        let output = Command::new("sh")
            .args(["-c", &format!("exec '{program}' {line}")])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}: {}", said(&output));
        assert!(said(&output).contains(words), "{line}: {}", said(&output));
        assert!(said(&output).contains("--output FILE"), "{line}");
    }
    let discarded = Command::new("sh")
        .args(["-c", &format!("echo '{{\"jsonrpc\":\"2.0\",\"method\":\"a\"}}' | '{program}' join --wire ahp >/dev/null")])
        .output()
        .unwrap();
    assert!(discarded.status.success(), "{}", said(&discarded));
    // A terminal, by way of Python.
    let terminal = Command::new("python3")
        .args([
            "-c",
            "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)",
            program,
        ])
        .args(["split", "--wire", "loro", "--max-frame", "1KB"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&terminal.stdout);
    assert_eq!(terminal.status.code(), Some(2), "{shown}");
    assert!(shown.contains("the output is binary"), "{shown}");
}

#[test]
fn bytes_that_are_no_text_are_refused_by_text_wires() {
    for wire in [
        "--wire tywrap --max-frame 32",
        "--wire cep22 --max-frame 400",
    ] {
        let output = breakbulk(&format!("split {wire}"), &[0xff; 500]);
        assert_eq!(output.status.code(), Some(1), "{wire}");
        assert!(
            said(&output).contains("not UTF-8"),
            "{wire}: {}",
            said(&output)
        );
    }
}

#[test]
fn the_most_that_ahp_can_number_and_one_byte_more() {
    let message = |size: usize| {
        let mut message = MESSAGE.as_bytes().to_vec();
        message.resize(size, b' ');
        message
    };
    // 145 bytes leave room for four characters of base64.
    let most = 65_535 * 3;
    let frames = breakbulk("split --wire ahp --max-frame 145", &message(most));
    assert!(frames.status.success(), "{}", said(&frames));
    let over = breakbulk("split --wire ahp --max-frame 145", &message(most + 1));
    assert_eq!((over.status.code(), over.stdout.len()), (Some(1), 0));
    assert!(said(&over).contains("65535 pieces"), "{}", said(&over));
}

/// Truncated and damaged frames give the whole message or nothing, and never a panic.
// PROG-1
#[test]
fn damage_never_gives_partial_output() {
    let mut seed = 1u64;
    let mut random = move |below: usize| {
        seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (seed >> 33) as usize % below
    };
    for wire in WIRES {
        let frames = breakbulk(&format!("split {wire}"), MESSAGE.as_bytes()).stdout;
        let truncated = (0..frames.len())
            .step_by(frames.len() / 25 + 1)
            .map(|len| frames[..len].to_vec());
        let damaged: Vec<Vec<u8>> = (0..25)
            .map(|_| {
                let mut frames = frames.clone();
                let at = random(frames.len());
                frames[at] ^= 1 << random(8);
                frames
            })
            .collect();
        for input in truncated.chain(damaged) {
            let output = breakbulk(&format!("join {wire}"), &input);
            match output.status.code() {
                // A flipped bit in a text without a digest may go unnoticed; half a message may not.
                Some(0) => assert!(
                    output.stdout.len() + 8 > MESSAGE.len(),
                    "{wire}: partial output"
                ),
                Some(1) => assert!(output.stdout.is_empty(), "{wire}: output beside an error"),
                code => panic!("{wire}: {code:?}: {}", said(&output)),
            }
        }
    }
}

fn lines(frames: &[u8]) -> Vec<&str> {
    std::str::from_utf8(frames).unwrap().lines().collect()
}

/// Lines beside those of the one message are errors, unless they belong to its transfer or its format ignores
/// them.
// PROG-1, PROG-5
#[test]
fn join_takes_one_message_and_all_of_it() {
    let whole = r#"{"jsonrpc":"2.0","id":2,"result":1}"#;
    let ahp = breakbulk(
        "split --wire ahp --max-frame 200 --key g1",
        MESSAGE.as_bytes(),
    )
    .stdout;
    let cep22 = breakbulk(
        "split --wire cep22 --max-frame 400 --key tok",
        MESSAGE.as_bytes(),
    )
    .stdout;
    let (ahp, cep22) = (lines(&ahp), lines(&cep22));
    let accept = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"tok","progress":2,"message":"oversized request accepted","cvm":{"type":"oversized-transfer","frameType":"accept"}}}"#;
    let twice = [&cep22[..2], &cep22[1..]].concat();
    let accepted = [&cep22[..1], &[accept], &cep22[1..]].concat();
    let crlf: Vec<String> = ahp.iter().map(|line| format!("{line}\r")).collect();
    let crlf: Vec<&str> = crlf.iter().map(String::as_str).collect();
    for (name, wire, frames, outcome) in [
        (
            "an unfinished transfer before a whole message",
            "ahp",
            [&ahp[..1], &[whole]].concat(),
            Err("pieces are missing"),
        ),
        (
            "a last piece that is missing",
            "ahp",
            ahp[..ahp.len() - 1].to_vec(),
            Err("transfer g1 has "),
        ),
        (
            "a whole message after the message",
            "ahp",
            [&ahp[..], &[whole]].concat(),
            Err("it follows the complete message"),
        ),
        (
            "an empty line",
            "ahp",
            [&ahp[..], &[""]].concat(),
            Err("empty line"),
        ),
        (
            "the receiver's leave among the chunks",
            "cep22",
            accepted,
            Ok(MESSAGE),
        ),
        ("a chunk that came twice", "cep22", twice, Ok(MESSAGE)),
        (
            "chunks without their start",
            "cep22",
            cep22[1..].to_vec(),
            Err("belongs to no transfer"),
        ),
        ("lines that end as on Windows", "ahp", crlf, Ok(MESSAGE)),
        (
            "a frame of another wire",
            "tywrap",
            ahp[..1].to_vec(),
            Err("--wire ahp"),
        ),
        (
            "a frame of another wire",
            "ahp",
            cep22[..1].to_vec(),
            Err("--wire cep22"),
        ),
    ] {
        let output = breakbulk(
            &format!("join --wire {wire}"),
            (frames.join("\n") + "\n").as_bytes(),
        );
        match outcome {
            Ok(message) => assert_eq!(
                String::from_utf8_lossy(&output.stdout),
                message,
                "{name}: {}",
                said(&output)
            ),
            Err(words) => {
                assert_eq!(
                    (output.status.code(), output.stdout.len()),
                    (Some(1), 0),
                    "{name}: {}",
                    said(&output)
                );
                assert!(said(&output).contains(words), "{name}: {}", said(&output));
            }
        }
    }
}

// PROG-4
#[test]
fn a_key_is_the_messages_own_where_it_has_one() {
    let text = "x".repeat(400);
    for (wire, message, key) in [
        (
            "tywrap --max-frame 100",
            format!(r#"{{"id":5,"protocol":"tywrap/1","result":"{text}"}}"#),
            r#""stream":"response","id":5,"#,
        ),
        (
            "tywrap --max-frame 100",
            format!(
                r#"{{"method":"call","params":{{"x":"{text}"}},"id":7,"protocol":"tywrap/1"}}"#
            ),
            r#""stream":"request","id":7,"#,
        ),
        (
            "cep22 --max-frame 400",
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"x":"{text}","_meta":{{"progressToken":42}}}}}}"#
            ),
            r#""progressToken":"42""#,
        ),
    ] {
        let frames = breakbulk(&format!("split --wire {wire}"), message.as_bytes());
        assert!(
            lines(&frames.stdout).iter().all(|line| line.contains(key)),
            "{wire}: {}",
            said(&frames)
        );
    }
}

// PROG-3
#[test]
fn what_a_receiver_would_refuse_is_not_cut() {
    let long = "x".repeat(300);
    let request = |method: &str, params: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params}"x":"{long}"}}}}"#
        )
    };
    let client = r#""channel":"ahp-root://","clientId":"c","#;
    let initialize = request(
        "initialize",
        &format!(r#"{client}"protocolVersions":["1.0.0"],"#),
    );
    let seen = format!(r#"{client}"lastSeenServerSeq":1,"subscriptions":[],"#);
    let segment = r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":0,"total":1,"data":"e30="}}"#;
    let array = format!(r#"["{long}"]"#);
    let other = format!(r#"{{"x":"{long}"}}"#);
    let (ahp, tywrap) = ("ahp --max-frame 200", "tywrap --max-frame 100");
    let cep22 = "cep22 --max-frame 400";
    for (wire, message, words) in [
        (ahp, initialize.clone(), Some("never cut")),
        (ahp, request("reconnect", &seen), Some("never cut")),
        ("ahp --max-frame 1000", initialize, None),
        // Of another protocol.
        (ahp, request("initialize", ""), None),
        (ahp, array.clone(), Some("batch")),
        (ahp, other.clone(), Some("`jsonrpc` is not")),
        (cep22, array.clone(), Some("batch")),
        (cep22, other.clone(), Some("`jsonrpc` is not")),
        (tywrap, array.clone(), Some("batch")),
        (tywrap, other, None),
        ("loro --max-frame 40", array, None),
        (ahp, segment.to_owned(), Some("join --wire ahp")),
        (tywrap, segment.to_owned(), Some("join --wire ahp")),
        (cep22, segment.to_owned(), Some("join --wire ahp")),
    ] {
        let output = breakbulk(&format!("split --wire {wire}"), message.as_bytes());
        let said = said(&output);
        match words {
            None => assert!(output.status.success(), "{wire} {message}: {said}"),
            Some(words) => {
                let ended = (output.status.code(), output.stdout.len());
                assert_eq!(ended, (Some(1), 0), "{wire} {message}: {said}");
                assert!(said.contains(words), "{wire} {message}: {said}");
            }
        }
    }
}

// PROG-5
#[test]
fn a_second_loro_header_is_nothing() {
    let options = "--wire loro --max-frame 40 --key 0102030405060708";
    let frames = breakbulk(&format!("split {options}"), MESSAGE.as_bytes()).stdout;
    // Four bytes of length, and as many as they say.
    let header = 4 + usize::from(frames[3]);
    let twice = [&frames[..header], &frames[..]].concat();
    let joined = breakbulk("join --wire loro", &twice);
    assert_eq!(joined.stdout, MESSAGE.as_bytes(), "{}", said(&joined));
}

// PROG-6
#[test]
fn a_style_changes_no_message_that_fits() {
    let message = r#"{"id":5,"protocol":"tywrap/1","result":"é"}"#;
    for (cap, whole) in [(100, true), (20, false)] {
        let arguments = format!("split --wire tywrap --style ascii --max-frame {cap}");
        let frames = breakbulk(&arguments, message.as_bytes()).stdout;
        let lines = lines(&frames);
        assert_eq!(lines == [message], whole, "{lines:?}");
        assert_eq!(frames.is_ascii(), !whole, "{lines:?}");
    }
}

/// A file gets its name once it is complete, and what was there before stays until then.
#[test]
fn an_output_file_is_whole_or_untouched() {
    let folder = std::env::temp_dir().join(format!("breakbulk-output-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("out");
    std::fs::write(&file, "before").unwrap();
    let name = file.display().to_string();
    let failed = breakbulk(&format!("join --wire ahp -o {name}"), b"no frame\n");
    assert_eq!(failed.status.code(), Some(1));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "before");
    let done = breakbulk(&format!("join --wire ahp -o {name}"), MESSAGE.as_bytes());
    assert!(done.status.success(), "{}", said(&done));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), MESSAGE);
    assert_eq!(
        std::fs::read_dir(&folder).unwrap().count(),
        1,
        "nothing else is left"
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

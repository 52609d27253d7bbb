//! `breakbulk inspect` from outside: what it says of small captures, and that nothing breaks it.
//!
//! `BREAKBULK_SEED=n` chooses the damage.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::io::Write;
use std::process::{Command, Output, Stdio};

use breakbulk::message::vscode::ipc;
use serde_json::Value;

#[path = "inspect/captures.rs"]
mod captures;
#[path = "inspect/golden.rs"]
mod golden;

use captures::*;

/// Runs the program with `input` on its standard input.
fn run(args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_breakbulk"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        // The program may end before it has read all of its input.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn inspect(args: &[&str], capture: &[u8]) -> (String, String, i32) {
    let args = [&["inspect", "-"], args].concat();
    let output = run(&args, capture);
    let code = output.status.code().expect("no signal");
    (text(&output.stdout), text(&output.stderr), code)
}

fn json(args: &[&str], capture: &[u8]) -> Value {
    let (out, _, _) = inspect(&[&["--json"], args].concat(), capture);
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
}

fn split(wire: &str, cap: &str, key: &str, message: &[u8]) -> Vec<u8> {
    let args = ["split", "--wire", wire, "--max-frame", cap, "--key", key];
    let output = run(&args, message);
    assert!(output.status.success(), "{}", text(&output.stderr));
    output.stdout
}

/// Frames, each behind its length.
fn prefixed(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for frame in frames {
        out.extend_from_slice(&(frame.len() as u32).to_be_bytes());
        out.extend_from_slice(frame);
    }
    out
}

/// The frames of a length-prefixed capture.
fn frames(mut capture: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while let Some((length, rest)) = capture.split_first_chunk::<4>() {
        let (frame, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
        frames.push(frame.to_vec());
        capture = rest;
    }
    frames
}

fn lines(capture: &[u8]) -> Vec<String> {
    text(capture).lines().map(str::to_owned).collect()
}

fn unlines(lines: &[String]) -> Vec<u8> {
    lines
        .iter()
        .flat_map(|line| [line.as_bytes(), b"\n"].concat())
        .collect()
}

#[test]
fn small_captures_read_as_expected() {
    if std::env::var_os("BREAKBULK_BLESS").is_some() {
        return bless();
    }
    let captures = captures();
    assert_eq!(captures.len(), golden::GOLDEN.len());
    for ((name, _, capture), (of, table, machine)) in captures.iter().zip(golden::GOLDEN) {
        assert_eq!(name, of);
        for (args, expected) in [(&[][..], table), (&["--json"], machine)] {
            let (out, err, code) = inspect(args, capture);
            assert_eq!(out, expected.trim_start(), "{name}");
            assert_eq!((&*err, code), ("", 0), "{name}");
        }
    }
}

/// Writes the golden texts anew, to be looked at before they are kept.
fn bless() {
    let mut file = String::from(
        "//! What `inspect` says of the captures: `BREAKBULK_BLESS=1` writes this anew.\n\n/// Name, table, JSON.\npub(super) const GOLDEN: &[(&str, &str, &str)] = &[\n",
    );
    for (name, _, capture) in captures() {
        let (table, machine) = (inspect(&[], &capture).0, inspect(&["--json"], &capture).0);
        file.push_str(&format!("    (\n        {name:?},\n        r#\"\n{table}\"#,\n        r#\"\n{machine}\"#,\n    ),\n"));
    }
    file.push_str("];\n");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/inspect/golden.rs");
    std::fs::write(path, file).unwrap();
}

#[test]
fn a_capture_tells_its_wire_and_takes_the_one_that_it_is_told() {
    for (name, wire, capture) in captures() {
        let found = json(&[], &capture);
        assert_eq!(found["summary"]["wire"], wire, "{name}");
        assert_eq!(found["summary"]["faults"], 0, "{name}");
        if wire == "jsonrpc" {
            continue;
        }
        let named = json(&["--wire", wire], &capture);
        assert_eq!(named["summary"]["why"], "as --wire says", "{name}");
        assert_eq!(named["summary"]["form"], found["summary"]["form"], "{name}");
        assert_eq!(named["messages"], found["messages"], "{name}");
    }
}

#[test]
fn frames_longer_than_what_detection_looks_at_are_told_by_their_beginning() {
    let text = "x".repeat(1_500_000);
    let action = format!(
        r#"{{"jsonrpc":"2.0","method":"action","params":{{"channel":"ahp-session:/a","action":{{"type":"t","x":"{text}"}},"serverSeq":1}}}}"#
    );
    let call = format!(
        r#"{{"method":"call","params":{{"module":"m","functionName":"f","args":["{text}"]}},"id":7,"protocol":"tywrap/1"}}"#
    );
    let progress = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{text}","_meta":{{"progressToken":"k"}}}}}}"#
    );
    let big = |mut bytes: Vec<u8>| {
        bytes.resize(1_500_000, 0);
        bytes
    };
    for (wire, capture, code) in [
        ("ahp", split("ahp", "2MB", "g", action.as_bytes()), 0),
        ("ahp", split("ahp", "1200KB", "g", action.as_bytes()), 0),
        (
            "tywrap",
            split("tywrap", "1200KB", "request:7", call.as_bytes()),
            0,
        ),
        (
            "cep22",
            split("cep22", "1200KB", "k", progress.as_bytes()),
            0,
        ),
        (
            "loro",
            split("loro", "1200KB", "00000000000000ff", action.as_bytes()),
            0,
        ),
        // A request whose method is there, and nothing else that makes sense.
        (
            "vscode",
            prefixed(&[big(b"\x01\0\0\0\x01\x02\x04$log\0\x10\0\0[".to_vec())]),
            1,
        ),
    ] {
        let found = json(&[], &capture);
        assert_eq!(found["summary"]["wire"], wire);
        assert_eq!(inspect(&[], &capture).2, code, "{wire}");
    }
}

#[test]
fn what_cannot_be_told_says_which_wire_to_try() {
    let header = [&[1][..], &[0; 11], &[1, 0, 0, 0, 1]].concat();
    let both = prefixed(&[header, rpc_messages()[2].clone()]);
    let table: &[(&[u8], &str)] = &[
        (b"", "the capture is empty"),
        (
            b"hello\nworld\n",
            "--wire ahp, --wire tywrap, --wire cep22 or --wire loro",
        ),
        (
            b"{\"a\":1}\n",
            "--wire ahp, --wire tywrap, --wire cep22 or --wire loro",
        ),
        (&[0xff; 200], "--wire loro or --wire vscode"),
        (&[0; 3], "--wire loro or --wire vscode"),
        (&both, "say which with --wire vscode or --wire loro"),
    ];
    for (capture, expected) in table {
        let (out, err, code) = inspect(&[], capture);
        assert_eq!((&*out, code), ("", 1), "{err}");
        assert!(err.starts_with("breakbulk: standard input: "), "{err}");
        assert!(err.contains(expected) && err.lines().count() == 1, "{err}");
    }
    let (_, err, code) = inspect(&["--wire", "ahp"], b"");
    assert_eq!((&*err, code), ("", 0));
    for usage in [&["--wire", "smoke"][..], &["--max-frame", "x"], &["--no"]] {
        assert_eq!(inspect(usage, b"").2, 2, "{usage:?}");
    }
    assert_eq!(run(&["inspect"], b"").status.code(), Some(2));
    assert_eq!(
        run(&["inspect", "/nonexistent"], b"").status.code(),
        Some(2)
    );
    assert_eq!(run(&["inspect", "/"], b"").status.code(), Some(1));
}

/// A capture with something wrong in it: options, the capture, and what must be found.
type Case = (
    &'static str,
    &'static [&'static str],
    Vec<u8>,
    &'static [&'static str],
);

fn without(lines: &[String], index: usize) -> Vec<u8> {
    let mut lines = lines.to_vec();
    lines.remove(index);
    unlines(&lines)
}

fn faulty() -> Vec<Case> {
    let (ahp, tywrap, cep22, loro) = (
        lines(&ahp()),
        lines(&tywrap()),
        lines(&cep22()),
        frames(&loro()),
    );
    let renamed: Vec<String> = ahp
        .iter()
        .map(|line| line.replace("\"g1\"", "\"g2\""))
        .collect();
    let pick = |from: &[Vec<u8>], order: &[usize]| {
        let picked: Vec<Vec<u8>> = order.iter().map(|&index| from[index].clone()).collect();
        prefixed(&picked)
    };
    let changed: Vec<String> = cep22
        .iter()
        .map(|line| line.replace("zzzz", "zzzy"))
        .collect();
    let abort = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"tok","progress":9,"cvm":{"type":"oversized-transfer","frameType":"abort","reason":"\u001b[2Jenough"}}}"#;
    let messages = rpc_messages();
    let regular = |id| ipc_frame(ipc::FrameType::Regular, id, &messages[2]);
    vec![
        (
            "a lost segment closes, and the next group is read by a fresh link",
            &[],
            [without(&ahp[1..], 1), unlines(&renamed[1..])].concat(),
            &[
                "out-of-order: piece 2 is out of order, expected 1",
                "  1        failed: out-of-order",
                "2 transfers (1 complete, 1 failed), 1 message, 1 fault",
            ],
        ),
        (
            "a fault that closes takes other groups with it",
            &[],
            unlines(&[
                renamed[1].clone(),
                ahp[1].clone(),
                ahp[3].clone(),
                renamed[2].clone(),
            ]),
            &[
                "failed: closed: frame 3 closed the connection",
                "2 transfers (2 failed)",
            ],
        ),
        (
            "text that is no JSON",
            &[],
            [&unlines(&ahp)[..], b"{\"jsonrpc\":\"2.0\",\"meth"].concat(),
            &["not-json: not valid JSON"],
        ),
        (
            "a missing slice",
            &[],
            without(&tywrap, 0),
            &["1/2  57/157", "  0        unfinished"],
        ),
        (
            "a slice twice",
            &[],
            unlines(&[tywrap[0].clone(), tywrap[0].clone(), tywrap[1].clone()]),
            &[
                "FRAME_DUPLICATE_SEQ: piece 0 came twice",
                "ignored: its transfer failed",
            ],
        ),
        (
            "a missing chunk",
            &[],
            without(&cep22, 1),
            &["incomplete: ended with 1 of 2 pieces", "  0        failed"],
        ),
        (
            "a changed chunk",
            &[],
            unlines(&changed),
            &["digest-mismatch", "  wrong   -        failed"],
        ),
        (
            "an aborted transfer, with a reason that would clear the screen",
            &[],
            unlines(&[cep22[0].clone(), cep22[1].clone(), abort.to_owned()]),
            &["aborted by the peer: \\u{1b}[2Jenough", "failed: aborted"],
        ),
        (
            "a chunk of nothing",
            &[],
            unlines(&cep22[1..2]),
            &[
                "ignored: its transfer was not opened",
                "unfinished: its opening is missing",
            ],
        ),
        (
            "a fragment twice, the transfer lives",
            &[],
            pick(&loro, &[0, 1, 1, 2, 3]),
            &[
                "duplicate_fragment: piece 0 came twice",
                "1  -       -        complete",
            ],
        ),
        (
            "fragments before their header, and a second header",
            &[],
            pick(&loro, &[1, 0, 0, 3]),
            &[
                "ignored: its transfer was not opened",
                "ignored: opened again while under way",
                "0-1      unfinished",
            ],
        ),
        (
            "an index beyond the number",
            &[],
            {
                let mut frames = loro.clone();
                frames[2][12] = 9;
                prefixed(&frames)
            },
            &["invalid_index: piece 9 is outside the 3 declared"],
        ),
        (
            "a capture that ends inside a frame",
            &[],
            prefixed(&loro)[..100].to_vec(),
            &["truncated: the capture ends after 75 of 80 bytes of a frame"],
        ),
        (
            "a loro message that is none",
            &[],
            prefixed(&[b"\0\x02\0\0\0\0\x01\xff".to_vec()]),
            &["invalid_cbor: "],
        ),
        (
            "an RPC message that is cut, and one of no type",
            &["--wire", "vscode"],
            prefixed(&[
                messages[0].clone(),
                messages[1][..20].to_vec(),
                vec![77, 0, 0, 0, 1],
            ]),
            &[
                "truncated: message ends inside",
                "unknown-type: unknown message type 77",
            ],
        ),
        (
            "a gap in an ipc.net stream, and the replay",
            &[],
            [regular(1), regular(4), regular(2), regular(3), regular(4)].concat(),
            &[
                "gap: message 4 came where 2 was due",
                "Regular id=4 ack=3 length=5; ignored: a duplicate",
                "5 frames, 0 transfers, 4 messages, 1 fault",
            ],
        ),
        (
            "a frame over the limit, passed over",
            &["--max-frame", "200"],
            unlines(&[
                ahp[0].clone(),
                ahp[3].clone(),
                "{\"jsonrpc\":\"2.0\",\"method\":\"m\"}".into(),
            ]),
            &[
                "frame-too-large: longer than the limit of 200 bytes; raise --max-frame",
                "method=m",
            ],
        ),
        (
            "a message over the limit",
            &["--max-message", "100"],
            prefixed(&loro),
            &["message-too-large: message of 137 bytes is over the limit of 100"],
        ),
    ]
}

#[test]
fn what_is_wrong_is_told_and_ends_with_1() {
    for (name, args, capture, expected) in faulty() {
        let (out, err, code) = inspect(args, &capture);
        for expected in expected {
            assert!(out.contains(expected), "{name}: no {expected:?} in\n{out}");
        }
        assert_eq!(code, 1, "{name}\n{out}");
        assert!(err.starts_with("breakbulk: standard input: ") && err.lines().count() == 1);
        let machine = json(args, &capture);
        let summary = &machine["summary"];
        let wrong = ["faults", "failed", "unfinished"].map(|what| summary[what].as_u64().unwrap());
        assert!(wrong.iter().sum::<u64>() > 0, "{name}");
    }
}

#[test]
fn escapes_of_the_capture_never_reach_the_terminal() {
    let evil = "\\u001b[31m\\u009b2J\\u202e\\u0007";
    let capture = format!(
        concat!(
            r#"{{"jsonrpc":"2.0","id":"{0}","method":"{0}","params":{{"channel":"ahp-{0}","clientSeq":1}}}}"#,
            "\n",
            r#"{{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{{"groupId":"{0}","index":0,"total":2,"data":"AAAA"}}}}"#,
            "\n",
            "\u{1b}[31m\u{9b}2J not JSON\n"
        ),
        evil
    );
    for args in [
        &[][..],
        &["--json"],
        &["--wire", "tywrap"],
        &["--wire", "loro"],
    ] {
        let (out, err, _) = inspect(args, capture.as_bytes());
        for text in [&out, &err] {
            let raw = |c: char| c != '\n' && c.is_control() || c == '\u{202e}';
            assert!(!text.contains(raw), "{args:?}: {text:?}");
        }
    }
    let (out, _, _) = inspect(&[], capture.as_bytes());
    assert!(out.contains("\\u{1b}[31m\\u{9b}2J"), "{out}");
}

#[test]
fn many_frames_are_counted_and_what_is_wrong_is_shown() {
    let mut capture = b"{\"jsonrpc\":\"2.0\",\"method\":\"m\"}\n".repeat(3000);
    capture.extend_from_slice(b"no JSON\n");
    let (out, _, code) = inspect(&[], &capture);
    assert_eq!(code, 1);
    assert!(
        out.contains("\n  … 2001 more (--all lists up to 250,000)\n"),
        "{out}"
    );
    assert!(
        out.contains("\n  3001   3001  -        7  text      broken begins=\"no JSON\"; not-json"),
        "{out}"
    );
    assert!(out.ends_with("3001 frames, 0 transfers, 3001 messages, 1 fault\n"));
    assert_eq!(out.lines().count(), 1004 + 1006 + 2);
    let (all, _, _) = inspect(&["--all"], &capture);
    assert_eq!(all.lines().count(), 2 * 3004 + 2);
    assert_eq!(
        json(&[], &capture)["frames"].as_array().unwrap().len(),
        3001
    );
}

/// xorshift64*: enough to choose bytes.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }
}

#[test]
fn truncated_and_damaged_captures_never_panic() {
    let seed = std::env::var("BREAKBULK_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(0x5eed_u64);
    println!("BREAKBULK_SEED={seed}");
    let mut random = Random(seed.max(1));
    for (name, wire, capture) in captures() {
        let named = if wire == "jsonrpc" { "ahp" } else { wire };
        let check = |what: &str, damaged: &[u8]| {
            for args in [&[][..], &["--json", "--wire", named]] {
                let (out, err, code) = inspect(args, damaged);
                let context = || format!("{name}, {what}, {args:?}: {code}\n{out}\n{err}");
                assert!(
                    code == 0 && err.is_empty() || code == 1 && err.lines().count() == 1,
                    "{}",
                    context()
                );
                let raw = |c: char| c != '\n' && c.is_control();
                assert!(
                    !out.contains(raw) && !err.trim_end().contains(raw),
                    "{}",
                    context()
                );
                if args.len() > 1 {
                    assert!(serde_json::from_str::<Value>(&out).is_ok(), "{}", context());
                }
            }
        };
        for end in (0..capture.len()).step_by(7) {
            check(&format!("cut at {end}"), &capture[..end]);
        }
        for round in 0..40 {
            let mut damaged = capture.clone();
            for _ in 0..1 + random.below(4) {
                let at = random.below(damaged.len());
                damaged[at] = random.below(256) as u8;
            }
            check(&format!("damage {round}"), &damaged);
        }
    }
}

/// Captures that announce or hold more than they are worth.
#[test]
#[cfg(target_os = "linux")]
fn memory_stays_bounded() {
    let header = |batch: u64, count: u32, size: u32| {
        [
            &[1][..],
            &batch.to_be_bytes(),
            &count.to_be_bytes(),
            &size.to_be_bytes(),
        ]
        .concat()
    };
    let openings: Vec<Vec<u8>> = (0..100_000)
        .map(|batch| header(batch, u32::MAX, 1 << 30))
        .collect();
    let mut gapped = vec![header(1, u32::MAX, 1 << 30)];
    gapped.extend((0..100_000_u32).map(|index| {
        [
            &[2, 0, 0, 0, 0, 0, 0, 0, 1][..],
            &(index * 2 + 1).to_be_bytes(),
            &[7],
        ]
        .concat()
    }));
    let groups: Vec<u8> = (0..50_000)
        .flat_map(|group| format!("{{\"jsonrpc\":\"2.0\",\"method\":\"ahp/messageSegment\",\"params\":{{\"groupId\":\"{group:0100}\",\"index\":0,\"total\":65535,\"data\":\"\"}}}}\n").into_bytes())
        .collect();
    for (name, args, capture) in [
        ("openings", vec![], prefixed(&openings)),
        ("gapped", vec![], prefixed(&gapped)),
        ("groups", vec![], groups),
        ("blank lines", vec!["--wire", "ahp"], vec![b'\n'; 200_000]),
        ("blank frames", vec!["--wire", "vscode"], vec![0; 400_000]),
        (
            "a giant",
            vec!["--wire", "loro"],
            b"\xff\xff\xff\xff\x00".to_vec(),
        ),
    ] {
        let output = Command::new("sh")
            .args([
                "-c",
                "ulimit -v 300000; exec \"$0\" inspect \"$@\" -",
                env!("CARGO_BIN_EXE_breakbulk"),
            ])
            .args(&args)
            .stdin(Stdio::from(file_of(name, &capture)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        assert_eq!(
            output.status.code(),
            Some(1),
            "{name}: {}",
            text(&output.stderr)
        );
        assert!(output.stdout.len() < 2_000_000, "{name}");
    }
}

/// An open file with that in it, which is gone once it is closed.
#[cfg(target_os = "linux")]
fn file_of(name: &str, bytes: &[u8]) -> std::fs::File {
    let path =
        std::env::temp_dir().join(format!("breakbulk-inspect-{}-{name}", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    let file = std::fs::File::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file
}

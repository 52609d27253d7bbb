//! One table of misbehaving hosts for both bridges: each request is refused or ends the bridge in order,
//! and valid requests beside it are answered.

use breakbulk_testkit::log::{Level, Log};
use serde_json::{Value, json};

use super::python_runs::in_python;
use super::replies::messages;
use super::runs::{End, Input, Run, in_rust};

/// The request at the end of most cases: if it is answered, the bridge still runs.
const ALIVE: &str = r#"{"method":"call","params":{"module":"math","functionName":"sqrt","args":[4]},"id":99,"protocol":"tywrap/1"}"#;

type Replies = &'static [(i64, &'static str)];

/// By class of error: the request is refused with it, and the next one is answered.
const REFUSED: &[(&str, Replies)] = &[
    ("JSONDecodeError", &[(-1, "JSONDecodeError"), (99, "")]),
    ("ProtocolError", &[(-1, "ProtocolError"), (99, "")]),
    (
        "RequestTooLargeError",
        &[(-1, "RequestTooLargeError"), (99, "")],
    ),
];

struct Case {
    name: &'static str,
    stdin: Vec<u8>,
    rust: (Replies, End),
    python: (Replies, End),
}

fn both(name: &'static str, stdin: impl Into<Vec<u8>>, replies: Replies, end: End) -> Case {
    Case {
        name,
        stdin: stdin.into(),
        rust: (replies, end),
        python: (replies, end),
    }
}

fn refused(name: &'static str, line: impl AsRef<[u8]>, kind: &str) -> Case {
    let replies = REFUSED.iter().find(|known| known.0 == kind).unwrap().1;
    let stdin = [line.as_ref(), b"\n", ALIVE.as_bytes(), b"\n"].concat();
    both(name, stdin, replies, End::Served)
}

/// Frames that cannot be matched to requests any more: no reply, not even to the request after them.
fn fatal(name: &'static str, frames: &[String]) -> Case {
    let stdin = format!("{}\n{ALIVE}\n", frames.join("\n"));
    both(name, stdin, &[], End::FrameError)
}

fn frame(change: Value) -> String {
    let mut frame = json!({
        "__tywrap_frame__": "chunk", "frameProtocol": "tywrap-frame/1", "stream": "request", "id": 1,
        "seq": 0, "total": 2, "totalBytes": 10, "encoding": "utf8-slice", "data": "ab",
    });
    for (name, value) in change.as_object().unwrap() {
        match value {
            Value::Null => drop(frame.as_object_mut().unwrap().remove(name)),
            value => frame[name] = value.clone(),
        }
    }
    frame.to_string()
}

/// A call of `copy.copy` with this JSON as its argument.
fn copy(argument: &str) -> String {
    format!(
        r#"{{"method":"call","params":{{"module":"copy","functionName":"copy","args":[{argument}]}},"id":9,"protocol":"tywrap/1"}}"#
    )
}

fn request(members: &str) -> String {
    format!(r#"{{"protocol":"tywrap/1",{members}}}"#)
}

fn behind(lines: &str) -> String {
    format!("{lines}\n{ALIVE}\n")
}

/// The cases. Requests have at most 400,000 bytes, responses are in frames of 200.
fn cases() -> Vec<Case> {
    let mut cases = vec![
        both("nothing at all", "", &[], End::Served),
        both("empty lines", behind("\n\r\n\n"), &[(99, "")], End::Served),
        both(
            "lines of white space only",
            behind(" \n\t \r\n\u{a0}\u{3000}\n\u{1c}"),
            &[(99, "")],
            End::Served,
        ),
        both(
            "lines that end as on Windows",
            behind(ALIVE).replace('\n', "\r\n"),
            &[(99, ""), (99, "")],
            End::Served,
        ),
        both(
            "a last line without its end",
            ALIVE,
            &[(99, "")],
            End::Served,
        ),
        refused("no JSON", "not json", "JSONDecodeError"),
        refused("half a request", &ALIVE[..40], "JSONDecodeError"),
        refused("an array", "[1,2]", "ProtocolError"),
        refused("a number", "5", "ProtocolError"),
        refused("no id", request(r#""method":"meta""#), "ProtocolError"),
        // An intended difference: the original accepts `true` as the id 1, and answers with it.
        refused(
            "true for an id",
            request(r#""method":"meta","id":true"#),
            "ProtocolError",
        ),
        refused(
            "a fraction for an id",
            request(r#""method":"meta","id":1.0"#),
            "ProtocolError",
        ),
        refused(
            "an id that JSON readers round",
            request(r#""method":"meta","id":9007199254740992"#),
            "ProtocolError",
        ),
        refused(
            "an id of thirty digits",
            request(&format!(r#""method":"meta","id":{}"#, "9".repeat(30))),
            "ProtocolError",
        ),
        refused(
            "a request over the limit",
            copy(&format!("\"{}\"", "x".repeat(500_000))),
            "RequestTooLargeError",
        ),
        refused(
            "a line over any limit",
            "x".repeat(1 << 20),
            "RequestTooLargeError",
        ),
        refused(
            "an endless opening of brackets, over the limit",
            "[".repeat(1 << 20),
            "RequestTooLargeError",
        ),
    ];
    for (name, members) in [
        ("an unknown method", r#""method":"instantiate""#),
        ("no method", r#""x":1"#),
        ("an object for a method", r#""method":{}"#),
        ("parameters in an array", r#""method":"call","params":[]"#),
        (
            "no module",
            r#""method":"call","params":{"functionName":"f"}"#,
        ),
        (
            "an empty module",
            r#""method":"call","params":{"module":"","functionName":"f"}"#,
        ),
        (
            "a number for a function",
            r#""method":"call","params":{"module":"m","functionName":1}"#,
        ),
        (
            "arguments in an object",
            r#""method":"call","params":{"module":"m","functionName":"f","args":{}}"#,
        ),
        (
            "named arguments in an array",
            r#""method":"call","params":{"module":"m","functionName":"f","kwargs":[]}"#,
        ),
    ] {
        let line = request(&format!(r#"{members},"id":5"#));
        cases.push(both(
            name,
            behind(&line),
            &[(5, "ProtocolError"), (99, "")],
            End::Served,
        ));
    }
    cases.extend(frames());
    cases.extend(values());
    cases
}

fn frames() -> Vec<Case> {
    let half = |seq: usize| {
        let whole = copy("1");
        let data = [&whole[..50], &whole[50..]][seq];
        frame(json!({"id": 9, "seq": seq, "totalBytes": whole.len(), "data": data}))
    };
    let refuse = |name, change: Value, pieces: u64| {
        let one = |seq: u64| {
            let mut change = change.clone();
            change["seq"] = seq.into();
            frame(change)
        };
        let lines: Vec<_> = (0..pieces).map(one).collect();
        refused(name, lines.join("\n"), "RequestTooLargeError")
    };
    let mut cases = vec![
        refuse(
            "more bytes declared than are taken, told once",
            json!({"totalBytes": 400_001, "total": 5}),
            5,
        ),
        refuse(
            "as many bytes as a number holds",
            json!({"totalBytes": u64::MAX >> 11, "total": 3}),
            2,
        ),
        refuse(
            "more pieces declared than are taken",
            json!({"total": 1u64 << 40}),
            4,
        ),
        both(
            "a piece of the refused request and no more",
            behind(&frame(json!({"totalBytes": 1 << 30}))),
            &[(-1, "RequestTooLargeError"), (99, "")],
            End::Served,
        ),
        both(
            "the same request again after its refusal",
            behind(
                &[0, 1, 0, 1]
                    .map(|seq| frame(json!({"totalBytes": 400_001, "seq": seq})))
                    .join("\n"),
            ),
            &[
                (-1, "RequestTooLargeError"),
                (-1, "RequestTooLargeError"),
                (99, ""),
            ],
            End::Served,
        ),
        both(
            "an unfinished request at the end",
            frame(json!({})),
            &[],
            End::Served,
        ),
        both(
            "an unfinished request, then another begins",
            behind(&[frame(json!({})), frame(json!({"id": 2}))].join("\n")),
            &[(99, "")],
            End::Served,
        ),
        both(
            "a request that another interrupted stays unfinished",
            behind(&[half(0), frame(json!({"id": 2})), half(1)].join("\n")),
            &[(99, "")],
            End::Served,
        ),
        both(
            "the same request without the interruption",
            behind(&[half(0), half(1)].join("\n")),
            &[(9, ""), (99, "")],
            End::Served,
        ),
        both(
            "lines of white space within a burst",
            behind(&[half(0), " \t".to_owned(), "\u{2003}".to_owned(), half(1)].join("\n")),
            &[(9, ""), (99, "")],
            End::Served,
        ),
        fatal("a piece twice", &[frame(json!({})), frame(json!({}))]),
        fatal(
            "another total",
            &[frame(json!({})), frame(json!({"seq": 1, "total": 3}))],
        ),
        fatal(
            "another size",
            &[frame(json!({})), frame(json!({"seq": 1, "totalBytes": 11}))],
        ),
        fatal(
            "more bytes than declared, at once",
            &[frame(json!({"data": "x".repeat(11)}))],
        ),
        fatal("fewer bytes than declared", &[frame(json!({"total": 1}))]),
        fatal(
            "too many requests at once",
            &(0..1100)
                .map(|id| frame(json!({"id": id, "seq": 1})))
                .collect::<Vec<_>>(),
        ),
    ];
    for (name, change) in [
        ("the other direction", json!({"stream": "response"})),
        ("no direction", json!({"stream": "up"})),
        (
            "another protocol",
            json!({"frameProtocol": "tywrap-frame/2"}),
        ),
        ("no protocol", json!({"frameProtocol": null})),
        ("no kind", json!({"__tywrap_frame__": null})),
        ("an error frame", json!({"__tywrap_frame__": "error"})),
        ("another encoding", json!({"encoding": "utf8-base64"})),
        ("an array for an id", json!({"id": [1]})),
        ("a string for an id", json!({"id": "1"})),
        ("true for a number", json!({"seq": true})),
        ("a fraction for a number", json!({"seq": 0.0})),
        ("a number below zero", json!({"seq": -1})),
        ("no pieces", json!({"total": 0})),
        ("a size below zero", json!({"totalBytes": -1})),
        ("a piece beyond the last", json!({"seq": 2})),
        ("no data", json!({"data": null})),
        ("a list for data", json!({"data": ["ab"]})),
    ] {
        cases.push(fatal(name, &[frame(change)]));
    }
    let half = frame(json!({"total": 1, "totalBytes": 3})).replace(r#""ab""#, r#""\ud83d""#);
    cases.push(fatal("half a character in a piece", &[half]));
    cases
}

/// Values that one of the two languages cannot represent: each bridge has its own limits and errors.
fn values() -> Vec<Case> {
    const FINE: (Replies, End) = (&[(9, ""), (99, "")], End::Served);
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let deep_object = format!("{}1{}", "{\"a\":".repeat(40_000), "}".repeat(40_000));
    let case = |name, line: String, rust, python| Case {
        name,
        stdin: behind(&line).into(),
        rust,
        python,
    };
    let too_deep: (Replies, End) = (&[(-1, "RecursionError"), (99, "")], End::Served);
    let no_value: (Replies, End) = (&[(-1, "ValueError"), (99, "")], End::Served);
    let not_text = [b"\xff\xfe{}\n".as_slice(), ALIVE.as_bytes()].concat();
    vec![
        // The Rust bridge passes the JSON on unparsed.
        case(
            "ten thousand arrays in one another",
            copy(&deep),
            FINE,
            too_deep,
        ),
        case(
            "forty thousand objects in one another",
            copy(&deep_object),
            FINE,
            too_deep,
        ),
        case(
            "a number of forty thousand digits",
            copy(&"9".repeat(40_000)),
            FINE,
            no_value,
        ),
        case(
            "no number",
            copy("NaN"),
            (&[(-1, "JSONDecodeError"), (99, "")], End::Served),
            // Python accepts it, as the original does, but cannot send it back.
            (&[(9, "ValueError"), (99, "")], End::Served),
        ),
        case(
            "a pair of surrogates",
            copy(r#""\ud83d\ude00""#),
            FINE,
            FINE,
        ),
        both(
            "half a character",
            behind(&copy(r#""\ud800""#)),
            &[(9, "ProtocolError"), (99, "")],
            End::Served,
        ),
        case(
            "bytes that are no base64",
            copy(r#"{"__tywrap_bytes__":true,"b64":"A"}"#),
            (&[(9, "TypeError"), (99, "")], End::Served),
            (&[(9, "ProtocolError"), (99, "")], End::Served),
        ),
        // The reader of lines in Rust, which all transports share, stops at such a line.
        Case {
            name: "no UTF-8",
            stdin: not_text,
            rust: (&[(-1, "ProtocolError")], End::Unreadable),
            python: (&[(-1, "ProtocolError"), (99, "")], End::Served),
        },
        Case {
            name: "a last line that is cut",
            stdin: format!("{ALIVE}\n{}", &ALIVE[..50]).into(),
            rust: (&[(99, ""), (-1, "ProtocolError")], End::Unreadable),
            python: (&[(99, ""), (-1, "JSONDecodeError")], End::Served),
        },
    ]
}

fn input(case: &Case) -> Input {
    Input {
        argv: ["--tywrap-max-frame-bytes", "200"]
            .map(str::to_owned)
            .into(),
        env: [("TYWRAP_REQUEST_MAX_BYTES".to_owned(), "400000".to_owned())].into(),
        stdin: case.stdin.clone(),
    }
}

fn check(side: &str, case: &Case, run: &Run, (replies, end): (Replies, End)) {
    let found =
        messages(&run.lines, Some(200)).unwrap_or_else(|why| panic!("{}: {why}", case.name));
    let expected: Vec<_> = replies
        .iter()
        .map(|(id, kind)| (*id, (*kind).to_owned()))
        .collect();
    assert_eq!(
        (outline(&found), run.end),
        (expected, end),
        "{side}: {}: {}",
        case.name,
        run.stderr
    );
}

// TYWRAP-1, TYWRAP-9, TYWRAP-12
#[tokio::test]
async fn the_rust_bridge_lives_through_hostile_hosts() {
    for case in cases() {
        let log = Log::capture();
        check("Rust", &case, &in_rust(&input(&case)).await, case.rust);
        let (replies, end) = case.rust;
        for (_, kind) in replies.iter().filter(|(id, _)| *id == -1) {
            let (level, words) = match (*kind, end) {
                ("RequestTooLargeError", _) => (Level::WARN, " is over "),
                (_, End::Unreadable) => (Level::ERROR, "the bridge stops"),
                _ => (Level::WARN, "a request cannot be parsed"),
            };
            assert!(log.has(level, &[words]), "{}: {kind}: {log}", case.name);
        }
        if replies.iter().all(|(_, kind)| kind.is_empty()) && end == End::Served {
            log.assert_quiet();
        }
    }
}

// TYWRAP-9, TYWRAP-10, TYWRAP-12
#[test]
fn the_python_bridge_lives_through_hostile_hosts() {
    for case in cases() {
        let run = in_python(&input(&case));
        check("Python", &case, &run, case.python);
        for (_, kind) in case.python.0.iter().filter(|(id, _)| *id == -1) {
            let line = format!("[tywrap] {kind}: ");
            assert!(run.stderr.contains(&line), "{}: {}", case.name, run.stderr);
        }
    }
}

/// The id of each answer, and its class of error; "" for a result.
pub(crate) fn outline(messages: &[Value]) -> Vec<(i64, String)> {
    let one = |message: &Value| {
        assert_eq!(message["protocol"], "tywrap/1", "{message}");
        let kind = match message.get("result") {
            Some(_) => String::new(),
            None => message["error"]["type"].as_str().unwrap().to_owned(),
        };
        (message["id"].as_i64().unwrap(), kind)
    };
    messages.iter().map(one).collect()
}

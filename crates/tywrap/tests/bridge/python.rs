//! Tests of what only the bridge in Python does.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use breakbulk_tywrap::python;
use serde_json::{Value, json};

use super::hostile::outline;
use super::python_runs::{in_python, interpreter, python_command};
use super::replies::messages;
use super::runs::{End, Input, Run};

fn call(id: i64, module: &str, function: &str, args: &Value) -> String {
    let params = json!({"module": module, "functionName": function, "args": args});
    let request = json!({"method": "call", "params": params, "id": id, "protocol": "tywrap/1"});
    format!("{request}\n")
}

fn run(env: &[(&str, &str)], lines: &[String]) -> Run {
    let env = env
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    in_python(&Input {
        env: env.collect(),
        stdin: lines.concat().into(),
        ..Input::default()
    })
}

/// Runs Python expressions in the bridge, and checks the result or exception of each.
fn check(cases: &[(&str, &str)]) {
    let lines: Vec<_> = (1..)
        .zip(cases)
        .map(|(id, (code, _))| call(id, "builtins", "eval", &json!([code])))
        .collect();
    let run = run(&[], &lines);
    assert_eq!(run.end, End::Served, "{}", run.stderr);
    let found = messages(&run.lines, None).unwrap();
    for ((code, expected), message) in cases.iter().zip(&found) {
        let got = match message.get("result") {
            Some(result) => result.to_string(),
            None => format!(
                "{}: {}",
                message["error"]["type"], message["error"]["message"]
            ),
        };
        assert!(
            got.replace('"', "").starts_with(&expected.replace('"', "")),
            "{code}: {got}"
        );
    }
    assert_eq!(found.len(), cases.len());
}

// TYWRAP-11
#[test]
fn values_are_told_or_refused_in_clear_words() {
    check(&[
        ("None", "null"),
        ("(1, 2.5, 'x', True)", r#"[1,2.5,"x",true]"#),
        ("{1: 'a', 'b': None}", r#"{"1":"a","b":null}"#),
        (
            "b'\\x00\\xff'",
            r#"{"__type__":"bytes","data":"AP8=","encoding":"base64"}"#,
        ),
        (
            "[bytearray(b'a'), memoryview(b'b')]",
            r#"[{"__type__":"bytes","data":"YQ==","encoding":"base64"}"#,
        ),
        ("2 ** 53", "9007199254740992"),
        (
            "float('nan')",
            "ValueError: the result holds NaN or Infinity",
        ),
        (
            "[1.0, float('-inf')]",
            "ValueError: the result holds NaN or Infinity",
        ),
        ("1 << 100000", "ValueError: "),
        (
            "chr(0xd800)",
            "ValueError: the result holds half a character",
        ),
        ("'\\U0001f600'", r#""😀""#),
        (
            "object()",
            "ValueError: a value of type object cannot be sent; return",
        ),
        (
            "(lambda l: (l.append(l), l)[1])([])",
            "RuntimeError: the result holds itself",
        ),
        ("(lambda f: f(f))(lambda f: f(f))", "RecursionError: "),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("__import__('sys').exit(3)", "SystemExit: 3"),
        ("open('/no/such/\\udcff')", "FileNotFoundError: [Errno 2] "),
        (
            "type('E', (Exception,), {'__str__': lambda s: 1 / 0})()",
            "ValueError: a value of type E",
        ),
    ]);
}

// TYWRAP-11
/// One encoder writes all results, and keeps the containers that it is in when it fails.
#[test]
fn a_result_that_failed_does_not_spoil_the_next() {
    let kept = "__import__('sys').__dict__.setdefault('kept', [[1], object()])";
    let mended = format!("{kept}.__setitem__(1, 2) or {kept}");
    check(&[
        (kept, "ValueError: a value of type object cannot be sent"),
        (kept, "ValueError: a value of type object cannot be sent"),
        (&mended, "[[1],2]"),
        (kept, "[[1],2]"),
        (
            "(lambda it: (it.append(it), it)[1])([1])",
            "RuntimeError: the result holds itself",
        ),
        ("[[1], [1]]", "[[1],[1]]"),
    ]);
}

// TYWRAP-11
#[test]
fn what_is_printed_goes_to_standard_error() {
    let lines = [
        call(1, "builtins", "print", &json!(["printed"])),
        call(2, "os", "system", &json!(["echo by a child"])),
        call(
            3,
            "os",
            "write",
            &json!([1, {"__tywrap_bytes__": true, "b64": "cmF3Cg=="}]),
        ),
        call(4, "builtins", "input", &json!([])),
        call(
            5,
            "builtins",
            "eval",
            &json!(["__import__('sys').stdout.write('w')"]),
        ),
    ];
    let run = run(&[], &lines);
    let expected = [(1, ""), (2, ""), (3, ""), (4, "EOFError"), (5, "")];
    let expected = expected.map(|(id, kind)| (id, kind.to_owned()));
    assert_eq!(outline(&messages(&run.lines, None).unwrap()), expected);
    assert_eq!(run.stderr, "printed\nby a child\nraw\nw");
}

#[test]
fn an_exception_tells_where_it_came_from() {
    let lines = [
        call(1, "json", "loads", &json!(["["])),
        call(2, "no_such_module", "f", &json!([])),
        call(3, "math", "no_such_function", &json!([])),
    ];
    let run = run(&[], &lines);
    let found = messages(&run.lines, None).unwrap();
    let kinds = ["JSONDecodeError", "ModuleNotFoundError", "AttributeError"];
    for (message, kind) in found.iter().zip(kinds) {
        let error = &message["error"];
        assert_eq!(error["type"], kind);
        let trace = error["traceback"].as_str().unwrap();
        assert!(trace.contains(kind) && !trace.contains("in run"), "{trace}");
    }
    let trace = found[0]["error"]["traceback"].as_str().unwrap();
    assert!(
        trace.contains("Traceback") && trace.contains("in raw_decode"),
        "{trace}"
    );
}

// TYWRAP-11
#[test]
fn only_what_is_allowed_is_reached() {
    const LIST: (&str, &str) = ("TYWRAP_ALLOWED_MODULES", "math, json\tos.path");
    const PRIVATE: (&str, &str) = ("TYWRAP_ALLOW_PRIVATE_ATTRS", "1");
    for (env, module, function, expected) in [
        (vec![], "os", "getcwd", ""),
        (vec![], "os", "path.basename", ""),
        (vec![], "os", "_exists", "AttributeNotAllowedError"),
        (
            vec![],
            "os",
            "path.__dict__.keys",
            "AttributeNotAllowedError",
        ),
        (vec![PRIVATE], "os", "path.__dict__.__len__", ""),
        (vec![LIST], "json", "dumps", ""),
        (vec![LIST], "os", "getcwd", "ImportNotAllowedError"),
        // A module is not allowed merely because an allowed module imported it.
        (vec![LIST], "json", "codecs.open", "ImportNotAllowedError"),
        (
            vec![LIST, PRIVATE],
            "json",
            "codecs.open",
            "ImportNotAllowedError",
        ),
    ] {
        let args = match function {
            "path.basename" | "dumps" | "_exists" => json!(["x"]),
            _ => json!([]),
        };
        let run = run(&env, &[call(1, module, function, &args)]);
        let found = outline(&messages(&run.lines, None).unwrap());
        assert_eq!(
            found,
            [(1, expected.to_owned())],
            "{env:?} {module}.{function} {:?}",
            run.lines
        );
        assert_eq!(run.stderr, "", "the host is told, and nobody else");
    }
}

#[test]
fn both_handshakes_agree_on_the_smaller_frame() {
    let env = |max| {
        [
            ("TYWRAP_TRANSPORT_CHUNKING", "1"),
            ("TYWRAP_TRANSPORT_FRAME_PROTOCOL", "tywrap-frame/1"),
            ("TYWRAP_TRANSPORT_MAX_FRAME_BYTES", max),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
    };
    for (argument, variable, expected) in [("300", "200", 200), ("200", "300", 200)] {
        let run = in_python(&Input {
            argv: ["--tywrap-max-frame-bytes", argument]
                .map(str::to_owned)
                .into(),
            env: env(variable).into(),
            stdin: r#"{"id":-1,"protocol":"tywrap/1","method":"meta","params":{}}"#.into(),
        });
        let found = messages(&run.lines, Some(expected)).unwrap();
        let transport = json!({"frameProtocol": "tywrap-frame/1", "supportsChunking": true, "maxFrameBytes": expected});
        assert_eq!(found[0]["result"]["transport"], transport);
    }
}

#[test]
fn a_large_text_goes_through_in_frames_both_ways() {
    let text = "aé中😀\"\\\n".repeat(50_000);
    let request = call(8, "copy", "copy", &json!([text]));
    let request = request.trim_end();
    let pieces: Vec<String> = request
        .chars()
        .collect::<Vec<_>>()
        .chunks(20_000)
        .map(|piece| piece.iter().collect())
        .collect();
    let frame = |(seq, data): (usize, &String)| {
        let frame = json!({
            "__tywrap_frame__": "chunk", "frameProtocol": "tywrap-frame/1", "stream": "request", "id": 8,
            "seq": seq, "total": pieces.len(), "totalBytes": request.len(), "encoding": "utf8-slice", "data": data,
        });
        format!("{frame}\n")
    };
    let mut lines: Vec<_> = pieces.iter().enumerate().map(frame).collect();
    // Pieces may come in any order, except that the first one begins the burst.
    lines[1..].reverse();
    let run = in_python(&Input {
        argv: ["--tywrap-max-frame-bytes", "65536"]
            .map(str::to_owned)
            .into(),
        stdin: lines.concat().into(),
        ..Input::default()
    });
    let found = messages(&run.lines, Some(65536)).unwrap();
    assert_eq!(
        found[0]["result"].as_str(),
        Some(text.as_str()),
        "{}",
        run.stderr
    );
}

#[test]
fn modules_of_the_working_directory_can_be_called() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("mine.py"),
        "def twice(x, by=2):\n    return x * by\n",
    )
    .unwrap();
    let mut child = python_command(&[], &BTreeMap::new())
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let params =
        json!({"module": "mine", "functionName": "twice", "args": [4], "kwargs": {"by": 3}});
    let request = json!({"method": "call", "params": params, "id": 1, "protocol": "tywrap/1"});
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{}{request}", python::SOURCE).unwrap();
    // The answer comes before the input ends.
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(
        line,
        "{\"id\": 1, \"protocol\": \"tywrap/1\", \"result\": 12}\n"
    );
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn as_a_script_it_finds_modules_of_the_working_directory() {
    let (script, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = script.path().join("bridge.py");
    std::fs::write(&path, python::SOURCE).unwrap();
    std::fs::write(here.path().join("mine.py"), "def f():\n    return 'here'\n").unwrap();
    let mut child = std::process::Command::new(interpreter())
        .arg(path)
        .current_dir(here.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin
        .write_all(call(1, "mine", "f", &json!([])).as_bytes())
        .unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "{\"id\": 1, \"protocol\": \"tywrap/1\", \"result\": \"here\"}\n"
    );
}

// TYWRAP-13
#[test]
fn a_limit_that_is_not_positive_is_none() {
    for (value, expected) in [
        ("0", ""),
        ("-5", ""),
        ("+1000", ""),
        ("10", "RequestTooLargeError"),
        ("99999999999999999999", ""),
    ] {
        let env = [("TYWRAP_REQUEST_MAX_BYTES", value)];
        let run = run(&env, &[call(1, "os", "getpid", &json!([]))]);
        let found = outline(&messages(&run.lines, None).unwrap());
        assert_eq!(found[0].1, expected, "{value}: {}", run.stderr);
    }
    for value in ["0", "-1"] {
        let env = [("TYWRAP_CODEC_MAX_BYTES", value)];
        let run = run(&env, &[call(1, "os", "getpid", &json!([]))]);
        assert_eq!(
            outline(&messages(&run.lines, None).unwrap()),
            [(1, String::new())]
        );
    }
    let run = run(&[("TYWRAP_CODEC_MAX_BYTES", "x")], &[]);
    assert_eq!(run.end, End::BadConfig, "{}", run.stderr);
}

#[test]
fn a_host_that_closed_its_end_is_no_error() {
    let mut child = python_command(&[], &BTreeMap::new())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().unwrap();
    let request = call(1, "os", "getpid", &json!([]));
    write!(stdin, "{}{request}", python::SOURCE).unwrap();
    // The input stays open: the bridge ends because its output is closed.
    let mut stderr = String::new();
    std::io::Read::read_to_string(child.stderr.as_mut().unwrap(), &mut stderr).unwrap();
    assert_eq!(
        (child.wait().unwrap().code(), stderr.as_str()),
        (Some(0), "")
    );
    drop(stdin);
}

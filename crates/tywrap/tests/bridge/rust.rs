//! Tests of what only the bridge in Rust does.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use breakbulk_testkit::log::Log;
use breakbulk_tywrap::bridge::{
    Answer, Arguments, Bridge, BridgeConfig, Ended, Functions, Handler, Outcome,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::hostile::outline;
use super::replies::messages;
use super::runs::{End, Input, in_rust};

fn call(id: i64, module: &str, function: &str, args: &Value) -> String {
    let params = json!({"module": module, "functionName": function, "args": args});
    let request = json!({"method": "call", "params": params, "id": id, "protocol": "tywrap/1"});
    format!("{request}\n")
}

fn framed(frame: usize) -> BridgeConfig {
    BridgeConfig::default().with(|config| config.frame = Some(frame))
}

#[tokio::test]
async fn a_panic_fails_its_call_alone() {
    let stdin = call(1, "test", "panic", &json!([])) + &call(2, "math", "sqrt", &json!([9]));
    let input = Input {
        stdin: stdin.into(),
        ..Input::default()
    };
    let run = in_rust(&input).await;
    assert_eq!(run.end, End::Served);
    assert_eq!(
        run.lines,
        [
            r#"{"id":1,"protocol":"tywrap/1","error":{"type":"Panic","message":"out of order"}}"#,
            r#"{"id":2,"protocol":"tywrap/1","result":3.0}"#,
        ]
    );
}

#[tokio::test]
async fn unknown_names_are_told_as_python_does() {
    let stdin = [
        call(1, "nowhere", "f", &json!([])),
        call(2, "math", "cbrt", &json!([])),
        call(3, "math", "sqrt", &json!([])),
        call(4, "math", "sqrt", &json!(["x"])),
    ];
    let input = Input {
        stdin: stdin.concat().into(),
        ..Input::default()
    };
    let run = in_rust(&input).await;
    let expected = [
        "ModuleNotFoundError",
        "AttributeError",
        "TypeError",
        "TypeError",
    ];
    let expected: Vec<_> = (1..).zip(expected.map(str::to_owned)).collect();
    assert_eq!(outline(&messages(&run.lines, None).unwrap()), expected);
}

#[tokio::test]
async fn only_allowed_modules_are_called() {
    let log = Log::capture();
    let config = BridgeConfig::default()
        .with(|config| config.allowed = Some(BTreeSet::from(["a".to_owned()])));
    let functions = Functions::new()
        .with("a", "f", |_| Answer::text("a"))
        .with("b", "f", |_| Answer::text("b"));
    let stdin = call(1, "a", "f", &json!([])) + &call(2, "b", "f", &json!([]));
    let stdout = serve(Bridge::new(config, functions), stdin).await;
    let expected = [(1, ""), (2, "ImportNotAllowedError")].map(|(id, kind)| (id, kind.to_owned()));
    assert_eq!(outline(&messages(&stdout, None).unwrap()), expected);
    log.assert_quiet();
}

/// Functions that yield while they run, and record when each began and ended.
struct Slow(Arc<Mutex<Vec<String>>>);

impl Handler for Slow {
    async fn call(&self, _: &str, function: &str, _: &Arguments<'_>) -> Outcome {
        self.0.lock().unwrap().push(format!("{function} begins"));
        tokio::task::yield_now().await;
        self.0.lock().unwrap().push(format!("{function} ends"));
        Answer::text(function)
    }
}

#[tokio::test]
async fn calls_run_one_after_the_other() {
    let seen = Arc::default();
    let bridge = Bridge::new(BridgeConfig::default(), Slow(Arc::clone(&seen)));
    let stdin = call(1, "m", "first", &json!([])) + &call(2, "m", "second", &json!([]));
    let stdout = serve(bridge, stdin).await;
    assert_eq!(
        *seen.lock().unwrap(),
        ["first begins", "first ends", "second begins", "second ends"]
    );
    assert_eq!(
        stdout[1],
        r#"{"id":2,"protocol":"tywrap/1","result":"second"}"#
    );
}

#[tokio::test]
async fn a_large_text_goes_through_in_frames_and_as_ascii() {
    let text = "aé中😀\"\\\n".repeat(100_000);
    let functions = Functions::new().with("m", "echo", |call| Ok(Answer::raw(call.at(0)?)));
    let bridge = Bridge::new(framed(1 << 16), functions);
    let stdout = serve(bridge, call(5, "m", "echo", &json!([text]))).await;
    assert!(stdout.len() > 20);
    let found = messages(&stdout, Some(1 << 16)).unwrap();
    assert_eq!(found[0]["result"].as_str(), Some(text.as_str()));
}

#[tokio::test]
async fn a_host_that_closed_its_end_is_no_error() {
    let (reader, mut host) = tokio::io::duplex(1 << 16);
    let (writer, output) = tokio::io::duplex(64);
    drop(output);
    let functions = Functions::new().with("m", "f", |_| Answer::text("x"));
    let bridge = Bridge::new(framed(100), functions);
    let line = call(1, "m", "f", &json!([]));
    host.write_all(line.as_bytes()).await.unwrap();
    // The input stays open: serving ends because the output is closed.
    assert_eq!(bridge.serve(reader, writer).await.unwrap(), Ended::Output);
}

/// A bridge on standard streams: the tests below start this test program again to run it.
#[tokio::test]
#[ignore = "the program of other tests"]
async fn as_a_program() {
    // With `--ignored` this test is run without a host: there is nothing to do.
    if std::env::var_os("TYWRAP_TRANSPORT_CHUNKING").is_none() {
        return;
    }
    let functions = Functions::new().with("m", "echo", |call| Ok(Answer::raw(call.at(0)?)));
    let bridge = Bridge::from_process(functions).unwrap();
    bridge.stdio().await.unwrap();
}

/// Starts the bridge, writes to it and returns its output. Its input stays open until `look` returns.
fn program(stdin: &str, look: impl FnOnce(&mut Child)) -> (Vec<String>, ExitStatus) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "rust::as_a_program", "--ignored", "--nocapture"])
        .env("TYWRAP_TRANSPORT_CHUNKING", "1")
        .env("TYWRAP_TRANSPORT_FRAME_PROTOCOL", "tywrap-frame/1")
        .env("TYWRAP_TRANSPORT_MAX_FRAME_BYTES", "100")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(stdin.as_bytes()).unwrap();
    look(&mut child);
    drop(input);
    let output = child.wait_with_output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    // The test harness prints lines of its own, the last of which may share a line with the bridge's.
    let lines = stdout
        .lines()
        .filter_map(|line| line.find('{').map(|at| line[at..].to_owned()));
    (lines.collect(), output.status)
}

#[test]
fn a_program_serves_its_standard_streams() {
    let text = "x".repeat(1000);
    let probe = "{\"id\":-1,\"protocol\":\"tywrap/1\",\"method\":\"meta\",\"params\":{}}\n";
    let stdin = probe.to_owned() + &call(1, "m", "echo", &json!([text]));
    let (lines, status) = program(&stdin, |_| ());
    let found = messages(&lines, Some(100)).unwrap();
    let transport =
        json!({"frameProtocol": "tywrap-frame/1", "supportsChunking": true, "maxFrameBytes": 100});
    assert_eq!(found[0]["result"]["transport"], transport);
    assert_eq!(found[1]["result"], text);
    assert!(status.success());
}

// TYWRAP-10
#[test]
fn a_program_ends_by_a_frame_error_though_its_input_is_open() {
    let frame = r#"{"__tywrap_frame__":"chunk","frameProtocol":"tywrap-frame/2"}"#;
    let (lines, status) = program(&format!("{frame}\n"), |child| {
        child.wait().unwrap();
    });
    assert_eq!((lines.len(), status.success()), (0, false));
}

async fn serve(bridge: Bridge<impl Handler>, stdin: String) -> Vec<String> {
    let (writer, mut output) = tokio::io::duplex(1 << 20);
    let reader = std::io::Cursor::new(stdin.into_bytes());
    let mut stdout = String::new();
    let (served, read) = tokio::join!(
        bridge.serve(reader, writer),
        output.read_to_string(&mut stdout)
    );
    assert_eq!(served.unwrap(), Ended::Input);
    read.unwrap();
    stdout.lines().map(str::to_owned).collect()
}

// TYWRAP-9
#[tokio::test]
async fn without_a_handshake_frames_are_taken_and_lines_given() {
    let text = "x".repeat(100_000);
    let request = call(5, "m", "echo", &json!([text]));
    let request = request.trim_end();
    let (first, second) = request.split_at(50_000);
    let frame = |seq: usize, data: &str| {
        let frame = json!({
            "__tywrap_frame__": "chunk", "frameProtocol": "tywrap-frame/1", "stream": "request", "id": 5,
            "seq": seq, "total": 2, "totalBytes": request.len(), "encoding": "utf8-slice", "data": data,
        });
        format!("{frame}\n")
    };
    let functions = Functions::new().with("m", "echo", |call| Ok(Answer::raw(call.at(0)?)));
    let bridge = Bridge::new(BridgeConfig::default(), functions);
    let stdout = serve(bridge, frame(0, first) + &frame(1, second)).await;
    let answer = format!(r#"{{"id":5,"protocol":"tywrap/1","result":"{text}"}}"#);
    assert!(stdout == [answer], "{} lines", stdout.len());
}

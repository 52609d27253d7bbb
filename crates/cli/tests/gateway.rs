//! `breakbulk gateway` as programs and people meet it: the real program, real pipes, real sockets.

#![cfg(unix)]
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use breakbulk::link::Frame;
use breakbulk::net::ws::{ConnectOptions, ListenOptions, Listener, connect};
use breakbulk::net::{Incoming, Sink, Source, Transport};

/// No test waits longer for anything.
const PATIENCE: Duration = Duration::from_secs(60);

fn gateway(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_breakbulk"));
    command
        .arg("gateway")
        .args(arguments)
        .env_remove("BREAKBULK_TOKEN")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A gateway that listens, ended with the test.
struct Listening {
    child: Child,
    address: String,
    log: mpsc::Receiver<String>,
}

impl Listening {
    fn start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (tell, log) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stderr.lines() {
                let _ = tell.send(line.unwrap_or_default());
            }
        });
        let mut gateway = Self {
            child,
            address: String::new(),
            log,
        };
        let line = gateway.line("listening on ");
        gateway.address = line.strip_prefix("listening on ").unwrap().to_owned();
        gateway
    }

    fn new(arguments: &[&str]) -> Self {
        Self::start(gateway(arguments))
    }

    /// Waits for a line with these words on its standard error.
    fn line(&self, words: &str) -> String {
        let mut seen = Vec::new();
        loop {
            match self.log.recv_timeout(PATIENCE) {
                Ok(line) if line.contains(words) => return line,
                Ok(line) => seen.push(line),
                Err(error) => panic!("no line with {words:?} ({error}): {seen:#?}"),
            }
        }
    }

    fn signal(&self, signal: &str) {
        self::signal(&self.child, signal);
    }

    fn exit_code(&mut self) -> Option<i32> {
        wait(&mut self.child)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn signal(child: &Child, signal: &str) {
    let sent = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
}

/// The exit code; a process that does not end is a failure, and is ended.
fn wait(child: &mut Child) -> Option<i32> {
    let (ended, watch) = std::sync::mpsc::channel();
    let id = child.id().to_string();
    let watchdog = std::thread::spawn(move || {
        let too_long = watch.recv_timeout(PATIENCE).is_err();
        if too_long {
            let _ = Command::new("kill").args(["-KILL", &id]).status();
        }
        too_long
    });
    let status = child.wait().unwrap();
    // Nobody listens any more where it was too late.
    let _ = ended.send(());
    assert!(!watchdog.join().unwrap(), "it does not end");
    status.code()
}

/// Runs to its end with this input, from a thread so that no pipe fills up.
fn run(mut command: Command, input: Vec<u8>) -> Output {
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// JSON-RPC requests of these sizes, one a line.
fn lines(sizes: &[usize]) -> Vec<u8> {
    let mut out = Vec::new();
    for (id, size) in sizes.iter().enumerate() {
        let text = "Grüße, 世界 \\\"x\\\" ".repeat(size / 24 + 1);
        let line =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m","params":{{"t":"{text}"}}}}"#);
        out.extend_from_slice(line.as_bytes());
        out.push(b'\n');
    }
    out
}

/// The same with headers, and with line breaks inside.
fn announced(sizes: &[usize]) -> Vec<u8> {
    let mut out = Vec::new();
    for line in lines(sizes).split(|&byte| byte == b'\n') {
        if line.is_empty() {
            continue;
        }
        let body = String::from_utf8(line.to_vec())
            .unwrap()
            .replacen(',', ",\r\n  ", 2);
        out.extend_from_slice(format!("Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
    }
    out
}

const SIZES: [usize; 8] = [10, 5_000_000, 3, 99_000, 100_000, 101_000, 5_000_000, 1];

#[test]
fn two_gateways_carry_a_program_unchanged_through_a_capped_path() {
    for (framing, input) in [
        ("lines", lines(&SIZES)),
        ("content-length", announced(&SIZES)),
    ] {
        let cap = ["--max-frame", "100KB"];
        let to = format!("exec:cat?framing={framing}");
        let far = Listening::new(&["--listen", "ws://0", "--to", &to, cap[0], cap[1]]);
        assert!(
            far.address.starts_with("ws://127.0.0.1:"),
            "{}",
            far.address
        );
        let listen = format!("stdio:?framing={framing}");
        let near = gateway(&["--listen", &listen, "--to", &far.address, cap[0], cap[1]]);
        let output = run(near, input.clone());
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        assert!(output.stdout == input, "{framing}: not byte for byte");
        far.line("the command exited with status 0");
    }
}

#[test]
fn no_frame_on_the_path_is_over_the_cap() {
    let far = Listening::new(&[
        "--listen",
        "ws://0",
        "--to",
        "exec:cat",
        "--max-frame",
        "100KB",
    ]);
    // A path that looks at every frame: what is larger shows here.
    let path = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("ws://{}/", path.local_addr().unwrap());
    let target = far.address.strip_prefix("ws://").unwrap().to_owned();
    let watch = std::thread::spawn(move || {
        let near = path.accept().unwrap().0;
        let far = TcpStream::connect(target).unwrap();
        let (near_too, far_too) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        let up = std::thread::spawn(move || largest_frame(near, far));
        (largest_frame(far_too, near_too), up.join().unwrap())
    });
    let input = lines(&[2_000_000]);
    let near = gateway(&[
        "--listen",
        "stdio:",
        "--to",
        &address,
        "--max-frame",
        "50KB",
    ]);
    let output = run(near, input.clone());
    assert!(output.stdout == input, "{}", said(&output));
    let (down, up) = watch.join().unwrap();
    // The near side's word counts in both directions: it knows the path.
    for largest in [down, up] {
        assert!((40_000..=50_000).contains(&largest), "{largest}");
    }
}

/// Passes a WebSocket's bytes on, and tells its largest frame.
fn largest_frame(mut from: TcpStream, mut to: TcpStream) -> usize {
    let (mut pending, mut shaken, mut largest) = (Vec::new(), false, 0);
    let mut room = [0; 65_536];
    loop {
        let read = from.read(&mut room).unwrap_or(0);
        if read == 0 || to.write_all(&room[..read]).is_err() {
            let _ = to.shutdown(std::net::Shutdown::Write);
            return largest;
        }
        pending.extend_from_slice(&room[..read]);
        if !shaken {
            let Some(end) = pending.windows(4).position(|four| four == b"\r\n\r\n") else {
                continue;
            };
            pending.drain(..end + 4);
            shaken = true;
        }
        while pending.len() >= 2 {
            let masked = if pending[1] & 0x80 == 0 { 0 } else { 4 };
            let (head, len) = match pending[1] & 0x7f {
                126 if pending.len() >= 4 => {
                    (4, usize::from(u16::from_be_bytes([pending[2], pending[3]])))
                }
                127 if pending.len() >= 10 => {
                    let len = u64::from_be_bytes(pending[2..10].try_into().unwrap());
                    (10, len as usize)
                }
                126 | 127 => break,
                len => (2, usize::from(len)),
            };
            if pending.len() < head + masked + len {
                break;
            }
            largest = largest.max(len);
            pending.drain(..head + masked + len);
        }
    }
}

#[test]
fn what_must_be_mended_is_one_line_and_2() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("ws://{}", taken.local_addr().unwrap());
    let nobody = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let nobody = format!("ws://{nobody}/");
    let far = Listening::new(&["--listen", "ws://0/here", "--to", "exec:cat"]);
    let elsewhere = far.address.replace("/here", "/elsewhere");
    let empty = std::env::temp_dir().join(format!("breakbulk-empty-{}", std::process::id()));
    std::fs::write(&empty, " \n").unwrap();
    let empty_token = format!("ws://0?token-file={}", empty.display());
    for (listen, to, more, words) in [
        (
            "nothing",
            "exec:cat",
            &[][..],
            "--listen: there is no colon",
        ),
        ("ws://0", "exec:", &[], "--to: there is no command"),
        (
            "ws://0",
            "exec:no-such-program",
            &[],
            "no program \"no-such-program\" in PATH",
        ),
        (
            "ws://0",
            "exec:/dev/null",
            &[],
            "/dev/null cannot be executed",
        ),
        ("exec:cat", "ws://x:1", &[], "nobody comes to a command"),
        ("stdio:", "stdio:", &[], "there is only one"),
        ("ws://0", "stdio:", &[], "use --listen stdio:"),
        ("stdio:", "loro+ws://x:1", &[], "loro+ws carries bytes"),
        ("ws://0", "loro+ws://x:1", &[], "use whole+ws or loro+ws"),
        (&taken, "exec:cat", &[], "cannot listen at"),
        ("ws://host", "exec:cat", &[], "write HOST:PORT"),
        (
            "ws://0?max-fram=1KB",
            "exec:cat",
            &[],
            "\"max-fram\" is no option",
        ),
        ("ws://0.0.0.0:0", "exec:cat", &[], "set BREAKBULK_TOKEN"),
        ("ws://[::]:0", "exec:cat", &[], "set BREAKBULK_TOKEN"),
        ("wss://0", "exec:cat", &[], "add ?cert=FILE&key=FILE"),
        ("wss://0?cert=/none", "exec:cat", &[], "give both"),
        (
            "wss://0?cert=/none&key=/none",
            "exec:cat",
            &[],
            "/none: no certificates in PEM",
        ),
        (
            "ws://0?token-file=/none",
            "exec:cat",
            &[],
            "token-file /none: No such file",
        ),
        (&empty_token, "exec:cat", &[], "is empty; put a token there"),
        ("ws://0", &nobody, &[], "cannot be reached"),
        (
            "stdio:",
            &nobody,
            &[],
            "refuses connections; is the server running",
        ),
        ("stdio:", &elsewhere, &[], "HTTP 404"),
        (
            "stdio:",
            "whole+ws://no-such-host.invalid:1",
            &[],
            "no-such-host.invalid has no address",
        ),
        (
            "ws://0",
            "exec:cat",
            &["--preset", "azure"],
            "\"azure\" is no preset",
        ),
        (
            "ws://0",
            "exec:cat",
            &["--max-frame", "100"],
            "must be at least 256",
        ),
        (
            "ws://0",
            "exec:cat",
            &["--memory", "1MB"],
            "raise it or lower --max-message",
        ),
        (
            "loro+ws://0",
            "whole+ws://x:1",
            &["--preset", "aws-api-gateway"],
            "aws-api-gateway lets no binary messages through",
        ),
    ] {
        let mut command = gateway(&["--listen", listen, "--to", to]);
        command.args(more);
        let output = run(command, Vec::new());
        let said = said(&output);
        assert_eq!(output.status.code(), Some(2), "{listen} {to}: {said}");
        assert!(said.contains(words), "{listen} {to}: {said}");
        assert_eq!(said.lines().count(), 1, "{listen} {to}: {said}");
        assert!(output.stdout.is_empty());
    }
    std::fs::remove_file(empty).unwrap();
}

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
            "stdio:?max-message=1KB",
            "exec:cat",
            &"x".repeat(2000)[..],
            "a line is longer than 1000 bytes",
        ),
        (
            "stdio:",
            "exec:cat",
            "{\"unfinished",
            "end of input within a frame: 12 bytes",
        ),
        (
            deaf,
            "exec:cat",
            "{}\n\n",
            "it begins as JSON does; is the framing lines?",
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
        assert_eq!(output.status.code(), Some(1), "{to}: {said}");
        assert!(said.contains(words), "{to}: {said}");
    }
}

/// A gateway whose standard streams stay open.
struct Near {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Near {
    fn new(arguments: &[&str]) -> Self {
        let mut child = gateway(arguments).stderr(Stdio::inherit()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self {
            stdin: child.stdin.take(),
            stdout,
            child,
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    fn read_line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line
    }
}

impl Drop for Near {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn each_client_has_a_command_of_its_own() {
    let far = Listening::new(&[
        "--listen",
        "ws://0",
        "--to",
        "exec:sh -c 'echo $$; exec cat'",
    ]);
    let start = || Near::new(&["--listen", "stdio:", "--to", &far.address]);
    let (mut one, mut two) = (start(), start());
    let (first, second) = (one.read_line(), two.read_line());
    assert!(
        first != second && !first.trim().is_empty(),
        "{first} {second}"
    );
    one.write(b"{\"one\":1}\n");
    two.write(b"{\"two\":2}\n");
    assert_eq!(one.read_line(), "{\"one\":1}\n");
    assert_eq!(two.read_line(), "{\"two\":2}\n");
    // The end of one is no matter of the other.
    drop(one);
    two.write(b"{}\n");
    assert_eq!(two.read_line(), "{}\n");
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
    // Its first bytes are back: it is on its way through both gateways, and nobody reads on.
    assert!(!near.stdout.fill_buf().unwrap().is_empty());
    signal(&near.child, "-TERM");
    assert!(
        near.read_line().as_bytes() == input,
        "what was on its way is lost"
    );
    assert_eq!(wait(&mut near.child), Some(0));
    far.line("the program closed with 1001: the gateway stops");
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

#[test]
fn a_second_signal_does_not_wait() {
    // A command that does not heed the end of its input is waited for, but not then.
    let to = "exec:sh -c 'echo {}; while :; do sleep 60; done'";
    let mut far = Listening::new(&["--listen", "ws://0", "--to", to]);
    let mut near = Near::new(&["--listen", "stdio:", "--to", &far.address]);
    assert_eq!(near.read_line(), "{}\n");
    far.signal("-TERM");
    far.line("stopping");
    far.signal("-TERM");
    assert_eq!(far.exit_code(), Some(1));
}

#[test]
fn only_who_has_the_token_is_let_in() {
    let token = std::env::temp_dir().join(format!("breakbulk-token-{}", std::process::id()));
    std::fs::write(&token, "s3cret\n").unwrap();
    let listen = format!("ws://0?token-file={}", token.display());
    let far = Listening::new(&["--listen", &listen, "--to", "exec:cat"]);
    let near = || gateway(&["--listen", "stdio:", "--to", &far.address]);
    for (sent, code, words) in [
        (None, 2, "it wants a bearer token"),
        (Some("wrong"), 2, "does not accept this bearer token"),
        (Some("s3cret"), 0, ""),
    ] {
        let mut command = near();
        command.envs(sent.map(|token| ("BREAKBULK_TOKEN", token)));
        let output = run(command, b"{}\n".to_vec());
        let said = said(&output);
        assert_eq!(output.status.code(), Some(code), "{sent:?}: {said}");
        assert!(said.contains(words), "{sent:?}: {said}");
        assert!(!said.contains("s3cret"), "{said}");
    }
    std::fs::remove_file(token).unwrap();
    // A token opens a listener to others.
    let mut open = gateway(&["--listen", "ws://0.0.0.0:0", "--to", "exec:cat"]);
    open.env("BREAKBULK_TOKEN", "t");
    assert!(Listening::start(open).address.starts_with("ws://0.0.0.0:"));
}

#[test]
fn a_target_that_fails_is_told_to_the_client() {
    let far = Listening::new(&[
        "--listen",
        "ws://0",
        "--to",
        "ws://127.0.0.1:1/",
        "--no-check",
    ]);
    let output = run(
        gateway(&["--listen", "stdio:", "--to", &far.address]),
        Vec::new(),
    );
    assert_eq!(output.status.code(), Some(2));
    let said = said(&output);
    assert!(said.contains("127.0.0.1:1 refuses connections"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn a_message_that_is_too_large_is_answered_and_the_rest_goes_on() {
    let far = Listening::new(&[
        "--listen",
        "ws://0",
        "--to",
        "exec:cat",
        "--max-message",
        "1MB",
    ]);
    let mut near = Near::new(&["--listen", "stdio:", "--to", &far.address]);
    near.write(&lines(&[2_000_000]));
    let answer = near.read_line();
    assert!(
        answer.starts_with(r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32011,"#),
        "{answer}"
    );
    assert!(answer.contains(r#""maxMessageBytes":1000000"#), "{answer}");
    near.write(&lines(&[900_000]));
    assert!(near.read_line().as_bytes() == lines(&[900_000]));
}

#[test]
fn over_a_plain_websocket_answers_are_waited_for_at_the_end_of_input() {
    let answers = r#"exec:sed -u 's/"method":"m","params"/"result"/'"#;
    let input = lines(&[100, 2_000_000]);
    let answered = String::from_utf8(input.clone()).unwrap();
    let answered = answered.replace(r#""method":"m","params""#, r#""result""#);
    // A program that never answers: what is owed counts as lost.
    for (program, expected, grace, code) in [
        (answers, answered, "30", 0),
        ("exec:sed -u d", String::new(), "1", 1),
    ] {
        let end = Listening::new(&["--listen", "whole+ws://0", "--to", program]);
        let whole = end.address.replace("ws://", "whole+ws://");
        let near = gateway(&["--listen", "stdio:", "--to", &whole, "--grace", grace]);
        let output = run(near, input.clone());
        assert!(output.stdout == expected.as_bytes(), "{program}");
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
    }
}

/// A WebSocket server that sends back what it gets, without looking at it.
async fn echo() -> std::net::SocketAddr {
    let options = ListenOptions::default();
    let mut listener = Listener::bind("127.0.0.1:0", options).await.unwrap();
    let address = listener.local_addr();
    tokio::spawn(async move {
        while let Ok(accepted) = listener.accept().await {
            let (mut source, mut sink) = accepted.websocket.split();
            tokio::spawn(async move {
                loop {
                    match source.next().await {
                        Incoming::Frame(frame) => sink.send(frame).await.unwrap(),
                        Incoming::Life => {}
                        end @ (Incoming::Closed(_) | Incoming::Broken(_)) => {
                            return println!("the echo ends: {end:?}");
                        }
                    }
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn bytes_pass_in_fragments_between_whole_ends() {
    let echo = echo().await;
    let to = format!("whole+ws://{echo}/");
    let far = Listening::new(&["--listen", "loro+ws://0?max-frame=100KB", "--to", &to]);
    let to = far.address.replace("ws://", "loro+ws://");
    let near = Listening::new(&[
        "--listen",
        "whole+ws://0",
        "--to",
        &format!("{to}?max-frame=100KB"),
    ]);
    let options = ConnectOptions::default();
    let websocket = connect(&near.address, &options).await.unwrap();
    let (mut source, mut sink) = websocket.split();
    for size in [0, 1, 99_999, 100_000, 3_000_000] {
        let bytes: Vec<u8> = (0..size).map(|n: u32| (n * 7 + n / 256) as u8).collect();
        let frame = Frame::Binary(bytes.into());
        sink.send(frame.clone()).await.unwrap();
        let back = loop {
            match source.next().await {
                Incoming::Life => {}
                incoming => break incoming,
            }
        };
        if back != Incoming::Frame(frame) {
            let shown: String = format!("{back:?}").chars().take(300).collect();
            let told = |log: &mpsc::Receiver<String>| {
                std::iter::from_fn(|| log.recv_timeout(Duration::from_secs(2)).ok())
                    .collect::<Vec<_>>()
            };
            let log = (told(&far.log), told(&near.log));
            panic!("{size}: {shown} {log:#?}");
        }
    }
}

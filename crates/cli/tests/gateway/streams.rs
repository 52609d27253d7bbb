//! TCP and Unix sockets at either end of a gateway.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use crate::common::{Listening, PATIENCE, announced, gateway, lines, requests, run, said};

/// Frames of `ipc.net` with bodies of these sizes: type, id, acknowledged id, length, body.
fn ipc(sizes: &[usize]) -> Vec<u8> {
    let mut out = Vec::new();
    for (id, size) in sizes.iter().enumerate() {
        out.push(1 + (id % 9) as u8);
        out.extend_from_slice(&(id as u32).to_be_bytes());
        out.extend_from_slice(&(id as u32 / 2).to_be_bytes());
        out.extend_from_slice(&(*size as u32).to_be_bytes());
        out.extend((0..*size).map(|n| (n * 7 + n / 256) as u8));
    }
    out
}

/// A socket of either kind.
trait Socket: Read + Write + Send + 'static {
    fn another(&self) -> Box<dyn Socket>;
    fn end_output(&self);
}

impl Socket for TcpStream {
    fn another(&self) -> Box<dyn Socket> {
        Box::new(self.try_clone().unwrap())
    }

    fn end_output(&self) {
        self.shutdown(Shutdown::Write).unwrap();
    }
}

impl Socket for UnixStream {
    fn another(&self) -> Box<dyn Socket> {
        Box::new(self.try_clone().unwrap())
    }

    fn end_output(&self) {
        self.shutdown(Shutdown::Write).unwrap();
    }
}

/// Connects to where a gateway says that it listens.
fn connect(address: &str) -> Box<dyn Socket> {
    if let Some(path) = address.strip_prefix("unix:") {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        return Box::new(stream);
    }
    let stream = TcpStream::connect(address.strip_prefix("tcp://").unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Box::new(stream)
}

/// Writes all of the input, ends the output, and returns what comes until the other end closes.
fn converse(address: &str, input: &[u8]) -> Vec<u8> {
    let mut socket = connect(address);
    let writing = write(&*socket, input, true);
    let mut output = Vec::new();
    socket.read_to_end(&mut output).unwrap();
    writing.join().unwrap();
    output
}

/// Writes all of the input, and returns as many bytes as came back for it.
fn echoed(address: &str, input: &[u8]) -> Vec<u8> {
    let mut socket = connect(address);
    let writing = write(&*socket, input, false);
    let mut output = vec![0; input.len()];
    socket.read_exact(&mut output).unwrap();
    writing.join().unwrap();
    output
}

/// From a thread, so that no socket fills up.
fn write(socket: &dyn Socket, input: &[u8], ends: bool) -> std::thread::JoinHandle<()> {
    let (mut writer, input) = (socket.another(), input.to_vec());
    std::thread::spawn(move || {
        writer.write_all(&input).unwrap();
        if ends {
            writer.end_output();
        }
    })
}

/// A server that sends back what it gets, until the end; its address as a target.
fn tcp_echo() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            std::thread::spawn(move || echo(&mut &stream, &mut &stream));
        }
    });
    address
}

fn unix_echo(path: &std::path::Path) -> String {
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            std::thread::spawn(move || echo(&mut &stream, &mut &stream));
        }
    });
    format!("unix:{}", path.display())
}

fn echo(from: &mut impl Read, to: &mut impl Write) {
    let _ = std::io::copy(from, to);
}

const SIZES: [usize; 6] = [10, 3_000_000, 3, 99_000, 101_000, 1];

/// Client, socket, gateway, capped path, gateway, socket, server: and back.
#[test]
fn two_gateways_carry_streams_unchanged_over_a_capped_path() {
    let folder = tempfile::tempdir().unwrap();
    let (tcp, unix) = (tcp_echo(), unix_echo(&folder.path().join("echo")));
    for (framing, input, path) in [
        ("lines", lines(&SIZES), ""),
        ("content-length", announced(&SIZES), ""),
        ("ipc", ipc(&SIZES), ""),
        ("ipc", ipc(&SIZES), "loro+"),
    ] {
        for (listen, to) in [
            ("tcp://0".to_owned(), &unix),
            (format!("unix:{}", folder.path().join("s").display()), &tcp),
        ] {
            let cap = ["--max-frame", "100KB"];
            let to = format!("{to}?framing={framing}");
            let between = format!("{path}ws://0");
            let far = Listening::new(&["--listen", &between, "--to", &to, cap[0], cap[1]]);
            let listen = format!("{listen}?framing={framing}");
            let between = format!("{path}{}", far.address);
            let near = Listening::new(&["--listen", &listen, "--to", &between, cap[0], cap[1]]);
            // Fragments have no word for the end of one direction.
            let output = match path {
                "" => converse(&near.address, &input),
                _ => echoed(&near.address, &input),
            };
            assert!(
                output == input,
                "{framing} {listen} {to}: {} of {} bytes",
                output.len(),
                input.len()
            );
        }
    }
}

/// Not every program of lines speaks JSON-RPC.
#[test]
fn a_tunnel_cuts_any_text() {
    let cap = ["--max-frame", "100KB"];
    let far = Listening::new(&["--listen", "ws://0", "--to", "exec:cat", cap[0], cap[1]]);
    let near = ["--listen", "stdio:", "--to", &far.address, cap[0], cap[1]];
    let mut input = Vec::new();
    for size in [10, 300_000, 10] {
        input.extend_from_slice(format!("{{\"frame\":\"{}\"}}\n", "ä".repeat(size)).as_bytes());
        input.extend_from_slice(format!("plain text {}\n", "x".repeat(size)).as_bytes());
    }
    let output = run(gateway(&near), input.clone());
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(output.stdout == input, "not byte for byte");
}

/// The bridge is on another machine, behind a capped path; its host takes `breakbulk gateway` for it.
#[test]
fn a_tywrap_host_has_its_bridge_behind_two_gateways() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = folder.path().join("bridge.py");
    std::fs::write(&bridge, breakbulk::tywrap::python::SOURCE).unwrap();
    let to = format!(
        "exec:env TYWRAP_TRANSPORT_CHUNKING=1 python3 -u {} --tywrap-max-frame-bytes 1048576",
        bridge.display()
    );
    let cap = ["--max-frame", "100KB"];
    let far = Listening::new(&["--listen", "ws://0", "--to", &to, cap[0], cap[1]]);
    let program = env!("CARGO_BIN_EXE_breakbulk");
    let host = format!(
        "tywrap+exec:{program} gateway --listen stdio: --to {} --max-frame 100KB",
        far.address
    );
    // The result is three frames of the bridge, each over the cap.
    let mut call = std::process::Command::new(program);
    call.args(["call", &host, "operator", "mul", "\"0123456789\"", "250000"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let output = run(call, Vec::new());
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let expected = format!("\"{}\"\n", "0123456789".repeat(250_000));
    assert!(
        output.stdout == expected.as_bytes(),
        "{} bytes",
        output.stdout.len()
    );
}

#[test]
fn bytes_need_a_gateway_at_the_other_end_of_a_websocket() {
    let plain = Listening::new(&["--listen", "whole+ws://0", "--to", "exec:cat"]);
    let to = plain.address.clone();
    let output = run(
        gateway(&["--listen", "stdio:?framing=ipc", "--to", &to]),
        Vec::new(),
    );
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    let words = "is no breakbulk gateway";
    assert!(said(&output).contains(words), "{}", said(&output));
    let to = format!("{to}?tunnel=never");
    let output = run(
        gateway(&["--listen", "stdio:?framing=ipc", "--to", &to]),
        Vec::new(),
    );
    let words = "stdio: with framing=ipc carries bytes, and ws: with tunnel=never carries text (JSON-RPC); use ws://HOST:PORT of a gateway with stdio: with framing=ipc, or ws://HOST:PORT with ws: with tunnel=never";
    assert!(said(&output).contains(words), "{}", said(&output));
}

// STREAM-1
#[test]
fn a_client_that_ends_its_output_still_gets_its_answers() {
    // The answers come only when the input has ended.
    let near = Listening::new(&["--listen", "tcp://0", "--to", "exec:sort"]);
    let output = converse(&near.address, b"{\"b\":1}\n{\"a\":1}\n");
    assert_eq!(String::from_utf8_lossy(&output), "{\"a\":1}\n{\"b\":1}\n");
    near.line("the command exited with status 0");
}

#[test]
fn each_client_of_a_socket_has_a_session_of_its_own() {
    let far = Listening::new(&["--listen", "tcp://0", "--to", "exec:sh -c 'echo $$; cat'"]);
    let (one, two) = (
        converse(&far.address, b"{}\n"),
        converse(&far.address, b"{}\n"),
    );
    assert!(one != two && one.ends_with(b"\n{}\n"), "{one:?} {two:?}");
}

#[test]
fn a_message_that_is_too_large_is_answered_and_the_rest_goes_on() {
    let near = Listening::new(&[
        "--listen",
        "tcp://0",
        "--to",
        // Each request becomes its own answer.
        r#"exec:sed -u 's/"method":"m","params"/"result"/'"#,
        "--max-message",
        "10KB",
    ]);
    let input = requests(&[10, 20_000, 10]);
    let output = String::from_utf8(converse(&near.address, &input)).unwrap();
    let mut found: Vec<_> = output.lines().collect();
    found.sort_unstable_by_key(|line| line.find("id").map(|at| &line[at..at + 5]));
    assert_eq!(found.len(), 3, "{output}");
    assert!(found[0].contains(r#""id":0,"result""#), "{output}");
    assert!(
        found[1].contains(r#""id":1,"error":{"code":-32011"#) && found[1].contains("max-message"),
        "{output}"
    );
    assert!(found[2].contains(r#""id":2,"result""#), "{output}");
}

// STREAM-2
#[test]
fn an_ipc_frame_over_the_limit_ends_the_stream() {
    let near = Listening::new(&[
        "--listen",
        "tcp://0?framing=ipc",
        "--to",
        // The command says when its input ends.
        "exec:sh -c 'cat; echo the input ended >&2'?framing=ipc",
        "--max-message",
        "10KB",
    ]);
    let small = ipc(&[5000]);
    let mut socket = connect(&near.address);
    socket.write_all(&small).unwrap();
    let mut back = vec![0; small.len()];
    socket.read_exact(&mut back).unwrap();
    assert!(back == small, "not byte for byte");
    // The header alone: nothing is buffered for what it announces.
    socket.write_all(&ipc(&[20_000])[..13]).unwrap();
    let mut rest = Vec::new();
    socket.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty(), "{rest:?}");
    drop(socket);
    let (mut is_told, mut has_ended) = (false, false);
    while !(is_told && has_ended) {
        let line = near.line("");
        is_told |= line.contains("a frame of 20013 bytes (ipc) is over 10000");
        has_ended |= line.contains("the input ended");
    }
}

// STREAM-3
#[test]
fn a_web_page_cannot_speak_to_a_stream() {
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"run"}"#;
    for (framing, head) in [
        (
            "lines",
            "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".to_owned(),
        ),
        // The path makes a header of the first line, and the browser writes the right length.
        (
            "content-length",
            format!(
                "POST /x:y HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {}\r\n\r\n",
                body.len()
            ),
        ),
        (
            "ipc",
            "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".to_owned(),
        ),
    ] {
        let (listen, to) = (
            format!("tcp://0?framing={framing}"),
            format!("exec:cat?framing={framing}"),
        );
        let near = Listening::new(&["--listen", &listen, "--to", &to]);
        let output = converse(&near.address, format!("{head}{body}\n").as_bytes());
        let output = String::from_utf8_lossy(&output);
        assert!(output.is_empty(), "{framing}: {output}");
        near.line("the other end speaks HTTP");
    }
}

// STREAM-5
#[test]
fn a_stream_beyond_this_machine_needs_consent() {
    let output = run(
        gateway(&["--listen", "tcp://0.0.0.0:0", "--to", "exec:cat"]),
        Vec::new(),
    );
    assert_eq!(output.status.code(), Some(2));
    let said = said(&output);
    assert!(
        said.contains("a stream has no token") && said.contains("--allow-remote"),
        "{said}"
    );
    let far = Listening::new(&[
        "--listen",
        "tcp://0.0.0.0:0",
        "--to",
        "exec:cat",
        "--allow-remote",
    ]);
    assert!(far.address.starts_with("tcp://0.0.0.0:"), "{}", far.address);
}

#[test]
fn sessions_of_a_stream_are_limited_and_their_places_come_back() {
    let near = Listening::new(&[
        "--listen",
        "tcp://0",
        "--to",
        "exec:cat",
        "--max-sessions",
        "1",
    ]);
    let mut first = connect(&near.address);
    first.write_all(b"{}\n").unwrap();
    first.read_exact(&mut [0; 3]).unwrap();
    let mut refused = Vec::new();
    // A reset is an end, too.
    let _ = connect(&near.address).read_to_end(&mut refused);
    assert!(refused.is_empty());
    near.line("all 1 connections are in use");
    drop(first);
    near.line("the command exited with status 0");
    let again = || {
        let mut socket = connect(&near.address);
        let mut back = [0; 3];
        socket.write_all(b"{}\n").is_ok() && socket.read_exact(&mut back).is_ok()
    };
    let served = (0..200).any(|_| {
        let served = again();
        if !served {
            std::thread::sleep(Duration::from_millis(20));
        }
        served
    });
    assert!(served, "its place does not come back");
}

#[test]
fn a_target_that_is_not_there_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("tcp://{}", listener.local_addr().unwrap());
    drop(listener);
    for (to, words) in [
        (nobody.as_str(), "connection refused: nothing listens there"),
        ("unix:/nowhere/s", "there is no such socket"),
    ] {
        for listen in ["stdio:", "tcp://0"] {
            let output = run(gateway(&["--listen", listen, "--to", to]), Vec::new());
            assert_eq!(output.status.code(), Some(2), "{}", said(&output));
            let said = said(&output);
            assert!(said.contains(to) && said.contains(words), "{said}");
        }
    }
}

#[test]
fn a_unix_socket_goes_with_its_gateway_and_is_for_its_user() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let address = format!("unix:{}", path.display());
    let mut near = Listening::new(&["--listen", &address, "--to", "exec:cat"]);
    assert_eq!(near.address, address);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(converse(&address, b"{}\n"), b"{}\n");
    near.signal("-TERM");
    assert_eq!(near.exit_code(), Some(0));
    assert!(!path.exists(), "the file stays behind");
}

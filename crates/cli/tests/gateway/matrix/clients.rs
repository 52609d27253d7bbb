//! The programs that connect to a listener, and what they say.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use super::targets::Started;
use super::{CAP, Message};
use crate::common::{Listening, Near, PATIENCE, run, said};
use crate::http::wire;

/// Two messages within the cap of the path, and one beyond it.
const SIZES: [usize; 3] = [10, 11, 300_000];

/// How a listener is reached.
pub(crate) enum Client {
    /// By the pipes of the gateway itself.
    Pipes,
    /// By its socket.
    Socket,
    /// By another gateway with this wire before its address, or by `loro` for documents.
    Gateway(&'static str),
    /// By POSTs of an MCP client.
    Posts,
    /// By `loro push` and `loro pull`, with each of these transports (none: WebSocket).
    Loro(&'static [&'static str]),
}

impl Client {
    /// Starts the gateway and sends a small and a large message through it.
    pub(crate) fn check(&self, name: &str, listen: &str, target: &Started, message: Message) {
        let arguments = [
            "--listen",
            listen,
            "--to",
            &target.endpoint,
            "--max-frame",
            CAP,
        ];
        if let Self::Pipes = self {
            let mut near = Near::new(&arguments);
            let (stdin, stdout) = (near.stdin.take().unwrap(), &mut near.stdout);
            return exchange(name, stdin, stdout, message);
        }
        let listening = Listening::new(&arguments);
        let address = listening.address.as_str();
        match (self, message) {
            (Self::Socket, _) => match address.strip_prefix("unix:") {
                Some(path) => {
                    let mut reader = UnixStream::connect(path).unwrap();
                    reader.set_read_timeout(Some(PATIENCE)).unwrap();
                    let writer = reader.try_clone().unwrap();
                    exchange(name, writer, &mut reader, message);
                }
                None => {
                    let address = address.strip_prefix("tcp://").unwrap();
                    let mut reader = TcpStream::connect(address).unwrap();
                    reader.set_read_timeout(Some(PATIENCE)).unwrap();
                    let writer = reader.try_clone().unwrap();
                    exchange(name, writer, &mut reader, message);
                }
            },
            (Self::Loro(transports), _) => std::thread::scope(|scope| {
                for transport in *transports {
                    let name = format!("{name} by {transport:?}");
                    let direct = target.documents.as_deref().unwrap_or_default();
                    scope.spawn(move || documents(&name, address, transport, direct));
                }
            }),
            (_, Message::Loro) => {
                let direct = target.documents.as_deref().unwrap_or_default();
                documents(name, address, "", direct);
            }
            (Self::Gateway(wire), _) => {
                let framing = match message {
                    Message::Bytes => "ipc",
                    _ => "lines",
                };
                let listen = format!("stdio:?framing={framing}");
                let to = format!("{wire}{address}");
                let mut near = Near::new(&["--listen", &listen, "--to", &to, "--max-frame", CAP]);
                let (stdin, stdout) = (near.stdin.take().unwrap(), &mut near.stdout);
                exchange(name, stdin, stdout, message);
            }
            (Self::Posts, _) => posts(name, address),
            (Self::Pipes, _) => unreachable!("it has no address"),
        }
    }
}

/// Says a small and a large message one after the other, and hears each of them back.
fn exchange(
    name: &str,
    mut writer: impl Write + Send + 'static,
    reader: &mut impl Read,
    message: Message,
) {
    let mut reader = BufReader::new(reader);
    for (number, size) in SIZES.into_iter().enumerate() {
        let (sent, expected) = match message {
            Message::Text => request(number, size),
            _ => frame(size),
        };
        // From a thread, so that no pipe fills up.
        let writing = std::thread::spawn(move || {
            writer.write_all(&sent).unwrap();
            writer.flush().unwrap();
            writer
        });
        let mut heard = Vec::new();
        let read = match message {
            Message::Text => reader.read_until(b'\n', &mut heard).map(drop),
            _ => {
                heard.resize(expected.len(), 0);
                reader.read_exact(&mut heard)
            }
        };
        if let Err(error) = read {
            panic!("{name}: a message of {size} bytes did not come back: {error}");
        }
        assert!(
            heard.starts_with(&expected),
            "{name}: {size} bytes came back as {}…",
            String::from_utf8_lossy(&heard[..heard.len().min(300)])
        );
        writer = writing.join().unwrap();
    }
}

/// Posts a small and a large message one after the other, and gets each of them back.
fn posts(name: &str, address: &str) {
    let mut session = None;
    for (number, size) in SIZES.into_iter().enumerate() {
        let (sent, expected) = request(number, size);
        let sent = String::from_utf8(sent).unwrap();
        let answer = wire::post(address, session.as_deref(), sent.trim_end());
        assert_eq!(answer.status, 200, "{name}: {size} bytes");
        if let Some(id) = answer.header("mcp-session-id") {
            session = Some(id.to_owned());
        }
        let answer = answer.json();
        let expected = format!("{}}}}}", String::from_utf8(expected).unwrap());
        let expected: serde_json::Value = serde_json::from_str(&expected).unwrap();
        assert_eq!(answer["id"], expected["id"], "{name}: {size} bytes");
        let (back, expected) = (&answer["result"]["t"], &expected["result"]["t"]);
        assert!(
            back == expected,
            "{name}: {size} bytes are not what came back"
        );
    }
}

/// A request, and the beginning of its answer: at relays it has a progress token behind that.
fn request(id: usize, size: usize) -> (Vec<u8>, Vec<u8>) {
    // The first one begins a session where MCP is spoken over HTTP.
    let (method, further) = match id {
        0 => ("initialize", r#","protocolVersion":"2025-06-18""#),
        _ => ("echo", ""),
    };
    let text = "x".repeat(size);
    let request = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{{\"t\":\"{text}\"{further}}}}}\n"
    );
    let answer = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"t\":\"{text}\"");
    (request.into_bytes(), answer.into_bytes())
}

/// A frame, which comes back as it is.
fn frame(size: usize) -> (Vec<u8>, Vec<u8>) {
    let mut frame = vec![1, 0, 0, 0, 1, 0, 0, 0, 0];
    frame.extend_from_slice(&(size as u32).to_be_bytes());
    frame.extend((0..size).map(|n| (n * 7 + n / 256) as u8));
    (frame.clone(), frame)
}

/// Pushes a small and a large document through the gateway, and pulls others through it.
fn documents(name: &str, address: &str, transport: &str, direct: &str) {
    let address = address
        .strip_prefix("loro+http://")
        .or_else(|| address.strip_prefix("ws://"))
        .unwrap_or_else(|| panic!("{name}: {address}"));
    let through = match transport {
        "" => format!("ws://{address}/ws"),
        transport => format!("http://{address}?transport={transport}"),
    };
    for size in [10, 300_000] {
        let json = format!("{{\"text\":\"{}\"}}", "ab".repeat(size));
        for (from, to) in [(through.as_str(), direct), (direct, &through)] {
            let id = format!("{transport}{size}{}", from == through);
            loro(name, &["push", from, &id], &json);
            let pulled = loro(name, &["pull", to, &id], "");
            let pulled: serde_json::Value = serde_json::from_str(&pulled).unwrap();
            let expected: serde_json::Value = serde_json::from_str(&json).unwrap();
            assert!(pulled == expected, "{name}: {size}: not what was pushed");
        }
    }
}

/// Runs a command of `breakbulk loro`; returns what it prints.
fn loro(name: &str, arguments: &[&str], input: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_breakbulk"));
    command
        .arg("loro")
        .args(arguments)
        .env_remove("BREAKBULK_TOKEN")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let output = run(command, input.as_bytes().to_vec());
    let said = said(&output);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{name}: {arguments:?}: {said}"
    );
    String::from_utf8(output.stdout).unwrap()
}

//! The listeners that crowds come to: how each is started, what a hostile client sends to it, and how an honest
//! client asks it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::LazyLock;

use breakbulk::loro::crdt::{LoroDoc, ToJson};
use breakbulk::message::loro::{
    ChannelMsg, PeerIdentity, PeerType, Transmission, VersionVector, decode_frame, encode_frame,
};

use super::Habit;
use crate::common::{PATIENCE, Server, program};
use crate::raw::{PING, frame, read_frame, read_frame_of, request, skip_head, with_opcode};

/// What a hostile client sends, cut off or in drips.
const SHORT: usize = 5_000;

/// The texts of the documents of a sync server. Honest clients ask for the first two, each of which fits into a
/// frame (a snapshot has its text twice); the crowd asks for the last one.
const DOCUMENTS: [usize; 3] = [1_000, 40_000, 200_000];

/// The command behind an MCP listener, which answers a request with the same text as a result. `sed -u` would do,
/// but it reads single bytes: a request of 40 KB takes it 11 ms.
const ANSWERS: &str = r#"exec:stdbuf -oL sed 's/"method":"[a-z]*","params"/"result"/'"#;

/// 64 batches that never become whole: made once, since making them takes longer than what a server does with them.
static BATCHES: LazyLock<Vec<u8>> = LazyLock::new(|| (0..64).flat_map(batch).collect());

#[derive(Clone, Copy, Debug)]
pub(super) enum Listener {
    /// Messages in WebSockets, to a command.
    WebSocket,
    /// Lines over TCP, to a command.
    Stream,
    /// MCP over HTTP, to a command.
    Http,
    /// A sync server.
    Documents,
}

/// An honest client: asks once, with a request of this id and size, and checks the answer.
pub(super) type Honest = Box<dyn FnMut(usize, usize)>;

impl Listener {
    /// Starts the program for so many clients.
    pub(super) fn start(self, clients: usize, memory: usize) -> Server {
        let (arguments, places): (&[&str], _) = match self {
            Self::WebSocket => (
                &["gateway", "--listen", "whole+ws://0", "--to", "exec:cat"],
                "--max-sessions",
            ),
            Self::Stream => (
                &[
                    "gateway",
                    "--listen",
                    "tcp://127.0.0.1:0",
                    "--to",
                    "exec:cat",
                ],
                "--max-sessions",
            ),
            Self::Http => (
                &["gateway", "--listen", "http://0/mcp", "--to", ANSWERS],
                "--max-sessions",
            ),
            Self::Documents => (
                &["loro", "serve", "--listen", "127.0.0.1:0"],
                "--max-connections",
            ),
        };
        let (memory, clients) = (memory.to_string(), clients.to_string());
        let mut limits = vec![
            "--memory",
            &memory,
            "--max-message",
            "1MiB",
            places,
            &clients,
        ];
        if !matches!(self, Self::Stream) {
            limits.extend(["--trust-proxy", "x-forwarded-for"]);
            limits.extend(["--rate-per-address", "1000"]);
        }
        let server = Server::start(&mut program(arguments, &limits));
        if matches!(self, Self::Documents) {
            for size in DOCUMENTS {
                push(&server, &size.to_string(), size);
            }
        }
        server
    }

    /// A hostile client from this address; `None` if it is refused.
    pub(super) fn connect(self, server: &Server, address: &str) -> Option<TcpStream> {
        let (status, mut socket) = match self {
            Self::WebSocket => server.web_socket("/", &forwarded(address)),
            Self::Documents => server.web_socket("/ws", &forwarded(address)),
            Self::Stream | Self::Http => return Some(server.connect()),
        };
        (status == 101).then(|| {
            skip_head(&mut socket);
            socket
        })
    }

    /// What a hostile client sends, again and again, after so many bytes on its connection; `even`: one half of
    /// the bombs.
    pub(super) fn attack(self, habit: Habit, address: &str, even: bool, sent: usize) -> Vec<u8> {
        match (self, habit) {
            (Self::WebSocket, Habit::NeverReads | Habit::SendsAtOnce) => {
                frame(&request(0, 200_000))
            }
            (Self::WebSocket, Habit::Drips | Habit::Leaves) => frame(&request(0, SHORT)),
            (Self::Stream, Habit::NeverReads | Habit::SendsAtOnce) => line(0, 200_000),
            (Self::Stream, Habit::Drips | Habit::Leaves) => line(0, SHORT),
            // A line without an end.
            (Self::Stream, Habit::Bombs) => vec![b' '; 1 << 16],
            (Self::Http, Habit::NeverReads | Habit::SendsAtOnce) => {
                post(address, "", &call(0, 200_000))
            }
            (Self::Http, Habit::Drips | Habit::Leaves) => post(address, "", &call(0, SHORT)),
            (Self::Http, Habit::Bombs) if even => {
                let head = head(address, "");
                format!("{head}Content-Length: {}\r\n\r\n[[[[[[[[", 1_u64 << 40).into_bytes()
            }
            // Chunks without an end, of a body that opens brackets and closes none.
            (Self::Http, Habit::Bombs) => {
                let head = head(address, "Transfer-Encoding: chunked\r\n");
                let chunk = format!("ffff\r\n{}\r\n", "[".repeat(0xffff));
                format!("{head}\r\n{}", chunk.repeat(40)).into_bytes()
            }
            (Self::Documents, Habit::NeverReads | Habit::SendsAtOnce) => [
                Sync::bytes(&establish("7")),
                Sync::bytes(&sync_request(&DOCUMENTS[2].to_string())).repeat(20),
            ]
            .concat(),
            (Self::Documents, Habit::Drips | Habit::Leaves) => {
                with_opcode(2, &[&[0][..], &[0; SHORT]].concat())
            }
            (_, Habit::Bombs) if even => [
                &[0x82, 0x80 | 127],
                &(1_u64 << 40).to_be_bytes()[..],
                &[0; 64],
            ]
            .concat(),
            (Self::WebSocket, Habit::Bombs) => unfinished(sent == 0),
            // Batches of a declared size that never become whole, each with some of its pieces.
            (Self::Documents, Habit::Bombs) => BATCHES.clone(),
        }
    }

    /// An honest client, who is connected.
    pub(super) fn honest(self, server: &Server) -> Honest {
        let address = "198.51.100.1";
        match self {
            Self::WebSocket => {
                let (status, mut socket) = server.web_socket("/", &forwarded(address));
                assert_eq!(status, 101, "{}", server.log());
                skip_head(&mut socket);
                Box::new(move |id, size| {
                    let text = request(id, size);
                    socket.write_all(&frame(&text)).unwrap();
                    assert!(read_frame(&mut socket) == text.as_bytes(), "request {id}");
                })
            }
            Self::Stream => {
                let mut socket = BufReader::new(server.connect());
                Box::new(move |id, size| {
                    let line = line(id, size);
                    socket.get_mut().write_all(&line).unwrap();
                    let mut answer = Vec::new();
                    socket.read_until(b'\n', &mut answer).unwrap();
                    assert!(answer == line, "request {id}");
                })
            }
            Self::Http => {
                let (socket, session) = begin(server, address);
                let mut socket = BufReader::new(socket);
                Box::new(move |id, size| {
                    let more = format!("Mcp-Session-Id: {session}\r\n");
                    let post = post(address, &more, &call(id, size));
                    socket.get_mut().write_all(&post).unwrap();
                    let answer = answer(&mut socket);
                    let result = call(id, size).replace(r#""method":"m","params""#, r#""result""#);
                    assert!(answer.contains(&result), "request {id}: {answer:.300}");
                })
            }
            Self::Documents => {
                let mut sync = Sync::open(server, address);
                Box::new(move |id, size| {
                    let size = if size > DOCUMENTS[0] {
                        DOCUMENTS[1]
                    } else {
                        DOCUMENTS[0]
                    };
                    let text = sync.fetch(&size.to_string());
                    assert!(text == noise(size), "request {id}");
                })
            }
        }
    }
}

fn forwarded(address: &str) -> String {
    format!("X-Forwarded-For: {address}\r\n")
}

fn line(id: usize, size: usize) -> Vec<u8> {
    format!("{}\n", request(id, size)).into_bytes()
}

/// Fragments of a message whose last one never comes: more than a message may have.
fn unfinished(is_first: bool) -> Vec<u8> {
    let fragment = [&[0, 0x80 | 126, 0xff, 0xff][..], &[0; 4 + 65_535]].concat();
    let mut fragments = fragment.repeat(20);
    fragments[0] = u8::from(is_first);
    fragments
}

fn head(address: &str, more: &str) -> String {
    let forwarded = forwarded(address);
    format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\n{forwarded}Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n{more}"
    )
}

fn post(address: &str, more: &str, body: &str) -> Vec<u8> {
    let head = head(address, more);
    let length = body.len();
    format!("{head}Content-Length: {length}\r\n\r\n{body}").into_bytes()
}

/// The first one begins a session, as every hostile client does with each request.
fn call(id: usize, size: usize) -> String {
    let fill = "x".repeat(size);
    let method = if id == 0 { "initialize" } else { "m" };
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"fill":"{fill}"}}}}"#)
}

/// Begins a session, and returns its name.
fn begin(server: &Server, address: &str) -> (TcpStream, String) {
    let mut socket = server.connect();
    socket.write_all(&post(address, "", &call(0, 10))).unwrap();
    let mut reader = BufReader::new(socket);
    let mut session = None;
    loop {
        let mut line = String::new();
        assert!(reader.read_line(&mut line).unwrap() > 0, "{}", server.log());
        let lower = line.to_ascii_lowercase();
        if lower.starts_with("mcp-session-id:") {
            session = Some(line["mcp-session-id:".len()..].trim().to_owned());
        }
        if line == "\r\n" {
            break;
        }
    }
    // The rest of this answer is left with its connection.
    let session = session.unwrap_or_else(|| panic!("no session: {}", server.log()));
    (server.connect(), session)
}

/// The body of an answer on a connection that stays open.
fn answer(socket: &mut BufReader<TcpStream>) -> String {
    let (mut length, mut chunked) = (0, false);
    loop {
        let mut line = String::new();
        assert!(socket.read_line(&mut line).unwrap() > 0, "it was closed");
        let line = line.trim().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        chunked |= line == "transfer-encoding: chunked";
        if line.is_empty() {
            break;
        }
    }
    let mut body = Vec::new();
    loop {
        if chunked {
            let mut size = String::new();
            socket.read_line(&mut size).unwrap();
            length = usize::from_str_radix(size.trim(), 16).unwrap();
        }
        let begin = body.len();
        body.resize(begin + length, 0);
        socket.read_exact(&mut body[begin..]).unwrap();
        if chunked {
            socket.read_line(&mut String::new()).unwrap();
        }
        if !chunked || length == 0 {
            break;
        }
    }
    String::from_utf8(body).unwrap()
}

fn establish(peer: &str) -> ChannelMsg {
    let identity = PeerIdentity {
        peer_id: peer.into(),
        name: None,
        kind: PeerType::User,
    };
    ChannelMsg::EstablishRequest { identity }
}

fn sync_request(doc: &str) -> ChannelMsg {
    ChannelMsg::SyncRequest {
        doc_id: doc.into(),
        requester_doc_version: VersionVector::new(),
        bidirectional: Some(false),
        ephemeral: None,
    }
}

/// The header of a batch of 1 MB in ten pieces, and one of them.
fn batch(number: u64) -> Vec<u8> {
    let key = number.to_be_bytes();
    let header = [
        &[1][..],
        &key,
        &10_u32.to_be_bytes(),
        &1_000_000_u32.to_be_bytes(),
    ];
    let piece = [&[2][..], &key, &0_u32.to_be_bytes(), &[0; 100_000]];
    [
        with_opcode(2, &header.concat()),
        with_opcode(2, &piece.concat()),
    ]
    .concat()
}

/// An honest client of a sync server.
struct Sync {
    socket: TcpStream,
}

impl Sync {
    fn open(server: &Server, address: &str) -> Self {
        let (status, mut socket) = server.web_socket("/ws", &forwarded(address));
        assert_eq!(status, 101, "{}", server.log());
        skip_head(&mut socket);
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut sync = Self { socket };
        sync.say(&establish(&address.replace('.', "")));
        sync
    }

    /// A message in a frame of its own.
    fn bytes(message: &ChannelMsg) -> Vec<u8> {
        let message = encode_frame(message).unwrap();
        with_opcode(2, &[&[0], &message[..]].concat())
    }

    fn say(&mut self, message: &ChannelMsg) {
        self.socket.write_all(&Self::bytes(message)).unwrap();
    }

    /// The next message that is not in pieces.
    fn hear(&mut self) -> ChannelMsg {
        loop {
            let (opcode, payload) = read_frame_of(&mut self.socket);
            if opcode == PING {
                continue;
            }
            assert!(opcode < 8, "closed: {}", String::from_utf8_lossy(&payload));
            if opcode == 2 && payload[0] == 0 {
                return decode_frame(payload[1..].to_vec().into())
                    .unwrap()
                    .remove(0);
            }
        }
    }

    /// Asks for a document, and waits until all of it has come.
    fn fetch(&mut self, name: &str) -> String {
        self.say(&sync_request(name));
        loop {
            let ChannelMsg::SyncResponse {
                doc_id,
                transmission: Transmission::Snapshot { data, .. },
                ..
            } = self.hear()
            else {
                continue;
            };
            if doc_id == name {
                let doc = LoroDoc::new();
                doc.import(&data).unwrap();
                return doc.get_deep_value().to_json_value()["text"]
                    .as_str()
                    .unwrap()
                    .to_owned();
            }
        }
    }
}

/// Letters and digits that do not compress.
fn noise(size: usize) -> String {
    let mut state = 7_u64;
    let letters = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        char::from_digit((state >> 33) as u32 % 36, 36).unwrap()
    });
    letters.take(size).collect()
}

/// Makes a document of the server with a text of this size.
fn push(server: &Server, name: &str, size: usize) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("text.json").display().to_string();
    std::fs::write(&file, format!(r#"{{"text":"{}"}}"#, noise(size))).unwrap();
    let url = format!("ws://{}/ws", server.address);
    let output = program(&["loro", "push", &url, name, &file], &[]).output();
    assert!(output.unwrap().status.success(), "{}", server.log());
}

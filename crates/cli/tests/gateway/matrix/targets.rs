//! The programs behind a target: each request of text becomes its own answer, bytes come back as they are.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::{CAP, Message, Scene};
use crate::common::Listening;

/// Each request becomes its own answer.
const ANSWER: &str = r#"exec:sed -u 's/"method":"[a-z]*","params"/"result"/'"#;

/// What a target is.
pub(crate) enum Target {
    /// A command.
    Exec,
    /// A server at a TCP socket.
    Tcp,
    /// A server at a Unix socket.
    Unix,
    /// A gateway before a command, reached with this wire; for documents `loro serve`.
    Gateway(&'static str),
    /// A gateway before a command, which listens at such an endpoint and is reached at the same.
    Listening(&'static str),
    /// `loro serve`, by each of these transports.
    Loro(&'static [&'static str]),
    /// A gateway at relays before a command.
    Relays,
}

/// A target that runs.
pub(crate) struct Started {
    pub(crate) endpoint: String,
    /// Where its documents are, for commands that do not go through the gateway.
    pub(crate) documents: Option<String>,
    _gateway: Option<Listening>,
    _server: Option<Server>,
}

impl Started {
    fn at(endpoint: String) -> Self {
        Self {
            endpoint,
            documents: None,
            _gateway: None,
            _server: None,
        }
    }
}

impl Target {
    /// Starts it: one for each way by which it is reached.
    pub(crate) fn start(&self, scene: &Scene, message: Message) -> Vec<Started> {
        let (command, option) = match message {
            Message::Bytes => ("exec:cat?framing=ipc", "?framing=ipc"),
            _ => (ANSWER, ""),
        };
        let by_gateway = |listen: &str, wire: &str| {
            let far = Listening::new(&["--listen", listen, "--to", command, "--max-frame", CAP]);
            Started {
                endpoint: format!("{wire}{}", far.address),
                _gateway: Some(far),
                ..Started::at(String::new())
            }
        };
        match self {
            Self::Exec => vec![Started::at(command.to_owned())],
            Self::Tcp => vec![Started::at(format!("{}{option}", tcp(message)))],
            Self::Unix => vec![Started::at(format!("{}{option}", unix(scene, message)))],
            Self::Gateway("loro+") if message == Message::Loro => {
                let server = Server::start();
                let endpoint = format!("loro+ws://{}/ws", server.address);
                vec![server.reached(endpoint)]
            }
            Self::Gateway(wire) => vec![by_gateway(&format!("{wire}ws://0"), wire)],
            Self::Listening(form) => vec![by_gateway(&scene.endpoint(form), "")],
            Self::Loro(transports) => {
                let each = transports.iter().map(|transport| {
                    let server = Server::start();
                    let endpoint = format!("loro+http://{}?transport={transport}", server.address);
                    server.reached(endpoint)
                });
                each.collect()
            }
            Self::Relays => {
                // A key of its own, since a pair may have relays at both ends.
                let key = scene.folder.path().join("far-key");
                if !key.exists() {
                    keygen(&key);
                }
                let listen = scene.endpoint("cep22+nostr:RELAY?key=FOLDER/far-key");
                vec![by_gateway(&listen, "")]
            }
        }
    }
}

/// Makes a key.
pub(crate) fn keygen(path: &Path) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_breakbulk"));
    let made = command.arg("keygen").arg(path).output().unwrap();
    assert_eq!(made.status.code(), Some(0), "{made:?}");
}

fn tcp(message: Message) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            std::thread::spawn(move || serve(&stream, &stream, message));
        }
    });
    address
}

fn unix(scene: &Scene, message: Message) -> String {
    let path = scene.folder.path().join("target");
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            std::thread::spawn(move || serve(&stream, &stream, message));
        }
    });
    format!("unix:{}", path.display())
}

fn serve(mut reader: impl Read, mut writer: impl Write, message: Message) {
    if message == Message::Bytes {
        let _ = std::io::copy(&mut reader, &mut writer);
        return;
    }
    for line in BufReader::new(reader).lines() {
        let Ok(line) = line else { return };
        let answer = line
            .replace("\"method\":\"initialize\",\"params\"", "\"result\"")
            .replace("\"method\":\"echo\",\"params\"", "\"result\"");
        if writeln!(writer, "{answer}").is_err() {
            return;
        }
    }
}

/// `loro serve`, ended with the test.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start() -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_breakbulk"))
            .args(["loro", "serve", "--listen", "127.0.0.1:0"])
            .env_remove("BREAKBULK_TOKEN")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = loop {
            let line = lines.next().unwrap().unwrap();
            let found = line.split("ws://").nth(1);
            if let Some(address) = found.and_then(|rest| rest.split("/ws").next()) {
                break address.to_owned();
            }
        };
        // Read on: otherwise the pipe would fill up and block the server.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address }
    }

    fn reached(self, endpoint: String) -> Started {
        Started {
            documents: Some(format!("ws://{}/ws", self.address)),
            _server: Some(self),
            ..Started::at(endpoint)
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

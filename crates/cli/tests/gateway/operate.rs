//! The gateway as its operators meet it: a file of routes, signals, systemd.

mod admin;
mod notify;
mod packaging;
mod reload;
mod stop;
mod wrong;

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use crate::common::{Listening, PATIENCE, gateway};

/// A folder with a file of routes, and the sockets of the routes.
struct Folder {
    folder: tempfile::TempDir,
}

impl Folder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn config(&self) -> PathBuf {
        self.path("gateway.toml")
    }

    /// Writes the file of routes. `$D` is this folder, and `$ANSWER` a server that answers.
    fn write(&self, text: &str) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gateway/operate/answer.py");
        let answer = format!("exec:python3 -u {}", script.display());
        let folder = self.folder.path().display().to_string();
        let text = text.replace("$ANSWER", &answer).replace("$D", &folder);
        std::fs::write(self.config(), text).unwrap();
    }

    /// A gateway with the file, once this many routes listen.
    fn start(&self, routes: usize) -> Listening {
        let config = self.config().display().to_string();
        let started = Listening::start(gateway(&["--config", &config]));
        for _ in 1..routes {
            started.line("listening on ");
        }
        started
    }
}

/// A client of a stream, line by line.
struct Client {
    reader: BufReader<Box<dyn std::io::Read + Send>>,
    writer: Box<dyn Write + Send>,
}

impl Client {
    fn unix(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            reader: BufReader::new(Box::new(stream.try_clone().unwrap())),
            writer: Box::new(stream),
        }
    }

    fn tcp(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            reader: BufReader::new(Box::new(stream.try_clone().unwrap())),
            writer: Box::new(stream),
        }
    }

    /// Asks for a text of this size.
    fn ask(&mut self, id: usize, size: usize) {
        let request =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m","params":{{"size":{size}}}}}"#);
        writeln!(self.writer, "{request}").unwrap();
    }

    /// Sends a line to a target that sends it back.
    fn echo(&mut self) {
        let line = "{\"jsonrpc\":\"2.0\",\"method\":\"hello\"}\n";
        self.writer.write_all(line.as_bytes()).unwrap();
        assert_eq!(self.line(), line);
    }

    /// The next line; empty at the end.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        line
    }

    /// Takes the answer to a request for a text of this size.
    fn answer(&mut self, id: usize, size: usize) {
        let text = "x".repeat(size);
        let expected = format!("{{\"jsonrpc\": \"2.0\", \"id\": {id}, \"result\": \"{text}\"}}\n");
        let line = self.line();
        let beginning: String = line.chars().take(100).collect();
        assert!(line == expected, "{} bytes: {beginning}", line.len());
    }
}

/// A target that sends back what it gets, to any number of clients, for as long as the test runs.
fn echo(path: &Path) {
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            std::thread::spawn(move || {
                let mut to = stream.try_clone().unwrap();
                let _ = std::io::copy(&mut &stream, &mut to);
            });
        }
    });
}

/// A port that nobody uses at the moment.
fn free_port() -> u16 {
    let socket = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    socket.local_addr().unwrap().port()
}

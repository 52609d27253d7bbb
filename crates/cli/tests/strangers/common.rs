//! The program as a server, and clients that speak raw HTTP to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// No test waits longer for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A server that is killed when it is dropped.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) address: String,
    log: Arc<Mutex<String>>,
}

impl Server {
    /// A gateway before `cat`.
    pub(crate) fn gateway(more: &[&str]) -> Self {
        let arguments = ["gateway", "--listen", "whole+ws://0", "--to", "exec:cat"];
        Self::start(&mut program(&arguments, more))
    }

    /// The same for MCP over HTTP.
    pub(crate) fn mcp(more: &[&str]) -> Self {
        let arguments = ["gateway", "--listen", "http://0/mcp", "--to", "exec:cat"];
        Self::start(&mut program(&arguments, more))
    }

    pub(crate) fn documents(more: &[&str]) -> Self {
        let arguments = ["loro", "serve", "--listen", "127.0.0.1:0"];
        Self::start(&mut program(&arguments, more))
    }

    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let log = Arc::new(Mutex::new(String::new()));
        let told = log.clone();
        std::thread::spawn(move || {
            let mut line = String::new();
            while stderr.read_line(&mut line).is_ok_and(|read| read > 0) {
                told.lock().unwrap().push_str(&line);
                line.clear();
            }
        });
        let mut server = Self {
            child,
            address: String::new(),
            log,
        };
        let line = server.line("://");
        let address = line.split("://").nth(1).unwrap();
        let end = address.find(['/', '\n', ' ']).unwrap_or(address.len());
        server.address = address[..end].to_owned();
        server
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits for a line of its log with these words.
    pub(crate) fn line(&self, words: &str) -> String {
        let since = Instant::now();
        loop {
            let log = self.log();
            if let Some(line) = log.lines().find(|line| line.contains(words)) {
                return line.to_owned();
            }
            assert!(since.elapsed() < PATIENCE, "no line with {words:?}: {log}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The most resident memory it had, in bytes.
    #[cfg(target_os = "linux")]
    pub(crate) fn peak_memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.unwrap().trim().strip_suffix(" kB").unwrap();
        kilobytes.parse::<usize>().unwrap() * 1024
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends a request and returns the status of the answer, and the socket.
    pub(crate) fn ask(&self, head: &str) -> (u16, TcpStream) {
        let mut stream = self.connect();
        // A server that is full may refuse before it has read all.
        let _ = stream.write_all(head.as_bytes());
        (status(&mut stream), stream)
    }

    /// A handshake with these further header lines.
    pub(crate) fn web_socket(&self, path: &str, headers: &str) -> (u16, TcpStream) {
        let address = &self.address;
        self.ask(&format!(
            "GET {path} HTTP/1.1\r\nHost: {address}\r\n{headers}{UPGRADE}\r\n"
        ))
    }
}

/// A POST that begins an MCP session.
pub(crate) const INITIALIZE: &str = "Host: localhost\r\nAccept: application/json, text/event-stream\r\nContent-Type: application/json\r\nContent-Length: 46\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\"}";

/// The header lines of a handshake.
pub(crate) const UPGRADE: &str = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// The status of an answer; 0 if the connection was closed without one.
pub(crate) fn status(stream: &mut TcpStream) -> u16 {
    let mut start = [0; 12];
    match stream.read_exact(&mut start) {
        Ok(()) => String::from_utf8_lossy(&start[9..]).parse().unwrap(),
        Err(_) => 0,
    }
}

pub(crate) fn program(arguments: &[&str], more: &[&str]) -> Command {
    // Another build of the program can be tested as well, for example an earlier one.
    let other = std::env::var_os("BREAKBULK_PROGRAM");
    let mut command = Command::new(other.unwrap_or(env!("CARGO_BIN_EXE_breakbulk").into()));
    command
        .args(arguments)
        .args(more)
        .env_remove("BREAKBULK_TOKEN")
        .env_remove("BREAKBULK_NOSTR_KEY");
    command
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

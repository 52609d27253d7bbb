//! Debian's `nats-server`, started and ended by the test that needs it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::PATIENCE;

/// A running `nats-server` with a small max_payload; it ends with the test.
pub(crate) struct NatsServer {
    child: Option<Child>,
    pub(crate) port: u16,
    /// The port at which the server can be monitored.
    monitor: u16,
    pub(crate) folder: tempfile::TempDir,
}

impl NatsServer {
    pub(crate) fn start(further: &str) -> Self {
        // Both at a time, so that they are different ones.
        let free = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [port, monitor] = free.map(|socket| socket.local_addr().unwrap().port());
        let folder = tempfile::tempdir().unwrap();
        let mut server = Self {
            child: None,
            port,
            monitor,
            folder,
        };
        server.configure(65_536, further);
        server.restart();
        server
    }

    /// Sets what it takes from its next start on.
    pub(crate) fn configure(&self, max_payload: usize, further: &str) {
        let config = format!("max_payload: {max_payload}\n{further}\n");
        std::fs::write(self.folder.path().join("nats.conf"), config).unwrap();
    }

    pub(crate) fn restart(&mut self) {
        self.stop();
        let child = Command::new("nats-server")
            .args(["-a", "127.0.0.1", "-p", &self.port.to_string()])
            .args(["-m", &self.monitor.to_string(), "-c"])
            .arg(self.folder.path().join("nats.conf"))
            .stderr(Stdio::null())
            .spawn()
            .expect("nats-server is installed (apt-get install nats-server)");
        self.child = Some(child);
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(begun.elapsed() < PATIENCE, "nats-server does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// The server alone, as an endpoint or a fleet names it.
    pub(crate) fn server(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// How many messages came to it so far.
    pub(crate) fn messages(&self) -> u64 {
        let mut stream = TcpStream::connect(("127.0.0.1", self.monitor)).unwrap();
        let request = "GET /varz HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        body["in_msgs"].as_u64().unwrap()
    }

    /// Waits until so many messages came to it.
    pub(crate) fn until(&self, enough: impl Fn(u64) -> bool) {
        let begun = Instant::now();
        while !enough(self.messages()) {
            assert!(begun.elapsed() < PATIENCE, "too few messages");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn url(&self, rest: &str) -> String {
        format!("nats://127.0.0.1:{}/{rest}", self.port)
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.stop();
    }
}

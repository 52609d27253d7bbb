//! Real NATS servers with JetStream, one or a cluster of several, that a test kills and starts again.
//!
//! Each has a directory of its own, which stays when it is killed, and ports of its own at 127.0.0.1. All
//! end with the [`NatsCluster`]. `BREAKBULK_FLEET_LOGS=DIR` keeps their logs there.

use std::io::Write;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// How long a server may take to listen.
const READY: Duration = Duration::from_secs(20);

/// Ports are taken from below those that the system gives to outgoing connections, so that a server that was
/// killed finds its own free again.
const PORTS: std::ops::Range<u16> = 15000..30000;

/// Running servers.
#[derive(Debug)]
pub struct NatsCluster {
    servers: Vec<NatsServer>,
    _directory: TempDir,
}

#[derive(Debug)]
struct NatsServer {
    child: Option<Child>,
    port: u16,
    config: PathBuf,
}

impl NatsCluster {
    /// Starts so many servers, with messages of at most `max_payload` bytes.
    ///
    /// # Panics
    /// If `nats-server` is not installed, or does not start.
    pub async fn start(count: usize, max_payload: usize) -> Self {
        #[allow(clippy::expect_used, reason = "it serves tests")]
        let directory = TempDir::new().expect("a temporary directory");
        let ports: Vec<(u16, u16)> = (0..count).map(|_| (free_port(), free_port())).collect();
        let routes = ports
            .iter()
            .map(|(_, route)| format!("nats://127.0.0.1:{route}"));
        let routes = routes.collect::<Vec<_>>().join(", ");
        let mut servers = Vec::new();
        for (number, (port, route)) in ports.iter().enumerate() {
            let config = directory.path().join(format!("{number}.conf"));
            let store = directory.path().join(number.to_string());
            let mut text = format!(
                "listen: 127.0.0.1:{port}\nserver_name: n{number}\nmax_payload: {max_payload}\n\
                 jetstream {{ store_dir: {store:?}, max_memory_store: 64MB, max_file_store: 4GB }}\n"
            );
            if let Some(logs) = std::env::var_os("BREAKBULK_FLEET_LOGS") {
                let log = PathBuf::from(logs).join(format!("nats-{port}.log"));
                text.push_str(&format!("log_file: {log:?}\ndebug: true\n"));
            }
            if count > 1 {
                text.push_str(&format!(
                    "cluster {{ name: test, listen: 127.0.0.1:{route}, routes: [{routes}] }}\n"
                ));
            }
            write(&config, &text);
            servers.push(NatsServer {
                child: None,
                port: *port,
                config,
            });
        }
        let mut cluster = Self {
            servers,
            _directory: directory,
        };
        for number in 0..count {
            cluster.spawn(number);
        }
        for number in 0..count {
            cluster.listening(number).await;
        }
        cluster
    }

    /// The number of servers, running or not.
    pub fn len(&self) -> usize {
        self.servers.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// Host and port of all, with commas between them.
    pub fn servers(&self) -> String {
        let servers = self.servers.iter();
        let servers = servers.map(|server| format!("127.0.0.1:{}", server.port));
        servers.collect::<Vec<_>>().join(",")
    }

    /// The address of a stream with as many replicas as there are servers.
    pub fn stream(&self, name: &str) -> String {
        let count = self.servers.len();
        format!("nats://{}/{name}?replicas={count}", self.servers())
    }

    /// Kills a server, as `kill -9` does.
    pub fn kill(&mut self, number: usize) {
        if let Some(mut child) = self.servers[number].child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts a server again, with what it stored before, and waits until it listens.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn restart(&mut self, number: usize) {
        self.kill(number);
        self.spawn(number);
        self.listening(number).await;
    }

    #[allow(clippy::expect_used, reason = "it serves tests")]
    fn spawn(&mut self, number: usize) {
        let server = &mut self.servers[number];
        let child = Command::new("nats-server")
            .arg("-c")
            .arg(&server.config)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("nats-server is installed (apt-get install nats-server)");
        server.child = Some(child);
    }

    #[allow(clippy::expect_used, reason = "it serves tests")]
    async fn listening(&self, number: usize) {
        let port = self.servers[number].port;
        let ready = async {
            while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(READY, ready).await.expect("nats-server listens");
    }
}

impl Drop for NatsCluster {
    fn drop(&mut self) {
        for number in 0..self.servers.len() {
            self.kill(number);
        }
    }
}

#[allow(clippy::expect_used, reason = "it serves tests")]
fn write(path: &PathBuf, text: &str) {
    let mut file = std::fs::File::create(path).expect("a file for the configuration");
    file.write_all(text.as_bytes())
        .expect("room for the configuration");
}

/// A port at which nobody listens. Tests in other processes begin elsewhere.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let count = PORTS.end - PORTS.start;
    let start = (std::process::id().wrapping_mul(61) % u32::from(count)) as u16;
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = PORTS.start + ((u32::from(start) + u32::from(step)) % u32::from(count)) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

//! WebRTC: its packets are UDP, which both ends are made to send through a slow path. The descriptions that
//! they exchange over HTTP pass through here, and name the path in the place of the server.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::programs::{listen, noise, run};
use crate::{BYTES_A_SECOND, DELAY, SIZE};

/// Packets that wait at the slow path; further ones are lost, as at a router.
const WAITING: usize = 64;

/// A path for packets to one server.
struct UdpPath {
    socket: UdpSocket,
    /// Where packets go: to the client, and to the server.
    ends: Mutex<[Option<SocketAddr>; 2]>,
    /// The bytes that passed in both directions.
    bytes: AtomicU64,
}

const CLIENT: usize = 0;
const SERVER: usize = 1;

impl UdpPath {
    async fn start() -> Arc<Self> {
        let path = Arc::new(Self {
            socket: UdpSocket::bind("127.0.0.1:0").await.unwrap(),
            ends: Mutex::default(),
            bytes: AtomicU64::new(0),
        });
        let lines = [CLIENT, SERVER].map(|to| {
            let (line, packets) = mpsc::channel(WAITING);
            tokio::spawn(path.clone().pass(to, packets));
            line
        });
        let receiving = path.clone();
        tokio::spawn(async move {
            let mut packet = vec![0; 65_536];
            loop {
                let (size, from) = receiving.socket.recv_from(&mut packet).await.unwrap();
                let to = {
                    let mut ends = receiving.ends.lock().unwrap();
                    match ends[SERVER] == Some(from) {
                        true => CLIENT,
                        false => {
                            ends[CLIENT] = Some(from);
                            SERVER
                        }
                    }
                };
                let _ = lines[to].try_send(packet[..size].to_vec());
            }
        });
        path
    }

    /// Passes packets on, one after another.
    async fn pass(self: Arc<Self>, to: usize, mut packets: mpsc::Receiver<Vec<u8>>) {
        while let Some(packet) = packets.recv().await {
            let seconds = packet.len() as f64 / BYTES_A_SECOND as f64;
            sleep(Duration::from_secs_f64(seconds)).await;
            self.bytes.fetch_add(packet.len() as u64, Ordering::Relaxed);
            let path = self.clone();
            tokio::spawn(async move {
                sleep(DELAY).await;
                let end = path.ends.lock().unwrap()[to];
                if let Some(end) = end {
                    let _ = path.socket.send_to(&packet, end).await;
                }
            });
        }
    }

    /// The description of a client, without its addresses: it is known by the packets that it sends.
    fn offer(description: &[u8]) -> Vec<u8> {
        rewrite(description, |_| None)
    }

    /// The description of the server, with the path in its place.
    fn answer(&self, description: &[u8]) -> Vec<u8> {
        let here = self.socket.local_addr().unwrap().port().to_string();
        rewrite(description, |candidate| {
            let mut words: Vec<&str> = candidate.split(' ').collect();
            let (address, port) = (words[4].parse().ok()?, words[5].parse().ok()?);
            self.ends.lock().unwrap()[SERVER] = Some(SocketAddr::new(address, port));
            words[5] = &here;
            Some(words.join(" "))
        })
    }
}

/// A session description whose addresses are replaced or left out.
fn rewrite(description: &[u8], mut candidate: impl FnMut(&str) -> Option<String>) -> Vec<u8> {
    let mut description: Value = serde_json::from_slice(description).unwrap();
    let sdp = description["sdp"].as_str().unwrap().to_owned();
    let mut lines = Vec::new();
    for line in sdp.lines() {
        match line.starts_with("a=candidate:") {
            true => lines.extend(candidate(line)),
            false => lines.push(line.to_owned()),
        }
    }
    lines.push(String::new());
    description["sdp"] = lines.join("\r\n").into();
    description.to_string().into_bytes()
}

/// Passes requests on to the server, and rewrites the descriptions in them.
async fn signal(listener: TcpListener, server: String, path: Arc<UdpPath>) {
    loop {
        let (mut client, _) = listener.accept().await.unwrap();
        let (server, path) = (server.clone(), path.clone());
        tokio::spawn(async move {
            let (head, body) = read(&mut client).await;
            let mut far = TcpStream::connect(&server).await.unwrap();
            write(&mut far, &head, &UdpPath::offer(&body)).await;
            let (head, body) = read(&mut far).await;
            let body = match body.starts_with(b"{") {
                true => path.answer(&body),
                false => body,
            };
            write(&mut client, &head, &body).await;
        });
    }
}

/// A request or an answer: its head, and a body of the length that the head names.
async fn read(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let lower = head.to_ascii_lowercase();
    let length = lower
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"));
    let length = length.map_or(0, |length| length.trim().parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    (head, body)
}

async fn write(stream: &mut TcpStream, head: &str, body: &[u8]) {
    let mut out = String::new();
    for line in head.lines().filter(|line| !line.is_empty()) {
        let name = line.split(':').next().unwrap_or_default();
        if !["content-length", "connection"].contains(&name.to_ascii_lowercase().as_str()) {
            out.push_str(&format!("{line}\r\n"));
        }
    }
    out.push_str(&format!(
        "Connection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    ));
    stream.write_all(out.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
}

/// A document that is pushed through a data channel.
pub(crate) async fn loro() {
    let arguments = ["loro", "serve", "--listen", "127.0.0.1:0"];
    let (_server, at) = spawn_blocking(move || listen(&arguments, "listening on ws://"))
        .await
        .unwrap();
    let at = at.split('/').next().unwrap().to_owned();
    let path = UdpPath::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = listener.local_addr().unwrap();
    tokio::spawn(signal(listener, at.clone(), path.clone()));
    let content = format!("{{\"text\":\"{}\"}}", noise());
    let pulled = spawn_blocking(move || {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("in.json").display().to_string();
        std::fs::write(&file, &content).unwrap();
        let slow = format!("http://{here}?transport=webrtc");
        run(&["loro", "push", &slow, "doc", &file], Vec::new());
        run(
            &["loro", "pull", &format!("ws://{at}/ws"), "doc"],
            Vec::new(),
        )
    });
    let pulled: Value = serde_json::from_slice(&pulled.await.unwrap()).unwrap();
    assert!(pulled["text"] == noise(), "another text came");
    let passed = path.bytes.load(Ordering::Relaxed);
    // LORO-8: as an update and, sometimes, as a response; SCTP sends lost packets again.
    let once = SIZE as u64;
    assert!((once..3 * once).contains(&passed), "{passed} bytes");
}

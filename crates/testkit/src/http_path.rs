//! A proxy for HTTP/1.1 that caps bodies, loses answers and cuts connections.
//!
//! It understands what programs here send: bodies with a length, and answers in chunks, which pass as they
//! come. A body over the cap gets 413, an answer over it 502, as proxies on the way do; an answer in chunks
//! breaks off there.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The longest head that is understood.
const HEAD_MAX: usize = 64 << 10;

/// A running proxy; it ends when this is dropped.
#[derive(Debug)]
pub struct HttpPath {
    address: SocketAddr,
    shared: Arc<Shared>,
    _serving: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    cap: AtomicUsize,
    /// One of this many answers is lost; 0: none.
    loses_every: AtomicUsize,
    down: AtomicBool,
    requests: AtomicUsize,
    largest: AtomicUsize,
    /// Bodies over the cap, either way, and the size of the largest.
    refused: AtomicUsize,
    largest_refused: AtomicUsize,
    /// How often all connections were cut.
    cuts: watch::Sender<usize>,
}

impl HttpPath {
    /// Starts a proxy to `target` at a free port, which lets bodies of at most `cap` bytes through.
    pub async fn start(target: SocketAddr, cap: usize) -> io::Result<Self> {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), target, cap).await
    }

    /// The same at an address of the caller's choice.
    pub async fn start_at(address: SocketAddr, target: SocketAddr, cap: usize) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            target,
            cap: AtomicUsize::new(cap),
            loses_every: AtomicUsize::new(0),
            down: AtomicBool::new(false),
            requests: AtomicUsize::new(0),
            largest: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            largest_refused: AtomicUsize::new(0),
            cuts: watch::Sender::new(0),
        });
        let mut serving = JoinSet::new();
        let accepts = shared.clone();
        serving.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                while open.try_join_next().is_some() {}
                if !accepts.down.load(SeqCst) {
                    open.spawn(accepts.clone().serve(client));
                }
            }
        });
        Ok(Self {
            address,
            shared,
            _serving: serving,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The size of the largest body that passed, either way.
    pub fn largest(&self) -> usize {
        self.shared.largest.load(SeqCst)
    }

    /// How many bodies were over the cap, either way, and the size of the largest of them.
    pub fn refused(&self) -> (usize, usize) {
        let largest = self.shared.largest_refused.load(SeqCst);
        (self.shared.refused.load(SeqCst), largest)
    }

    /// How many requests came.
    pub fn requests(&self) -> usize {
        self.shared.requests.load(SeqCst)
    }

    /// Sets another cap.
    pub fn set_cap(&self, cap: usize) {
        self.shared.cap.store(cap, SeqCst);
    }

    /// From now on one of so many answers is lost: the client gets 504.
    pub fn lose_every(&self, count: usize) {
        self.shared.loses_every.store(count, SeqCst);
    }

    /// Cuts all connections; while it is `down`, new ones are closed at once.
    pub fn cut(&self, down: bool) {
        self.shared.down.store(down, SeqCst);
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }
}

/// A request or an answer: its head, and its body.
struct Exchange {
    head: Vec<u8>,
    /// The body; empty if it is over the cap.
    body: Vec<u8>,
    /// The length of the body that came.
    length: usize,
    /// Whether the body follows in chunks, and is not read yet.
    chunked: bool,
}

impl Shared {
    async fn serve(self: Arc<Self>, client: TcpStream) {
        let mut cuts = self.cuts.subscribe();
        tokio::select! {
            _ = self.carry(client) => {}
            _ = cuts.changed() => {}
        }
    }

    async fn carry(&self, client: TcpStream) -> io::Result<()> {
        let target = TcpStream::connect(self.target).await?;
        client.set_nodelay(true)?;
        target.set_nodelay(true)?;
        let (mut client, mut target) = (BufStream::new(client), BufStream::new(target));
        while let Some(request) = read(&mut client, &self.cap).await? {
            let number = self.requests.fetch_add(1, SeqCst) + 1;
            let cap = self.cap.load(SeqCst);
            if request.length > request.body.len() {
                self.refuse(request.length);
                refuse(&mut client, "413 Payload Too Large").await?;
                continue;
            }
            self.largest.fetch_max(request.body.len(), SeqCst);
            write(&mut target, &request).await?;
            let Some(answer) = read(&mut target, &self.cap).await? else {
                return Ok(());
            };
            let every = self.loses_every.load(SeqCst);
            let is_lost = every > 0 && number.is_multiple_of(every);
            if answer.chunked && is_lost {
                return refuse(&mut client, "504 Gateway Timeout").await;
            }
            if answer.length > answer.body.len() {
                self.refuse(answer.length);
                refuse(&mut client, "502 Bad Gateway").await?;
            } else if is_lost {
                refuse(&mut client, "504 Gateway Timeout").await?;
            } else {
                self.largest.fetch_max(answer.body.len(), SeqCst);
                write(&mut client, &answer).await?;
            }
            if answer.chunked && !self.pass_chunks(&mut target, &mut client, cap).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    fn refuse(&self, size: usize) {
        self.refused.fetch_add(1, SeqCst);
        self.largest_refused.fetch_max(size, SeqCst);
    }

    /// Passes the chunks of an answer on as they come; false if they are over the cap.
    async fn pass_chunks(
        &self,
        target: &mut BufStream<TcpStream>,
        client: &mut BufStream<TcpStream>,
        cap: usize,
    ) -> io::Result<bool> {
        let mut passed = 0;
        loop {
            let mut chunk = Vec::new();
            target.read_until(b'\n', &mut chunk).await?;
            let line = String::from_utf8_lossy(&chunk);
            let digits = line.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(digits, 16).map_err(io::Error::other)?;
            passed += size;
            if passed > cap {
                self.refuse(passed);
                return Ok(false);
            }
            self.largest.fetch_max(passed, SeqCst);
            // With the line break behind it.
            let start = chunk.len();
            chunk.resize(start + size + 2, 0);
            target.read_exact(&mut chunk[start..]).await?;
            client.write_all(&chunk).await?;
            client.flush().await?;
            if size == 0 {
                return Ok(true);
            }
        }
    }
}

async fn refuse(client: &mut BufStream<TcpStream>, status: &str) -> io::Result<()> {
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
    let answer = Exchange {
        head: head.into_bytes(),
        body: Vec::new(),
        length: 0,
        chunked: false,
    };
    write(client, &answer).await
}

async fn write(stream: &mut BufStream<TcpStream>, exchange: &Exchange) -> io::Result<()> {
    stream.write_all(&exchange.head).await?;
    stream.write_all(&exchange.body).await?;
    stream.flush().await
}

/// The next request or answer; `None` at the end of the connection.
async fn read(
    stream: &mut BufStream<TcpStream>,
    cap: &AtomicUsize,
) -> io::Result<Option<Exchange>> {
    let (mut head, mut length, mut chunked) = (Vec::new(), 0, false);
    loop {
        let start = head.len();
        if stream.read_until(b'\n', &mut head).await? == 0 || head.len() > HEAD_MAX {
            return Ok(None);
        }
        let line = String::from_utf8_lossy(&head[start..]).to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
        chunked |= line.starts_with("transfer-encoding:") && line.contains("chunked");
        if line == "\r\n" {
            break;
        }
    }
    let mut body = Vec::new();
    if length > cap.load(SeqCst) {
        // The body is read to its end, so that the refusal arrives.
        let rest = &mut stream.take(length as u64);
        tokio::io::copy(rest, &mut tokio::io::sink()).await?;
    } else {
        body.resize(length, 0);
        stream.read_exact(&mut body).await?;
    }
    Ok(Some(Exchange {
        head,
        body,
        length,
        chunked,
    }))
}

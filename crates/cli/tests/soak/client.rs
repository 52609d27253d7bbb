//! Clients of the soak: each has a connection, asks a few requests at a time, and connects again when the
//! connection is gone.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use breakbulk::link::{Frame, Random};
use breakbulk::net::ws::{self, ConnectOptions, WebSocket};
use breakbulk::net::{Incoming, Sink, Source, Transport};
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{sleep, timeout};

use crate::http::Mcp;
use crate::ledger::{Ledger, Way};
use crate::member::PATIENCE;
use crate::work::{Done, Work};

/// How many requests a client asks at most before it waits for their answers.
const AT_ONCE: u64 = 3;

/// A client leaves and comes again after about so many rounds.
const ROUNDS: u64 = 40;

/// How long a client waits that found nobody to answer, before it connects again.
const AGAIN: Duration = Duration::from_secs(1);

/// Where a client connects.
#[derive(Clone)]
pub(crate) enum Door {
    Unix(PathBuf),
    Tcp(SocketAddr),
    WebSocket(SocketAddr),
    Http(SocketAddr),
}

pub(crate) struct Client {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) way: Way,
    pub(crate) door: Door,
    pub(crate) random: Random,
    /// How long it waits between two rounds, on average.
    pub(crate) pause: Duration,
}

type Reader = Box<dyn AsyncRead + Send + Unpin>;
type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// A connection.
enum Line {
    Stream(BufReader<Reader>, Writer),
    WebSocket(
        <WebSocket as Transport>::Source,
        <WebSocket as Transport>::Sink,
    ),
    Mcp(Mcp),
}

/// An answer of JSON-RPC.
#[derive(Deserialize)]
pub(crate) struct Answer {
    pub(crate) id: u64,
    pub(crate) result: Option<Done>,
    pub(crate) error: Option<Refusal>,
}

#[derive(Deserialize)]
pub(crate) struct Refusal {
    pub(crate) code: i64,
    pub(crate) message: String,
}

impl Client {
    /// Asks until the ledger says that it ends.
    pub(crate) async fn run(mut self) {
        while !self.ledger.is_ending() {
            let opened = Instant::now();
            match timeout(PATIENCE, self.connect()).await {
                Ok(Ok(line)) => {
                    self.ledger.connected.fetch_add(1, Relaxed);
                    self.talk(line, opened).await;
                    self.ledger.connected.fetch_sub(1, Relaxed);
                }
                Ok(Err(reason)) => {
                    self.ledger.failed(self.way, None, opened, false, &reason);
                    self.wait(AGAIN).await;
                }
                Err(_) => self.ledger.wrong(format!("{:?}: no connection", self.way)),
            }
        }
    }

    async fn connect(&self) -> Result<Line, String> {
        let failed = |error: std::io::Error| format!("no connection: {error}");
        Ok(match &self.door {
            Door::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(failed)?;
                let (source, sink) = stream.into_split();
                Line::Stream(BufReader::new(Box::new(source)), Box::new(sink))
            }
            Door::Tcp(address) => {
                let stream = TcpStream::connect(address).await.map_err(failed)?;
                let (source, sink) = stream.into_split();
                Line::Stream(BufReader::new(Box::new(source)), Box::new(sink))
            }
            Door::WebSocket(address) => {
                let url = format!("ws://{address}/");
                let socket = ws::connect(&url, &ConnectOptions::default()).await;
                let (source, sink) = socket.map_err(|it| format!("no connection: {it}"))?.split();
                Line::WebSocket(source, sink)
            }
            Door::Http(address) => Line::Mcp(Mcp::begin(*address).await?),
        })
    }

    /// Asks over a connection until it ends, or the client leaves.
    async fn talk(&mut self, mut line: Line, opened: Instant) {
        let mut began = false;
        while !self.ledger.is_ending() {
            let mut open: BTreeMap<u64, Work> = (0..=self.random.below(AT_ONCE))
                .map(|_| {
                    let number = self.ledger.next_number();
                    (number, Work::random(number, &mut self.random))
                })
                .collect();
            let ended = line.ask(self, &mut open, opened, &mut began).await;
            if let Err(reason) = &ended {
                for number in open.keys() {
                    self.ledger
                        .failed(self.way, Some(*number), opened, began, reason);
                }
                if open.is_empty() {
                    self.ledger.failed(self.way, None, opened, began, reason);
                }
                if !began {
                    self.wait(AGAIN).await;
                }
                return;
            }
            self.wait(self.pause).await;
            if self.random.one_in(ROUNDS) {
                break;
            }
        }
        line.close().await;
    }

    /// Waits for about this long.
    async fn wait(&mut self, pause: Duration) {
        let micros = pause.as_micros() as u64;
        sleep(Duration::from_micros(
            micros / 2 + self.random.below(micros),
        ))
        .await;
    }

    /// Takes an answer; the request is not open any more.
    pub(crate) fn take(
        &self,
        answer: Answer,
        open: &mut BTreeMap<u64, Work>,
        opened: Instant,
        began: &mut bool,
    ) {
        let (way, number) = (self.way, answer.id);
        let Some(work) = open.remove(&number) else {
            return self
                .ledger
                .wrong(format!("{way:?}: {number} was answered twice"));
        };
        match (answer.result, answer.error) {
            (Some(done), None) => match work.check(&done) {
                Ok(()) => {
                    self.ledger.answered(work.bytes());
                    *began = true;
                }
                Err(what) => self.ledger.wrong(format!("{way:?}: {number}: {what}")),
            },
            (None, Some(Refusal { code, message })) => {
                let reason = format!("error {code}: {message}");
                self.ledger
                    .failed(way, Some(number), opened, *began, &reason);
            }
            _ => self
                .ledger
                .wrong(format!("{way:?}: {number}: no answer of JSON-RPC")),
        }
    }
}

/// A request of JSON-RPC.
fn request(work: &Work) -> String {
    let params = serde_json::to_string(work).unwrap();
    let number = work.number;
    format!(r#"{{"jsonrpc":"2.0","id":{number},"method":"work","params":{params}}}"#)
}

impl Line {
    /// Asks all these requests and waits for their answers.
    ///
    /// # Errors
    /// How the connection ended.
    async fn ask(
        &mut self,
        client: &Client,
        open: &mut BTreeMap<u64, Work>,
        opened: Instant,
        began: &mut bool,
    ) -> Result<(), String> {
        let requests: Vec<String> = open.values().map(request).collect();
        let mut take = |text: &str, open: &mut BTreeMap<u64, Work>| -> Result<(), String> {
            let answer: Answer = serde_json::from_str(text)
                .map_err(|error| format!("this is no answer: {error}: {text:.100}"))?;
            client.take(answer, open, opened, began);
            Ok(())
        };
        match self {
            Self::Stream(source, sink) => {
                let ended = |error: std::io::Error| format!("{ENDED}: {error}");
                let writing = async {
                    for request in requests {
                        sink.write_all(request.as_bytes()).await.map_err(ended)?;
                        sink.write_all(b"\n").await.map_err(ended)?;
                    }
                    Ok::<_, String>(())
                };
                let reading = async {
                    let mut line = String::new();
                    while !open.is_empty() {
                        line.clear();
                        let read = timeout(PATIENCE, source.read_line(&mut line)).await;
                        let read = read.map_err(|_| silent())?.map_err(ended)?;
                        if read == 0 {
                            return Err(ENDED.to_owned());
                        }
                        take(&line, open)?;
                    }
                    Ok(())
                };
                both(writing, reading).await
            }
            Self::WebSocket(source, sink) => {
                let writing = async {
                    for request in requests {
                        let sent = sink.send(Frame::Text(request.into())).await;
                        sent.map_err(|error| format!("{ENDED}: {error:?}"))?;
                    }
                    Ok(())
                };
                let reading = async {
                    while !open.is_empty() {
                        match timeout(PATIENCE, source.next())
                            .await
                            .map_err(|_| silent())?
                        {
                            Incoming::Frame(Frame::Text(text)) => {
                                let text = std::str::from_utf8(&text);
                                take(text.map_err(|it| it.to_string())?, open)?;
                            }
                            Incoming::Closed(closed) => return Err(format!("{closed:?}")),
                            _ => {}
                        }
                    }
                    Ok(())
                };
                both(writing, reading).await
            }
            Self::Mcp(mcp) => {
                let calls = open.values().map(|work| timeout(PATIENCE, mcp.call(work)));
                let answers = futures_util::future::join_all(calls).await;
                let mut ended = Ok(());
                for answer in answers {
                    match answer.map_err(|_| silent()) {
                        Ok(Ok(answer)) => client.take(answer, open, opened, began),
                        Ok(Err(reason)) | Err(reason) => ended = Err(reason),
                    }
                }
                ended
            }
        }
    }

    async fn close(self) {
        match self {
            Self::WebSocket(_, mut sink) => sink.close(1000, "").await,
            Self::Mcp(mcp) => mcp.end().await,
            Self::Stream(..) => {}
        }
    }
}

/// Writes and reads at the same time. How reading ends is what counts: who writes to a connection that is
/// closed may still read why.
async fn both(
    writing: impl Future<Output = Result<(), String>>,
    reading: impl Future<Output = Result<(), String>>,
) -> Result<(), String> {
    tokio::pin!(writing, reading);
    let mut has_written = false;
    loop {
        tokio::select! {
            read = &mut reading => return read,
            _ = &mut writing, if !has_written => has_written = true,
        }
    }
}

/// How the reason begins if the other end gave none.
pub(crate) const ENDED: &str = "the connection ended";

/// A reason that no trouble explains.
pub(crate) const SILENT: &str = "no answer, and the connection did not end";

fn silent() -> String {
    SILENT.to_owned()
}

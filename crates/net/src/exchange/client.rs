//! The client: opens a session, posts frames, and gets frames by event streams and polls.

mod losses;
mod poll;
mod post;
mod repeat;
mod stream;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use breakbulk_link::{Budget, Carries, Closed, Frame};
use bytes::Bytes;
use reqwest::{Method, RequestBuilder};
use serde::Deserialize;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::WINDOW;
use super::body::{Record, Records};
use super::outbox::Outbox;
use crate::http::client::{HttpClient, read_answer};
use crate::http::{ClientOptions, ConnectError};
use crate::transport::{Incoming, Lost, Sink, Source, Transport};
use losses::Losses;
pub use stream::EventStreams;

/// How much of the answer to `open` is read.
const OPENED_MAX: usize = 4096;

/// How long the DELETE that tells the server of this client's end may take.
const GOODBYE: Duration = Duration::from_secs(2);

/// A session at a server.
#[derive(Debug)]
pub struct ExchangeTransport {
    source: ExchangeSource,
    sink: ExchangeSink,
}

/// Opens a session at an `http://` or `https://` address.
pub async fn connect(
    url: &str,
    options: &ClientOptions,
) -> Result<ExchangeTransport, ConnectError> {
    let client = HttpClient::new(url, options).await?;
    let opened = open(&client).await?;
    let body_max = options.body_max.min(opened.body);
    let session = Arc::new(Session {
        id: opened.session,
        wait: options.wait.min(Duration::from_millis(opened.wait)),
        body_max,
        answer_max: options.body_max,
        outbox: Outbox::new(WINDOW.max(body_max)),
        last_word: OnceLock::new(),
        over: watch::Sender::new(None),
        posted: watch::Sender::new(false),
        losses: Mutex::default(),
        told: AtomicBool::new(false),
        client,
    });
    let (arrived, bodies) = mpsc::channel(1);
    let mut running = JoinSet::new();
    running.spawn(post::post_all(session.clone()));
    running.spawn(poll::poll_all(session.clone(), arrived));
    let tasks = Arc::new(Tasks {
        session: session.clone(),
        _running: running,
    });
    Ok(ExchangeTransport {
        source: ExchangeSource {
            session: session.clone(),
            bodies,
            current: None,
            _tasks: tasks.clone(),
        },
        sink: ExchangeSink {
            session,
            _tasks: tasks,
        },
    })
}

/// The answer to `open`.
#[derive(Deserialize)]
struct Opened {
    session: String,
    wait: u64,
    body: usize,
}

async fn open(client: &HttpClient) -> Result<Opened, ConnectError> {
    let options = client.options();
    let request = client.request(Method::POST, options.dialect.open, &[]);
    // Some proxies want a length.
    let request = request.body(Bytes::new());
    let response = client.ask(request, options.timeout).await?;
    let answer = timeout(options.timeout, read_answer(response, OPENED_MAX)).await;
    let answer = answer.map_err(|_| client.timed_out(options.timeout))?;
    let answer = answer.map_err(|reason| client.unexpected_answer(reason))?;
    let opened: Opened = serde_json::from_slice(&answer).map_err(|error| {
        client.unexpected_answer(format!("its answer names no session ({error})"))
    })?;
    match opened
        .session
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric())
    {
        true => Ok(opened),
        false => Err(client.unexpected_answer(
            "the session's name in its answer has other characters than letters and digits",
        )),
    }
}

/// What the tasks and both halves share.
#[derive(Debug)]
struct Session {
    client: Arc<HttpClient>,
    id: String,
    /// How long a request may wait at the server.
    wait: Duration,
    /// The largest body of a POST.
    body_max: usize,
    /// The largest body of an answer.
    answer_max: usize,
    outbox: Outbox,
    /// This side's close. Once it is set, it is the reason of the end, whatever ends the session.
    last_word: OnceLock<Closed>,
    /// How the session ended.
    over: watch::Sender<Option<Closed>>,
    /// Whether this side's close was posted.
    posted: watch::Sender<bool>,
    /// How many small answers came and how many were lost: decides whether a lost large one counts
    /// as refused.
    losses: Mutex<Losses>,
    /// Whether the server was told that this client polls no more.
    told: AtomicBool,
}

impl Session {
    /// A request of this session.
    fn request(&self, method: Method, path: &str, query: &[(&str, &str)]) -> RequestBuilder {
        let header = self.client.options().dialect.peer_header;
        let request = self.client.request(method, path, query);
        request.header(header, &self.id)
    }

    /// Asks for the answer of this number and lets the server wait this long for it; acknowledges all answers
    /// up to `got`.
    fn ask(
        &self,
        number: u64,
        got: u64,
        wait: Duration,
        further: &[(&str, &str)],
    ) -> RequestBuilder {
        let dialect = &self.client.options().dialect;
        let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let texts = [number, got, wait, self.answer_max as u64].map(|it| it.to_string());
        let names = ["number", "got", dialect.wait_parameter, "max"];
        let mut query: Vec<(&str, &str)> = names
            .into_iter()
            .zip(texts.iter().map(|it| &**it))
            .collect();
        query.extend(further);
        self.request(Method::GET, dialect.poll, &query)
    }

    /// Ends the session; only the first call sets the reason.
    fn end(&self, closed: Closed) {
        let closed = self.last_word.get().cloned().unwrap_or(closed);
        self.over.send_if_modified(|over| {
            let first = over.is_none();
            if first {
                *over = Some(closed);
            }
            first
        });
    }

    /// Waits for the end.
    async fn ended(&self) -> Closed {
        let mut over = self.over.subscribe();
        let over = over.wait_for(Option::is_some).await;
        over.ok().and_then(|over| over.clone()).unwrap_or(Closed {
            code: 1006,
            reason: String::new(),
        })
    }

    /// Tells the server that this client polls no more.
    fn say_goodbye(self: &Arc<Self>) {
        let session = self.clone();
        tokio::spawn(async move { session.disconnect(&[]).await });
    }

    /// Tells the server that its answer of this number does not come through.
    async fn report_refused(&self, number: u64) {
        self.disconnect(&[("refused", &number.to_string())]).await;
    }

    async fn disconnect(&self, query: &[(&str, &str)]) {
        let path = self.client.options().dialect.poll;
        let request = self.request(Method::DELETE, path, query);
        let _ = timeout(GOODBYE, request.send()).await;
        self.told.store(true, Relaxed);
    }
}

/// The tasks of a session, which end with both halves.
#[derive(Debug)]
struct Tasks {
    session: Arc<Session>,
    _running: JoinSet<()>,
}

impl Drop for Tasks {
    fn drop(&mut self) {
        // Otherwise the server would wait for further polls, or for the acknowledgement of its close.
        let told = self.session.told.load(Relaxed);
        if !told && tokio::runtime::Handle::try_current().is_ok() {
            self.session.say_goodbye();
        }
    }
}

impl Transport for ExchangeTransport {
    type Source = ExchangeSource;
    type Sink = ExchangeSink;

    fn carries(&self, _carries: Carries) -> bool {
        true
    }

    fn charge_to(&mut self, budget: &Budget) {
        self.sink.session.outbox.charge_to(budget);
    }

    fn split(self) -> (ExchangeSource, ExchangeSink) {
        (self.source, self.sink)
    }
}

/// What an answer of the server brought.
enum Arrived {
    Body(Records),
    Nothing,
}

/// The receiving half: the server's answers.
pub struct ExchangeSource {
    session: Arc<Session>,
    bodies: mpsc::Receiver<Arrived>,
    /// The body whose frames are being returned.
    current: Option<Records>,
    _tasks: Arc<Tasks>,
}

impl std::fmt::Debug for ExchangeSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExchangeSource").finish_non_exhaustive()
    }
}

impl Source for ExchangeSource {
    async fn next(&mut self) -> Incoming {
        loop {
            match self.current.as_mut().and_then(Iterator::next) {
                Some(Record::Frame(frame)) => return Incoming::Frame(frame),
                Some(Record::Close(closed)) => {
                    self.session.end(closed.clone());
                    return Incoming::Closed(closed);
                }
                None => self.current = None,
            }
            tokio::select! {
                // Frames that came before the end are delivered before it.
                biased;
                Some(arrived) = self.bodies.recv() => match arrived {
                    Arrived::Body(records) => self.current = Some(records),
                    Arrived::Nothing => return Incoming::Alive,
                },
                closed = self.session.ended() => return Incoming::Closed(closed),
            }
        }
    }
}

/// The sending half: POSTs.
#[derive(Debug)]
pub struct ExchangeSink {
    session: Arc<Session>,
    _tasks: Arc<Tasks>,
}

impl ExchangeSink {
    async fn put(&self, record: Record) -> Result<(), Lost> {
        tokio::select! {
            biased;
            closed = self.session.ended() => Err(Lost(closed.reason)),
            () = self.session.outbox.put(record) => Ok(()),
        }
    }
}

impl Sink for ExchangeSink {
    async fn send(&mut self, frame: Frame) -> Result<(), Lost> {
        self.put(Record::Frame(frame)).await
    }

    async fn close(&mut self, code: u16, reason: &str) {
        let closed = Closed {
            code,
            reason: reason.to_owned(),
        };
        let _ = self.session.last_word.set(closed.clone());
        if self.put(Record::close(code, reason)).await.is_ok() {
            let mut posted = self.session.posted.subscribe();
            tokio::select! {
                _ = posted.wait_for(|posted| *posted) => self.session.told.store(true, Relaxed),
                _ = self.session.ended() => {}
            }
        }
        self.session.end(closed);
    }
}

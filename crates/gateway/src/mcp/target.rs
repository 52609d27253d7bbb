//! The transport to an MCP server over HTTP: each message is a POST of its own, and what the server
//! answers are the messages that come in.
//!
//! Requests are posted side by side; a notification or an answer is accepted by the server before the
//! next message is posted, so that their order holds. The session's id and version are added to the head,
//! or in the stateless era what the body says; the body is never changed.

mod listen;
mod post;
mod requests;
mod resume;
mod upload;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use breakbulk_link::{Budget, Carries, Closed, Frame, Held, lock};
use breakbulk_message::jsonrpc::{self, INVALID_REQUEST};
use breakbulk_net::http::HttpTarget;
use breakbulk_net::{Incoming, Lost, Sink, Source, Transport};
use bytes::Bytes;
use reqwest::{Method, RequestBuilder};
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use self::post::Post;
use self::requests::OpenRequests;
use self::upload::Stage;
use super::head::{PROTOCOL, SERVER_ERROR, SESSION};
use super::message::{Message, Unread, Unreadable};
use super::tools::ToolHeaders;
use crate::endpoint::WsAddress;
use crate::error::OpenError;
use crate::open::{self, Opened};
use crate::plan::End;
use crate::pump::{Missed, Port, Skipped};

/// The most requests that are open at a time; a further one is answered with an error.
const REQUESTS: usize = 256;

/// The order of messages is kept for as long as the server accepts a notification within this time.
const ACCEPTED: Duration = Duration::from_secs(10);

/// How long the next message waits until a request is written, plus the time at the lowest rate at which a
/// server must read.
const WRITTEN: Duration = Duration::from_secs(10);
const BYTES_A_SECOND: u64 = 64 << 10;

/// How long a server may take to answer a request that was cancelled by a notification.
const CANCELLED: Duration = Duration::from_secs(10);

/// How long the end of a session may take to be told.
const DELETE: Duration = Duration::from_secs(3);

/// How long an answer waits for memory.
const MEMORY: Duration = Duration::from_secs(60);

/// How often it looks for memory that others gave back.
const LOOK: Duration = Duration::from_millis(50);

/// How many reports of lost messages may wait.
const REPORTS: usize = 64;

/// A connection to the server at this address. Nothing is sent before the first message.
pub(crate) async fn connect(end: &End, address: &WsAddress) -> Result<Opened, OpenError> {
    let http = end.http.clone().unwrap_or_default();
    let server = http.server(end, address).await?;
    let (missed, reports) = mpsc::channel(REPORTS);
    let transport = McpTransport::new(server, http.tools.clone(), end.max_message, missed);
    let connection = open::open(end, open::whole(end), transport)?;
    let port = Port::new(connection).with_skipped(Skipped::of_transport(reports));
    Ok(Opened::whole(port))
}

/// The transport.
pub(super) struct McpTransport {
    state: Arc<TargetState>,
    incoming: mpsc::Receiver<Delivery>,
}

impl McpTransport {
    pub(super) fn new(
        server: HttpTarget,
        tools: Arc<Mutex<ToolHeaders>>,
        limit: usize,
        missed: mpsc::Sender<Missed>,
    ) -> Self {
        // Only the link queues messages.
        let (deliveries, incoming) = mpsc::channel(1);
        let state = TargetState {
            server,
            tools,
            limit,
            budget: OnceLock::new(),
            session: Mutex::default(),
            deliveries,
            missed,
            uploads: Arc::new(Semaphore::new(upload::room(limit))),
            freed: Notify::new(),
            over: watch::Sender::new(false),
        };
        Self {
            state: Arc::new(state),
            incoming,
        }
    }
}

impl Transport for McpTransport {
    type Source = McpSource;
    type Sink = McpSink;

    fn carries(&self, carries: Carries) -> bool {
        carries == Carries::Text
    }

    fn charge_to(&mut self, budget: &Budget) {
        let _ = self.state.budget.set(budget.clone());
    }

    fn split(self) -> (McpSource, McpSink) {
        let source = McpSource {
            over: self.state.over.subscribe(),
            incoming: self.incoming,
        };
        let sink = McpSink {
            state: self.state,
            posts: JoinSet::new(),
        };
        (source, sink)
    }
}

/// What comes in.
pub(super) enum Delivery {
    /// A message, and the memory that it takes until the link has it.
    Message(Bytes, Option<Held>),
    /// The server has ended the session.
    Closed(Closed),
}

/// The receiving half: what the server answers.
pub(super) struct McpSource {
    incoming: mpsc::Receiver<Delivery>,
    over: watch::Receiver<bool>,
}

impl Source for McpSource {
    async fn next(&mut self) -> Incoming {
        let closed = |code, reason: &str| {
            Incoming::Closed(Closed {
                code,
                reason: reason.to_owned(),
            })
        };
        tokio::select! {
            biased;
            delivery = self.incoming.recv() => match delivery {
                Some(Delivery::Message(bytes, _held)) => Incoming::Frame(Frame::Text(bytes)),
                Some(Delivery::Closed(closed)) => Incoming::Closed(closed),
                None => closed(1000, ""),
            },
            _ = self.over.wait_for(|over| *over) => closed(1000, ""),
        }
    }
}

/// The sending half: a POST for each message.
pub(super) struct McpSink {
    state: Arc<TargetState>,
    posts: JoinSet<()>,
}

impl Sink for McpSink {
    async fn send(&mut self, frame: Frame) -> Result<(), Lost> {
        let Frame::Text(bytes) = frame else {
            return Err(Lost("MCP over HTTP carries text alone".to_owned()));
        };
        while self.posts.try_join_next().is_some() {}
        let message = match Message::read(&bytes) {
            Ok(message) => Some(message),
            Err(why) if self.state.refuse_unread(&bytes, why).await => return Ok(()),
            Err(_) => None,
        };
        if let Some(Message::Notification {
            cancels: Some(id), ..
        }) = &message
        {
            let is_cut = self.state.session().open.cut(id);
            match is_cut {
                true => return Ok(()),
                false => self.forget_later(id),
            }
        }
        let post = Post::new(message, bytes.len());
        if post.is_request() && self.state.session().open.len() >= REQUESTS {
            self.state.refuse(&post).await;
            return Ok(());
        }
        let stage = Arc::new(watch::Sender::new(Stage::Posting));
        let mut reached = stage.subscribe();
        let within = WRITTEN + Duration::from_secs(bytes.len() as u64 / BYTES_A_SECOND);
        let upload = upload::upload(&self.state, bytes, stage.clone()).await;
        let awaited = match post.is_request() && !post.is_initialize() {
            true => Stage::Written,
            false => Stage::Accepted,
        };
        let keys = post.keys();
        let is_stateless = post.is_stateless();
        let state = self.state.clone();
        // The POST is listed as open before it may end, since its end removes it from the list.
        let (begin, begun) = tokio::sync::oneshot::channel();
        let task = self.posts.spawn(async move {
            if let Ok(task) = begun.await {
                state.run(post.of(task), upload, &stage).await;
            }
        });
        {
            let mut session = self.state.session();
            session.open.begin(keys, &task, is_stateless);
        }
        let _ = begin.send(task.id());
        // An error says that the POST has ended.
        let wait = reached.wait_for(|stage| *stage >= awaited);
        match awaited {
            // A request that the server does not read must not hold up others for ever, nor the message that
            // cancels it.
            Stage::Written => drop(timeout(within, wait).await),
            _ => drop(timeout(ACCEPTED, wait).await),
        }
        Ok(())
    }

    async fn close(&mut self, _code: u16, _reason: &str) {
        self.posts.abort_all();
        self.state.end_session().await;
        self.state.over.send_replace(true);
    }
}

impl McpSink {
    /// Gives up the answer to a request that is cancelled by a notification: the server owes none, and
    /// may leave its stream open.
    fn forget_later(&mut self, id: &str) {
        let state = self.state.clone();
        let cancelled = state.session().open.cancel(id);
        let Some(post) = cancelled else {
            return;
        };
        let id = id.to_owned();
        self.posts.spawn(async move {
            tokio::time::sleep(CANCELLED).await;
            state.session().open.give_up(&id, &post);
        });
    }
}

impl Drop for McpSink {
    fn drop(&mut self) {
        self.state.over.send_replace(true);
    }
}

/// What all POSTs and streams of a connection share.
pub(super) struct TargetState {
    server: HttpTarget,
    tools: Arc<Mutex<ToolHeaders>>,
    /// The largest message that comes in.
    limit: usize,
    budget: OnceLock<Budget>,
    session: Mutex<Session>,
    deliveries: mpsc::Sender<Delivery>,
    missed: mpsc::Sender<Missed>,
    /// Room for messages that are being posted, in KiB.
    uploads: Arc<Semaphore>,
    /// An answer has given back its memory.
    freed: Notify,
    over: watch::Sender<bool>,
}

/// The session of the session era, and the requests that are open.
#[derive(Default)]
struct Session {
    id: Option<String>,
    version: Option<String>,
    open: OpenRequests,
    /// Whether a stream is open for messages of the server's own.
    is_listening: bool,
}

impl TargetState {
    fn session(&self) -> MutexGuard<'_, Session> {
        lock(&self.session)
    }

    /// A request in the session, if there is one.
    fn in_session(&self, method: Method) -> (RequestBuilder, bool) {
        let mut request = self.server.request(method);
        let session = self.session();
        if let Some(id) = &session.id {
            request = request.header(SESSION, id);
        }
        if let Some(version) = &session.version {
            request = request.header(PROTOCOL, version);
        }
        (request, session.id.is_some())
    }

    /// Answers a request that is one too many.
    async fn refuse(&self, post: &Post) {
        let words = format!(
            "{REQUESTS} requests of this session are open at the target, which is the limit; wait for an answer"
        );
        for id in post.ids() {
            let answer = jsonrpc::error(Some(&id), SERVER_ERROR, &words, None);
            self.deliver(answer.into(), None).await;
        }
    }

    /// Answers the requests in what cannot be read as a whole, which is not posted then: the server's answers
    /// to them would not be known as such. False: there are none.
    async fn refuse_unread(&self, bytes: &[u8], why: Unreadable) -> bool {
        let Unread { requests, others } = Unread::of(bytes);
        if requests.is_empty() {
            return false;
        }
        let (size, words) = (bytes.len(), why.words());
        tracing::warn!(size, "a message is not posted to the target: {words}");
        for id in requests {
            let answer = Bytes::from(jsonrpc::error(Some(id), INVALID_REQUEST, &words, None));
            let budget = self.budget.get();
            let held = budget.map(|budget| budget.charge_allocated(answer.len()));
            self.deliver(answer, held).await;
        }
        if others > 0 {
            let words = format!("{others} other messages of that batch are lost: {words}");
            let _ = self.missed.send(Missed::Lost(words)).await;
        }
        true
    }

    async fn deliver(&self, bytes: Bytes, held: Option<Held>) {
        // An error says that the connection has ended.
        let _ = self.deliveries.send(Delivery::Message(bytes, held)).await;
        self.freed.notify_waiters();
    }

    /// Ends this connection, since the server has ended the session.
    async fn session_gone(&self) {
        let closed = Closed {
            code: 1011,
            reason: "the target has ended the session (HTTP 404)".to_owned(),
        };
        let _ = self.deliveries.send(Delivery::Closed(closed)).await;
    }

    /// Tells the server that the session has ended.
    async fn end_session(&self) {
        let (request, has_session) = self.in_session(Method::DELETE);
        if !has_session {
            return;
        }
        match timeout(DELETE, request.send()).await {
            // A server may not allow it.
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                let error = breakbulk_net::http::failure(&error);
                tracing::debug!(
                    error,
                    "the target could not be told by a DELETE that its session has ended"
                );
            }
            Err(_) => tracing::debug!(
                "the target did not answer the DELETE of its session within {} s",
                DELETE.as_secs()
            ),
        }
    }
}

/// The memory of an answer that comes in.
struct Memory<'s> {
    state: &'s TargetState,
    held: Option<Held>,
}

impl<'s> Memory<'s> {
    fn new(state: &'s TargetState) -> Self {
        Self { state, held: None }
    }

    /// Charges bytes that are to come; false if there is no memory for them in time.
    async fn grow_to(&mut self, bytes: usize) -> bool {
        let Some(budget) = self.state.budget.get() else {
            return true;
        };
        let until = Instant::now() + MEMORY;
        loop {
            let granted = match &mut self.held {
                Some(held) => held.grow_to(bytes),
                held => {
                    *held = budget.charge(bytes);
                    held.is_some()
                }
            };
            if granted {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            // Other parts of the session give back memory without a notification, so look again after `LOOK`.
            let _ = timeout(LOOK, self.state.freed.notified()).await;
        }
    }

    fn take(&mut self) -> Option<Held> {
        self.held.take()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use breakbulk_net::http::ClientOptions;

    use super::*;

    /// A transport to a server that nobody runs.
    async fn scene() -> (McpSource, McpSink, mpsc::Receiver<Missed>) {
        let url = "http://127.0.0.1:1/mcp";
        let server = HttpTarget::new(url, &ClientOptions::new("")).await.unwrap();
        let (missed, reports) = mpsc::channel(1);
        let (source, sink) = McpTransport::new(server, Arc::default(), 1 << 20, missed).split();
        (source, sink, reports)
    }

    /// Its answer would not be known as one: it was dropped, and the client waited for ever.
    // MCPH-9
    #[tokio::test]
    async fn a_request_with_a_word_that_is_too_long_is_answered_with_the_limit() {
        let long = format!(r#""{}""#, "x".repeat(5000));
        let request =
            |id: &str, method: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method}}}"#);
        let note = r#"{"jsonrpc":"2.0","method":"n"}"#;
        let many = vec![note; 2000].join(",");
        for (message, ids, words) in [
            (
                request(&long, "\"m\""),
                vec![&*long],
                "longer than 4096 bytes",
            ),
            (request("7", &long), vec!["7"], "longer than 4096 bytes"),
            (
                format!("[{},{}]", request("7", &long), request("\"a\"", "\"m\"")),
                vec!["7", "\"a\""],
                "longer than 4096 bytes",
            ),
            (
                format!("[{},{many}]", request("7", "\"m\"")),
                vec!["7"],
                "a batch has more than 1024 messages",
            ),
        ] {
            let (mut source, mut sink, mut reports) = scene().await;
            let sending = async {
                let sent = timeout(ACCEPTED, sink.send(Frame::Text(message.into())));
                sent.await.unwrap().unwrap();
            };
            let reading = async {
                for id in &ids {
                    let incoming = timeout(ACCEPTED, source.next()).await.unwrap();
                    let Incoming::Frame(frame) = incoming else {
                        panic!("{incoming:?}")
                    };
                    let answer = std::str::from_utf8(frame.bytes()).unwrap();
                    let begin = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32600,"#);
                    assert!(answer.starts_with(&begin), "{answer}");
                    assert!(answer.contains(words), "{answer}");
                }
            };
            tokio::join!(sending, reading);
            // Whatever else was in the batch is counted as lost.
            let others = reports.try_recv().is_ok();
            assert_eq!(others, words.contains("batch"));
        }
    }

    // MCPH-9
    #[tokio::test(start_paused = true)]
    async fn an_answer_waits_a_minute_for_memory_and_no_longer() {
        let url = "http://127.0.0.1:1/mcp";
        let server = HttpTarget::new(url, &ClientOptions::new("")).await.unwrap();
        let (missed, _reports) = mpsc::channel(1);
        let mut transport = McpTransport::new(server, Arc::default(), 1000, missed);
        let budget = Budget::new(1000);
        transport.charge_to(&budget);
        let others = budget.charge(600).unwrap();
        let mut memory = Memory::new(&transport.state);
        assert!(memory.grow_to(400).await, "there is room for it");
        let begun = Instant::now();
        assert!(!memory.grow_to(401).await);
        assert!(begun.elapsed() >= MEMORY && begun.elapsed() < MEMORY + 2 * LOOK);
        // Memory that others give back is found although nobody notifies.
        let begun = Instant::now();
        let (granted, ()) = tokio::join!(memory.grow_to(1000), async {
            tokio::time::sleep(MEMORY / 2).await;
            drop(others);
        });
        assert!(granted && begun.elapsed() < MEMORY / 2 + 2 * LOOK);
    }
}

//! A session of the gateway whose client comes by HTTP: what its POSTs bring in goes to the pump, and what
//! the pump sends goes to its streams. A session is one client's (session era), or it serves one request
//! of any client after another (stateless era).

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use breakbulk_link::{Budget, Carries, Closed, Frame, Held, lock};
use breakbulk_message::jsonrpc;
use breakbulk_net::http::Place;
use breakbulk_net::{Incoming, Lost, Sink, Source, Transport};
use bytes::Bytes;
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::DoorState;
use super::streams::{NotOpened, Put, Streams, Taken};
use crate::mcp::head::SERVER_ERROR;
use crate::mcp::message::{Message, Unread, chosen_version};
use crate::pump::session_memory;

/// How many POSTs of one session may be in progress.
pub(super) const POSTS: usize = 64;

/// A session that was silent for this long makes room for a newcomer.
const MAKES_ROOM: Duration = Duration::from_secs(60);

/// A session of the stateless era ends after this much time without a request.
const UNUSED: Duration = Duration::from_secs(60);

/// How long a client may take to read what waits for it, plus a second for each KiB.
const SLOW: Duration = Duration::from_secs(60);
const BYTES_A_SECOND: u64 = 1 << 10;

/// How long the last events may take to be read when the session ends.
const LAST_EVENTS: Duration = Duration::from_secs(4);

/// A session.
pub(super) struct ClientSession {
    /// The name by which its client finds it.
    pub(super) id: String,
    /// Whose token it was begun with.
    pub(super) holder: Option<String>,
    /// Whether it serves requests that stand alone.
    pub(super) is_stateless: bool,
    streams: Mutex<Streams>,
    /// Something was put into a stream, or a stream or the session has ended.
    changed: Notify,
    /// Something was taken out of a stream, or may be given up: there is room.
    taken: Notify,
    /// Messages for the pump, each with its memory.
    incoming: mpsc::Sender<(Bytes, Option<Held>)>,
    over: watch::Sender<Option<Closed>>,
    pub(super) posts: Arc<Semaphore>,
    last: Mutex<Instant>,
    place: Place,
    /// The version that the server chose.
    version: Mutex<Option<String>>,
    budget: OnceLock<Budget>,
    /// The memory of events that are kept for a client that comes again. It is not the session's own: what is
    /// reserved for a session is for messages on their way, and they would find no room behind kept ones.
    kept: Budget,
    idle: Duration,
}

/// What a reader of a stream finds.
pub(super) enum Next {
    /// The next event.
    Event(super::streams::Event),
    /// The stream has ended.
    Ended,
    /// The session has ended before the stream.
    Over(Closed),
}

impl ClientSession {
    /// A session, and the transport that the pump drives.
    pub(super) fn new(
        state: &Arc<DoorState>,
        id: String,
        holder: Option<String>,
        is_stateless: bool,
        place: Place,
    ) -> (Arc<Self>, DoorTransport) {
        let (incoming, frames) = mpsc::channel(1);
        let memory = session_memory(state.limit);
        let session = Arc::new(Self {
            id,
            holder,
            is_stateless,
            streams: Mutex::new(Streams::new(memory, !is_stateless)),
            changed: Notify::new(),
            taken: Notify::new(),
            incoming,
            over: watch::Sender::new(None),
            posts: Arc::new(Semaphore::new(POSTS)),
            last: Mutex::new(Instant::now()),
            place,
            version: Mutex::default(),
            budget: OnceLock::new(),
            kept: state.common.share(0),
            idle: if is_stateless { UNUSED } else { state.idle },
        });
        let transport = DoorTransport {
            session: session.clone(),
            state: state.clone(),
            frames,
        };
        (session, transport)
    }

    pub(super) fn streams(&self) -> MutexGuard<'_, Streams> {
        lock(&self.streams)
    }

    pub(super) fn version(&self) -> Option<String> {
        lock(&self.version).clone()
    }

    /// Notes that the client is active.
    pub(super) fn touch(&self) {
        *lock(&self.last) = Instant::now();
        self.place.set_idle(false);
    }

    /// The session may be given up for a newcomer.
    pub(super) fn set_unused(&self) {
        *lock(&self.last) = Instant::now();
        self.place.set_idle(true);
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.borrow().is_some()
    }

    /// Why it has ended.
    pub(super) fn closed(&self) -> Option<Closed> {
        self.over.borrow().clone()
    }

    /// Wakes the readers of its streams: one may have been replaced.
    pub(super) fn wake(&self) {
        self.changed.notify_waiters();
    }

    /// Ends it; only the first call says why.
    pub(super) fn end(&self, code: u16, reason: &str) {
        self.over.send_if_modified(|over| {
            let is_first = over.is_none();
            if is_first {
                *over = Some(Closed {
                    code,
                    reason: reason.to_owned(),
                });
            }
            is_first
        });
        self.changed.notify_waiters();
        self.taken.notify_waiters();
    }

    /// Hands a message to the pump, once it takes one. False: the session has ended.
    pub(super) async fn receive(&self, bytes: Bytes) -> bool {
        let mut over = self.over.subscribe();
        let place = tokio::select! {
            place = self.incoming.reserve() => place,
            _ = over.wait_for(Option::is_some) => return false,
        };
        let Ok(place) = place else {
            return false;
        };
        // In the pump's queue the message may wait for as long as the target does not read.
        let budget = self.budget.get();
        let held = budget.map(|budget| budget.charge_allocated(bytes.len()));
        place.send((bytes, held));
        true
    }

    /// The next event of a stream for a reader. Cancel-safe.
    pub(super) async fn next(&self, stream: u64, reader: u64) -> Next {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let keep = |size| self.kept.charge(size);
            let taken = self.streams().take(stream, reader, keep);
            match taken {
                Taken::Event(event) => {
                    self.taken.notify_waiters();
                    return Next::Event(event);
                }
                Taken::Ended => return Next::Ended,
                Taken::Nothing => {}
            }
            if let Some(closed) = self.over.borrow().clone() {
                return Next::Over(closed);
            }
            changed.await;
        }
    }

    /// Opens a stream for the requests in a message, and a reader of it.
    pub(super) fn open(&self, message: &Message) -> Result<(u64, u64), NotOpened> {
        // Before its target is connected a session has no memory of its own; it has one client's first request then.
        let budget = self.budget.get().unwrap_or(&self.kept);
        let mut streams = self.streams();
        let stream = streams.open(message, |size| budget.charge(size))?;
        let reader = streams.attach(stream, None).ok_or(NotOpened::IdInUse)?;
        Ok((stream, reader))
    }

    /// Removes a reader that is gone.
    pub(super) fn detach(&self, stream: u64, reader: u64) {
        self.streams().detach(stream, reader);
        self.taken.notify_waiters();
        self.touch();
    }

    /// Ends a request that was cancelled, and its stream if no other request is open in it.
    pub(super) fn cancel(&self, key: &str) -> bool {
        let is_open = self.streams().cancel(Instant::now().into_std(), key);
        self.changed.notify_waiters();
        self.taken.notify_waiters();
        is_open
    }

    /// Removes the stream of a request that never reached the server. Returns the messages that were not
    /// read.
    pub(super) fn abandon(&self, stream: u64) -> Vec<Bytes> {
        let unread = self.streams().abandon(stream);
        self.taken.notify_waiters();
        unread
    }

    /// Completes when a stream has ended, or the session has.
    pub(super) async fn stream_ended(&self, stream: u64) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.streams().has_ended(stream) || self.is_over() {
                return;
            }
            changed.await;
        }
    }

    /// Completes once the session was silent for so long that it must end; before that it is marked as one
    /// that makes room for newcomers.
    async fn silent(&self) {
        loop {
            let (last, now) = (*lock(&self.last), Instant::now());
            let is_quiet = self.streams().is_quiet();
            if !is_quiet {
                // While a stream is read, the session does not count as silent.
                sleep_until(now + MAKES_ROOM.min(self.idle)).await;
                self.touch();
                continue;
            }
            if now >= last + self.idle {
                return;
            }
            if now >= last + MAKES_ROOM {
                self.place.set_idle(true);
                sleep_until((last + self.idle).min(now + MAKES_ROOM)).await;
            } else {
                sleep_until((last + MAKES_ROOM).min(last + self.idle)).await;
            }
        }
    }

    /// Puts a message of the server into its stream, as soon as there is room.
    async fn put(&self, bytes: Bytes) -> Result<(), Lost> {
        let message = Message::heard(&bytes, |key| self.streams().is_open(key));
        if self.is_stateless
            && let Some(Message::Notification {
                cancels: Some(id), ..
            }) = &message
            && self.cancel(id)
        {
            // The message ends a subscription; over HTTP the end of its stream says the same.
            return Ok(());
        }
        let size = bytes.len();
        let until = Instant::now() + SLOW + Duration::from_secs(size as u64 / BYTES_A_SECOND);
        loop {
            let room = self.taken.notified();
            tokio::pin!(room);
            room.as_mut().enable();
            let budget = self.budget.get();
            let charge = || budget.map(|budget| budget.charge_allocated(bytes.len()));
            let now = Instant::now().into_std();
            let put = self.streams().put(now, message.as_ref(), &bytes, charge);
            match put {
                Put::Done => break,
                Put::Nowhere => {
                    tracing::debug!(
                        size,
                        "dropped an answer of the server: no request waits for it any more"
                    );
                    return Ok(());
                }
                Put::Evicted(messages) => {
                    self.evicted(messages).await;
                    break;
                }
                Put::Full => {
                    if self.is_over() || timeout_at(until, room).await.is_err() {
                        return Err(Lost("the client reads its streams too slowly".to_owned()));
                    }
                }
            }
        }
        if !self.is_stateless && lock(&self.version).is_none() {
            *lock(&self.version) = chosen_version(&bytes);
        }
        self.changed.notify_waiters();
        Ok(())
    }

    /// Messages that waited too long for a GET: a request is answered, a notification is lost.
    pub(super) async fn evicted(&self, messages: Vec<Bytes>) {
        for bytes in messages {
            let requests = Unread::of(&bytes).requests;
            tracing::warn!(
                size = bytes.len(),
                "dropped a message of the server: its client has no stream open (GET), and too many wait for one"
            );
            for id in requests {
                let words = "the client has no stream open, and too many messages wait for one";
                let answer = jsonrpc::error(Some(id), SERVER_ERROR, words, None);
                let _ = timeout(LAST_EVENTS, self.receive(answer.into())).await;
            }
        }
    }
}

async fn timeout_at<F: Future>(
    until: Instant,
    future: F,
) -> Result<F::Output, tokio::time::error::Elapsed> {
    tokio::time::timeout_at(until, future).await
}

/// The transport of a session.
pub(super) struct DoorTransport {
    session: Arc<ClientSession>,
    state: Arc<DoorState>,
    frames: mpsc::Receiver<(Bytes, Option<Held>)>,
}

impl Transport for DoorTransport {
    type Source = DoorSource;
    type Sink = DoorSink;

    fn carries(&self, carries: Carries) -> bool {
        carries == Carries::Text
    }

    fn charge_to(&mut self, budget: &Budget) {
        let _ = self.session.budget.set(budget.clone());
    }

    fn split(self) -> (DoorSource, DoorSink) {
        let source = DoorSource {
            over: self.session.over.subscribe(),
            session: self.session.clone(),
            frames: self.frames,
        };
        let sink = DoorSink {
            session: self.session,
            state: self.state,
        };
        (source, sink)
    }
}

/// The receiving half: what the client posts.
pub(super) struct DoorSource {
    session: Arc<ClientSession>,
    frames: mpsc::Receiver<(Bytes, Option<Held>)>,
    over: watch::Receiver<Option<Closed>>,
}

impl Source for DoorSource {
    async fn next(&mut self) -> Incoming {
        let evicted = self.session.place.evicted();
        tokio::select! {
            // What was posted before the end is delivered before it.
            biased;
            Some((bytes, _held)) = self.frames.recv() => return Incoming::Frame(Frame::Text(bytes)),
            _ = self.over.wait_for(Option::is_some) => {}
            () = self.session.silent() => {
                let seconds = self.session.idle.as_secs();
                self.session.end(1000, &format!("no message for {seconds} s"));
            }
            () = evicted => self.session.end(1000, "the session was ended to make room for another client"),
        }
        let over = self.session.over.borrow().clone();
        Incoming::Closed(over.unwrap_or(Closed {
            code: 1006,
            reason: String::new(),
        }))
    }
}

/// The sending half: the streams.
pub(super) struct DoorSink {
    session: Arc<ClientSession>,
    state: Arc<DoorState>,
}

impl Sink for DoorSink {
    async fn send(&mut self, frame: Frame) -> Result<(), Lost> {
        match frame {
            Frame::Text(bytes) => self.session.put(bytes).await,
            Frame::Binary(_) => Err(Lost("MCP over HTTP carries text alone".to_owned())),
        }
    }

    async fn close(&mut self, code: u16, reason: &str) {
        self.session.end(code, reason);
        let session = &self.session;
        let read = async {
            loop {
                let taken = session.taken.notified();
                tokio::pin!(taken);
                taken.as_mut().enable();
                if !session.streams().is_behind() {
                    return;
                }
                taken.await;
            }
        };
        let _ = timeout(LAST_EVENTS, read).await;
        let unread = session.streams().unread();
        if unread > 0 {
            tracing::info!(
                messages = unread,
                "the client did not read all that the server sent"
            );
        }
    }
}

impl Drop for DoorSink {
    fn drop(&mut self) {
        self.session.end(1006, "the session was dropped");
        self.state.forget(&self.session);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use axum::http::Request;

    use super::super::streams::OPEN;
    use super::*;
    use crate::endpoint::At;
    use crate::open;
    use crate::plan::{Config, Plan};

    /// A message of the server that is as large as messages may be.
    fn large(size: usize) -> Bytes {
        let text = "x".repeat(size - 60);
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/m","params":"{text}"}}"#).into()
    }

    fn request(id: u32) -> Message {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#);
        Message::read(text.as_bytes()).unwrap()
    }

    /// A session of the session era, and its transport.
    fn scene(listen: &str, limit: usize) -> (Plan, Arc<ClientSession>, DoorTransport) {
        let config = Config::default().with(|config| config.max_message = Some(limit));
        let plan = Plan::new(listen.parse().unwrap(), "exec:cat".parse().unwrap(), config);
        let plan = plan.unwrap();
        let At::Http(address) = plan.listen.at.clone() else {
            panic!("no HTTP listener")
        };
        let (arriving, _arrivals) = mpsc::channel(1);
        let state = Arc::new(DoorState::new(&plan, &address, arriving));
        let head = Request::builder().header("host", "127.0.0.1").body(());
        let visitor = state.guard.admit(&head.unwrap().into_parts().0).unwrap();
        let place = state.guard.place(&visitor).unwrap();
        let (session, transport) = ClientSession::new(&state, "id".to_owned(), None, false, place);
        (plan, session, transport)
    }

    /// A request that nobody answers, and whose client has gone, must not keep its session and command for
    /// ever.
    // MCPH-7
    #[tokio::test(start_paused = true)]
    async fn an_open_request_whose_client_has_gone_keeps_no_session() {
        let (plan, session, transport) = scene("http://127.0.0.1:0/mcp?idle=100", 1000);
        let connection = open::open(&plan.listen, open::whole(&plan.listen), transport).unwrap();
        let (stream, reader) = session.open(&request(1)).unwrap();
        let begun = Instant::now();
        // For as long as its client waits for the answer it is there.
        tokio::time::sleep(Duration::from_secs(1000)).await;
        assert!(!session.is_over());
        session.detach(stream, reader);
        let closed = connection.closed().await;
        let waited = begun.elapsed().as_secs();
        assert!((1100..1300).contains(&waited), "{waited} s");
        assert_eq!(closed.reason, "no message for 100 s");
    }

    /// The ids of open requests are kept, so their number is limited and their memory is charged.
    // MCPH-7
    #[tokio::test]
    async fn open_requests_are_counted_and_charged() {
        let (plan, session, transport) = scene("http://127.0.0.1:0/mcp", 1000);
        let _connection = open::open(&plan.listen, open::whole(&plan.listen), transport).unwrap();
        let budget = session.budget.get().unwrap();
        let before = budget.used();
        let mut streams = Vec::new();
        for id in 0..OPEN as u32 {
            let (stream, reader) = session.open(&request(id)).unwrap();
            session.detach(stream, reader);
            streams.push(stream);
        }
        assert!(budget.used() - before >= OPEN * 512, "{}", budget.used());
        let one_more = session.open(&request(1000));
        assert_eq!(one_more, Err(NotOpened::TooMany(OPEN + 1)));
        // One that the server never got is forgotten, and its id is free again.
        drop(session.streams().abandon(streams[7]));
        assert!(session.open(&request(7)).is_ok());
        for stream in streams {
            drop(session.streams().abandon(stream));
        }
        assert!(budget.used() - before < 2 * 1024, "{}", budget.used());
    }

    // MCPH-7
    #[tokio::test(start_paused = true)]
    async fn a_stream_that_is_not_read_for_a_minute_ends_its_session_with_the_reason() {
        const LIMIT: usize = 100_000;
        let (plan, session, transport) = scene("http://127.0.0.1:0/mcp", LIMIT);
        let (stream, reader) = session.open(&request(1)).unwrap();
        let connection = open::open(&plan.listen, open::whole(&plan.listen), transport).unwrap();
        // Twenty times what the session's streams may hold: the sender has to wait.
        let begun = Instant::now();
        let sender = {
            let connection = connection.clone();
            tokio::spawn(async move {
                for _ in 0..20 * session_memory(LIMIT) / LIMIT {
                    let message = breakbulk_link::Outgoing::new(large(LIMIT));
                    if connection.send_when_writable(message).await.is_err() {
                        return;
                    }
                }
            })
        };
        let closed = connection.closed().await;
        sender.await.unwrap();
        let waited = begun.elapsed();
        assert!(
            waited >= SLOW && waited < 3 * SLOW,
            "closed after {waited:?}"
        );
        let told = "the client reads its streams too slowly";
        assert!(closed.reason.ends_with(told), "{closed}");
        // Until then nothing of what waited was dropped.
        assert!(matches!(session.next(stream, reader).await, Next::Event(_)));
    }

    /// They were taken for no answers, went to the newest request, and left theirs open.
    // MCPH-5
    #[tokio::test]
    async fn answers_beside_a_word_that_is_too_long_reach_their_requests() {
        let (_plan, session, _transport) = scene("http://127.0.0.1:0/mcp", 100_000);
        let (first, reader) = session.open(&request(1)).unwrap();
        let (second, other) = session.open(&request(2)).unwrap();
        let long = "x".repeat(5000);
        let batch = format!(
            r#"[{{"jsonrpc":"2.0","method":"{long}"}},{{"jsonrpc":"2.0","id":9,"result":{{}}}},{{"jsonrpc":"2.0","id":1,"result":{{}}}}]"#
        );
        session.put(batch.into()).await.unwrap();
        let next = timeout(LAST_EVENTS, session.next(first, reader));
        assert!(matches!(next.await, Ok(Next::Event(_))));
        assert!(session.streams().has_ended(first));
        assert!(!session.streams().has_ended(second));
        session.detach(second, other);
    }
}

//! POSTs: each brings one message, and is answered when the server has answered it.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::HeaderValue;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Response, StatusCode};
use breakbulk_link::lock;
use breakbulk_message::jsonrpc::INVALID_REQUEST;
use breakbulk_message::mcp::cancellation;
use breakbulk_net::http::{BodyCharge, BodyError, Visitor, read_body};
use breakbulk_net::{AddressKey, JsonScan};
use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::DoorState;
use super::answer::{
    Refusal, accepted, busy_for, closing, gone, no_memory, over, oversized, refusal, stream, whole,
};
use super::body::Reading;
use super::session::{ClientSession, Next, POSTS};
use super::streams::{Event, NotOpened, OPEN};
use crate::mcp::errors::too_large;
use crate::mcp::head::{
    self, Era, HEADER_MISMATCH, Headers, PARSE_ERROR, Refused, SERVER_ERROR, SESSION,
    SESSION_NOT_FOUND,
};
use crate::mcp::message::{LIST_TOOLS, Message, Unreadable};

/// How long a body may take to arrive, plus a second for each 16 KiB that its head declares.
const BODY_TIME: Duration = Duration::from_secs(60);
const BODY_RATE: u64 = 16 << 10;

/// How long a message may wait until the server takes it.
const TAKEN: Duration = Duration::from_secs(60);

/// An answer that comes within this time, and is all that comes, is sent as JSON. Later the client gets a
/// stream, whose comments keep the connection open. Clients from 2025-11-25 on, up to the stateless era,
/// get a stream at once: they can resume it.
const AS_JSON: Duration = Duration::from_secs(5);

/// How long the answer to `initialize` may take: without it there is no session to tell the client.
const BEGIN: Duration = Duration::from_secs(120);

/// How long a server may take to answer a request that was cancelled; else its session is not used again.
const CANCELLED: Duration = Duration::from_secs(5);

impl Headers for HeaderMap {
    fn all(&self, name: &str) -> Vec<String> {
        let all = self.get_all(name).iter();
        all.map(|value| value.to_str().unwrap_or_default().to_owned())
            .collect()
    }
}

/// Answers a POST.
pub(super) async fn post(
    state: &Arc<DoorState>,
    visitor: &Visitor,
    head: &Parts,
    body: Body,
) -> Result<Response<Body>, Refusal> {
    let headers = &head.headers;
    head::check_post(headers).map_err(|refused| refusal(&refused))?;
    let mut charge = state.bodies.begin(owner(state, visitor, headers));
    let evicted = charge.evicted();
    let declared = declared(headers);
    let to_come = declared.unwrap_or(0).min(state.limit as u64);
    let within = BODY_TIME + Duration::from_secs(to_come / BODY_RATE);
    let bytes = tokio::select! {
        bytes = timeout(within, read(state, headers, body, &mut charge)) => match bytes {
            Ok(bytes) => bytes?,
            Err(_) => {
                let seconds = within.as_secs();
                let words = format!("the body did not arrive within {seconds} s");
                return Err(closing(refusal(&Refused::new(408, SERVER_ERROR, words))));
            }
        },
        () = evicted => return Err(closing(no_memory(declared))),
    };
    let body = Received { bytes, charge };
    let message = Message::read(&body.bytes).map_err(|unreadable| {
        let code = match unreadable {
            Unreadable::NoJson => PARSE_ERROR,
            _ => INVALID_REQUEST,
        };
        refusal(&Refused::new(400, code, unreadable.words()))
    })?;
    let refuse = |refused: Refused| refusal(&refused.to(&message));
    match head::era(headers, &message).map_err(refuse)? {
        Era::Begins => {
            let session = tokio::select! {
                session = state.begin(visitor, false) => session.map_err(busy_for(&message))?,
                () = body.charge.evicted() => return Err(no_memory(declared)),
            };
            begin(state, session, &message, body).await
        }
        Era::Session => {
            let session = state.find(headers, visitor).ok_or_else(|| {
                let words = "there is no such session; begin another by initialize";
                refuse(Refused::new(404, SESSION_NOT_FOUND, words))
            })?;
            let chosen = session.version();
            head::check_version(headers, chosen.as_deref()).map_err(refuse)?;
            in_session(state, session, &message, body).await
        }
        Era::Stateless => {
            if let Message::Request(request) = &message {
                let header = |name: &str| headers.only(name).ok().flatten();
                let checked = lock(&state.tools).check(&request.method, &body.bytes, header);
                checked.map_err(|words| refuse(Refused::new(400, HEADER_MISMATCH, words)))?;
            }
            let session = tokio::select! {
                session = state.backend(visitor) => session.map_err(busy_for(&message))?,
                () = body.charge.evicted() => return Err(no_memory(declared)),
            };
            stateless(state, session, message.clone(), body).await
        }
    }
}

/// A body, and its memory until it is the pump's.
struct Received {
    bytes: Bytes,
    charge: BodyCharge,
}

/// Who is charged for a body: its session, or its address.
fn owner(state: &DoorState, visitor: &Visitor, headers: &HeaderMap) -> usize {
    use std::hash::{DefaultHasher, Hash, Hasher};
    match state.find(headers, visitor) {
        Some(session) => Arc::as_ptr(&session) as usize,
        None => {
            let mut hasher = DefaultHasher::new();
            // All addresses of an IPv6 network are one client's: each would have a share of its own.
            let address = visitor.address.and_then(|at| AddressKey::of(at.ip()));
            (address, &visitor.holder).hash(&mut hasher);
            hasher.finish() as usize
        }
    }
}

/// The length of a body, as far as the head tells.
fn declared(headers: &HeaderMap) -> Option<u64> {
    let declared = headers.only("content-length").ok().flatten();
    declared.and_then(|it| it.parse().ok())
}

async fn read(
    state: &DoorState,
    headers: &HeaderMap,
    body: Body,
    charge: &mut BodyCharge,
) -> Result<Bytes, Refusal> {
    let limit = state.limit;
    let (mut scan, mut seen) = (JsonScan::new(&["id", "method"]), 0);
    // A body over the limit is still read for a while: its id may stand at the end, and a client that is
    // still sending would not see the answer.
    let drained = limit.saturating_mul(2);
    let read = read_body(headers, body, (limit, drained), charge, |bytes| {
        scan.feed(bytes);
        seen += bytes.len() as u64;
    })
    .await;
    read.map_err(|error| match error {
        BodyError::TooLarge { declared, unread } => {
            let members = scan.members();
            let id = members.get("id").filter(|_| members.has("method"));
            let size = declared.unwrap_or(seen);
            let words = format!(
                "message too large: {size} bytes, and the gateway takes {limit}; send less, or start the gateway with a larger --max-message"
            );
            let body = too_large(id, size, limit, &words);
            let response = oversized(body, words);
            match unread {
                true => closing(response),
                false => response,
            }
        }
        BodyError::EndedEarly => {
            let words = "the body ended early";
            closing(refusal(&Refused::new(400, PARSE_ERROR, words)))
        }
        BodyError::Busy => closing(no_memory(declared(headers))),
    })
}

/// A POST that is being answered. In the stateless era dropping it before its answer cancels the request, and
/// dropping it after the answer makes the session free for the next request.
pub(super) struct Posted {
    state: Arc<DoorState>,
    session: Arc<ClientSession>,
    /// The stream for the answers to its requests.
    stream: u64,
    /// The id of its only request, as it was written.
    id: Option<String>,
    /// Whether it asks for the list of tools.
    lists_tools: bool,
    /// Whether the server got the message.
    is_taken: bool,
    _permit: OwnedSemaphorePermit,
}

impl Posted {
    /// Learns from an answer which arguments of tools are repeated in headers.
    pub(super) fn learn(&self, event: &Event) {
        if event.answer == Some(None) && self.lists_tools {
            lock(&self.state.tools).learn(&event.bytes);
        }
    }
}

impl Drop for Posted {
    fn drop(&mut self) {
        if !self.is_taken {
            // The server will not answer what it never got.
            let unread = self.session.abandon(self.stream);
            if self.session.is_stateless {
                // A server that did not take this request would not serve the next client either.
                self.session.end(1000, "the server took no request");
            } else if !unread.is_empty() {
                let session = self.session.clone();
                tokio::spawn(async move { session.evicted(unread).await });
            }
            return;
        }
        if !self.session.is_stateless {
            return;
        }
        let ended = self.session.streams().has_ended(self.stream);
        match (self.id.take(), ended) {
            (Some(id), false) => {
                let (state, session) = (self.state.clone(), self.session.clone());
                let stream = self.stream;
                tokio::spawn(async move {
                    let cancel = cancellation(&id, "the client closed its connection");
                    let cancelled = async {
                        session.receive(cancel.into()).await;
                        session.stream_ended(stream).await;
                    };
                    match timeout(CANCELLED, cancelled).await {
                        Ok(()) => state.give_back(&session),
                        // The server may still send something for this request, which no other client must
                        // get.
                        Err(_) => session.end(1000, "the request was cancelled"),
                    }
                });
            }
            _ => self.state.give_back(&self.session),
        }
    }
}

/// The first message of a session.
async fn begin(
    state: &Arc<DoorState>,
    session: Arc<ClientSession>,
    message: &Message,
    body: Received,
) -> Result<Response<Body>, Refusal> {
    // The client learns the session's name from the answer: without the answer nobody can use the session.
    let unknown = Unknown(Some(session.clone()));
    let (reading, posted) = ask(state, &session, message, body).await?;
    let next = timeout(BEGIN, reading.next()).await;
    let event = match next {
        Ok(Next::Event(event)) => event,
        Ok(Next::Ended) => return Err(gone(message, 502, "the session has ended")),
        Ok(Next::Over(closed)) => return Err(over(message, &closed)),
        Err(_) => {
            let seconds = BEGIN.as_secs();
            let words = format!("the server did not answer initialize within {seconds} s");
            return Err(gone(message, 504, &words));
        }
    };
    let is_refused = matches!(event.answer, Some(Some(_)));
    let mut response = match event.answer {
        Some(_) => whole(StatusCode::OK, event, posted),
        // A message that the server sends before its answer becomes the first event of a stream.
        None => stream(reading, Some(posted), Some(event), None),
    };
    if !is_refused {
        unknown.keep();
        if let Ok(id) = HeaderValue::from_str(&session.id) {
            response.headers_mut().insert(SESSION, id);
        }
    }
    Ok(response)
}

/// A session whose name its client does not know yet: dropping this ends the session.
struct Unknown(Option<Arc<ClientSession>>);

impl Unknown {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Unknown {
    fn drop(&mut self) {
        if let Some(session) = &self.0 {
            session.end(
                1000,
                "the client did not wait for the answer to initialize, or was refused",
            );
        }
    }
}

/// A message in a session.
async fn in_session(
    state: &Arc<DoorState>,
    session: Arc<ClientSession>,
    message: &Message,
    body: Received,
) -> Result<Response<Body>, Refusal> {
    session.touch();
    if message.requests().is_empty() {
        let cancels = match message {
            Message::Notification { cancels, .. } => cancels.clone(),
            _ => None,
        };
        accept(&session, message, body).await?;
        if let Some(id) = cancels {
            // The server does not answer a cancelled request any more.
            session.cancel(&id);
        }
        return Ok(accepted());
    }
    let (reading, posted) = ask(state, &session, message, body).await?;
    if head::takes_primer(session.version().as_deref()) {
        // The client can resume the stream from its begin, whatever happens to the connection.
        return Ok(stream(reading, Some(posted), None, Some(0)));
    }
    Ok(match timeout(AS_JSON, reading.next()).await {
        Ok(Next::Event(event)) if is_all(&session, &reading, &event, message) => {
            whole(StatusCode::OK, event, posted)
        }
        Ok(Next::Event(event)) => stream(reading, Some(posted), Some(event), None),
        Ok(Next::Ended) => stream(reading, Some(posted), None, None),
        Ok(Next::Over(closed)) => return Err(over(message, &closed)),
        Err(_) => stream(reading, Some(posted), None, None),
    })
}

/// Whether an event is all that a stream has: the answer to its only request.
fn is_all(session: &ClientSession, reading: &Reading, event: &Event, message: &Message) -> bool {
    let is_single = matches!(message, Message::Request(_));
    is_single && event.answer.is_some() && session.streams().has_ended(reading.stream)
}

/// A message that stands alone.
async fn stateless(
    state: &Arc<DoorState>,
    session: Arc<ClientSession>,
    message: Message,
    body: Received,
) -> Result<Response<Body>, Refusal> {
    let Message::Request(_) = &message else {
        let outcome = accept(&session, &message, body).await;
        state.give_back(&session);
        return outcome.map(|()| accepted());
    };
    let (reading, posted) = ask(state, &session, &message, body).await?;
    Ok(match timeout(AS_JSON, reading.next()).await {
        Ok(Next::Event(event)) if is_all(&session, &reading, &event, &message) => {
            let status = head::status(event.answer.flatten());
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
            whole(status, event, posted)
        }
        Ok(Next::Event(event)) => stream(reading, Some(posted), Some(event), None),
        Ok(Next::Ended) => stream(reading, Some(posted), None, None),
        Ok(Next::Over(closed)) => return Err(over(&message, &closed)),
        Err(_) => stream(reading, Some(posted), None, None),
    })
}

/// Hands requests to the server; their answers are read from a stream of their own.
async fn ask(
    state: &Arc<DoorState>,
    session: &Arc<ClientSession>,
    message: &Message,
    body: Received,
) -> Result<(Reading, Posted), Refusal> {
    let permit = session.posts.clone().try_acquire_owned().map_err(|_| {
        let words = format!(
            "{POSTS} requests of this session are open, which is the limit; wait for an answer"
        );
        refusal(&Refused::new(429, SERVER_ERROR, words).to(message))
    })?;
    let (stream, reader) = session.open(message).map_err(|why| {
        if session.is_stateless {
            state.give_back(session);
        }
        not_opened(why, message)
    })?;
    let reading = Reading {
        session: session.clone(),
        stream,
        reader,
    };
    let request = match message {
        Message::Request(request) => Some(request),
        _ => None,
    };
    let mut posted = Posted {
        state: state.clone(),
        session: session.clone(),
        stream,
        id: request.map(|request| request.id.clone()),
        lists_tools: request.is_some_and(|request| request.method == LIST_TOOLS),
        is_taken: false,
        _permit: permit,
    };
    accept(session, message, body).await?;
    posted.is_taken = true;
    Ok((reading, posted))
}

/// The answer to requests for which there is no stream.
fn not_opened(why: NotOpened, message: &Message) -> Refusal {
    let refused = match why {
        NotOpened::IdInUse => Refused::new(
            400,
            INVALID_REQUEST,
            "a request with this id is open in this session; use another id",
        ),
        NotOpened::TooMany(open) => {
            let words = format!(
                "{open} requests of this session would be open, and {OPEN} is the limit; wait for answers, or cancel some"
            );
            Refused::new(429, SERVER_ERROR, words)
        }
        NotOpened::NoMemory => Refused::new(
            503,
            SERVER_ERROR,
            "this session has no memory left for another open request: try again later",
        ),
    };
    refusal(&refused.to(message))
}

/// Hands a message to the server.
async fn accept(session: &ClientSession, message: &Message, body: Received) -> Result<(), Refusal> {
    let Received { bytes, charge } = body;
    let size = bytes.len() as u64;
    let taken = tokio::select! {
        taken = timeout(TAKEN, session.receive(bytes)) => taken,
        () = charge.evicted() => return Err(no_memory(Some(size))),
    };
    drop(charge);
    match taken {
        Ok(true) => Ok(()),
        Ok(false) => match session.closed() {
            Some(closed) => Err(over(message, &closed)),
            None => Err(gone(message, 404, "the session has ended")),
        },
        Err(_) => {
            let seconds = TAKEN.as_secs();
            let words = format!("the server read nothing for {seconds} s");
            Err(gone(message, 503, &words))
        }
    }
}

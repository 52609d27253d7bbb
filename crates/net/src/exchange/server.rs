//! The server: opens sessions, takes numbered POSTs and answers numbered polls.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts as Head;
use axum::http::{Response, StatusCode};
use breakbulk_link::{Budget, Carries, Frame};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::body::{Record, Records};
use super::downloads::{Downloads, NoAnswer};
use super::streams::{self, Asked, Streams};
use super::uploads::{NotTaken, Upload, Uploads};
use crate::http::connection::{HttpConnection, HttpSource, Registration, Requests, closed};
use crate::http::presence::PresentGuard;
use crate::http::query::parameter;
use crate::http::server::{ServerState, peer_id_taken};
use crate::http::with_body;
use crate::http::{
    AcceptedTransport, Answer, Arrival, Grant, Parts, ServeOptions, Way, read_or_answer,
};
use crate::transport::{Incoming, Lost, Sink, Source, Transport};

/// How long a client may take from opening a session to its first poll. The session is handed to the
/// application only then.
const FIRST_POLL: Duration = Duration::from_secs(10);

/// The size of the parts of an answer that are given to the socket.
const PART: usize = 32 << 10;

/// The numbered requests of one session.
pub(crate) struct Exchange {
    uploads: Uploads,
    pub(super) downloads: Downloads,
    pub(super) streams: Streams,
}

impl fmt::Debug for Exchange {
    /// Omits the frames.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").finish_non_exhaustive()
    }
}

/// The session of a client: its polls and POSTs.
#[derive(Debug)]
pub struct ExchangeServer {
    source: ExchangeServerSource,
    sink: ExchangeServerSink,
}

impl Transport for ExchangeServer {
    type Source = ExchangeServerSource;
    type Sink = ExchangeServerSink;

    fn carries(&self, _carries: Carries) -> bool {
        true
    }

    fn charge_to(&mut self, budget: &Budget) {
        self.source.budget = Some(budget.clone());
        if let Some(exchange) = self.sink.registration.connection.exchange() {
            exchange.downloads.charge_to(budget);
        }
    }

    fn split(self) -> (ExchangeServerSource, ExchangeServerSink) {
        (self.source, self.sink)
    }
}

/// The receiving half: the frames of POSTs.
#[derive(Debug)]
pub struct ExchangeServerSource {
    uploads: mpsc::Receiver<Upload>,
    /// The body whose frames are being returned.
    current: Option<Records>,
    /// The budget that the body is charged to.
    budget: Option<Budget>,
    /// Reports signs of life and the end of the session.
    life: HttpSource,
}

impl Source for ExchangeServerSource {
    async fn next(&mut self) -> Incoming {
        loop {
            match self.current.as_mut().and_then(Iterator::next) {
                Some(Record::Frame(frame)) => return Incoming::Frame(frame),
                Some(Record::Close(closed)) => {
                    self.life.connection().end(closed.clone());
                    return Incoming::Closed(closed);
                }
                None => self.current = None,
            }
            tokio::select! {
                // Frames that were posted before the end are delivered before it.
                biased;
                Some(Upload { mut records, taken }) = self.uploads.recv() => {
                    records.charge_to(self.budget.as_ref());
                    self.current = Some(records);
                    let _ = taken.send(());
                }
                incoming = self.life.next() => return incoming,
            }
        }
    }
}

/// The sending half: the answers to polls.
#[derive(Debug)]
pub struct ExchangeServerSink {
    registration: Arc<Registration>,
}

impl ExchangeServerSink {
    /// Does something with the session's answers, unless the session ends before.
    async fn while_open(&self, work: impl AsyncFnOnce(&Downloads)) -> Result<(), Lost> {
        let connection = &self.registration.connection;
        let gone = || Lost("the session has ended".to_owned());
        let exchange = connection.exchange().ok_or_else(gone)?;
        tokio::select! {
            biased;
            () = connection.ended() => Err(gone()),
            () = work(&exchange.downloads) => Ok(()),
        }
    }
}

impl Sink for ExchangeServerSink {
    async fn send(&mut self, frame: Frame) -> Result<(), Lost> {
        self.while_open(async |downloads| downloads.put(Record::Frame(frame)).await)
            .await
    }

    async fn flush(&mut self) -> Result<(), Lost> {
        self.while_open(async |downloads| downloads.all_got().await)
            .await
    }

    async fn close(&mut self, code: u16, reason: &str) {
        let last = Record::close(code, reason);
        let told = self.while_open(async |downloads| {
            downloads.put(last).await;
            downloads.all_got().await;
        });
        let _ = told.await;
        self.registration.connection.end(closed(code, reason));
    }
}

/// Handles the POST that opens a session.
pub(crate) async fn open(
    State(state): State<Arc<ServerState>>,
    request: Request,
) -> Result<Answer, Answer> {
    let (head, _) = request.into_parts();
    let (claim, grant) = state.authorize(Way::Exchange, fresh_id(&state.options)?, &head)?;
    let permit = state.permit(&claim)?;
    let (uploads, bodies) = Uploads::new();
    let requests = Requests::Exchange(Exchange {
        uploads,
        downloads: Downloads::new(),
        streams: Streams::default(),
    });
    let life = HttpConnection::open(&state, &claim, &grant, permit, requests);
    let connection = life.connection();
    let answer = format!(
        r#"{{"session":"{}","wait":{},"body":{}}}"#,
        claim.peer_id,
        state.options.wait_max.as_millis(),
        state.options.body_max
    );
    let transport = ExchangeServer {
        sink: ExchangeServerSink {
            registration: life.registration(),
        },
        source: ExchangeServerSource {
            uploads: bodies,
            current: None,
            budget: None,
            life,
        },
    };
    let arrival = Arrival {
        claim,
        grant,
        transport: AcceptedTransport::Exchange(transport),
    };
    tokio::spawn(async move {
        // The session of a client that never polls is not handed to the application.
        let polled = async {
            match connection.presence() {
                Some(presence) => presence.seen().await,
                None => std::future::pending().await,
            }
        };
        let within = FIRST_POLL.min(state.options.stale);
        if timeout(within, polled).await.is_ok() && state.queue_arrival(arrival).await.is_err() {
            connection.end(closed(
                1013,
                "the server did not take up this session in time: try again later",
            ));
        }
    });
    Ok(Answer::json(StatusCode::OK, answer))
}

/// Handles a POST with frames.
pub(crate) async fn post(
    State(state): State<Arc<ServerState>>,
    request: Request,
) -> Result<Answer, Answer> {
    let (head, body) = request.into_parts();
    let (connection, number) = session(&state, &head)?;
    let Some(Exchange { uploads, .. }) = connection.exchange() else {
        return Err(unknown());
    };
    let posts = state.options.posts;
    let _permit = connection.post_permit().ok_or_else(|| {
        let error = format!("{posts} POSTs are in progress: send them one after another");
        Answer::error(StatusCode::TOO_MANY_REQUESTS, &error)
    })?;
    // Checked before the body is read, so that a body that is not taken is not charged.
    uploads.expects(number).map_err(refusal)?;
    let mut charge = state.bodies.begin(Arc::as_ptr(&connection) as usize);
    let evicted = charge.evicted();
    let ServeOptions {
        body_max,
        post_time,
        wait_max,
        ..
    } = state.options;
    let work = async {
        let body = read_or_answer(&head.headers, body, body_max, &mut charge);
        let body = timeout(post_time, body).await.unwrap_or_else(|_| {
            let error = format!(
                "the body did not arrive within {} s",
                post_time.as_secs_f64()
            );
            Err(Answer::error(StatusCode::REQUEST_TIMEOUT, &error).closing())
        })?;
        connection.report_alive();
        // If this takes too long: the number in the answer tells the client whether the body was taken.
        let delivered = timeout(wait_max, uploads.deliver(number, body)).await;
        let delivered = delivered.unwrap_or(Ok(()));
        if let Err(NotTaken::Bad(error)) = &delivered {
            connection.end(closed(1002, error));
        }
        delivered.map_err(refusal)
    };
    tokio::select! {
        biased;
        done = work => done?,
        () = connection.ended() => return Err(unknown()),
        () = evicted => {
            connection.end(closed(1013, "the bytes of waiting POSTs fill the memory for them, which others need: send less at once"));
            let error = "the memory for POST bodies is needed for others, and this session holds most of it: try again later";
            return Err(Answer::busy(error).closing());
        }
    }
    let next = uploads.next();
    Ok(Answer::json(
        StatusCode::OK,
        format!(r#"{{"next":{next}}}"#),
    ))
}

/// Handles a poll, which is answered by a stream if it asks for one.
pub(crate) async fn poll(
    State(state): State<Arc<ServerState>>,
    request: Request,
) -> Result<Response<Body>, Answer> {
    let (head, _) = request.into_parts();
    let (connection, number) = session(&state, &head)?;
    let Some(exchange) = connection.exchange() else {
        return Err(unknown());
    };
    let downloads = &exchange.downloads;
    let query = head.uri.query();
    let numeric = |name| parameter(query, name).and_then(|value| value.parse::<u64>().ok());
    let wait = numeric(state.options.dialect.wait_parameter).unwrap_or(0);
    let wait = Duration::from_millis(wait).min(state.options.wait_max);
    let max = numeric("max").and_then(|max| usize::try_from(max).ok());
    let max = max.map_or(state.options.answer_max, |max| {
        max.min(state.options.answer_max)
    });
    let present = PresentGuard::new(connection.clone());
    connection.report_alive();
    let refused = |error| match error {
        NoAnswer::Number { made } => wrong_number(&format!("the last answer was {made}")),
        NoAnswer::DoesNotFit(error) => {
            let closed = error.closed();
            connection.end(closed.clone());
            Answer::error(StatusCode::PAYLOAD_TOO_LARGE, &closed.reason)
        }
    };
    let acknowledged = downloads.acknowledge(numeric("got").unwrap_or(0));
    acknowledged.map_err(refused)?;
    if numeric("events") == Some(1) {
        downloads.expects(number).map_err(refused)?;
        let asked = Asked { number, max, wait };
        return Ok(streams::response(
            connection.clone(),
            exchange,
            present,
            &asked,
        ));
    }
    let answered = tokio::select! {
        biased;
        answered = downloads.answer(number, max, wait) => answered,
        () = connection.ended() => return Err(unknown()),
    };
    let body = answered.map_err(refused)?;
    let is_none = body.is_none();
    let body = body.map(|body| Body::new(Parts::new(body, PART, ())));
    let mut response = with_body(
        body.unwrap_or_else(Body::empty),
        "application/octet-stream",
        "no-store",
    );
    if is_none {
        *response.status_mut() = StatusCode::NO_CONTENT;
    }
    drop(present);
    Ok(response)
}

/// Handles a DELETE: the client is gone, has got the server's close, or reports that an answer does not
/// reach it.
pub(crate) async fn disconnect(
    State(state): State<Arc<ServerState>>,
    request: Request,
) -> Result<Answer, Answer> {
    let (head, _) = request.into_parts();
    let (connection, _) = find(&state, &head)?;
    let refused = parameter(head.uri.query(), "refused").and_then(|number| number.parse().ok());
    let exchange = connection.exchange();
    let is_made = |number| exchange.is_some_and(|it| it.downloads.keeps_large(number));
    connection.end(match refused {
        Some(number) if is_made(number) => closed(
            1009,
            "something on the way refuses this answer, probably for its size",
        ),
        _ => closed(1001, "the client has gone"),
    });
    Ok(Answer::json(StatusCode::OK, state.options.dialect.kept))
}

/// The session that a request belongs to, and the number of the request.
fn session(state: &ServerState, head: &Head) -> Result<(Arc<HttpConnection>, u64), Answer> {
    let (connection, _) = find(state, head)?;
    if let Some(presence) = connection.presence() {
        presence.touch();
    }
    let number = parameter(head.uri.query(), "number").and_then(|number| number.parse().ok());
    let number = number.ok_or_else(|| Answer::bad("the parameter number is required"))?;
    Ok((connection, number))
}

fn find(state: &ServerState, head: &Head) -> Result<(Arc<HttpConnection>, Grant), Answer> {
    let dialect = &state.options.dialect;
    let id = head.headers.get(dialect.peer_header);
    let id = id
        .and_then(|id| id.to_str().ok())
        .filter(|id| !id.is_empty());
    let id = id.ok_or_else(|| Answer::bad(dialect.poll_posts.no_peer))?;
    let (_, grant) = state.authorize(Way::Exchange, id.to_owned(), head)?;
    let connection = state.registry.find(id).ok_or_else(unknown)?;
    match connection.belongs_to(&grant) {
        true => Ok((connection, grant)),
        false => Err(peer_id_taken()),
    }
}

fn unknown() -> Answer {
    let error = "there is no such session, or it has ended: open another one";
    Answer::error(StatusCode::NOT_FOUND, error)
}

fn refusal(error: NotTaken) -> Answer {
    match error {
        NotTaken::Number { next } => wrong_number(&format!("the next POST is {next}")),
        NotTaken::Bad(error) => Answer::bad(&error),
        NotTaken::Gone => unknown(),
    }
}

fn wrong_number(expected: &str) -> Answer {
    let error = format!("the request has a wrong number: {expected}");
    Answer::error(StatusCode::CONFLICT, &error)
}

/// A name that nobody can guess.
fn fresh_id(options: &ServeOptions) -> Result<String, Answer> {
    let mut bytes = [0; 32];
    let filled = crate::ws::provider().secure_random.fill(&mut bytes);
    filled.map_err(|_| Answer::busy("the system has no random numbers: try again later"))?;
    let random: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{}{random}", options.exchange_prefix))
}

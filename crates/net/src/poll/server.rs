//! The server: handles polls and disconnects.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{Response, StatusCode};
use breakbulk_link::{Carries, Frame};
use tokio::sync::{mpsc, oneshot};

use super::polls::{OutgoingMessage, PollLimits, Polls};
use crate::http::connection::{HttpConnection, HttpSource, Registration, Requests, closed};
use crate::http::server::{ServerState, peer_id_taken};
use crate::http::with_body;
use crate::http::{AcceptedTransport, Answer, Arrival, Claim, Dialect, Grant, Way};
use crate::transport::{Lost, Sink, Transport};

/// The polls and POSTs of a client.
#[derive(Debug)]
pub struct PollServer {
    source: HttpSource,
    sink: PollServerSink,
}

/// The sending half: frames go from the link into the answer to a poll, without a queue in between.
#[derive(Debug)]
pub struct PollServerSink {
    out: mpsc::Sender<OutgoingMessage>,
    registration: Arc<Registration>,
}

impl Transport for PollServer {
    type Source = HttpSource;
    type Sink = PollServerSink;

    /// Both: binary frames come in by POSTs, text goes out by polls.
    fn carries(&self, _carries: Carries) -> bool {
        true
    }

    fn split(self) -> (HttpSource, PollServerSink) {
        (self.source, self.sink)
    }
}

impl Sink for PollServerSink {
    async fn send(&mut self, frame: Frame) -> Result<(), Lost> {
        let Frame::Text(text) = frame else {
            return Err(Lost("an answer to a poll carries only text".to_owned()));
        };
        let (taken, until_taken) = oneshot::channel();
        let (held, while_held) = oneshot::channel();
        let message = OutgoingMessage { text, taken, held };
        let sent = async {
            self.out.send(message).await.ok()?;
            until_taken.await.ok()?;
            // Nothing is said by it but that it is dropped.
            let _ = while_held.await;
            Some(())
        };
        let gone = || Lost("the client polls no more".to_owned());
        tokio::select! {
            biased;
            sent = sent => sent.ok_or_else(gone),
            () = self.registration.connection.ended() => Err(gone()),
        }
    }

    async fn close(&mut self, code: u16, reason: &str) {
        self.registration.connection.end(closed(code, reason));
    }
}

/// Handles a poll. The first one of a peer id opens the connection.
pub(crate) async fn poll(
    State(state): State<Arc<ServerState>>,
    request: Request,
) -> Result<Response<Body>, Answer> {
    let (head, _) = request.into_parts();
    let (claim, grant) = authorize(&state, &head)?;
    let known = state.registry.find(&claim.peer_id);
    if let Some(connection) = &known
        && !connection.belongs_to(&grant)
    {
        return Err(peer_id_taken());
    }
    let Some((connection, polls)) = known
        .as_ref()
        .and_then(|connection| Some((connection, connection.polls()?)))
    else {
        open(&state, claim, grant).await?;
        let Dialect {
            messages_member,
            new_member,
            ..
        } = state.options.dialect;
        let body = format!(r#"{{"{messages_member}":[],"{new_member}":true}}"#);
        return Ok(Answer::json(StatusCode::OK, body).into());
    };
    let options = &state.options;
    let wait = claim
        .parameter(options.dialect.wait_parameter)
        .and_then(|wait| wait.parse().ok());
    let wait = Duration::from_millis(wait.unwrap_or(0)).min(options.wait_max);
    connection.report_alive();
    let limits = PollLimits {
        wait,
        linger: options.linger,
        bytes: options.answer_max,
    };
    let batch = polls.collect(connection, limits).await;
    connection.report_alive();
    let body = Body::from_stream(batch.into_body(&options.dialect));
    Ok(with_body(
        body,
        "application/json; charset=utf-8",
        "no-cache",
    ))
}

/// Handles a DELETE: ends the client's connection, if there is one.
pub(crate) async fn disconnect(
    State(state): State<Arc<ServerState>>,
    request: Request,
) -> Result<Answer, Answer> {
    let (head, _) = request.into_parts();
    let (claim, grant) = authorize(&state, &head)?;
    if let Some(connection) = state.registry.find(&claim.peer_id) {
        if !connection.belongs_to(&grant) {
            return Err(peer_id_taken());
        }
        connection.end(closed(1000, "the client disconnected"));
    }
    Ok(Answer::json(StatusCode::OK, state.options.dialect.kept))
}

fn authorize(state: &ServerState, head: &Parts) -> Result<(Claim, Grant), Answer> {
    let no_peer = || Answer::bad(state.options.dialect.no_peer);
    let peer_id = state.peer_id(head).ok_or_else(no_peer)?;
    state.authorize(Way::Poll, peer_id, head)
}

async fn open(state: &Arc<ServerState>, claim: Claim, grant: Grant) -> Result<(), Answer> {
    let permit = state.permit_for(&claim).await?;
    let (out, messages) = mpsc::channel(1);
    let polls = Polls::new(messages);
    let source = HttpConnection::open(state, &claim, &grant, permit, Requests::Polls(polls));
    let sink = PollServerSink {
        out,
        registration: source.registration(),
    };
    let transport = AcceptedTransport::Poll(PollServer { source, sink });
    state
        .queue_arrival(Arrival {
            claim,
            grant,
            transport,
        })
        .await
}

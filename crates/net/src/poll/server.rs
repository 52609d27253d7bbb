//! Polls, as a server answers them.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use axum::http::request::Parts;
use axum::http::{Response, StatusCode};
use breakbulk_link::{Carries, Frame};
use tokio::sync::{mpsc, oneshot};

use super::polls::{Handed, Patience, Polls};
use crate::http::connection::{HttpConnection, HttpSource, Registration, closed};
use crate::http::server::{ServerState, not_yours};
use crate::http::{Answer, Arrival, Arrived, Claim, Dialect, Grant, Way};
use crate::transport::{Lost, Sink, Transport};

/// A client that polls, and its POSTs.
#[derive(Debug)]
pub struct PollServer {
    source: HttpSource,
    sink: PollServerSink,
}

/// The half that frames go out by: from the link into the answer of a poll, without a queue between.
#[derive(Debug)]
pub struct PollServerSink {
    out: mpsc::Sender<Handed>,
    registration: Arc<Registration>,
}

impl Transport for PollServer {
    type Source = HttpSource;
    type Sink = PollServerSink;

    /// Both: binary comes up, text goes down.
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
            return Err(Lost("an answer to a poll carries text alone".to_owned()));
        };
        let (taken, until_taken) = oneshot::channel();
        let handed = async {
            self.out.send(Handed { text, taken }).await.ok()?;
            until_taken.await.ok()
        };
        let gone = || Lost("nobody polls any more".to_owned());
        tokio::select! {
            biased;
            handed = handed => handed.ok_or_else(gone),
            () = self.registration.connection.over() => Err(gone()),
        }
    }

    async fn close(&mut self, code: u16, reason: &str) {
        self.registration.connection.end(closed(code, reason));
    }
}

/// The handler of a poll.
pub(crate) async fn poll(
    State(state): State<Arc<ServerState>>,
    request: Request,
) -> Result<Response<Body>, Answer> {
    let (head, _) = request.into_parts();
    let (claim, grant) = who(&state, &head)?;
    let known = state.registry.find(&claim.peer_id);
    if let Some(connection) = &known
        && !connection.is_of(&grant)
    {
        return Err(not_yours());
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
    connection.alive();
    let patience = Patience {
        wait,
        linger: options.linger,
        bytes: options.answer_max,
    };
    let batch = polls.collect(connection, patience).await;
    connection.alive();
    let mut response = Response::new(Body::from_stream(batch.into_body(&options.dialect)));
    for (name, value) in [
        (CONTENT_TYPE, "application/json; charset=utf-8"),
        (CACHE_CONTROL, "no-cache"),
    ] {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}

/// The handler of a DELETE: the client says good-bye, whether or not it was there.
pub(crate) async fn forget(
    State(state): State<Arc<ServerState>>,
    request: Request,
) -> Result<Answer, Answer> {
    let (head, _) = request.into_parts();
    let (claim, grant) = who(&state, &head)?;
    if let Some(connection) = state.registry.find(&claim.peer_id) {
        if !connection.is_of(&grant) {
            return Err(not_yours());
        }
        connection.end(closed(1000, "the client said good-bye"));
    }
    Ok(Answer::json(StatusCode::OK, state.options.dialect.kept))
}

fn who(state: &ServerState, head: &Parts) -> Result<(Claim, Grant), Answer> {
    let no_peer = || Answer::bad(state.options.dialect.no_peer);
    let peer_id = state.peer_id(head).ok_or_else(no_peer)?;
    state.claim(Way::Poll, peer_id, head)
}

async fn open(state: &Arc<ServerState>, claim: Claim, grant: Grant) -> Result<(), Answer> {
    let permit = state.permit_for(&claim.peer_id).await?;
    let (out, messages) = mpsc::channel(1);
    let polls = Polls::new(messages);
    let source = HttpConnection::open(state, &claim, &grant, permit, Some(polls));
    let sink = PollServerSink {
        out,
        registration: source.registration(),
    };
    let transport = Arrived::Poll(PollServer { source, sink });
    state
        .receive(Arrival {
            claim,
            grant,
            transport,
        })
        .await
}

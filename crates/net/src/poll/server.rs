//! `GET /poll` and `DELETE /poll`.

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
use crate::http::desk::{Desk, not_yours};
use crate::http::line::{Line, LineSource, Seat, closed};
use crate::http::{Answer, Arrival, Arrived, Claim, Grant, Way, query};
use crate::transport::{Lost, Sink, Transport};

/// A client that polls, and its POSTs.
#[derive(Debug)]
pub struct PollServer {
    source: LineSource,
    sink: PollServerSink,
}

/// The half that frames go out by: from the link into the answer of a poll, without a queue between.
#[derive(Debug)]
pub struct PollServerSink {
    out: mpsc::Sender<Handed>,
    seat: Arc<Seat>,
}

impl Transport for PollServer {
    type Source = LineSource;
    type Sink = PollServerSink;

    /// Both: binary comes up, text goes down.
    fn carries(&self, _carries: Carries) -> bool {
        true
    }

    fn split(self) -> (LineSource, PollServerSink) {
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
            () = self.seat.line.over() => Err(gone()),
        }
    }

    async fn close(&mut self, code: u16, reason: &str) {
        self.seat.line.end(closed(code, reason));
    }
}

/// The handler of `GET /poll`.
pub(crate) async fn poll(
    State(desk): State<Arc<Desk>>,
    request: Request,
) -> Result<Response<Body>, Answer> {
    let (head, _) = request.into_parts();
    let (claim, grant) = who(&desk, &head)?;
    let known = desk.registry.find(&claim.peer_id);
    if let Some(line) = &known
        && !line.is_of(&grant)
    {
        return Err(not_yours());
    }
    let Some((line, polls)) = known.as_ref().and_then(|line| Some((line, line.polls()?))) else {
        open(&desk, claim, grant).await?;
        let body = r#"{"messages":[],"isNewConnection":true}"#;
        return Ok(Answer::json(StatusCode::OK, body).into());
    };
    let options = &desk.options;
    let wait = claim.parameter("wait").and_then(|wait| wait.parse().ok());
    let wait = Duration::from_millis(wait.unwrap_or(0)).min(options.wait_max);
    line.alive();
    let patience = Patience {
        wait,
        linger: options.linger,
        bytes: options.answer_max,
    };
    let batch = polls.collect(line, patience).await;
    line.alive();
    let mut response = Response::new(Body::from_stream(batch.into_body()));
    for (name, value) in [
        (CONTENT_TYPE, "application/json; charset=utf-8"),
        (CACHE_CONTROL, "no-cache"),
    ] {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}

/// The handler of `DELETE /poll`: the client says good-bye, whether or not it was there.
pub(crate) async fn forget(
    State(desk): State<Arc<Desk>>,
    request: Request,
) -> Result<Answer, Answer> {
    let (head, _) = request.into_parts();
    let (claim, grant) = who(&desk, &head)?;
    if let Some(line) = desk.registry.find(&claim.peer_id) {
        if !line.is_of(&grant) {
            return Err(not_yours());
        }
        line.end(closed(1000, "Client disconnecting"));
    }
    Ok(Answer::ok())
}

fn who(desk: &Desk, head: &Parts) -> Result<(Claim, Grant), Answer> {
    let peer_id = query::parameter(head.uri.query(), "peerId")
        .filter(|id| !id.is_empty())
        .ok_or_else(|| Answer::bad("peerId is required"))?;
    desk.claim(Way::Poll, peer_id, head)
}

async fn open(desk: &Arc<Desk>, claim: Claim, grant: Grant) -> Result<(), Answer> {
    let permit = desk.permit_for(&claim.peer_id).await?;
    let (out, messages) = mpsc::channel(1);
    let polls = Polls::new(messages);
    let source = Line::open(desk, &claim, &grant, permit, Some(polls));
    let sink = PollServerSink {
        out,
        seat: source.seat(),
    };
    let transport = Arrived::Poll(PollServer { source, sink });
    desk.receive(Arrival {
        claim,
        grant,
        transport,
    })
    .await
}

//! Requests over HTTP that arrived at one member and belong to a session of another: the request goes there
//! with all its headers, so that the other member checks its token itself, and the answer comes back as it
//! is made.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::http::header::{CONNECTION, HeaderName, HeaderValue, TRANSFER_ENCODING};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Response, StatusCode};
use breakbulk_link::Frame;
use breakbulk_net::http::LocalAddress;
use breakbulk_net::{Incoming, Lost, Sink, Source, Transport};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tower_service::Service;

use super::directory::Doubt;
use super::head::{AnswerHead, Head, RequestHead};
use super::line::{MemberLine, MemberSink, MemberSource, PIECE_MAX};
use super::member::Member;
use super::{Fleet, Unreached};

/// How long sending a close may take.
const LAST_WORD: Duration = Duration::from_secs(2);

/// Marks a request that another member forwarded: it is not forwarded again.
#[derive(Clone, Copy, Debug)]
struct Forwarded;

impl Fleet {
    /// The other member that has the session of a request, if this is a name of one.
    pub(crate) fn elsewhere(&self, head: &Parts, session: &str) -> Option<Member> {
        let was_forwarded = head.extensions.get::<Forwarded>().is_some();
        Member::of_name(session).filter(|member| *member != self.own && !was_forwarded)
    }

    /// Hands a request to another member, and returns the head of its answer; its body comes as it is
    /// made.
    ///
    /// # Errors
    /// If the member is dead, or it is not known whether it is.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        member: Member,
        head: &Parts,
        body: Body,
    ) -> Result<Response<Body>, Unreached> {
        let busy = Unreached::Later(Doubt::Busy);
        let permit = self.requests.clone().try_acquire_owned();
        let permit = permit.map_err(|_| busy)?;
        let held = self.room().ok_or(busy)?;
        let line = self.reach(member).await?;
        let mut dead = self.watch(member);
        let (mut source, mut sink) = line.split();
        let answered = {
            let sending = async {
                send(&mut sink, head, body).await;
                pending::<Infallible>().await
            };
            tokio::select! {
                answered = first_text(&mut source) => answered,
                never = sending => match never {},
                _ = dead.wait_for(|dead| *dead) => None,
            }
        };
        let answered = answered.and_then(|text| AnswerHead::read(&text));
        // It may be dead or not; if it is, the next request finds out.
        let answered = answered.ok_or(Unreached::Lost)?;
        let answer = AnswerBody {
            source,
            _sink: sink,
            dead,
            _kept: (permit, held),
        };
        Ok(response(&answered, answer.into_body()))
    }

    /// Sets the router that answers what other members forward.
    pub(crate) fn answer_with(&self, router: Router) {
        // A plan is run once.
        let _ = self.router.set(router);
    }

    /// Answers a request of another member.
    pub(super) async fn answer(&self, head: RequestHead, line: MemberLine) {
        let (source, sink) = line.split();
        let Some(mut router) = self.router.get().cloned() else {
            return refuse(sink, "this member of the fleet takes no HTTP requests").await;
        };
        let (bodies, body) = mpsc::channel(1);
        let Some(request) = request(&head, body) else {
            return refuse(sink, "the head of a request is malformed").await;
        };
        let answering = async {
            let Ok(response) = router.call(request).await;
            let _ = reply(sink, response).await;
        };
        tokio::select! {
            () = answering => {}
            // The client is gone, so its answer is not needed.
            () = feed(source, bodies) => {}
        }
    }
}

async fn refuse(mut sink: MemberSink, why: &str) {
    let _ = timeout(LAST_WORD, sink.close(1002, why)).await;
}

/// Sends a request. If that fails, reading the answer reports it.
async fn send(sink: &mut MemberSink, head: &Parts, body: Body) {
    let address = |info: &ConnectInfo<SocketAddr>| info.0;
    let head = Head::Request(RequestHead {
        method: head.method.as_str().to_owned(),
        uri: head.uri.to_string(),
        headers: headers(&head.headers),
        client: head.extensions.get().map(address),
        local: head.extensions.get().map(|local: &LocalAddress| local.0),
    });
    let sent = async {
        sink.send(Frame::Text(head.to_json().into())).await?;
        send_body(sink, body).await
    };
    let _ = sent.await;
}

/// Sends a body, in frames of which each is one piece, and its end. A body that breaks off has no end.
async fn send_body(sink: &mut MemberSink, body: Body) -> Result<(), Lost> {
    let mut parts = body.into_data_stream();
    while let Some(part) = parts.next().await {
        let mut part = part.map_err(|error| Lost(error.to_string()))?;
        while !part.is_empty() {
            let size = part.len().min(PIECE_MAX);
            sink.send(Frame::Binary(part.split_to(size))).await?;
        }
    }
    sink.send(Frame::Text(Bytes::new())).await
}

/// Sends an answer.
async fn reply(mut sink: MemberSink, response: Response<Body>) -> Result<(), Lost> {
    let (head, body) = response.into_parts();
    let answer = AnswerHead {
        status: head.status.as_u16(),
        headers: headers(&head.headers),
    };
    sink.send(Frame::Text(answer.to_json().into())).await?;
    send_body(&mut sink, body).await?;
    let _ = timeout(LAST_WORD, sink.close(1000, "")).await;
    Ok(())
}

/// The first frame, if it is a text.
async fn first_text(source: &mut MemberSource) -> Option<Bytes> {
    loop {
        match source.next().await {
            Incoming::Frame(Frame::Text(text)) => return Some(text),
            Incoming::Alive => {}
            _ => return None,
        }
    }
}

/// Hands the body of a request to whoever answers it, until the other member closes the line.
async fn feed(mut source: MemberSource, bodies: mpsc::Sender<io::Result<Bytes>>) {
    let mut bodies = Some(bodies);
    loop {
        match source.next().await {
            Incoming::Frame(Frame::Binary(part)) => {
                if let Some(open) = &bodies
                    && open.send(Ok(part)).await.is_err()
                {
                    bodies = None;
                }
            }
            Incoming::Frame(Frame::Text(_)) => bodies = None,
            Incoming::Alive | Incoming::Posted(..) => {}
            Incoming::Closed(_) | Incoming::Broken(_) => return,
        }
    }
}

/// A request as this member's own clients send it; `None` if it is malformed.
fn request(head: &RequestHead, body: mpsc::Receiver<io::Result<Bytes>>) -> Option<Request> {
    let parts = futures_util::stream::unfold(body, |mut body| async move {
        let part = body.recv().await?;
        Some((part, body))
    });
    let mut request = Request::builder()
        .method(head.method.as_str())
        .uri(&head.uri)
        .body(Body::from_stream(parts))
        .ok()?;
    for (name, value) in &head.headers {
        let (name, value) = header(name, value)?;
        request.headers_mut().append(name, value);
    }
    let extensions = request.extensions_mut();
    extensions.insert(Forwarded);
    if let Some(client) = head.client {
        extensions.insert(ConnectInfo(client));
    }
    if let Some(local) = head.local {
        extensions.insert(LocalAddress(local));
    }
    Some(request)
}

/// Headers with a character for each byte, without those of one connection.
fn headers(headers: &HeaderMap) -> Vec<(String, String)> {
    let passes = |name: &HeaderName| name != CONNECTION && name != TRANSFER_ENCODING;
    let all = headers.iter().filter(|(name, _)| passes(name));
    let text = |value: &HeaderValue| {
        value
            .as_bytes()
            .iter()
            .map(|byte| char::from(*byte))
            .collect()
    };
    all.map(|(name, value)| (name.as_str().to_owned(), text(value)))
        .collect()
}

fn header(name: &str, value: &str) -> Option<(HeaderName, HeaderValue)> {
    let bytes: Option<Vec<u8>> = value
        .chars()
        .map(|it| u8::try_from(u32::from(it)).ok())
        .collect();
    let value = HeaderValue::from_bytes(&bytes?).ok()?;
    Some((HeaderName::from_bytes(name.as_bytes()).ok()?, value))
}

fn response(head: &AnswerHead, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let status = StatusCode::from_u16(head.status);
    *response.status_mut() = status.unwrap_or(StatusCode::BAD_GATEWAY);
    for (name, value) in &head.headers {
        if let Some((name, value)) = header(name, value) {
            response.headers_mut().append(name, value);
        }
    }
    response
}

/// The body of another member's answer.
struct AnswerBody<K> {
    source: MemberSource,
    /// Kept, so that the line stays open.
    _sink: MemberSink,
    dead: watch::Receiver<bool>,
    _kept: K,
}

impl<K: Send + 'static> AnswerBody<K> {
    fn into_body(self) -> Body {
        let parts = futures_util::stream::unfold(Some(self), |body| async move {
            let mut body = body?;
            match body.part().await {
                Ok(Some(part)) => Some((Ok(part), Some(body))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        });
        Body::from_stream(parts)
    }

    /// The next part, or the end. An answer that breaks off is an error, so that its reader knows.
    async fn part(&mut self) -> io::Result<Option<Bytes>> {
        let lost = || {
            Err(io::Error::other(
                "the member of the fleet that answered is gone",
            ))
        };
        loop {
            let incoming = tokio::select! {
                incoming = self.source.next() => incoming,
                _ = self.dead.wait_for(|dead| *dead) => return lost(),
            };
            match incoming {
                Incoming::Frame(Frame::Binary(part)) => return Ok(Some(part)),
                Incoming::Frame(Frame::Text(_)) => return Ok(None),
                Incoming::Alive | Incoming::Posted(..) => {}
                Incoming::Closed(_) | Incoming::Broken(_) => return lost(),
            }
        }
    }
}

//! The answers of the listener: one message, a stream, a refusal.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use axum::http::{Response, StatusCode};
use breakbulk_link::Closed;

use super::body::{self, EventBody, Reading};
use super::post::Posted;
use super::streams::Event;
use crate::mcp::head::{EVENTS, JSON, Refused, SERVER_ERROR, SESSION_NOT_FOUND};
use crate::mcp::message::Message;

/// An answer to a request that goes no further.
#[derive(Debug)]
pub(super) struct Refusal {
    response: Box<Response<Body>>,
    /// What its client is told.
    pub(super) words: String,
    /// Whether a limit of the gateway was reached, and nothing else has warned of it.
    pub(super) is_limit: bool,
}

impl Refusal {
    pub(super) fn status(&self) -> StatusCode {
        self.response.status()
    }
}

impl From<Refusal> for Response<Body> {
    fn from(refusal: Refusal) -> Self {
        *refusal.response
    }
}

/// 202: the server got a message that has no answer.
pub(super) fn accepted() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

/// One message as JSON.
pub(super) fn whole(status: StatusCode, event: Event, posted: Posted) -> Response<Body> {
    let mut response = Response::new(Body::new(body::whole(event, posted)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The events of a stream.
pub(super) fn stream(
    reading: Reading,
    posted: Option<Posted>,
    first: Option<Event>,
    primer: Option<u64>,
) -> Response<Body> {
    let body = EventBody::new(reading, posted, first, primer).into_body();
    let mut response = Response::new(body);
    for (name, value) in [
        (CONTENT_TYPE, EVENTS),
        (CACHE_CONTROL, "no-cache, no-transform"),
        // A proxy that buffers the answer would hold back events.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ] {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}

/// The answer to a request whose session has ended.
pub(super) fn over(message: &Message, closed: &Closed) -> Refusal {
    let status = match closed.code {
        1014 => 502,
        1001 | 1013 => 503,
        _ => 404,
    };
    let reason = match closed.reason.as_str() {
        "" => "the session has ended",
        reason => reason,
    };
    gone(message, status, reason)
}

pub(super) fn gone(message: &Message, status: u16, words: &str) -> Refusal {
    let code = match status {
        404 => SESSION_NOT_FOUND,
        _ => SERVER_ERROR,
    };
    refusal(&Refused::new(status, code, words).to(message))
}

/// The answer to a request that is refused.
pub(super) fn refusal(refused: &Refused) -> Refusal {
    let status = StatusCode::from_u16(refused.status).unwrap_or(StatusCode::BAD_REQUEST);
    let mut response = json(status, refused.body());
    if matches!(refused.status, 429 | 503) {
        let headers = response.headers_mut();
        headers.insert("retry-after", HeaderValue::from_static("5"));
    }
    Refusal {
        response: Box::new(response),
        words: refused.words.clone(),
        is_limit: matches!(refused.status, 408 | 429),
    }
}

/// The answer to a message over the limit.
pub(super) fn oversized(body: String, words: String) -> Refusal {
    Refusal {
        response: Box::new(json(StatusCode::PAYLOAD_TOO_LARGE, body)),
        words,
        is_limit: true,
    }
}

pub(super) fn busy_for(message: &Message) -> impl FnOnce(String) -> Refusal {
    let refused = Refused::new(503, SERVER_ERROR, "").to(message);
    move |words| {
        refusal(&Refused {
            words: format!("{words}: try again later"),
            ..refused
        })
    }
}

/// The answer to a body for which there is no memory; `declared` is its length, as far as its head tells.
pub(super) fn no_memory(declared: Option<u64>) -> Refusal {
    let size = declared.map(|size| format!(" of {size} bytes"));
    let size = size.unwrap_or_default();
    let words = format!(
        "the gateway has no memory left for this body{size}: try again later, or start it with a larger --memory"
    );
    let mut refusal = refusal(&Refused::new(503, SERVER_ERROR, words));
    refusal.is_limit = true;
    refusal
}

/// Adds `connection: close`, since the rest of the request is not read.
pub(super) fn closing(mut refusal: Refusal) -> Refusal {
    let headers = refusal.response.headers_mut();
    headers.insert("connection", HeaderValue::from_static("close"));
    refusal
}

fn json(status: StatusCode, body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

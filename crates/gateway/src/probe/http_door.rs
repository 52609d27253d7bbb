//! Answers probes by HTTP POSTs at the listener of a gateway, beside its sessions. The memory of a body and
//! an answer, and the number of probes, are bounded as in `http_echo.rs`; the listener decides before who may
//! ask.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use axum::http::request::Parts;
use axum::http::{Method, Response, StatusCode};
use breakbulk_link::Frame;
use breakbulk_net::http::text_answer;
use bytes::Bytes;
use futures_util::StreamExt;
use hyper::body::SizeHint;
use tokio::time::timeout;

use super::echo::{Echo, EchoLimits};
use super::http_echo::{Counted, PART, Reply, STEP, reply};
use super::http_words::PROBE_HEADER;
use super::words;
use crate::plan::Plan;

/// Answers the probes that come to a listener over HTTP.
#[derive(Clone)]
pub(crate) struct HttpEcho(Option<Arc<Echo>>);

impl HttpEcho {
    /// Answers probes if the plan allows that.
    pub(crate) fn new(plan: &Plan) -> Self {
        let budget = plan.listen.budget.share(0);
        Self(plan.probes.then(|| Echo::new(EchoLimits::GATEWAY, budget)))
    }

    /// The answer to a request that its listener would let in, if it is one of a probe.
    pub(crate) async fn answer(&self, head: &Parts, body: &mut Body) -> Option<Response<Body>> {
        let echo = self.0.as_ref()?;
        if head.method != Method::POST || !head.headers.contains_key(PROBE_HEADER) {
            return None;
        }
        let body = std::mem::take(body);
        Some(question(echo, body).await)
    }
}

async fn question(echo: &Echo, body: Body) -> Response<Body> {
    let refused = |status: StatusCode, words: &str| text_answer(status, words);
    let Some(_place) = echo.place() else {
        return refused(
            StatusCode::TOO_MANY_REQUESTS,
            "Other probes are running; try again later.\n",
        );
    };
    let (mut counted, mut parts) = (Counted::default(), pin!(body.into_data_stream()));
    loop {
        match timeout(STEP, parts.next()).await {
            Ok(Some(Ok(part))) => counted.add(&part),
            Ok(None) => break,
            Ok(Some(Err(_))) | Err(_) => {
                return refused(StatusCode::REQUEST_TIMEOUT, "The body did not arrive.\n");
            }
        }
        if counted.length > echo.frame_limit() {
            return refused(
                StatusCode::PAYLOAD_TOO_LARGE,
                &format!("A probe may send at most {} bytes.\n", echo.frame_limit()),
            );
        }
    }
    let body = match reply(echo, &counted).await {
        Reply::Word(word) => {
            let (Frame::Text(text) | Frame::Binary(text)) = words::write(&word);
            Body::from(text)
        }
        Reply::Bytes(size) => measured(size),
        Reply::Status(_) => {
            return refused(
                StatusCode::BAD_REQUEST,
                "This is not a request of a probe.\n",
            );
        }
    };
    let mut response = Response::new(body);
    for (name, value) in [
        (CONTENT_TYPE, "application/json"),
        (CACHE_CONTROL, "no-store"),
    ] {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}

/// A measured answer of this size, made as it is sent.
fn measured(size: usize) -> Body {
    let words::Parts {
        beginning,
        pad,
        end,
    } = words::measured_parts(size);
    let filler = Bytes::from(vec![b'x'; pad.min(PART)]);
    let pads = (0..pad.div_ceil(PART)).map(move |at| {
        let left = pad - at * PART;
        filler.slice(..left.min(PART))
    });
    let parts = std::iter::once(Bytes::from(beginning))
        .chain(pads)
        .chain([Bytes::from_static(end.as_bytes())]);
    Body::new(Measured { parts, left: size })
}

/// A body of known length, so that the head of the answer declares it.
struct Measured<I> {
    parts: I,
    left: usize,
}

impl<I: Iterator<Item = Bytes> + Unpin> hyper::body::Body for Measured<I> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, Infallible>>> {
        let next = self.parts.next();
        self.left -= next.as_ref().map_or(0, Bytes::len);
        Poll::Ready(next.map(|part| Ok(hyper::body::Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left as u64)
    }
}

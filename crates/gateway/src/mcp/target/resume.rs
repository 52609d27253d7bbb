//! The event stream of an answer, and how a broken one is resumed.

use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Body, Method, Response};
use tokio::time::{sleep, timeout};

use super::post::Post;
use super::upload::Upload;
use super::{Memory, TargetState};
use crate::mcp::errors::Failure;
use crate::mcp::events::{Event, Reader};
use crate::mcp::head::{EVENTS, LAST_EVENT};
use crate::mcp::message::LISTEN;
use breakbulk_message::mcp::cancellation;

/// How often a broken stream is opened again before its request is given up.
const ATTEMPTS: u32 = 8;

/// How long to wait before a broken stream is opened again, growing by half each time, if the server does not
/// say it.
const PAUSE: Duration = Duration::from_secs(1);
/// The bounds of that wait, whatever the server says.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How long the end of a stream may take after its answer: the socket can be used again then.
const AFTER_ANSWER: Duration = Duration::from_millis(200);

/// Where a stream was, to go on from there.
#[derive(Default)]
pub(super) struct Place {
    pub(super) last: Option<String>,
    retry: Option<Duration>,
    pub(super) attempts: u32,
}

impl Place {
    /// How long to wait before the stream is opened again.
    pub(super) fn pause(&self) -> Duration {
        let growth = 1.5_f64.powi(self.attempts.min(16) as i32);
        let pause = self.retry.unwrap_or_else(|| PAUSE.mul_f64(growth));
        pause.clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
    }
}

impl TargetState {
    /// Takes the events of an answer, and resumes a stream that breaks off where the server can do that.
    pub(super) async fn follow(&self, post: &mut Post, response: Response) -> Result<(), Failure> {
        let mut place = Place::default();
        let mut response = response;
        loop {
            self.events(post, response, &mut place).await?;
            if post.is_answered() {
                return Ok(());
            }
            if let Some(request) = post.request().filter(|_| post.is_stateless()) {
                if request.method == LISTEN {
                    // The end of its stream is the end of a subscription; over pipes that is a message.
                    let ended = cancellation(&request.id, "the server ended the subscription");
                    self.deliver(ended.into(), None).await;
                    return Ok(());
                }
                return Err(Failure::CutOff);
            }
            response = loop {
                if place.last.is_none() || place.attempts >= ATTEMPTS {
                    return Err(Failure::CutOff);
                }
                sleep(place.pause()).await;
                place.attempts += 1;
                match self.reopen(&place, None).await {
                    Ok(response) => break response,
                    Err(Failure::Unreachable(error)) => {
                        tracing::debug!(error, "a stream of the target could not be resumed yet");
                    }
                    Err(Failure::SessionGone) => return Err(Failure::SessionGone),
                    Err(_) => return Err(Failure::CutOff),
                }
            };
        }
    }

    /// Opens a stream: a new one for the server's own messages, or an old one from where it was. `written`
    /// is dropped when the request is written.
    pub(super) async fn reopen(
        &self,
        place: &Place,
        written: Option<Upload>,
    ) -> Result<Response, Failure> {
        let (mut request, has_session) = self.in_session(Method::GET);
        request = request.header("accept", EVENTS);
        if let Some(written) = written {
            request = request.body(Body::wrap(written));
        }
        if let Some(last) = &place.last {
            request = request.header(LAST_EVENT, last);
        }
        let response = request.send().await;
        let response =
            response.map_err(|error| Failure::Unreachable(breakbulk_net::http::failure(&error)))?;
        let kind = response.headers().get(CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        match response.status().as_u16() {
            200 if kind.starts_with(EVENTS) => Ok(response),
            404 if has_session => Err(Failure::SessionGone),
            status @ 500.. => Err(Failure::Unreachable(format!("HTTP {status}"))),
            status => Err(Failure::Status(status, None)),
        }
    }

    /// Takes events until the stream ends, or breaks off.
    pub(super) async fn events(
        &self,
        post: &mut Post,
        mut response: Response,
        place: &mut Place,
    ) -> Result<(), Failure> {
        let mut reader = Reader::new(self.limit);
        let mut memory = Memory::new(self);
        loop {
            let chunk = match post.is_request() && post.is_answered() {
                true => match timeout(AFTER_ANSWER, response.chunk()).await {
                    Ok(chunk) => chunk,
                    Err(_) => return Ok(()),
                },
                false => response.chunk().await,
            };
            let chunk = match chunk {
                Ok(Some(chunk)) => chunk,
                Ok(None) => return Ok(()),
                Err(error) => {
                    let error = breakbulk_net::http::failure(&error);
                    tracing::debug!(error, "a stream of the target broke off");
                    return Ok(());
                }
            };
            // What the reader may hold beyond is less than one part of the stream.
            if !memory.grow_to(reader.held() + chunk.len()).await {
                return Err(Failure::NoMemory);
            }
            let mut events = Vec::new();
            reader.feed(&chunk, |event| events.push(event));
            for event in events {
                place.attempts = 0;
                self.event(post, event, place, &mut memory).await?;
            }
        }
    }

    async fn event(
        &self,
        post: &mut Post,
        event: Event,
        place: &mut Place,
        memory: &mut Memory<'_>,
    ) -> Result<(), Failure> {
        match event {
            Event::Retry(milliseconds) => {
                place.retry = Some(Duration::from_millis(milliseconds));
            }
            Event::Whole { id, data } => {
                place.last = id.filter(|id| !id.is_empty()).or(place.last.take());
                if !data.is_empty() {
                    self.arrived(post, data, memory).await;
                }
            }
            Event::TooLarge { id, size } => {
                place.last = id.filter(|id| !id.is_empty()).or(place.last.take());
                let limit = self.limit;
                // Nobody knows what it was, but it may be the answer that the request waits for.
                if post.is_request() {
                    return Err(Failure::TooLarge { size, limit });
                }
                let words = Failure::TooLarge { size, limit }.words(0);
                let lost = format!("a message of the target was dropped: {words}");
                let _ = self.missed.send(crate::pump::Missed::Lost(lost)).await;
            }
        }
        Ok(())
    }
}

//! The client's side: one poll after another down, POSTs up.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use breakbulk_link::{Carries, Closed, Frame};
use bytes::Bytes;
use reqwest::Method;
use tokio::time::timeout;

use super::messages::Messages;
use crate::http::client::{Site, read};
use crate::http::{ClientOptions, ConnectError};
use crate::transport::{Incoming, Lost, Sink, Source, Transport};

/// The largest answer where nothing else is said.
const ANSWER_MAX: usize = 32 << 20;

/// How long the good-bye may take.
const FAREWELL: Duration = Duration::from_secs(2);

/// A connection by polls and POSTs.
#[derive(Debug)]
pub struct PollTransport {
    source: PollSource,
    sink: PollSink,
}

/// Begins to poll the server at an `http://` or `https://` address, and posts each frame.
pub async fn connect(url: &str, options: &ClientOptions) -> Result<PollTransport, ConnectError> {
    let site = Site::new(url, options).await?;
    let mut first = poll(site.clone(), Duration::ZERO, ANSWER_MAX).await?;
    if !first.is_new {
        // What an earlier connection left behind is not for this one.
        forget(&site).await?;
        first = poll(site.clone(), Duration::ZERO, ANSWER_MAX).await?;
    }
    let source = PollSource {
        site: site.clone(),
        limit: ANSWER_MAX,
        messages: first.messages,
        polling: None,
    };
    Ok(PollTransport {
        source,
        sink: PollSink { site },
    })
}

impl Transport for PollTransport {
    type Source = PollSource;
    type Sink = PollSink;

    /// Both: text comes down, binary goes up.
    fn carries(&self, _carries: Carries) -> bool {
        true
    }

    fn expect(&mut self, largest: usize) {
        // Several come in one answer.
        self.source.limit = largest.saturating_mul(2);
    }

    fn split(self) -> (PollSource, PollSink) {
        (self.source, self.sink)
    }
}

type Polling = Pin<Box<dyn Future<Output = Result<Messages, ConnectError>> + Send>>;

/// The half that frames come in by.
pub struct PollSource {
    site: Arc<Site>,
    limit: usize,
    /// What came with others in one answer.
    messages: VecDeque<Bytes>,
    /// Kept when nobody waits: what its answer brings must not be lost.
    polling: Option<Polling>,
}

impl fmt::Debug for PollSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PollSource")
            .field("site", &self.site)
            .finish_non_exhaustive()
    }
}

impl Source for PollSource {
    async fn next(&mut self) -> Incoming {
        if let Some(text) = self.messages.pop_front() {
            return Incoming::Frame(Frame::Text(text));
        }
        let polling = self.polling.get_or_insert_with(|| {
            let wait = self.site.options().wait;
            Box::pin(poll(self.site.clone(), wait, self.limit))
        });
        let answer = tokio::select! {
            biased;
            () = self.site.over() => return gone("closed"),
            answer = poll_fn(|context| polling.as_mut().poll(context)) => answer,
        };
        self.polling = None;
        match answer {
            Ok(answer) if answer.is_new => gone("the server forgot this connection"),
            Ok(answer) => {
                self.messages = answer.messages;
                match self.messages.pop_front() {
                    Some(text) => Incoming::Frame(Frame::Text(text)),
                    None => Incoming::Life,
                }
            }
            Err(error) => gone(&error.to_string()),
        }
    }
}

/// The half that frames go out by, one POST after another.
#[derive(Debug)]
pub struct PollSink {
    site: Arc<Site>,
}

impl Sink for PollSink {
    async fn send(&mut self, frame: Frame) -> Result<(), Lost> {
        self.site.post(frame).await
    }

    async fn close(&mut self, _code: u16, _reason: &str) {
        self.site.over.send_replace(true);
        let _ = timeout(FAREWELL, forget(&self.site)).await;
    }
}

async fn poll(site: Arc<Site>, wait: Duration, limit: usize) -> Result<Messages, ConnectError> {
    let peer_id = site.options().peer_id.as_str();
    let milliseconds = wait.as_millis().to_string();
    let dialect = &site.options().dialect;
    let query = [
        (dialect.peer_parameter, peer_id),
        (dialect.wait_parameter, &milliseconds),
    ];
    let request = site.request(Method::GET, dialect.poll, &query);
    let within = wait + site.options().timeout;
    let response = site.ask(request, within).await?;
    let body = read(response, limit).await;
    let body = body.map_err(|reason| site.not_ours(reason))?;
    Messages::read(&body, dialect).map_err(|reason| site.not_ours(reason))
}

async fn forget(site: &Site) -> Result<(), ConnectError> {
    let dialect = &site.options().dialect;
    let peer_id = site.options().peer_id.as_str();
    let request = site.request(
        Method::DELETE,
        dialect.poll,
        &[(dialect.peer_parameter, peer_id)],
    );
    site.ask(request, site.options().timeout).await.map(drop)
}

fn gone(reason: &str) -> Incoming {
    Incoming::Closed(Closed {
        code: 1006,
        reason: reason.to_owned(),
    })
}

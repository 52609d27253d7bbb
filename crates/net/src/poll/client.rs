//! The client: sends one poll after another, and posts frames.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use breakbulk_link::{Carries, Closed, Frame};
use bytes::Bytes;
use reqwest::Method;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::messages::Messages;
use crate::http::client::{HttpClient, read_reporting};
use crate::http::{ClientOptions, ConnectError};
use crate::transport::{Incoming, Lost, Sink, Source, Transport};

/// The default limit for an answer, in bytes.
const ANSWER_MAX: usize = 32 << 20;

/// How long disconnecting may take.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Polls and POSTs to a server.
#[derive(Debug)]
pub struct PollTransport {
    source: PollSource,
    sink: PollSink,
}

/// Starts polling the server at an `http://` or `https://` address.
pub async fn connect(url: &str, options: &ClientOptions) -> Result<PollTransport, ConnectError> {
    let client = HttpClient::new(url, options).await?;
    let first = || poll(client.clone(), Duration::ZERO, ANSWER_MAX, Arc::default());
    let mut answer = first().await?;
    if !answer.is_new {
        // The server still has an earlier connection with this peer id: its messages are discarded.
        disconnect(&client).await?;
        answer = first().await?;
    }
    let source = PollSource {
        client: client.clone(),
        limit: ANSWER_MAX,
        messages: answer.messages,
        polling: None,
        progress: Arc::default(),
    };
    Ok(PollTransport {
        source,
        sink: PollSink { client },
    })
}

impl Transport for PollTransport {
    type Source = PollSource;
    type Sink = PollSink;

    /// Both: text comes in by polls, binary frames go out by POSTs.
    fn carries(&self, _carries: Carries) -> bool {
        true
    }

    fn limit_frames(&mut self, largest: usize) {
        // An answer may hold several messages.
        self.source.limit = largest.saturating_mul(2);
    }

    fn split(self) -> (PollSource, PollSink) {
        (self.source, self.sink)
    }
}

type Polling = Pin<Box<dyn Future<Output = Result<Messages, ConnectError>> + Send>>;

/// The receiving half: polls.
pub struct PollSource {
    client: Arc<HttpClient>,
    limit: usize,
    /// Messages of the last answer that were not returned yet.
    messages: VecDeque<Bytes>,
    /// The poll in progress; kept if `next` is cancelled, so that its answer is not lost.
    polling: Option<Polling>,
    /// Notified when a part of an answer came in: a large one may take longer than the limit on silence.
    progress: Arc<Notify>,
}

impl fmt::Debug for PollSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PollSource")
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

impl Source for PollSource {
    async fn next(&mut self) -> Incoming {
        if let Some(text) = self.messages.pop_front() {
            return Incoming::Frame(Frame::Text(text));
        }
        let polling = self.polling.get_or_insert_with(|| {
            let wait = self.client.options().wait;
            let progress = self.progress.clone();
            Box::pin(poll(self.client.clone(), wait, self.limit, progress))
        });
        let answer = tokio::select! {
            biased;
            () = self.client.closed() => return gone("closed"),
            answer = poll_fn(|context| polling.as_mut().poll(context)) => answer,
            () = self.progress.notified() => return Incoming::Alive,
        };
        self.polling = None;
        match answer {
            Ok(answer) if answer.is_new => gone("the server no longer knows this connection"),
            Ok(answer) => {
                self.messages = answer.messages;
                match self.messages.pop_front() {
                    Some(text) => Incoming::Frame(Frame::Text(text)),
                    None => Incoming::Alive,
                }
            }
            Err(error) => gone(&error.to_string()),
        }
    }
}

/// The sending half: one POST after another.
#[derive(Debug)]
pub struct PollSink {
    client: Arc<HttpClient>,
}

impl Sink for PollSink {
    async fn send(&mut self, frame: Frame) -> Result<(), Lost> {
        self.client.post(frame).await
    }

    async fn close(&mut self, _code: u16, _reason: &str) {
        self.client.over.send_replace(true);
        let _ = timeout(DISCONNECT_TIMEOUT, disconnect(&self.client)).await;
    }
}

async fn poll(
    client: Arc<HttpClient>,
    wait: Duration,
    limit: usize,
    progress: Arc<Notify>,
) -> Result<Messages, ConnectError> {
    let peer_id = client.options().peer_id.as_str();
    let milliseconds = wait.as_millis().to_string();
    let dialect = &client.options().dialect;
    let query = [
        (dialect.peer_parameter, peer_id),
        (dialect.wait_parameter, &milliseconds),
    ];
    let request = client.request(Method::GET, dialect.poll, &query);
    let within = wait + client.options().timeout;
    let response = client.ask(request, within).await?;
    let body = read_reporting(response, limit, || progress.notify_one()).await;
    let body = body.map_err(|reason| client.unexpected_answer(reason))?;
    Messages::read(&body, dialect).map_err(|reason| client.unexpected_answer(reason))
}

/// Asks the server to end the connection of this peer id.
async fn disconnect(client: &HttpClient) -> Result<(), ConnectError> {
    let dialect = &client.options().dialect;
    let peer_id = client.options().peer_id.as_str();
    let request = client.request(
        Method::DELETE,
        dialect.poll,
        &[(dialect.peer_parameter, peer_id)],
    );
    client
        .ask(request, client.options().timeout)
        .await
        .map(drop)
}

fn gone(reason: &str) -> Incoming {
    Incoming::Closed(Closed {
        code: 1006,
        reason: reason.to_owned(),
    })
}

//! Sends finished spans to a collector, over OTLP/HTTP in its JSON form.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use breakbulk_net::http::{ClientOptions, ConnectError, HttpTarget, failure, read_answer};
use breakbulk_net::plain_text;
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Method, Response, StatusCode};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::span::{Resource, Span, export};

/// How many spans wait for the collector; further ones are dropped and counted.
pub(super) const QUEUE: usize = 4096;

/// The most spans of one request, and how long the first of them waits for others.
const BATCH: (usize, Duration) = (512, Duration::from_secs(1));

/// How long the collector may take for an answer.
const ANSWER: Duration = Duration::from_secs(10);

/// How much of an answer is read.
const ANSWER_MAX: usize = 16 << 10;

/// How long to wait before each further attempt, if the collector does not say.
const AGAIN: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(9),
];

/// The longest wait before a further attempt, whatever the collector asks for.
const AGAIN_MAX: Duration = Duration::from_secs(30);

/// How long sending the spans that wait may take at the end.
const LAST: Duration = Duration::from_secs(5);

/// At most one warning about dropped spans in this time.
const QUIET: Duration = Duration::from_secs(60);

/// Counts spans: dropped, and sent. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally(Arc<(AtomicU64, AtomicU64)>);

impl Tally {
    pub(super) fn dropped(&self, spans: usize) {
        self.0.0.fetch_add(spans as u64, Ordering::Relaxed);
    }

    /// How many were dropped, and how many the collector took.
    pub(super) fn read(&self) -> (u64, u64) {
        let (dropped, sent) = &*self.0;
        (
            dropped.load(Ordering::Relaxed),
            sent.load(Ordering::Relaxed),
        )
    }

    fn sent(&self, spans: usize) {
        self.0.1.fetch_add(spans as u64, Ordering::Relaxed);
    }
}

/// The task that sends spans.
pub(super) struct Exporter {
    collector: HttpTarget,
    resource: Resource,
    spans: mpsc::Receiver<Span>,
    tally: Tally,
    /// Fires when the gateway ends.
    ending: watch::Receiver<bool>,
    told: (Option<Instant>, u64),
}

impl Exporter {
    pub(super) async fn new(
        url: &str,
        headers: Vec<(String, String)>,
        resource: Resource,
        spans: mpsc::Receiver<Span>,
        tally: Tally,
        ending: watch::Receiver<bool>,
    ) -> Result<Self, ConnectError> {
        let options = ClientOptions {
            headers,
            ..ClientOptions::new(String::new())
        };
        Ok(Self {
            collector: HttpTarget::new(url, &options).await?,
            resource,
            spans,
            tally,
            ending,
            told: (None, 0),
        })
    }

    /// Sends spans until the gateway ends, and then those that wait, for a limited time.
    pub(super) async fn run(mut self) {
        let mut ending = self.ending.clone();
        let ended = async {
            over(&mut ending).await;
            sleep(LAST).await;
        };
        tokio::select! {
            () = self.send_all() => {}
            () = ended => {}
        }
        self.spans.close();
        while self.spans.try_recv().is_ok() {
            self.tally.dropped(1);
        }
        self.told.0 = None;
        self.tell();
    }

    async fn send_all(&mut self) {
        let mut batch = Vec::new();
        loop {
            let is_over = self.gather(&mut batch).await;
            if !batch.is_empty() {
                self.send(&batch).await;
                batch.clear();
            }
            self.tell();
            if is_over {
                return;
            }
        }
    }

    /// Waits for spans. True: no more will come.
    async fn gather(&mut self, batch: &mut Vec<Span>) -> bool {
        let (most, patience) = BATCH;
        let mut deadline = None;
        while batch.len() < most {
            let room = most - batch.len();
            let received = match deadline {
                None => tokio::select! {
                    received = self.spans.recv_many(batch, room) => Ok(received),
                    () = over(&mut self.ending) => {
                        self.spans.close();
                        Ok(self.spans.recv_many(batch, room).await)
                    }
                },
                Some(deadline) => timeout_at(deadline, self.spans.recv_many(batch, room)).await,
            };
            match received {
                Ok(0) => return true,
                Ok(_) if *self.ending.borrow() => {}
                Ok(_) => {
                    deadline.get_or_insert_with(|| Instant::now() + patience);
                }
                Err(_) => return false,
            }
        }
        false
    }

    /// Sends a batch, again if the collector asks for that or does not answer.
    async fn send(&mut self, batch: &[Span]) {
        let body = export(&self.resource, batch).to_string();
        let mut pauses = AGAIN.iter();
        let why = loop {
            let request = self
                .collector
                .request(Method::POST)
                .header(CONTENT_TYPE, "application/json")
                .body(body.clone());
            let (why, wanted) = match timeout(ANSWER, request.send()).await {
                Ok(Ok(response)) if response.status().is_success() => {
                    return self.taken(batch.len(), response).await;
                }
                Ok(Ok(response)) if !is_passing(response.status()) => {
                    break format!("it answers HTTP {}", response.status());
                }
                Ok(Ok(response)) => (
                    format!("it answers HTTP {}", response.status()),
                    retry_after(&response),
                ),
                Ok(Err(error)) => (failure(&error), None),
                Err(_) => (format!("no answer within {} s", ANSWER.as_secs()), None),
            };
            match pauses.next() {
                Some(pause) if !*self.ending.borrow() => {
                    let pause = wanted.unwrap_or(*pause).min(AGAIN_MAX);
                    let _ = timeout(pause, over(&mut self.ending)).await;
                }
                _ => break why,
            }
        };
        self.tally.dropped(batch.len());
        tracing::debug!(
            spans = batch.len(),
            "spans were not taken by the collector at {}: {}",
            self.collector.address(),
            plain_text(&why)
        );
        self.told_why(&why);
    }

    /// Counts what the collector took of a batch: all of it, or a part.
    async fn taken(&mut self, spans: usize, response: Response) {
        let body = timeout(ANSWER, read_answer(response, ANSWER_MAX)).await;
        let body = body.ok().and_then(Result::ok).unwrap_or_default();
        let answer: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        let partial = &answer["partialSuccess"];
        let rejected = &partial["rejectedSpans"];
        let rejected = rejected
            .as_u64()
            .or_else(|| rejected.as_str()?.parse().ok())
            .map_or(0, |rejected| {
                usize::try_from(rejected).unwrap_or(spans).min(spans)
            });
        self.tally.sent(spans - rejected);
        if rejected > 0 {
            self.tally.dropped(rejected);
            let why = partial["errorMessage"].as_str().unwrap_or_default();
            self.told_why(&format!("it rejected them: {why}"));
        }
    }

    fn told_why(&mut self, why: &str) {
        self.warn(&format!(
            "the collector at {} did not take them: {}",
            self.collector.address(),
            plain_text(why)
        ));
    }

    /// Warns how many spans were dropped because too many waited, unless there was a warning lately.
    fn tell(&mut self) {
        self.warn(&format!(
            "more than {QUEUE} waited for the collector at {}",
            self.collector.address()
        ));
    }

    fn warn(&mut self, why: &str) {
        let (dropped, sent) = self.tally.read();
        let (at, before) = self.told;
        let is_quiet = at.is_some_and(|at| at.elapsed() < QUIET);
        if dropped == before || is_quiet {
            return;
        }
        self.told = (Some(Instant::now()), dropped);
        tracing::warn!(
            dropped = dropped - before,
            sent,
            "spans of requests are lost, since {why}"
        );
    }
}

/// Waits until the gateway ends.
async fn over(ending: &mut watch::Receiver<bool>) {
    // An error means the same: the sender is gone.
    let _ = ending.wait_for(|ending| *ending).await;
}

/// Whether the same request may succeed later, as OTLP has it.
fn is_passing(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502 | 503 | 504)
}

fn retry_after(response: &Response) -> Option<Duration> {
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    seconds.parse().ok().map(Duration::from_secs)
}

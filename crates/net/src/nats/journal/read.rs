//! The task that reads the stream of a journal, and continues from the same place after servers were lost.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, push};
use async_nats::jetstream::{
    self,
    stream::{LastRawMessageErrorKind, Stream},
};
use futures_util::StreamExt;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::pieces::{Assembler, PIECE, PieceHead, Taken};
use super::{News, Record, Shared, Unfinished};

/// How often the server sends a heartbeat while there is nothing to read.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// After this much time without a message, the stream is asked whether it has more.
const IDLE: Duration = Duration::from_secs(2);

/// For how long a stream may seem to end before the last message that was read, until it counts as lost: a
/// new leader may not have applied all its messages yet.
const SHRUNK: Duration = Duration::from_secs(30);

/// The most messages of a topic that are remembered to be deleted.
const DEAD: usize = 256;

/// How long to wait before reading is begun again.
const AGAIN: Duration = Duration::from_millis(100);

pub(super) async fn run(shared: Arc<Shared>, to: mpsc::Sender<News>) {
    let mut reading = Reading {
        assembler: Assembler::new(shared.options.max_record),
        next: 1,
        empty_up_to: 0,
        shrunk: None,
        caught_up: false,
        shared,
        to,
    };
    loop {
        match reading.follow().await {
            Ended::Again(reason) => {
                tracing::debug!(
                    reason,
                    next = reading.next,
                    "the stream of a journal is read again"
                );
                sleep(AGAIN).await;
            }
            Ended::Lost(reason) => {
                let _ = reading.to.send(News::Lost { reason }).await;
                return;
            }
            Ended::Unwanted => return,
        }
    }
}

struct Reading {
    shared: Arc<Shared>,
    to: mpsc::Sender<News>,
    assembler: Assembler,
    /// The sequence number to read next.
    next: u64,
    /// Up to this sequence number there is nothing left to read.
    empty_up_to: u64,
    /// Since when the stream seems to end before the last message that was read.
    shrunk: Option<Instant>,
    caught_up: bool,
}

/// Why reading stopped.
enum Ended {
    /// The server or the consumer is gone.
    Again(String),
    /// What was read does not belong to this stream.
    Lost(String),
    /// The tail was dropped: nobody takes the news.
    Unwanted,
}

impl<E: std::error::Error> From<E> for Ended {
    fn from(error: E) -> Self {
        Self::Again(error.to_string())
    }
}

impl Reading {
    async fn follow(&mut self) -> Ended {
        match self.try_follow().await {
            Ok(never) => match never {},
            Err(ended) => ended,
        }
    }

    async fn try_follow(&mut self) -> Result<std::convert::Infallible, Ended> {
        let context = &self.shared.context;
        let stream = context
            .get_stream_no_info(&self.shared.options.stream)
            .await?;
        let there = self.range(&stream).await?;
        let consumer = stream.create_consumer(self.consumer()).await?;
        if consumer.cached_info().num_pending == 0 {
            self.nothing_up_to(&stream, there).await?;
        }
        let mut messages = consumer.messages().await?;
        let mut delivered = 0;
        loop {
            let message = match timeout(IDLE, messages.next()).await {
                Ok(Some(message)) => message?,
                Ok(None) => return Err(Ended::Again("the connection is closed".to_owned())),
                Err(_) => {
                    let there = self.range(&stream).await?;
                    self.nothing_up_to(&stream, there).await?;
                    if there.1 > self.empty_up_to.max(self.next - 1) {
                        let reason = "nothing comes, and the stream has more".to_owned();
                        return Err(Ended::Again(reason));
                    }
                    continue;
                }
            };
            let info = message
                .info()
                .map_err(|error| Ended::Again(error.to_string()))?;
            delivered += 1;
            if info.consumer_sequence != delivered {
                return Err(Ended::Again("messages were lost on their way".to_owned()));
            }
            let (at, pending) = (info.stream_sequence, info.pending);
            if at >= self.next {
                self.take(at, &message).await?;
                self.next = at + 1;
            }
            self.shared.read.send_replace(at.max(self.empty_up_to));
            // The server's number of pending messages is wrong after deletions (2.9), so it only speeds
            // this up.
            if pending == 0 || at >= there.1 {
                self.nothing_up_to(&stream, there).await?;
            }
        }
    }

    fn consumer(&self) -> push::Config {
        push::Config {
            deliver_subject: self.shared.bus.client.new_inbox(),
            deliver_policy: DeliverPolicy::ByStartSequence {
                start_sequence: self.next,
            },
            ack_policy: AckPolicy::None,
            // With flow control the server waits for a reader that is busy.
            flow_control: true,
            idle_heartbeat: HEARTBEAT,
            max_deliver: 1,
            num_replicas: 1,
            memory_storage: true,
            ..push::Config::default()
        }
    }

    /// The first and the last sequence number of the stream.
    async fn range(&mut self, stream: &Stream<()>) -> Result<(u64, u64), Ended> {
        let state = stream.get_info().await?.state;
        let (first, last) = (state.first_sequence, state.last_sequence);
        if last + 1 >= self.next {
            self.shrunk = None;
            return Ok((first, last));
        }
        let read = self.next - 1;
        let reason = format!(
            "it ends at message {last}, and was read up to {read}; was it deleted, or restored from an old copy?"
        );
        let since = *self.shrunk.get_or_insert_with(Instant::now);
        Err(match since.elapsed() > SHRUNK {
            true => Ended::Lost(reason),
            false => Ended::Again(reason),
        })
    }

    /// Handles that the consumer has nothing more. It may run on a server that lacks the last messages, so
    /// the leader is asked whether all of them are read; its last messages may be deleted.
    async fn nothing_up_to(
        &mut self,
        stream: &Stream<()>,
        (first, last): (u64, u64),
    ) -> Result<(), Ended> {
        let read = self.empty_up_to.max(self.next - 1);
        if self.caught_up && last <= read {
            return Ok(());
        }
        if last > read && self.last_message(stream).await? > read {
            return Ok(());
        }
        self.empty_up_to = self.empty_up_to.max(last);
        self.shared.read.send_replace(last.max(read));
        if !self.caught_up {
            self.caught_up = true;
            self.tell(News::CaughtUp { first, last }).await?;
        }
        Ok(())
    }

    /// The sequence number of the last message that is not deleted; 0 if there is none.
    async fn last_message(&self, stream: &Stream<()>) -> Result<u64, Ended> {
        let all = format!("{}.>", self.shared.options.stream);
        match stream.get_last_raw_message_by_subject(&all).await {
            Ok(message) => Ok(message.sequence),
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    async fn take(&mut self, at: u64, message: &jetstream::Message) -> Result<(), Ended> {
        let prefix = self.shared.options.stream.len() + 1;
        let topic = message.subject.get(prefix..).unwrap_or_default().to_owned();
        let head = message
            .headers
            .as_ref()
            .and_then(|headers| headers.get(PIECE));
        let Some(head) = head.and_then(|head| PieceHead::parse(head.as_str())) else {
            tracing::warn!(
                topic,
                at,
                "a message that is no piece of a record is ignored"
            );
            self.assembler.interrupt(&topic, at);
            self.shared.change(&topic, |known| {
                known.message = known.message.max(at);
                known.unfinished = None;
            });
            return Ok(());
        };
        let id = head.id.clone();
        let taken = self.assembler.take(&topic, at, head, &message.payload);
        let own = id.starts_with(&self.shared.member);
        self.shared.change(&topic, |known| {
            known.message = known.message.max(at);
            known.unfinished = match &taken {
                Taken::Open(messages) if !own && known.record < at => Some(Unfinished {
                    id: id.clone(),
                    messages: messages.clone(),
                    moved: Instant::now(),
                }),
                _ => None,
            };
            if taken == Taken::Dead && known.dead.len() < DEAD {
                known.dead.push(at);
            }
            if let Taken::Whole { .. } = taken {
                known.record = known.record.max(at);
                if own {
                    known.own = Some((id.clone(), at));
                }
            }
        });
        // Wakes waiting writers, even if the application does not take this record yet.
        self.shared.read.send_modify(|_| ());
        match taken {
            Taken::Whole { bytes, messages } => {
                let record = Record {
                    topic,
                    place: at,
                    messages,
                    own,
                    bytes,
                };
                self.tell(News::Record(record)).await
            }
            Taken::Open(_) => Ok(()),
            Taken::Dead => {
                tracing::debug!(
                    topic,
                    at,
                    id,
                    "a piece of a record that was never finished is ignored"
                );
                Ok(())
            }
            Taken::Wrong(reason) => {
                tracing::error!(
                    topic,
                    at,
                    id,
                    reason,
                    "a record cannot be read and is left out"
                );
                Ok(())
            }
        }
    }

    async fn tell(&mut self, news: News) -> Result<(), Ended> {
        let told = self.to.send(news).await;
        told.map_err(|_| Ended::Unwanted)
    }
}

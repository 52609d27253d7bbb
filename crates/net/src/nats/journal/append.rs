//! Appends a record, also while servers fail: a piece that is not acknowledged is sent again, and stored only
//! after the message that its writer knows of.

use std::error::Error;
use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::LastRawMessageErrorKind;
use bytes::Bytes;
use tokio::time::{Instant, sleep, timeout};

use super::pieces::{PIECE, PieceHead, cut, room};
use super::{AppendError, Place, Shared, Topic, bad_topic, forget};
use crate::nats::bus::with_causes;

/// How long to wait for the next piece of another writer before its record counts as abandoned.
const PATIENCE: Duration = Duration::from_secs(2);

/// The waits before something is tried again: the first, and the longest.
const AGAIN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// How long the stream may take to be found, and its last message: longer than the library waits for an answer.
const CHECK: Duration = Duration::from_secs(15);

/// How often a long outage is logged.
const SAY_EVERY: Duration = Duration::from_secs(10);

pub(super) async fn append(
    shared: &Shared,
    topic: &str,
    after: Place,
    record: Bytes,
) -> Result<Place, AppendError> {
    if let Some(reason) = bad_topic(topic) {
        let topic = topic.to_owned();
        return Err(AppendError::Topic { topic, reason });
    }
    let limit = shared.options.max_record;
    if record.len() > limit {
        return Err(AppendError::TooLarge {
            journal: shared.options.name(),
            size: record.len(),
            limit,
        });
    }
    let mut outage = Outage::new();
    loop {
        let writing = Writing::begin(shared, topic, after).await?;
        match writing.run(&record, &mut outage).await? {
            Ended::Stored(place) => return Ok(place),
            // Another writer wrote in the meantime: a whole record, or only pieces of one.
            Ended::Interrupted => {}
        }
    }
}

pub(super) async fn check(shared: &Shared) -> Result<(), AppendError> {
    let refused = |reason| AppendError::Refused {
        journal: shared.options.name(),
        reason,
    };
    // The library's timeout begins only once its queue has room for the request, and while there is no
    // connection nothing leaves the queue.
    let found = shared.context.get_stream(&shared.options.stream);
    let found = timeout(CHECK, found).await;
    let found = found.map_err(|_| refused("no server answers".to_owned()))?;
    let found = found.map_err(|error| refused(with_causes(&error)))?;
    let led = match &found.cached_info().cluster {
        Some(cluster) => cluster.leader.is_some(),
        None => true,
    };
    match led {
        true => Ok(()),
        false => Err(AppendError::Refused {
            journal: shared.options.name(),
            reason: "the stream has no leader: most of its servers are away".to_owned(),
        }),
    }
}

/// One attempt to append a record, under an id of its own.
struct Writing<'a> {
    shared: &'a Shared,
    topic: &'a str,
    /// The last record that the caller knows of.
    after: Place,
    id: String,
    /// Part of the message ids, so that JetStream does not take a message for one that it dropped.
    attempt: u32,
    /// The message that must be the topic's last one.
    fence: u64,
    /// The pieces that an abandoned record left between the last whole record and this one.
    leftovers: Vec<u64>,
}

enum Ended {
    Stored(Place),
    Interrupted,
}

/// What became of a piece.
enum Outcome {
    /// It is stored at this place.
    Stored(u64),
    /// The topic's last message is another one, or JetStream knows this one already.
    Fenced,
    /// It is not known whether the piece is stored: why.
    Unknown(String),
}

impl<'a> Writing<'a> {
    /// Waits until no other writer is at work in the topic.
    async fn begin(shared: &'a Shared, topic: &'a str, after: Place) -> Result<Self, AppendError> {
        let mut read = shared.read.subscribe();
        loop {
            read.mark_unchanged();
            let known = shared.topic(topic);
            if known.record > after {
                let topic = topic.to_owned();
                return Err(AppendError::Overtaken { topic, after });
            }
            if let Some(unfinished) = &known.unfinished {
                let left = PATIENCE.saturating_sub(unfinished.moved.elapsed());
                if !left.is_zero() {
                    let _ = timeout(left, read.changed()).await;
                    continue;
                }
                tracing::warn!(topic, record = %unfinished.id, pieces = unfinished.messages.len(), "a record was begun and not finished for {} s: readers skip it, since its writer has stopped", PATIENCE.as_secs());
            }
            let unfinished = known.unfinished.map(|unfinished| unfinished.messages);
            let mut leftovers = unfinished.unwrap_or_default();
            leftovers.extend(known.dead);
            return Ok(Self {
                shared,
                topic,
                after,
                id: shared.fresh_id(),
                attempt: 0,
                fence: known.message,
                leftovers,
            });
        }
    }

    async fn run(mut self, record: &Bytes, outage: &mut Outage) -> Result<Ended, AppendError> {
        let pieces = cut(record, room(self.shared.bus.client.max_payload()));
        let count = u32::try_from(pieces.len()).unwrap_or(u32::MAX);
        let mut index = 0;
        while let Some(piece) = pieces.get(index) {
            let head = PieceHead {
                id: self.id.clone(),
                index: index as u32,
                count,
                size: record.len() as u64,
                behind: self.fence,
            };
            match self.publish(&head, piece.clone()).await? {
                Outcome::Stored(at) => {
                    self.fence = at;
                    index += 1;
                    outage.is_over();
                }
                Outcome::Unknown(reason) => {
                    outage.wait(self.shared, self.topic, reason).await?;
                }
                Outcome::Fenced => match self.find(count, outage).await? {
                    Found::Nothing => {
                        // With another message id, the fence alone keeps the piece from being stored twice.
                        self.attempt += 1;
                        let reason = "JetStream neither stores nor refuses it".to_owned();
                        outage.wait(self.shared, self.topic, reason).await?;
                    }
                    Found::Piece(last, at) => {
                        self.fence = at;
                        index = last as usize + 1;
                    }
                    Found::Whole(place) => {
                        self.fence = place;
                        index = pieces.len();
                    }
                    Found::Another => return Ok(Ended::Interrupted),
                },
            }
        }
        if !self.counts().await? {
            return Ok(Ended::Interrupted);
        }
        self.stored();
        Ok(Ended::Stored(self.fence))
    }

    /// Whether readers accept the record, which is stored: a cluster may have stored another record before it
    /// that was on its way at the same time.
    async fn counts(&self) -> Result<bool, AppendError> {
        let place = self.fence;
        let mut read = self.shared.read.subscribe();
        let is_own = |topic: &Topic| topic.own.as_ref().is_some_and(|(id, _)| *id == self.id);
        let decided = read.wait_for(|read| {
            let topic = self.shared.topic(self.topic);
            is_own(&topic) || topic.record > self.after || *read >= place
        });
        let limit = self.shared.options.outage;
        if timeout(limit, decided).await.is_err() {
            return Err(self.unread());
        }
        Ok(is_own(&self.shared.topic(self.topic)))
    }

    fn unread(&self) -> AppendError {
        AppendError::Outage {
            journal: self.shared.options.name(),
            after: self.shared.options.outage,
            reason: "the stream cannot be read".to_owned(),
        }
    }

    async fn publish(&self, head: &PieceHead, piece: Bytes) -> Result<Outcome, AppendError> {
        let publish = PublishMessage::build()
            .payload(piece)
            .message_id(format!("{}.{}.{}", head.id, head.index, self.attempt))
            .expected_stream(&self.shared.options.stream)
            .expected_last_subject_sequence(self.fence)
            .header(PIECE, head.to_string());
        let subject = self.shared.subject(self.topic);
        let acknowledged = match self.shared.context.send_publish(subject, publish).await {
            Ok(sent) => sent.await,
            Err(error) => Err(error),
        };
        match acknowledged {
            // A duplicate of a message that is still on its way through the cluster.
            Ok(acknowledged) if acknowledged.sequence == 0 => Ok(Outcome::Fenced),
            Ok(acknowledged) => Ok(Outcome::Stored(acknowledged.sequence)),
            Err(error) => self.failed(&error),
        }
    }

    fn failed(&self, error: &PublishError) -> Result<Outcome, AppendError> {
        let refused = error.source();
        let refused = refused.and_then(|source| source.downcast_ref::<jetstream::Error>());
        match (error.kind(), refused) {
            (PublishErrorKind::WrongLastSequence, _) => Ok(Outcome::Fenced),
            // A 503 (no leader, or too few servers) is temporary; any other refusal is final.
            (_, Some(refused)) if refused.code() != 503 => Err(AppendError::Refused {
                journal: self.shared.options.name(),
                reason: refused.to_string(),
            }),
            _ => Ok(Outcome::Unknown(with_causes(error))),
        }
    }

    /// After a refused piece: which message is the topic's last one. It may be a piece of this record whose
    /// acknowledgement was lost, and which JetStream no longer recognises.
    async fn find(&self, count: u32, outage: &mut Outage) -> Result<Found, AppendError> {
        let (at, head) = loop {
            let stored = self.after.max(self.shared.topic(self.topic).record);
            let reason = match self.last().await {
                Ok(last) => match last.unwrap_or((0, None)) {
                    (at, head) if at >= stored => break (at, head),
                    // A piece after an older message than was read would begin another history.
                    (at, _) => format!(
                        "the last message of its topic is {at}, and {stored} was stored: JetStream has lost it, or its leader has not applied it yet"
                    ),
                },
                Err(reason) => reason,
            };
            outage.wait(self.shared, self.topic, reason).await?;
        };
        if at == self.fence {
            return Ok(Found::Nothing);
        }
        if let Some(head) = head.filter(|head| head.id == self.id) {
            return Ok(match head.index + 1 == count {
                true => Found::Whole(at),
                false => Found::Piece(head.index, at),
            });
        }
        // The record may be whole, with others after it: then the tail has read it. Once the tail has read a
        // record of another writer, it need not read on; it cannot do so before the caller takes that record.
        let mut read = self.shared.read.subscribe();
        let limit = self.shared.options.outage;
        let seen =
            read.wait_for(|read| *read >= at || self.shared.topic(self.topic).record > self.after);
        let seen = timeout(limit, seen)
            .await
            .map(|read| read.is_ok_and(|read| *read >= at));
        let Ok(is_read) = seen else {
            return Err(self.unread());
        };
        Ok(self.shared.change(self.topic, |topic| {
            // This may become smaller, if the last messages of the topic were deleted. It is never the number
            // of a message that was not read: otherwise a record could be appended after one that this
            // program has not seen.
            if is_read {
                topic.message = at;
            }
            match &topic.own {
                Some((id, place)) if *id == self.id => Found::Whole(*place),
                _ => Found::Another,
            }
        }))
    }

    /// The last message of the topic, as the leader of the stream knows it.
    async fn last(&self) -> Result<Option<(u64, Option<PieceHead>)>, String> {
        let context = &self.shared.context;
        let stream = context
            .get_stream_no_info(&self.shared.options.stream)
            .await;
        let stream = stream.map_err(|error| error.to_string())?;
        let subject = self.shared.subject(self.topic);
        let found = timeout(CHECK, stream.get_last_raw_message_by_subject(&subject)).await;
        match found.map_err(|_| "no server answers".to_owned())? {
            Ok(message) => {
                let head = message.headers.get(PIECE);
                let head = head.and_then(|head| PieceHead::parse(head.as_str()));
                Ok(Some((message.sequence, head)))
            }
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(with_causes(&error)),
        }
    }

    /// The record is stored: notes it, and deletes what an abandoned one left before it.
    fn stored(&mut self) {
        let place = self.fence;
        let leftovers = std::mem::take(&mut self.leftovers);
        self.shared.change(self.topic, |topic| {
            topic.record = topic.record.max(place);
            topic.message = topic.message.max(place);
            topic.dead.retain(|dead| !leftovers.contains(dead));
            // The tail may have read pieces of the next record already.
            topic
                .unfinished
                .take_if(|it| it.messages.first().is_none_or(|first| *first < place));
        });
        if leftovers.is_empty() {
            return;
        }
        let context = self.shared.context.clone();
        let stream = self.shared.options.stream.clone();
        tokio::spawn(async move {
            // Pieces that are not deleted are ignored by all readers.
            if let Err(error) = forget::delete(&context, &stream, &leftovers).await {
                tracing::debug!(%error, "pieces of a record that was never finished stay");
            }
        });
    }
}

/// What is at the end of a topic.
enum Found {
    /// The message that the writer knows of: nothing was added.
    Nothing,
    /// This piece of the record, at this place.
    Piece(u32, u64),
    /// All of the record.
    Whole(Place),
    /// Something else.
    Another,
}

/// How long nothing could be stored.
struct Outage {
    since: Option<Instant>,
    said: Option<Instant>,
    wait: Duration,
}

impl Outage {
    fn new() -> Self {
        Self {
            since: None,
            said: None,
            wait: AGAIN.0,
        }
    }

    fn is_over(&mut self) {
        if self.said.is_some() {
            tracing::info!("JetStream stores records again");
        }
        *self = Self::new();
    }

    /// Waits before the next attempt, or gives up.
    async fn wait(
        &mut self,
        shared: &Shared,
        topic: &str,
        reason: String,
    ) -> Result<(), AppendError> {
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        let limit = shared.options.outage;
        if now - since >= limit {
            return Err(AppendError::Outage {
                journal: shared.options.name(),
                after: limit,
                reason,
            });
        }
        if self.said.is_none_or(|said| now - said >= SAY_EVERY) && now > since {
            self.said = Some(now);
            let journal = shared.options.name();
            tracing::warn!(
                journal,
                topic,
                reason,
                "a record is not acknowledged; it is sent again until it is"
            );
        }
        sleep(self.wait).await;
        self.wait = (self.wait * 2).min(AGAIN.1);
        Ok(())
    }
}

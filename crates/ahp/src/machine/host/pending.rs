//! The queue of actions that are published and not in the log yet. Publishers lock this queue alone, and
//! never wait for the host.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use breakbulk_message::ahp::Origin;
use bytes::Bytes;
use serde_json::value::RawValue;

use super::error::PublishError;
use super::reply::quoted;
use super::types::Applied;
use crate::log::Entry;

/// What an action costs while it waits, in addition to its bytes.
const CHARGE: usize = 256;

/// The most channel names that are kept to be shared among actions.
const NAMES: usize = 1024;

/// The most actions in one batch for the log: between two batches other tasks get their turn.
const BATCH: usize = 1024;
const BATCH_BYTES: usize = 8 << 20;

const HEAD: &str = r#"{"jsonrpc":"2.0","method":"action","params":"#;

/// An action with its number, written once for the log, for replays and for all subscribers.
#[derive(Clone, Debug)]
pub struct Published {
    pub(super) seq: i64,
    pub(super) channel: Arc<str>,
    /// The whole notification.
    pub(super) message: Bytes,
    action: Range<usize>,
    origin: Option<Origin<'static>>,
    rejection: Option<String>,
}

impl Published {
    /// Its number.
    pub fn seq(&self) -> i64 {
        self.seq
    }

    /// The log's entry: the params, in the same memory.
    pub fn entry(&self) -> Entry {
        let params = self.message.slice(HEAD.len()..self.message.len() - 1);
        Entry::new(self.seq, self.channel.clone(), params)
    }

    /// What the application is given.
    pub(super) fn applied(&self) -> Applied<'_> {
        Applied {
            channel: &self.channel,
            seq: self.seq,
            // The range is that of a text which was copied here.
            action: std::str::from_utf8(&self.message[self.action.clone()]).unwrap_or("null"),
            origin: self.origin.as_ref(),
            rejection: self.rejection.as_deref(),
        }
    }

    fn cost(&self) -> usize {
        self.message.len() + CHARGE
    }
}

/// An action without a number. It is written out before the queue is locked for the number.
pub struct Draft<'a> {
    channel: &'a str,
    text: String,
    action: Range<usize>,
    tail: String,
    origin: Option<Origin<'a>>,
    rejection: Option<&'a str>,
}

impl<'a> Draft<'a> {
    /// An action on a channel: which client dispatched it, and why it is refused if it is.
    pub fn new(
        channel: &'a str,
        action: &RawValue,
        origin: Option<Origin<'a>>,
        rejection: Option<&'a str>,
    ) -> Self {
        let mut tail = String::new();
        if let Some(origin) = &origin {
            let (client, seq) = (quoted(&origin.client_id), origin.client_seq);
            tail.push_str(&format!(
                r#","origin":{{"clientId":{client},"clientSeq":{seq}}}"#
            ));
        }
        if let Some(reason) = rejection {
            tail.push_str(&format!(r#","rejectionReason":{}"#, quoted(reason)));
        }
        tail.push_str("}}");
        let name = quoted(channel);
        let action = action.get();
        // With room for the number, so that adding it does not reallocate.
        let mut text =
            String::with_capacity(HEAD.len() + name.len() + action.len() + tail.len() + 64);
        text.push_str(HEAD);
        text.push_str(&format!(r#"{{"channel":{name},"action":"#));
        let start = text.len();
        text.push_str(action);
        let action = start..text.len();
        text.push_str(r#","serverSeq":"#);
        Self {
            channel,
            text,
            action,
            tail,
            origin,
            rejection,
        }
    }

    fn numbered(mut self, seq: i64, channel: Arc<str>) -> Published {
        self.text.push_str(&seq.to_string());
        self.text.push_str(&self.tail);
        Published {
            seq,
            channel,
            message: self.text.into(),
            action: self.action,
            origin: self.origin.map(|origin| Origin {
                client_id: origin.client_id.into_owned().into(),
                client_seq: origin.client_seq,
            }),
            rejection: self.rejection.map(str::to_owned),
        }
    }
}

/// The queue between publishers and the log.
#[derive(Debug)]
pub struct Pending {
    limit: usize,
    last: i64,
    waiting: VecDeque<Published>,
    /// Bytes of all actions that are not visible yet, including those that the log is storing.
    bytes: usize,
    names: BTreeSet<Arc<str>>,
    ended: Option<PublishError>,
}

/// What the task that writes the log does next.
#[derive(Debug)]
pub enum Next {
    /// Append these together; then each goes to [`Host::handle_committed`](super::Host::handle_committed)
    /// and to [`Pending::settle`].
    Append(Vec<Published>),
    /// Wait: nothing is queued.
    Wait,
    /// End: nothing is queued, and nothing more will be.
    End,
}

impl Pending {
    /// An empty queue of at most so many bytes, whose first action gets the number after `last`.
    pub fn new(last: i64, limit: usize) -> Self {
        Self {
            limit,
            last,
            waiting: VecDeque::new(),
            bytes: 0,
            names: BTreeSet::new(),
            ended: None,
        }
    }

    /// Numbers an action and queues it.
    pub fn push(&mut self, draft: Draft<'_>) -> Result<i64, PublishError> {
        if let Some(ended) = &self.ended {
            return Err(ended.clone());
        }
        let size = draft.text.len() + draft.tail.len();
        // An action larger than the limit is taken if nothing else is queued.
        if self.bytes > 0 && self.bytes.saturating_add(size + CHARGE) > self.limit {
            return Err(PublishError::Behind {
                uncommitted: self.bytes,
                size,
                limit: self.limit,
            });
        }
        let seq = self.last + 1;
        let channel = self.name(draft.channel);
        let published = draft.numbered(seq, channel);
        self.last = seq;
        self.bytes += published.cost();
        self.waiting.push_back(published);
        Ok(seq)
    }

    /// The next batch for the log.
    pub fn poll_append(&mut self) -> Next {
        let mut bytes = 0;
        let mut batch = Vec::new();
        while batch.len() < BATCH && bytes < BATCH_BYTES {
            let Some(published) = self.waiting.pop_front() else {
                break;
            };
            bytes += published.message.len();
            batch.push(published);
        }
        match (batch.is_empty(), &self.ended) {
            (false, _) => Next::Append(batch),
            (true, Some(_)) => Next::End,
            (true, None) => Next::Wait,
        }
    }

    /// An action has become visible: its bytes no longer count.
    pub fn settle(&mut self, published: &Published) {
        self.bytes = self.bytes.saturating_sub(published.cost());
    }

    /// Whether an action of this size could be published now.
    pub fn has_room(&self, size: usize) -> bool {
        let fits = self.bytes.saturating_add(size + 2 * CHARGE) <= self.limit;
        self.ended.is_some() || self.bytes == 0 || fits
    }

    /// Refuses further actions. Those that are queued still go to the log, unless it has failed.
    pub fn end(&mut self, why: PublishError) {
        if matches!(why, PublishError::Failed { .. }) {
            self.waiting.clear();
            self.bytes = 0;
        }
        self.ended.get_or_insert(why);
    }

    /// Why it refuses actions, if it does.
    pub fn ended(&self) -> Option<&PublishError> {
        self.ended.as_ref()
    }

    fn name(&mut self, channel: &str) -> Arc<str> {
        if let Some(name) = self.names.get(channel) {
            return name.clone();
        }
        if self.names.len() >= NAMES {
            self.names.clear();
        }
        let name = Arc::<str>::from(channel);
        self.names.insert(name.clone());
        name
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may")]
mod tests {
    use super::*;
    use breakbulk_message::ahp;

    #[test]
    fn written_as_the_protocol_writes_it() {
        let raw: &RawValue = serde_json::from_str(r#"{"type": "é"}"#).unwrap();
        let origin = Origin {
            client_id: "c\"".into(),
            client_seq: -1,
        };
        for (origin, rejection) in [
            (None, None),
            (Some(origin.clone()), None),
            (Some(origin), Some("no\n")),
        ] {
            let mut pending = Pending::new(41, 1000);
            let draft = Draft::new("ahp-chat:/\"x", raw, origin.clone(), rejection);
            assert_eq!(pending.push(draft), Ok(42));
            let Next::Append(batch) = pending.poll_append() else {
                panic!("nothing published")
            };
            let action = ahp::Action {
                channel: "ahp-chat:/\"x".into(),
                action: raw,
                server_seq: 42,
                origin,
                rejection_reason: rejection.map(Into::into),
            };
            let params = action.to_json();
            let text = format!(r#"{{"jsonrpc":"2.0","method":"action","params":{params}}}"#);
            assert_eq!(batch[0].message, text);
            assert_eq!(batch[0].entry().params, params);
            assert_eq!(batch[0].applied().action, raw.get());
        }
    }

    #[test]
    fn bounded_by_bytes_until_visible() {
        let raw: &RawValue = serde_json::from_str("1").unwrap();
        let push = |pending: &mut Pending| pending.push(Draft::new("c", raw, None, None));
        let mut pending = Pending::new(0, 1000);
        assert_eq!((push(&mut pending), push(&mut pending)), (Ok(1), Ok(2)));
        assert_eq!(
            push(&mut pending).unwrap_err().to_string(),
            "682 bytes wait for the replay log and an action of 84 more would exceed the limit of 1000: publish less at a time, wait with `Host::visible`, or raise `uncommitted_bytes`"
        );
        let Next::Append(batch) = pending.poll_append() else {
            panic!("nothing published")
        };
        // The log has it, and it still counts.
        assert!(push(&mut pending).is_err());
        pending.settle(&batch[0]);
        assert_eq!(push(&mut pending), Ok(3));
        pending.end(PublishError::ShutDown);
        assert_eq!(push(&mut pending), Err(PublishError::ShutDown));
        assert!(matches!(pending.poll_append(), Next::Append(rest) if rest.len() == 1));
        assert!(matches!(pending.poll_append(), Next::End));
    }
}

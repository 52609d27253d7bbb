//! The queue of actions that are published and not in the log yet. Publishers lock this queue alone, and
//! never wait for the host.

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use breakbulk_message::ahp::{Action, Origin};
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
    /// Where its number stands in the message.
    number: Range<usize>,
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

    /// An action that another host stored in a shared log; `None` if its params are not those of an action.
    pub fn of_another_host(entry: &Entry) -> Option<Self> {
        let params = std::str::from_utf8(&entry.params).ok()?;
        let raw: &RawValue = serde_json::from_str(params).ok()?;
        let action = Action::read(raw).ok()?;
        let inner = action.action.get();
        let at = inner.as_ptr() as usize - params.as_ptr() as usize + HEAD.len();
        let published = Self {
            seq: entry.seq,
            number: 0..0,
            channel: entry.channel.clone(),
            message: format!("{HEAD}{params}}}").into(),
            action: at..at + inner.len(),
            origin: action.origin.map(owned),
            rejection: action.rejection_reason.map(Cow::into_owned),
        };
        (action.server_seq == entry.seq).then_some(published)
    }

    /// Gives it another number, because other hosts used the one it had.
    fn renumber(&mut self, seq: i64) {
        let before = &self.message[..self.number.start];
        let after = &self.message[self.number.end..];
        let number = seq.to_string();
        let message = [before, number.as_bytes(), after].concat();
        self.number.end = self.number.start + number.len();
        self.message = message.into();
        self.seq = seq;
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
        let start = self.text.len();
        self.text.push_str(&seq.to_string());
        let number = start..self.text.len();
        self.text.push_str(&self.tail);
        Published {
            seq,
            number,
            channel,
            message: self.text.into(),
            action: self.action,
            origin: self.origin.map(owned),
            rejection: self.rejection.map(str::to_owned),
        }
    }
}

fn owned(origin: Origin<'_>) -> Origin<'static> {
    Origin {
        client_id: origin.client_id.into_owned().into(),
        client_seq: origin.client_seq,
    }
}

/// The queue between publishers and the log.
#[derive(Debug)]
pub struct Pending {
    limit: usize,
    /// The last number that a publisher was told.
    last: i64,
    /// The number of the last action that is in the log or on its way there.
    assigned: i64,
    /// What the publishers of the actions were told that are not visible yet.
    told: VecDeque<i64>,
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
            assigned: last,
            told: VecDeque::new(),
            waiting: VecDeque::new(),
            bytes: 0,
            names: BTreeSet::new(),
            ended: None,
        }
    }

    /// Numbers an action and queues it. In a log that several hosts share it may get a larger number once it
    /// is stored.
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
        let seq = self.last.max(self.assigned) + 1;
        let channel = self.name(draft.channel);
        let published = draft.numbered(seq, channel);
        self.last = seq;
        self.told.push_back(seq);
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
        for published in &mut batch {
            self.assigned += 1;
            if published.seq != self.assigned {
                let before = published.cost();
                published.renumber(self.assigned);
                self.bytes = self.bytes.saturating_sub(before) + published.cost();
            }
        }
        match (batch.is_empty(), &self.ended) {
            (false, _) => Next::Append(batch),
            (true, Some(_)) => Next::End,
            (true, None) => Next::Wait,
        }
    }

    /// Another host appended first: queues these actions again, to be numbered after that host's actions.
    pub fn put_back(&mut self, batch: Vec<Published>) {
        if let Some(first) = batch.first() {
            self.assigned = first.seq - 1;
        }
        for published in batch.into_iter().rev() {
            self.waiting.push_front(published);
        }
    }

    /// An action has become visible: its bytes no longer count.
    pub fn settle(&mut self, published: &Published) {
        self.bytes = self.bytes.saturating_sub(published.cost());
        self.told.pop_front();
    }

    /// Another host stored an action under this number, and nothing of this host is on its way. `Err`: the
    /// number is not above this one, which is in use already.
    pub fn pass(&mut self, seq: i64) -> Result<(), i64> {
        if seq <= self.assigned {
            return Err(self.assigned);
        }
        self.assigned = seq;
        Ok(())
    }

    /// Whether all actions are visible whose publishers were told `seq` or less.
    pub fn has_settled(&self, seq: i64) -> bool {
        self.told.front().is_none_or(|told| *told > seq)
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
    fn an_overtaken_batch_is_numbered_after_what_others_stored() {
        // JET-3
        let raw: &RawValue = serde_json::from_str(r#"{"type":"a"}"#).unwrap();
        let push = |pending: &mut Pending| pending.push(Draft::new("c", raw, None, None));
        let take = |pending: &mut Pending| match pending.poll_append() {
            Next::Append(batch) => batch,
            other => panic!("{other:?}"),
        };
        let mut pending = Pending::new(8, 10_000);
        assert_eq!((push(&mut pending), push(&mut pending)), (Ok(9), Ok(10)));
        let batch = take(&mut pending);
        let seqs = |batch: &[Published]| batch.iter().map(Published::seq).collect::<Vec<_>>();
        assert_eq!(seqs(&batch), [9, 10]);
        assert_eq!(push(&mut pending), Ok(11));
        let bytes = pending.bytes;
        pending.put_back(batch);
        // Others stored 9 to 100.
        assert_eq!(
            (9..=100).map(|seq| pending.pass(seq)).find(Result::is_err),
            None
        );
        assert_eq!(pending.pass(100), Err(100));
        assert_eq!(push(&mut pending), Ok(101));
        let batch = take(&mut pending);
        assert_eq!(seqs(&batch), [101, 102, 103, 104]);
        for published in &batch {
            let seq = published.seq();
            let text = format!(
                r#"{{"jsonrpc":"2.0","method":"action","params":{{"channel":"c","action":{{"type":"a"}},"serverSeq":{seq}}}}}"#
            );
            assert_eq!(published.message, text);
            assert_eq!(published.applied().action, raw.get());
            // Another host reads the same action from the log.
            let read = Published::of_another_host(&published.entry()).unwrap();
            assert_eq!((read.seq, &read.message), (seq, &published.message));
            assert_eq!(read.applied().action, raw.get());
        }
        assert!(pending.bytes > bytes);
        // The publisher of 11 waits for its own action, which is 103 now, not for that of another host.
        for (published, settled) in batch.iter().zip([9, 10, 11, 101]) {
            assert!(!pending.has_settled(settled));
            pending.settle(published);
            assert!(pending.has_settled(settled));
        }
        assert_eq!(pending.bytes, 0);
    }

    #[test]
    fn an_action_of_another_host_keeps_its_origin_and_its_rejection() {
        let params = r#"{"channel":"c","action":[1],"serverSeq":7,"origin":{"clientId":"x","clientSeq":3},"rejectionReason":"no"}"#;
        let read = Published::of_another_host(&Entry::new(7, "c", params)).unwrap();
        let applied = read.applied();
        let origin = applied.origin.unwrap();
        assert_eq!((&*origin.client_id, origin.client_seq), ("x", 3));
        assert_eq!((applied.action, applied.rejection), ("[1]", Some("no")));
        for (seq, params) in [
            (8, params),
            (7, "{}"),
            (7, "\u{0}"),
            (7, r#"{"serverSeq":7}"#),
        ] {
            let entry = Entry::new(seq, "c", params);
            assert!(Published::of_another_host(&entry).is_none(), "{params}");
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
        // The log has the first action, but it still counts against the limit until it is visible.
        assert!(push(&mut pending).is_err());
        pending.settle(&batch[0]);
        assert_eq!(push(&mut pending), Ok(3));
        pending.end(PublishError::ShutDown);
        assert_eq!(push(&mut pending), Err(PublishError::ShutDown));
        assert!(matches!(pending.poll_append(), Next::Append(rest) if rest.len() == 1));
        assert!(matches!(pending.poll_append(), Next::End));
    }
}

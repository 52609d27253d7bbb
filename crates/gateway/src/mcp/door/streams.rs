//! The streams of one session: which message goes to which of them, and what can still be sent again.
//! Does no IO.
//!
//! An answer goes to the stream of its request, progress to the stream of the request with its token.
//! Whatever else a server says belongs to the only open request, if there is one, else to the stream that
//! the client opened by GET, else to the newest request; without any of these it waits for a GET.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use breakbulk_link::Held;
use breakbulk_net::bytes_with;
use bytes::Bytes;

use crate::mcp::message::Message;

/// The stream that a client opens by GET.
pub(super) const OWN: u64 = 0;

/// The most requests of a session that may be open, whether their clients are there or not: a server may leave
/// some without an answer for ever.
pub(super) const OPEN: usize = 256;

/// What an open request is charged beside its id and its token, of which two copies are kept.
const OPEN_CHARGE: usize = 512;

/// The most events that wait in a session for their streams to be read.
const WAITING: usize = 1024;

/// The most messages, and their bytes, that wait for a client without a stream of its own.
const UNHEARD: usize = 256;
const UNHEARD_BYTES: usize = 1 << 20;

/// The most events that are kept for a client that comes again.
const KEPT: usize = 256;

/// How long a stream that has ended can be resumed.
const RESUMABLE: Duration = Duration::from_secs(60);

/// The streams.
#[derive(Debug)]
pub(super) struct Streams {
    next: u64,
    streams: BTreeMap<u64, Stream>,
    /// Open requests, by id.
    requests: BTreeMap<String, u64>,
    /// Open requests, by progress token.
    tokens: BTreeMap<String, u64>,
    /// Bytes that wait, and how many there may be.
    waiting: usize,
    limit: usize,
    /// Whether events are kept for a client that comes again.
    is_resumable: bool,
}

#[derive(Debug, Default)]
struct Stream {
    events: VecDeque<Event>,
    /// The number of the last event.
    last: u64,
    /// The number of the last event that a reader took.
    taken: u64,
    /// The requests that it is for and that have no answer.
    open: BTreeSet<String>,
    /// Their memory.
    held: Option<Held>,
    /// The number of its reader; a later one replaces it.
    reader: u64,
    is_read: bool,
    ended: Option<Instant>,
}

/// An event of a stream.
#[derive(Clone, Debug)]
pub(super) struct Event {
    /// Its number in the stream, from 1.
    pub(super) number: u64,
    pub(super) bytes: Bytes,
    /// Whether it answers a request, and the code of its error.
    pub(super) answer: Option<Option<i64>>,
    /// What the session is charged for it until it is sent.
    charge: Option<Arc<Held>>,
    /// The charge for keeping it after it was taken, for a client that connects again.
    kept: Option<Arc<Held>>,
}

/// Why a stream for requests cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotOpened {
    /// The id of one of them is in use.
    IdInUse,
    /// With it this many requests would be open, which are too many.
    TooMany(usize),
    /// There is no memory for what has to be remembered of them.
    NoMemory,
}

/// What became of a message.
#[derive(Debug)]
pub(super) enum Put {
    /// It is in a stream.
    Done,
    /// It is in a stream, and these older messages, which waited too long for a GET, were removed.
    Evicted(Vec<Bytes>),
    /// It must wait until others are read.
    Full,
    /// Nobody waits for it.
    Nowhere,
}

/// What a reader finds.
#[derive(Debug)]
pub(super) enum Taken {
    /// The next event.
    Event(Event),
    /// Nothing yet.
    Nothing,
    /// The stream has ended, or another reader has replaced this one.
    Ended,
}

impl Streams {
    /// No streams but the client's own; `limit` bytes may wait in all.
    pub(super) fn new(limit: usize, is_resumable: bool) -> Self {
        Self {
            next: OWN,
            streams: BTreeMap::from([(OWN, Stream::default())]),
            requests: BTreeMap::new(),
            tokens: BTreeMap::new(),
            waiting: 0,
            limit,
            is_resumable,
        }
    }

    /// Opens a stream for the requests in a message; `charge` is asked for the memory of what is remembered.
    pub(super) fn open(
        &mut self,
        message: &Message,
        charge: impl FnOnce(usize) -> Option<Held>,
    ) -> Result<u64, NotOpened> {
        let requests = message.requests();
        let (mut keys, mut size) = (BTreeSet::new(), 0);
        for request in &requests {
            if self.requests.contains_key(&request.key) || !keys.insert(request.key.clone()) {
                return Err(NotOpened::IdInUse);
            }
            let token = request.progress.as_ref().map_or(0, String::len);
            size += OPEN_CHARGE + 2 * request.key.len() + token;
        }
        let open = self.requests.len() + requests.len();
        if open > OPEN {
            return Err(NotOpened::TooMany(open));
        }
        let held = charge(size).ok_or(NotOpened::NoMemory)?;
        self.next += 1;
        let stream = self.next;
        for request in requests {
            self.requests.insert(request.key.clone(), stream);
            if let Some(token) = &request.progress {
                self.tokens.insert(token.clone(), stream);
            }
        }
        let state = Stream {
            open: keys,
            held: Some(held),
            ..Stream::default()
        };
        self.streams.insert(stream, state);
        Ok(stream)
    }

    /// Forgets a stream whose requests the server never got; returns the messages in it that nobody read.
    pub(super) fn abandon(&mut self, stream: u64) -> Vec<Bytes> {
        let Some(state) = self.streams.remove(&stream) else {
            return Vec::new();
        };
        self.requests.retain(|_, of| *of != stream);
        self.tokens.retain(|_, of| *of != stream);
        let left = state.events.into_iter();
        let left = left.filter(|event| event.number > state.taken);
        let left: Vec<Bytes> = left.map(|event| event.bytes).collect();
        self.waiting -= left.iter().map(Bytes::len).sum::<usize>();
        left
    }

    /// Puts a message of the server into the stream where it belongs.
    pub(super) fn put(
        &mut self,
        now: Instant,
        message: Option<&Message>,
        bytes: &Bytes,
        charge: impl FnOnce() -> Option<Held>,
    ) -> Put {
        self.forget(now);
        let answers = message.map(Message::answers).unwrap_or_default();
        let Some(stream) = self.route(message, &answers) else {
            return Put::Nowhere;
        };
        let is_unheard = stream == OWN && !self.is_read(OWN);
        while !is_unheard && !self.has_room(bytes.len()) {
            if !self.give_up_unread() {
                return Put::Full;
            }
        }
        self.close_requests(now, &answers);
        let answer = match message {
            Some(Message::Answer { error, .. }) => Some(*error),
            _ => (!answers.is_empty()).then_some(None),
        };
        if let Some(state) = self.streams.get_mut(&stream) {
            state.last += 1;
            let number = state.last;
            state.events.push_back(Event {
                number,
                bytes: bytes.clone(),
                answer,
                charge: charge().map(Arc::new),
                kept: None,
            });
            self.waiting += bytes.len();
        }
        match is_unheard {
            true => self.evict_unheard(),
            false => Put::Done,
        }
    }

    /// Whether the request with this id has no answer yet.
    pub(super) fn is_open(&self, key: &str) -> bool {
        self.requests.contains_key(key)
    }

    fn has_room(&self, size: usize) -> bool {
        let fits = self.waiting == 0 || self.waiting + size <= self.limit;
        fits && self.unread() < WAITING
    }

    /// Gives up the oldest stream that has ended and that nobody reads: its client may not come again.
    fn give_up_unread(&mut self) -> bool {
        let unread = |(_, state): &(&u64, &Stream)| {
            state.ended.is_some() && !state.is_read && state.taken < state.last
        };
        let Some(oldest) = self.streams.iter().find(unread).map(|(stream, _)| *stream) else {
            return false;
        };
        if let Some(state) = self.streams.remove(&oldest) {
            let left = state.events.iter().filter(|it| it.number > state.taken);
            self.waiting -= left.map(|event| event.bytes.len()).sum::<usize>();
        }
        true
    }

    fn route(&self, message: Option<&Message>, answers: &[&str]) -> Option<u64> {
        if !answers.is_empty() {
            // One of them may be to a request that was cancelled.
            let mut streams = answers.iter().map(|key| self.requests.get(*key));
            return streams.find_map(Option::<&u64>::copied);
        }
        if let Some(Message::Notification {
            progress: Some(token),
            ..
        }) = message
            && let Some(stream) = self.tokens.get(token)
        {
            return Some(*stream);
        }
        let open: BTreeSet<u64> = self.requests.values().copied().collect();
        match (open.len(), open.last()) {
            (1, Some(only)) => Some(*only),
            _ if self.is_read(OWN) => Some(OWN),
            (_, Some(newest)) => Some(*newest),
            (_, None) => self.is_resumable.then_some(OWN),
        }
    }

    /// Ends requests that were answered, and the streams that have no others.
    fn close_requests(&mut self, now: Instant, keys: &[&str]) {
        for key in keys {
            let Some(stream) = self.requests.remove(*key) else {
                continue;
            };
            let Some(state) = self.streams.get_mut(&stream) else {
                continue;
            };
            state.open.remove(*key);
            if state.open.is_empty() {
                state.ended = Some(now);
                state.held = None;
                self.tokens.retain(|_, of| *of != stream);
            }
        }
    }

    /// Forgets a stream that has ended and of which nothing is left: there may be many in the time for which
    /// others can be resumed.
    fn forget_if_empty(&mut self, stream: u64) {
        let is_empty =
            |state: &Stream| state.ended.is_some() && !state.is_read && state.events.is_empty();
        if stream != OWN && self.streams.get(&stream).is_some_and(is_empty) {
            self.streams.remove(&stream);
        }
    }

    /// Ends a request that its client cancelled, or a subscription that the server ended.
    pub(super) fn cancel(&mut self, now: Instant, key: &str) -> bool {
        let stream = self.requests.get(key).copied();
        self.close_requests(now, &[key]);
        if let Some(stream) = stream {
            self.forget_if_empty(stream);
        }
        stream.is_some()
    }

    fn evict_unheard(&mut self) -> Put {
        let mut evicted = Vec::new();
        let Some(own) = self.streams.get_mut(&OWN) else {
            return Put::Done;
        };
        let waits = |own: &Stream| {
            let unheard = own.events.iter().filter(|event| event.number > own.taken);
            unheard.fold((0, 0), |(count, bytes), event| {
                (count + 1, bytes + event.bytes.len())
            })
        };
        while let (count, bytes) = waits(own)
            && count > 1
            && (count > UNHEARD || bytes > UNHEARD_BYTES)
        {
            let first = own.events.iter().position(|event| event.number > own.taken);
            let Some(event) = first.and_then(|first| own.events.remove(first)) else {
                break;
            };
            self.waiting -= event.bytes.len();
            evicted.push(event.bytes);
        }
        match evicted.is_empty() {
            true => Put::Done,
            false => Put::Evicted(evicted),
        }
    }

    /// A reader of a stream, from the event after `from` on; `None` if there is no such stream any more.
    pub(super) fn attach(&mut self, stream: u64, from: Option<u64>) -> Option<u64> {
        let state = self.streams.get_mut(&stream)?;
        if let Some(from) = from {
            let first_kept = state.events.front().map_or(state.last + 1, |it| it.number);
            if from > state.last || from + 1 < first_kept {
                return None;
            }
            let again = state
                .events
                .iter()
                .filter(|event| event.number > from && event.number <= state.taken);
            self.waiting += again.map(|event| event.bytes.len()).sum::<usize>();
            let skipped = state
                .events
                .iter()
                .filter(|event| event.number > state.taken && event.number <= from);
            self.waiting -= skipped.map(|event| event.bytes.len()).sum::<usize>();
            state.taken = from;
        }
        state.reader += 1;
        state.is_read = true;
        Some(state.reader)
    }

    /// Removes a reader that is gone.
    pub(super) fn detach(&mut self, stream: u64, reader: u64) {
        if let Some(state) = self.streams.get_mut(&stream)
            && state.reader == reader
        {
            state.is_read = false;
            self.forget_if_empty(stream);
        }
    }

    /// The next event for a reader. If there is memory to keep it, as `keep` says, it can be sent again.
    pub(super) fn take(
        &mut self,
        stream: u64,
        reader: u64,
        keep: impl FnOnce(usize) -> Option<Held>,
    ) -> Taken {
        let Some(state) = self.streams.get_mut(&stream) else {
            return Taken::Ended;
        };
        if state.reader != reader {
            return Taken::Ended;
        }
        let taken = state.taken;
        let Some(at) = state.events.iter().position(|event| event.number > taken) else {
            return match state.ended {
                Some(_) => Taken::Ended,
                None => Taken::Nothing,
            };
        };
        let stored = &mut state.events[at];
        state.taken = stored.number;
        self.waiting -= stored.bytes.len();
        if stored.kept.is_none() && self.is_resumable {
            stored.kept = keep(stored.bytes.len()).map(Arc::new);
        }
        // An event that is kept has a charge of its own; what is sent is charged until its last byte has
        // left.
        let mut event = stored.clone();
        let charges = [stored.charge.take(), stored.kept.clone()];
        event.bytes = bytes_with(event.bytes, charges);
        match stored.kept.is_some() {
            true => self.drop_kept(),
            // Without this event a stream could not be resumed without a gap, so the earlier ones are of no
            // use either.
            false => drop(state.events.drain(..=at)),
        }
        Taken::Event(event)
    }

    /// Gives up the oldest events that were taken, beyond those that are kept.
    fn drop_kept(&mut self) {
        loop {
            let kept = self.streams.iter().flat_map(|(stream, state)| {
                let taken = state.taken;
                let events = state.events.iter().filter(move |it| it.number <= taken);
                events.map(move |event| (*stream, event.bytes.len()))
            });
            let (mut count, mut bytes, mut oldest) = (0, 0, None);
            for (stream, size) in kept {
                count += 1;
                bytes += size;
                // The client's own stream, which never ends, comes first, so its events are given up first.
                oldest.get_or_insert(stream);
            }
            if count <= KEPT && bytes <= self.limit {
                return;
            }
            let Some(oldest) = oldest else { return };
            if let Some(state) = self.streams.get_mut(&oldest) {
                state.events.pop_front();
            }
            self.forget_if_empty(oldest);
        }
    }

    /// Forgets streams that ended long ago.
    fn forget(&mut self, now: Instant) {
        let waiting = &mut self.waiting;
        let is_resumable = self.is_resumable;
        self.streams.retain(|stream, state| {
            let kept_for = if is_resumable {
                RESUMABLE
            } else {
                Duration::ZERO
            };
            let is_old = state.ended.is_some_and(|ended| now >= ended + kept_for);
            let keep = *stream == OWN || state.is_read || !is_old;
            if !keep {
                let left = state.events.iter().filter(|it| it.number > state.taken);
                *waiting -= left.map(|event| event.bytes.len()).sum::<usize>();
            }
            keep
        });
    }

    /// How many events wait.
    pub(super) fn unread(&self) -> usize {
        let counts = self.streams.values().map(|state| {
            let waiting = state.events.iter().rev();
            waiting
                .take_while(|event| event.number > state.taken)
                .count()
        });
        counts.sum()
    }

    /// What must hold after each call.
    #[allow(
        dead_code,
        reason = "for tests, and for the fuzzer, which compiles this file"
    )]
    pub(super) fn check(&self) {
        let unread = |state: &Stream| {
            let events = state.events.iter().filter(|it| it.number > state.taken);
            events.map(|event| event.bytes.len()).sum::<usize>()
        };
        let waiting: usize = self.streams.values().map(unread).sum();
        assert_eq!(self.waiting, waiting);
        assert!(self.requests.len() <= OPEN);
        for (key, stream) in &self.requests {
            assert!(self.streams[stream].open.contains(key));
        }
        let named = self.tokens.values();
        assert!(
            named
                .clone()
                .all(|stream| self.streams.contains_key(stream))
        );
        let events: usize = self.streams.values().map(|state| state.events.len()).sum();
        assert!(events <= KEPT + WAITING + UNHEARD + 1, "{events}");
        let streams = self.streams.len();
        let read = self.streams.values().filter(|state| state.is_read).count();
        assert!(
            streams <= 1 + OPEN + events + read,
            "{streams} for {events} events"
        );
    }

    fn is_read(&self, stream: u64) -> bool {
        self.streams.get(&stream).is_some_and(|state| state.is_read)
    }

    /// Whether a stream has ended: all of its requests are answered.
    pub(super) fn has_ended(&self, stream: u64) -> bool {
        self.streams
            .get(&stream)
            .is_none_or(|state| state.ended.is_some())
    }

    /// Whether nobody reads any stream. A client that waits for an answer reads; an open request whose client
    /// has gone does not count.
    pub(super) fn is_quiet(&self) -> bool {
        !self.streams.values().any(|state| state.is_read)
    }

    /// Whether a reader has not yet taken all that is there for it.
    pub(super) fn is_behind(&self) -> bool {
        let mut read = self.streams.values().filter(|state| state.is_read);
        read.any(|state| state.taken < state.last)
    }
}

#[cfg(test)]
mod tests;

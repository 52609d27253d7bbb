//! The streams of one session: which message goes to which of them, and what can still be sent again.
//! Does no IO.
//!
//! An answer goes to the stream of its request, progress to the stream of the request with its token.
//! Whatever else a server says belongs to the only open request, if there is one, else to the stream that
//! the client opened by GET, else to the newest request; without any of these it waits for a GET.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use breakbulk_link::{Charge, Held};
use bytes::Bytes;

use crate::mcp::message::Message;

/// The stream that a client opens by GET.
pub(super) const OWN: u64 = 0;

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
    charge: Option<Arc<Charge>>,
    /// Its memory once it was taken, for a client that comes again.
    kept: Option<Arc<Held>>,
}

/// What became of a message.
#[derive(Debug)]
pub(super) enum Put {
    /// It is in a stream.
    Done,
    /// It is in a stream, and these waited too long for a GET.
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

    /// Opens a stream for the requests in a message; `None` if one of their ids is in use.
    pub(super) fn open(&mut self, message: &Message) -> Option<u64> {
        let requests = message.requests();
        let mut keys = BTreeSet::new();
        for request in &requests {
            if self.requests.contains_key(&request.key) || !keys.insert(request.key.clone()) {
                return None;
            }
        }
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
            ..Stream::default()
        };
        self.streams.insert(stream, state);
        Some(stream)
    }

    /// Puts a message of the server into the stream where it belongs.
    pub(super) fn put(
        &mut self,
        now: Instant,
        message: Option<&Message>,
        bytes: &Bytes,
        charge: impl FnOnce() -> Option<Charge>,
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

    fn has_room(&self, size: usize) -> bool {
        let fits = self.waiting == 0 || self.waiting + size <= self.limit;
        fits && self.count() < WAITING
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
        if let Some(first) = answers.first() {
            return self.requests.get(*first).copied();
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
                self.tokens.retain(|_, of| *of != stream);
            }
        }
    }

    /// The client does not wait for the answer to a request any more, or the server for a subscription.
    pub(super) fn cancel(&mut self, now: Instant, key: &str) -> bool {
        let is_open = self.requests.contains_key(key);
        self.close_requests(now, &[key]);
        is_open
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

    /// A reader is gone.
    pub(super) fn detach(&mut self, stream: u64, reader: u64) {
        if let Some(state) = self.streams.get_mut(&stream)
            && state.reader == reader
        {
            state.is_read = false;
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
        let event = state.events[at].clone();
        state.taken = event.number;
        self.waiting -= event.bytes.len();
        let stored = &mut state.events[at];
        if stored.kept.is_none() && self.is_resumable {
            stored.kept = keep(stored.bytes.len()).map(Arc::new);
        }
        // Whoever sends it is charged for it; what is kept has its own memory.
        stored.charge = None;
        match stored.kept.is_some() {
            true => self.drop_kept(),
            // Without it those before it are of no use, either.
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
                // The client's own stream lasts, so what was taken of it is given up first.
                oldest.get_or_insert(stream);
            }
            if count <= KEPT && bytes <= self.limit {
                return;
            }
            let state = oldest.and_then(|oldest| self.streams.get_mut(&oldest));
            match state {
                Some(state) => drop(state.events.pop_front()),
                None => return,
            }
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
    fn count(&self) -> usize {
        let counts = self.streams.values().map(|state| {
            let waiting = state.events.iter().rev();
            waiting
                .take_while(|event| event.number > state.taken)
                .count()
        });
        counts.sum()
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

    /// Whether no request is open and no stream is read.
    pub(super) fn is_quiet(&self) -> bool {
        self.requests.is_empty() && !self.streams.values().any(|state| state.is_read)
    }

    /// Whether a reader has not yet taken all that is there for it.
    pub(super) fn is_behind(&self) -> bool {
        let mut read = self.streams.values().filter(|state| state.is_read);
        read.any(|state| state.taken < state.last)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn read(text: &str) -> Message {
        Message::read(text.as_bytes()).unwrap()
    }

    fn request(id: u32, token: Option<u32>) -> Message {
        let token = token.map_or(String::new(), |token| {
            format!(r#","params":{{"_meta":{{"progressToken":{token}}}}}"#)
        });
        read(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"m"{token}}}"#
        ))
    }

    fn put(streams: &mut Streams, text: &str) -> Put {
        put_at(streams, text, Instant::now())
    }

    fn put_at(streams: &mut Streams, text: &str, now: Instant) -> Put {
        let bytes = Bytes::copy_from_slice(text.as_bytes());
        streams.put(now, Some(&read(text)), &bytes, || None)
    }

    fn taken(streams: &mut Streams, stream: u64, reader: u64) -> Vec<String> {
        let budget = breakbulk_link::Budget::new(1 << 20);
        std::iter::from_fn(
            || match streams.take(stream, reader, |size| budget.charge(size)) {
                Taken::Event(event) => Some(String::from_utf8(event.bytes.to_vec()).unwrap()),
                _ => None,
            },
        )
        .collect()
    }

    const LOG: &str = r#"{"jsonrpc":"2.0","method":"notifications/message"}"#;
    const SAMPLING: &str = r#"{"jsonrpc":"2.0","id":"s","method":"sampling/createMessage"}"#;
    const PROGRESS: &str =
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":9}}"#;

    fn answer(id: u32) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
    }

    // MCPH-5
    #[test]
    fn a_message_goes_to_the_stream_where_it_belongs_and_to_no_other() {
        let mut streams = Streams::new(1 << 20, true);
        // Nothing is open: it waits for a GET.
        put(&mut streams, LOG);
        let first = streams.open(&request(1, None)).unwrap();
        let one = streams.attach(first, None).unwrap();
        // The only open request.
        put(&mut streams, SAMPLING);
        assert_eq!(taken(&mut streams, first, one), [SAMPLING]);
        let second = streams.open(&request(2, Some(9))).unwrap();
        let two = streams.attach(second, None).unwrap();
        // Progress by its token, and with two open requests and no GET the newest one.
        put(&mut streams, PROGRESS);
        put(&mut streams, LOG);
        assert_eq!(taken(&mut streams, second, two), [PROGRESS, LOG]);
        // The client's own stream.
        let own = streams.attach(OWN, None).unwrap();
        put(&mut streams, SAMPLING);
        assert_eq!(taken(&mut streams, OWN, own), [LOG, SAMPLING]);
        put(&mut streams, &answer(1));
        assert!(streams.has_ended(first) && !streams.has_ended(second));
        assert_eq!(taken(&mut streams, first, one), [answer(1)]);
        assert!(matches!(streams.take(first, one, |_| None), Taken::Ended));
        assert_eq!(taken(&mut streams, second, two), [""; 0]);
        // An answer that nobody waits for.
        assert!(matches!(put(&mut streams, &answer(1)), Put::Nowhere));
        // An id can be used once at a time.
        assert!(streams.open(&request(2, None)).is_none());
        assert!(streams.open(&request(1, None)).is_some());
        assert!(streams.cancel(Instant::now(), "2"));
        assert!(matches!(streams.take(second, two, |_| None), Taken::Ended));
    }

    // MCPH-6
    #[test]
    fn a_stream_goes_on_after_the_last_event_that_arrived() {
        let mut streams = Streams::new(1 << 20, true);
        let stream = streams.open(&request(1, None)).unwrap();
        let reader = streams.attach(stream, None).unwrap();
        put(&mut streams, LOG);
        put(&mut streams, SAMPLING);
        assert_eq!(taken(&mut streams, stream, reader).len(), 2);
        streams.detach(stream, reader);
        put(&mut streams, &answer(1));
        // The client has seen one event.
        let again = streams.attach(stream, Some(1)).unwrap();
        assert!(
            matches!(streams.take(stream, reader, |_| None), Taken::Ended),
            "replaced"
        );
        assert_eq!(
            taken(&mut streams, stream, again),
            [SAMPLING.to_owned(), answer(1)]
        );
        // Once more from its begin, and from an event that never was.
        let again = streams.attach(stream, Some(0)).unwrap();
        assert_eq!(taken(&mut streams, stream, again).len(), 3);
        assert_eq!(streams.attach(stream, Some(9)), None);
        assert_eq!(streams.attach(77, Some(0)), None);
        assert_eq!(streams.waiting, 0);
        streams.detach(stream, again);
        // A minute later it is forgotten.
        put_at(&mut streams, LOG, Instant::now() + RESUMABLE);
        assert_eq!(streams.attach(stream, Some(0)), None);
    }

    // MCPH-7
    #[test]
    fn what_waits_and_what_is_kept_is_bounded() {
        let mut streams = Streams::new(1000, true);
        let stream = streams.open(&request(1, None)).unwrap();
        let reader = streams.attach(stream, None).unwrap();
        let mut waiting = 0;
        while matches!(put(&mut streams, LOG), Put::Done) {
            waiting += 1;
        }
        assert_eq!(waiting, 1000 / LOG.len());
        assert_eq!(taken(&mut streams, stream, reader).len(), waiting);
        // One that is over the limit alone passes, and the others wait for it.
        let large = LOG.replace("message", &"x".repeat(2000));
        assert!(matches!(put(&mut streams, &large), Put::Done));
        assert!(matches!(put(&mut streams, LOG), Put::Full));
        for _ in 0..10_000 {
            taken(&mut streams, stream, reader);
            assert!(matches!(put(&mut streams, LOG), Put::Done));
        }
        assert!(streams.streams[&stream].events.len() <= KEPT + 1);
        // An answer that nobody came back for makes room.
        assert!(matches!(put(&mut streams, &large), Put::Full));
        taken(&mut streams, stream, reader);
        let gone = streams.open(&request(2, None)).unwrap();
        let answered = answer(2).replace("{}", &format!("\"{}\"", "x".repeat(900)));
        put(&mut streams, &answered);
        assert!(matches!(put(&mut streams, &large), Put::Done));
        assert_eq!(streams.attach(gone, Some(0)), None);
        // What nobody listens for is evicted, and told.
        let mut streams = Streams::new(1 << 20, true);
        let mut evicted = 0;
        for _ in 0..UNHEARD + 5 {
            if let Put::Evicted(gone) = put(&mut streams, LOG) {
                evicted += gone.len();
            }
        }
        assert_eq!((evicted, streams.count()), (5, UNHEARD));
    }

    // MCPH-7
    #[test]
    fn what_there_is_no_memory_for_is_not_kept() {
        let mut streams = Streams::new(1000, true);
        let stream = streams.open(&request(1, None)).unwrap();
        let reader = streams.attach(stream, None).unwrap();
        put(&mut streams, LOG);
        put(&mut streams, LOG);
        let budget = breakbulk_link::Budget::new(LOG.len());
        for _ in 0..2 {
            let taken = streams.take(stream, reader, |size| budget.charge(size));
            assert!(matches!(taken, Taken::Event(_)));
        }
        // The second one could not be kept: what came after the first is not whole any more.
        assert_eq!(budget.used(), 0);
        assert_eq!(streams.attach(stream, Some(1)), None);
        assert!(streams.attach(stream, Some(2)).is_some());
    }

    #[test]
    fn a_backend_of_many_clients_keeps_nothing_of_one() {
        let mut streams = Streams::new(1000, false);
        assert!(matches!(put(&mut streams, LOG), Put::Nowhere));
        let stream = streams.open(&request(1, None)).unwrap();
        let reader = streams.attach(stream, None).unwrap();
        put(&mut streams, LOG);
        put(&mut streams, &answer(1));
        assert_eq!(taken(&mut streams, stream, reader).len(), 2);
        streams.detach(stream, reader);
        assert!(matches!(put(&mut streams, LOG), Put::Nowhere));
        assert!(streams.is_quiet() && streams.streams.len() == 1);
    }
}

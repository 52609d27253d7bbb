//! Collects the events that a relay had stored when this side subscribed. The relay sends them newest first,
//! those of one second in any order, and then reports their end. The application, which knows their content,
//! can order them, so they are handed over together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use breakbulk_link::lock;
use nostr_sdk::{Event, EventId, RelayUrl, Tag};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::Instant;

/// The most stored events that are handed over together; more of them come in several batches.
const MOST: usize = 1_024;

/// How many KiB of stored events, of all relays together, may wait until their relay reports the end of
/// them, or until the application takes them. Further events are handed over as they come, and wait for room
/// in the channel.
const WAITING_KIB: usize = 32 << 10;

/// How long to wait, after a relay's first stored event, for the relay to report the end of them.
const END: Duration = Duration::from_secs(5);

/// Received events: one, or all that a relay had stored, in the order in which it sent them.
#[derive(Debug)]
pub struct Batch {
    /// The events, at least one.
    pub events: Vec<Event>,
    /// The events' share of the memory of waiting events, held until the batch is dropped.
    _room: Option<OwnedSemaphorePermit>,
}

/// A free place in the channel to the application.
pub(super) type Place<'a> = mpsc::Permit<'a, Batch>;

/// The stored events of each relay, for as long as the relay sends them.
#[derive(Debug)]
pub(super) struct Stored {
    relays: Mutex<BTreeMap<RelayUrl, OfRelay>>,
    room: Arc<Semaphore>,
    /// Changes when a relay's first stored event has come: from then on there is a
    /// [`deadline`](Stored::deadline).
    began: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct OfRelay {
    /// How often it was connected to, or tried to.
    attempts: u64,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// The relay sends its stored events: those that came, their share of the memory, when the first one
    /// came, and the ids of events that another relay had sent before.
    Stored(
        Vec<Event>,
        Option<OwnedSemaphorePermit>,
        Option<Instant>,
        BTreeSet<EventId>,
    ),
    /// The relay sends events as they are published.
    Live,
}

impl Default for Phase {
    fn default() -> Self {
        Self::Stored(Vec::new(), None, None, BTreeSet::new())
    }
}

impl Phase {
    /// Whether the end of this phase may hand something over.
    fn holds_some(&self) -> bool {
        match self {
            Self::Stored(events, _, _, again) => !(events.is_empty() && again.is_empty()),
            Self::Live => false,
        }
    }

    /// Ends this phase, and returns the events that it has collected.
    fn end(&mut self, next: Self) -> Option<Batch> {
        match std::mem::replace(self, next) {
            Self::Stored(events, room, ..) if !events.is_empty() => Some(Batch {
                events,
                _room: room,
            }),
            _ => None,
        }
    }
}

impl Default for Stored {
    fn default() -> Self {
        Self {
            relays: Mutex::default(),
            room: Arc::new(Semaphore::new(WAITING_KIB)),
            began: watch::Sender::new(()),
        }
    }
}

impl Stored {
    /// Notified when the first stored event of any relay has come.
    pub(super) fn began(&self) -> watch::Receiver<()> {
        self.began.subscribe()
    }

    /// An event came; returns what to hand over now.
    pub(super) fn received(&self, now: Instant, relay: &RelayUrl, event: &Event) -> Option<Batch> {
        let mut relays = self.lock();
        let phase = &mut relays.entry(relay.clone()).or_default().phase;
        let kib = u32::try_from(memory(event) >> 10).map_or(u32::MAX, |kib| kib + 1);
        let Phase::Stored(events, room, first, _) = phase else {
            return Some(Batch {
                events: vec![event.clone()],
                _room: None,
            });
        };
        events.push(event.clone());
        if first.is_none() {
            *first = Some(now);
            self.began.send_replace(());
        }
        match (self.room.clone().try_acquire_many_owned(kib), &mut *room) {
            (Ok(more), Some(room)) => room.merge(more),
            (Ok(more), None) => *room = Some(more),
            (Err(_), _) => return phase.end(Phase::default()),
        }
        if events.len() >= MOST {
            return phase.end(Phase::default());
        }
        None
    }

    /// An event came once more, from this relay. If this relay has sent all its stored events, the event is
    /// no longer held for another relay, which may never report the end of its own; returns it.
    pub(super) fn came_again(&self, relay: &RelayUrl, id: &EventId) -> Option<Batch> {
        let mut relays = self.lock();
        match &mut relays.entry(relay.clone()).or_default().phase {
            Phase::Stored(.., again) => {
                if again.len() < MOST {
                    again.insert(*id);
                }
                None
            }
            Phase::Live => taken(&mut relays, |event| event.id == *id),
        }
    }

    /// The relay has sent all its stored events: puts them into the channel, with those of them that are held
    /// for other relays. False: nothing was done, because there are some and no place in the channel was given.
    pub(super) fn ended(&self, relay: &RelayUrl, place: Option<Place<'_>>) -> bool {
        let mut relays = self.lock();
        let phase = &mut relays.entry(relay.clone()).or_default().phase;
        if place.is_none() && phase.holds_some() {
            return false;
        }
        let again = match phase {
            Phase::Stored(.., again) => std::mem::take(again),
            Phase::Live => BTreeSet::new(),
        };
        let own = phase.end(Phase::Live);
        let others = taken(&mut relays, |event| again.contains(&event.id));
        let all = match (own, others) {
            (Some(mut own), Some(others)) => {
                own.events.extend(others.events);
                Some(own)
            }
            (own, others) => own.or(others),
        };
        put(place, all);
        true
    }

    /// The relay sends its stored events from now on, since it is subscribed to again. Puts the events that came
    /// before into the channel; false as with [`ended`](Self::ended).
    pub(super) fn begin(&self, relay: &RelayUrl, place: Option<Place<'_>>) -> bool {
        let mut relays = self.lock();
        let phase = &mut relays.entry(relay.clone()).or_default().phase;
        if place.is_none() && phase.holds_some() {
            return false;
        }
        put(place, phase.end(Phase::default()));
        true
    }

    /// The relay is about to be connected.
    pub(super) fn connecting(&self, relay: &RelayUrl) {
        self.lock().entry(relay.clone()).or_default().attempts += 1;
    }

    /// How often the relay was about to be connected.
    pub(super) fn attempts(&self, relay: &RelayUrl) -> u64 {
        self.lock().get(relay).map_or(0, |of| of.attempts)
    }

    /// When [`ended`](Self::ended) is to be called although the relay has not reported the end.
    pub(super) fn deadline(&self, relay: &RelayUrl) -> Option<Instant> {
        match &self.lock().get(relay)?.phase {
            Phase::Stored(_, _, first, _) => first.map(|first| first + END),
            Phase::Live => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<RelayUrl, OfRelay>> {
        lock(&self.relays)
    }
}

/// Hands over events by `end`, which wants a place in the channel if there are some.
pub(super) async fn hand_over(
    events: &mpsc::Sender<Batch>,
    end: impl Fn(Option<Place<'_>>) -> bool,
) {
    if end(None) {
        return;
    }
    // An error means that the receiver was dropped.
    if let Ok(place) = events.reserve().await {
        end(Some(place));
    }
}

/// A batch leaves while the relays are locked: otherwise an event that comes after it could overtake it.
fn put(place: Option<Place<'_>>, batch: Option<Batch>) {
    if let (Some(place), Some(batch)) = (place, batch) {
        place.send(batch);
    }
}

/// Takes events that are held.
fn taken(
    relays: &mut BTreeMap<RelayUrl, OfRelay>,
    wanted: impl Fn(&Event) -> bool,
) -> Option<Batch> {
    let mut all = Vec::new();
    for of in relays.values_mut() {
        if let Phase::Stored(events, ..) = &mut of.phase {
            all.extend(events.extract_if(.., |event| wanted(event)));
        }
    }
    // Their share of the memory is released with the events that they were held with.
    (!all.is_empty()).then_some(Batch {
        events: all,
        _room: None,
    })
}

/// What the allocator takes for a block of memory beside its bytes, and rounds up.
const BLOCK: usize = 32;

/// About how much memory an event takes: its content, and its tags, each of which takes memory by itself, as do
/// their parts.
fn memory(event: &Event) -> usize {
    let of_tag = |tag: &Tag| {
        let parts = tag.as_slice().iter();
        let parts = parts.map(|part| size_of::<String>() + BLOCK + part.len());
        size_of::<Tag>() + BLOCK + parts.sum::<usize>()
    };
    let tags: usize = event.tags.iter().map(of_tag).sum();
    size_of::<Event>() + BLOCK + event.content.len() + tags
}

#[cfg(test)]
mod tests {
    use nostr_sdk::{EventBuilder, Keys, Kind};

    use super::*;

    fn event(text: &str) -> Event {
        let builder = EventBuilder::new(Kind::from_u16(1_059), text);
        builder.sign_with_keys(&Keys::generate()).unwrap()
    }

    fn texts(batch: Option<Batch>) -> Option<Vec<String>> {
        let events = batch?.events;
        Some(events.into_iter().map(|event| event.content).collect())
    }

    /// What the end of something puts into the channel; asked for a place only if there is something.
    fn put_by(end: impl Fn(Option<Place<'_>>) -> bool) -> Option<Batch> {
        let (sender, mut receiver) = mpsc::channel(1);
        if !end(None) {
            assert!(end(Some(sender.try_reserve().unwrap())));
        }
        receiver.try_recv().ok()
    }

    fn ended(stored: &Stored, relay: &RelayUrl) -> Option<Batch> {
        put_by(|place| stored.ended(relay, place))
    }

    fn again(stored: &Stored, relay: &RelayUrl) -> Option<Batch> {
        put_by(|place| stored.begin(relay, place))
    }

    #[test]
    fn what_was_stored_comes_together_and_the_rest_one_by_one() {
        let urls = ["ws://127.0.0.1:1", "ws://127.0.0.1:2", "ws://127.0.0.1:3"];
        let [one, two, empty] = urls.map(|url| RelayUrl::parse(url).unwrap());
        let now = Instant::now();
        let stored = Stored::default();
        let received = |relay, text: &str| texts(stored.received(now, relay, &event(text)));
        assert_eq!(received(&one, "b"), None);
        assert_eq!(stored.deadline(&one), Some(now + END));
        assert_eq!(received(&two, "of another relay"), None);
        assert_eq!(received(&one, "a"), None);
        let both = Some(vec!["b".to_owned(), "a".to_owned()]);
        assert_eq!(texts(ended(&stored, &one)), both);
        assert_eq!(stored.deadline(&one), None);
        assert_eq!(received(&one, "c"), Some(vec!["c".to_owned()]));
        assert!(again(&stored, &one).is_none());
        assert_eq!(received(&one, "d"), None);
        assert_eq!(
            texts(again(&stored, &one)),
            Some(vec!["d".to_owned()]),
            "nothing is lost with its connection"
        );
        assert!(ended(&stored, &empty).is_none());
        assert_eq!(received(&empty, "e"), Some(vec!["e".to_owned()]));
    }

    #[test]
    fn what_another_relay_sends_live_is_not_held() {
        let urls = ["ws://127.0.0.1:1", "ws://127.0.0.1:2"];
        let [silent, honest] = urls.map(|url| RelayUrl::parse(url).unwrap());
        let (now, stored) = (Instant::now(), Stored::default());
        let (one, other) = (event("one"), event("other"));
        let mut began = stored.began();
        assert!(!began.has_changed().unwrap());
        assert!(stored.received(now, &silent, &one).is_none());
        assert!(
            began.has_changed().unwrap(),
            "who waits looks at the deadline"
        );
        began.mark_unchanged();
        assert!(stored.received(now, &silent, &other).is_none());
        assert!(!began.has_changed().unwrap());
        // An event that the honest relay had stored as well comes with all its stored events.
        let third = event("third");
        assert!(stored.came_again(&honest, &one.id).is_none());
        assert!(stored.received(now, &honest, &third).is_none());
        let all = Some(vec!["third".to_owned(), "one".to_owned()]);
        assert_eq!(texts(ended(&stored, &honest)), all);
        let again = |id| texts(stored.came_again(&honest, id));
        assert_eq!(again(&one.id), None, "once");
        assert_eq!(again(&other.id), Some(vec!["other".to_owned()]));
        assert!(ended(&stored, &silent).is_none());
        assert_eq!(again(&other.id), None);
        assert_eq!(stored.room.available_permits(), WAITING_KIB);
    }

    #[test]
    fn tags_take_room_too() {
        let relay = RelayUrl::parse("ws://127.0.0.1:1").unwrap();
        let (now, stored) = (Instant::now(), Stored::default());
        let tag = Tag::parse(["x", &"y".repeat(1 << 20)]).unwrap();
        let builder = EventBuilder::new(Kind::from_u16(1_059), "").tag(tag);
        let event = builder.sign_with_keys(&Keys::generate()).unwrap();
        let count = (1..).find(|_| stored.received(now, &relay, &event).is_some());
        assert_eq!(count, Some(WAITING_KIB >> 10));
        let many = (0..2_000).map(|_| Tag::parse(["x"]).unwrap());
        let builder = EventBuilder::new(Kind::from_u16(1_059), "").tags(many);
        let event = builder.sign_with_keys(&Keys::generate()).unwrap();
        let least = 2_000 * size_of::<Tag>();
        assert!(memory(&event) > least, "{} of {least}", memory(&event));
    }

    #[test]
    fn what_waits_is_bounded() {
        let relay = RelayUrl::parse("ws://127.0.0.1:1").unwrap();
        let (now, stored) = (Instant::now(), Stored::default());
        let small = event("x");
        let first = (1..).find_map(|number| {
            let batch = stored.received(now, &relay, &small)?;
            Some((number, batch))
        });
        let (number, batch) = first.unwrap();
        assert_eq!((number, batch.events.len()), (MOST, MOST));
        let large = event(&"x".repeat(1 << 20));
        let mut kept = vec![batch];
        let before = WAITING_KIB - stored.room.available_permits();
        let batch = (0..).find_map(|_| stored.received(now, &relay, &large));
        kept.extend(batch);
        let held: usize = kept.iter().map(|batch| batch.events.len()).sum();
        assert!(held <= MOST + ((WAITING_KIB - before) >> 10) + 1, "{held}");
        // As long as that batch waits, each event is handed over at once.
        let next = stored.received(now, &relay, &large);
        assert_eq!(next.map(|batch| batch.events.len()), Some(1));
        drop(kept);
        assert_eq!(stored.room.available_permits(), WAITING_KIB);
        assert!(stored.received(now, &relay, &large).is_none());
    }
}

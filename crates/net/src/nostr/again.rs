//! Recently accepted events that a relay does not store. They are sent again after an outage of the relay:
//! their receivers were cut off too, and may subscribe again later than this side publishes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use nostr_sdk::{Event, JsonUtil};
use tokio::time::Instant;

/// Events that were accepted from this long before a reconnect on may have been lost in the outage.
const BEFORE: Duration = Duration::from_secs(5);

/// How long after a reconnect events are sent again: twice, because other clients of the relay
/// reconnect later.
const AFTER: [Duration; 2] = [Duration::from_secs(4), Duration::from_secs(12)];

/// How much later than the repeated events new ones are sent: a receiver may not be able to take a piece that
/// overtakes the pieces before it.
const BEHIND: Duration = Duration::from_millis(250);

/// How soon to look again whether a relay that is being connected is.
const LOOK: Duration = Duration::from_millis(50);

/// How long an accepted event is kept.
const KEPT: Duration = Duration::from_secs(30);

/// The most events, and the most bytes of them, that are kept; the oldest are dropped first.
const MOST: (usize, usize) = (128, 4 << 20);

/// The recently accepted events of one relay.
#[derive(Debug, Default)]
pub(super) struct RecentlyAccepted {
    events: VecDeque<(Instant, usize, Arc<Event>)>,
    bytes: usize,
    /// The number of the last attempt to connect that succeeded.
    connected: Option<u64>,
    /// When the relay was reconnected.
    reconnected: Option<Instant>,
    /// When events are to be sent again.
    due: VecDeque<Instant>,
}

impl RecentlyAccepted {
    /// The relay accepted an event.
    pub(super) fn accepted(&mut self, now: Instant, event: &Arc<Event>) {
        if !event.kind.is_ephemeral() {
            return;
        }
        let size = event.as_json().len();
        self.events.push_back((now, size, event.clone()));
        self.bytes += size;
        while let Some((at, size, _)) = self.events.front()
            && (*at + KEPT < now || self.events.len() > MOST.0 || self.bytes > MOST.1)
        {
            self.bytes -= size;
            self.events.pop_front();
        }
    }

    /// The relay is connected by this attempt. The first connection does not follow an outage.
    pub(super) fn connected(&mut self, now: Instant, attempt: u64) {
        if self.connected.replace(attempt).is_some() {
            self.reconnected = Some(now);
            self.due = AFTER.iter().map(|after| now + *after).collect();
        }
    }

    /// When an event of an ephemeral kind may be sent after an outage. Before that, other clients may not
    /// have reconnected, and would get neither the lost events nor this one.
    pub(super) fn settled(&self) -> Option<Instant> {
        let first = self.reconnected? + AFTER[0];
        Some(first + BEHIND)
    }

    /// Whether events were sent again since the last reconnect.
    fn is_repeated(&self) -> bool {
        self.due.len() < AFTER.len()
    }

    /// When [`again`](Self::again) is to be called.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.front().copied()
    }

    /// The events that are to be sent again now.
    pub(super) fn again(&mut self, now: Instant) -> Vec<Arc<Event>> {
        let (Some(due), Some(reconnected)) = (self.due.front(), self.reconnected) else {
            return Vec::new();
        };
        if *due > now {
            return Vec::new();
        }
        self.due.pop_front();
        let since = reconnected.checked_sub(BEFORE).unwrap_or(reconnected);
        let recent = self.events.iter().filter(|(at, ..)| *at >= since);
        recent.map(|(.., event)| event.clone()).collect()
    }
}

/// When one event may be sent: it waits for one outage to be over, and for no others. A relay that reconnects every few
/// seconds would take none at all.
#[derive(Debug, Default)]
pub(super) struct Turn(Option<Instant>);

impl Turn {
    /// The time that it waits for, or when to ask again. The number of the last attempt to connect tells whether
    /// this side has heard of the last connection: it may be connected a moment before.
    pub(super) fn settled(
        &mut self,
        now: Instant,
        recent: &RecentlyAccepted,
        attempt: u64,
    ) -> Option<Instant> {
        if self.0.is_none() && recent.connected != Some(attempt) {
            return Some(now + LOOK);
        }
        let (settled, is_repeated) = (recent.settled(), recent.is_repeated());
        if self.0.is_none() {
            self.0 = settled.filter(|until| *until > now || !is_repeated);
        }
        match self.0 {
            // The task that sends events again may be late.
            Some(until) if until <= now && settled == Some(until) && !is_repeated => {
                Some(now + LOOK)
            }
            until => until,
        }
    }
}

#[cfg(test)]
mod tests {
    use nostr_sdk::{EventBuilder, Keys, Kind};

    use super::*;

    fn event(kind: u16, text: &str) -> Arc<Event> {
        let builder = EventBuilder::new(Kind::from_u16(kind), text);
        Arc::new(builder.sign_with_keys(&Keys::generate()).unwrap())
    }

    #[test]
    fn what_was_accepted_around_an_outage_is_sent_again_twice() {
        let begin = Instant::now() + Duration::from_secs(3600);
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        let mut recent = RecentlyAccepted::default();
        recent.connected(at(0), 1);
        assert_eq!(
            (recent.next(), recent.settled()),
            (None, None),
            "the first connection follows no outage"
        );
        let [old, lost, kept, late, after] = [
            (20_001, "old", 1),
            (20_001, "lost", 8),
            (1_059, "kept by the relay", 9),
            (20_001, "late", 11),
            (20_001, "after", 15),
        ]
        .map(|(kind, text, time)| (at(time), event(kind, text)));
        for (time, event) in [&old, &lost, &kept] {
            recent.accepted(*time, event);
        }
        recent.connected(at(10), 2);
        recent.accepted(late.0, &late.1);
        assert_eq!(recent.next(), Some(at(14)));
        assert_eq!(recent.settled(), Some(at(14) + BEHIND));
        assert!(recent.again(at(13)).is_empty());
        assert_eq!(recent.again(at(14)), [lost.1.clone(), late.1.clone()]);
        recent.accepted(after.0, &after.1);
        assert_eq!(recent.next(), Some(at(22)));
        assert_eq!(recent.again(at(22)), [lost.1, late.1, after.1]);
        assert_eq!(recent.next(), None);
    }

    // CEP22-25
    /// Each reconnect began the wait anew, until the event was too late.
    #[test]
    fn an_event_waits_for_one_outage_however_often_the_relay_reconnects() {
        let begin = Instant::now() + Duration::from_secs(3600);
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        let (mut recent, mut turn) = (RecentlyAccepted::default(), Turn::default());
        recent.connected(at(0), 1);
        assert_eq!(turn.settled(at(1), &recent, 1), None);
        let look = Some(at(2) + LOOK);
        assert_eq!(turn.settled(at(2), &recent, 2), look, "being connected");
        recent.connected(at(2), 2);
        let until = at(6) + BEHIND;
        for (attempt, seconds) in (2..).zip([3, 5, 7, 9]) {
            assert_eq!(turn.settled(at(seconds), &recent, attempt), Some(until));
            recent.connected(at(seconds + 1), attempt + 1);
        }
        // The next event waits for the last one.
        let mut next = Turn::default();
        assert_eq!(next.settled(at(11), &recent, 6), Some(at(14) + BEHIND));
        // Not before events were sent again, however late that is.
        let look = Some(at(16) + LOOK);
        assert_eq!(next.settled(at(16), &recent, 6), look);
        recent.again(at(17));
        assert_eq!(next.settled(at(17), &recent, 6), Some(at(14) + BEHIND));
        // An outage that was over when it began is none that it waited for.
        let mut late = Turn::default();
        assert_eq!(late.settled(at(20), &recent, 6), None);
        recent.connected(at(21), 7);
        assert_eq!(late.settled(at(22), &recent, 7), Some(at(25) + BEHIND));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut recent = RecentlyAccepted::default();
        let now = Instant::now();
        let large = event(20_001, &"x".repeat(60_000));
        for _ in 0..1000 {
            recent.accepted(now, &large);
        }
        assert!(recent.bytes <= MOST.1 && recent.events.len() <= MOST.0);
        recent.accepted(now + KEPT * 2, &event(20_001, "x"));
        assert_eq!(recent.events.len(), 1);
        assert_eq!(recent.bytes, recent.events[0].1);
    }
}

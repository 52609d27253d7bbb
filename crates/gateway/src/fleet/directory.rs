//! Decides where a session is, and what a client is told that asks for it. Pure: no sockets, no clock.
//!
//! There is no list of sessions. A session's name begins with the name of the member that made it, and
//! every member hears a subject of that name: so NATS itself is the directory, and it cannot be out of
//! date. "Nobody hears this subject" means that the member is dead, or is cut off from NATS; nobody can
//! tell which, so it is given [`GRACE`] to come back before its sessions are said to be gone. In every
//! other case of doubt (this member is cut off, nobody answers in time) the client is told to try again:
//! the session may live, and only its own member may say otherwise.
//!
//! So a session is never served by two: only the member in its name has it, and a member that takes over
//! does so by a new session, which the client knows to be new.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::member::Member;

/// How long a member may be missing before it counts as dead. A NATS server that dies takes its clients
/// about a second, in which they connect to another one.
pub(super) const GRACE: Duration = Duration::from_secs(4);

/// How long to wait before a missing member is asked for again.
const PAUSE: Duration = Duration::from_millis(500);

/// How long nobody must ask for a missing member until it is given the whole grace again.
const FORGET: Duration = Duration::from_secs(30);

/// How many missing members are remembered. Clients name members, so anyone can make up names.
const MISSING_MAX: usize = 1024;

/// How many lookups of other members' sessions are made per second, and how many seconds' worth at once.
const PER_SECOND: u32 = 500;
const BURST_SECONDS: u32 = 4;

/// What came of asking for a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It answers.
    There,
    /// Nobody hears its subject.
    Nobody,
    /// It cannot be known.
    Unclear(Doubt),
}

/// Why it is not known whether a session lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Doubt {
    /// This member has no connection to NATS.
    #[error(
        "this member of the fleet has no connection to NATS, and the session is at another one: try again later"
    )]
    CutOff,
    /// The member does not answer, or refuses.
    #[error("the member of the fleet that has this session does not answer: try again later")]
    Silent,
    /// Too many sessions of others are asked for, or there is no memory.
    #[error(
        "this member of the fleet has no room for another forwarded connection: try again later"
    )]
    Busy,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The session is one of this member's own.
    Here,
    /// Ask the member.
    Ask,
    /// Ask it again at this time.
    AskAgain(Instant),
    /// Forward to it.
    Forward,
    /// It is dead: the session is gone.
    Dead,
    /// The client is to try again.
    Later(Doubt),
}

/// What this member knows about others.
#[derive(Debug)]
pub(super) struct Directory {
    own: Member,
    missing: BTreeMap<Member, Missing>,
    /// The time up to which the allowed rate is used up by the questions so far.
    paid_until: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Missing {
    since: Instant,
    last: Instant,
}

impl Directory {
    pub(super) fn new(own: Member) -> Self {
        Self {
            own,
            missing: BTreeMap::new(),
            paid_until: None,
        }
    }

    /// A client asks for a session of a member. `is_connected`: this member has a connection to NATS.
    /// `has_room`: it may ask for one more member at the same time.
    pub(super) fn look_for(
        &mut self,
        now: Instant,
        member: Member,
        is_connected: bool,
        has_room: bool,
    ) -> Step {
        if member == self.own {
            return Step::Here;
        }
        if !is_connected {
            return Step::Later(Doubt::CutOff);
        }
        if !has_room || !self.may_ask(now) {
            return Step::Later(Doubt::Busy);
        }
        Step::Ask
    }

    /// Takes the result of asking for a member; returns what to do next.
    pub(super) fn answered(&mut self, now: Instant, member: Member, answer: Answer) -> Step {
        match answer {
            Answer::There => {
                self.missing.remove(&member);
                Step::Forward
            }
            Answer::Unclear(doubt) => Step::Later(doubt),
            Answer::Nobody => {
                let since = self.missed(now, member);
                match now.duration_since(since) >= GRACE {
                    true => Step::Dead,
                    false => Step::AskAgain((now + PAUSE).min(since + GRACE)),
                }
            }
        }
    }

    /// Notes that a member is missing; returns since when.
    fn missed(&mut self, now: Instant, member: Member) -> Instant {
        let is_old = |missing: &Missing| now.duration_since(missing.last) >= FORGET;
        let known = self.missing.get(&member).filter(|known| !is_old(known));
        let since = known.map_or(now, |known| known.since);
        if !self.missing.contains_key(&member) && self.missing.len() >= MISSING_MAX {
            self.missing.retain(|_, missing| !is_old(missing));
            // Forget the member that was asked for longest ago; if it is asked for again, it gets the whole
            // grace.
            let oldest = self.missing.iter().min_by_key(|(_, missing)| missing.last);
            let oldest = oldest.map(|(member, _)| *member);
            if let Some(oldest) = oldest.filter(|_| self.missing.len() >= MISSING_MAX) {
                self.missing.remove(&oldest);
            }
        }
        self.missing.insert(member, Missing { since, last: now });
        since
    }

    fn may_ask(&mut self, now: Instant) -> bool {
        let pause = Duration::from_secs(1) / PER_SECOND;
        let begin = self.paid_until.map_or(now, |paid| paid.max(now));
        if begin > now + pause * (PER_SECOND * BURST_SECONDS - 1) {
            return false;
        }
        self.paid_until = Some(begin + pause);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Member = Member([1; 8]);
    const OTHER: Member = Member([2; 8]);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    // FLEET-1
    #[test]
    fn who_is_asked_for_a_session() {
        let now = Instant::now();
        for (member, connected, room, expected) in [
            // One's own sessions do not depend on NATS.
            (OWN, true, true, Step::Here),
            (OWN, false, true, Step::Here),
            (OWN, true, false, Step::Here),
            (OTHER, true, true, Step::Ask),
            // A member that lost NATS knows nothing about others: it says neither yes nor no.
            (OTHER, false, true, Step::Later(Doubt::CutOff)),
            (OTHER, false, false, Step::Later(Doubt::CutOff)),
            (OTHER, true, false, Step::Later(Doubt::Busy)),
        ] {
            let mut directory = Directory::new(OWN);
            let step = directory.look_for(now, member, connected, room);
            assert_eq!(step, expected, "{member} {connected} {room}");
        }
    }

    /// What is answered at which time, and what follows.
    // FLEET-2
    #[test]
    fn only_a_member_that_is_missing_for_long_is_dead() {
        use Answer::{Nobody, There, Unclear};
        let begin = Instant::now();
        let again = |at| Step::AskAgain(begin + ms(at));
        for (name, course) in [
            ("it is there", vec![(0, There, Step::Forward)]),
            (
                "it is dead",
                vec![
                    (0, Nobody, again(500)),
                    (500, Nobody, again(1000)),
                    (3_800, Nobody, again(4_000)),
                    (4_000, Nobody, Step::Dead),
                    // The next client need not wait.
                    (5_000, Nobody, Step::Dead),
                ],
            ),
            (
                "it comes back in time",
                vec![
                    (0, Nobody, again(500)),
                    (3_900, There, Step::Forward),
                    (4_000, Nobody, again(4_500)),
                ],
            ),
            (
                "it comes back although it was given up",
                vec![
                    (0, Nobody, again(500)),
                    (4_000, Nobody, Step::Dead),
                    (9_000, There, Step::Forward),
                ],
            ),
            (
                "what was seen long ago says nothing",
                vec![
                    (0, Nobody, again(500)),
                    (29_999, Nobody, Step::Dead),
                    (59_999, Nobody, again(60_499)),
                ],
            ),
            (
                "silence is no death, however long",
                vec![
                    (0, Unclear(Doubt::Silent), Step::Later(Doubt::Silent)),
                    (60_000, Unclear(Doubt::Silent), Step::Later(Doubt::Silent)),
                    (60_001, Nobody, again(60_501)),
                ],
            ),
            (
                "a lost connection is no death",
                vec![
                    (0, Nobody, again(500)),
                    (500, Unclear(Doubt::CutOff), Step::Later(Doubt::CutOff)),
                ],
            ),
        ] {
            let mut directory = Directory::new(OWN);
            for (at, answer, expected) in course {
                let step = directory.answered(begin + ms(at), OTHER, answer);
                assert_eq!(step, expected, "{name}: {answer:?} at {at} ms");
            }
        }
    }

    // FLEET-5
    #[test]
    fn made_up_members_cost_little() {
        let begin = Instant::now();
        let mut directory = Directory::new(OWN);
        let made_up = |number: u64| Member(number.to_be_bytes());
        for number in 0..2 * MISSING_MAX as u64 {
            directory.answered(begin + ms(number), made_up(number), Answer::Nobody);
            assert!(directory.missing.len() <= MISSING_MAX);
        }
        let asks = (0..u64::from(PER_SECOND) * 60)
            .filter(|number| directory.look_for(begin, made_up(*number), true, true) == Step::Ask);
        let burst = (PER_SECOND * BURST_SECONDS) as usize;
        assert_eq!(asks.count(), burst);
        let later = begin + ms(1_000);
        let asks = (0..u64::from(PER_SECOND) * 60)
            .filter(|number| directory.look_for(later, made_up(*number), true, true) == Step::Ask);
        assert_eq!(asks.count(), PER_SECOND as usize);
    }
}

//! Tests that a watch shows what happened.

use breakbulk_link::{Closed, Frame};
use breakbulk_net::{ClosedBy, Direction, Tap};

use super::*;
use crate::pump::Side;
use crate::tunnel::LearnedCaps;

fn route(watch: &Watch) -> RouteWatch {
    let ends = ("ws://0".to_owned(), "exec:cat".to_owned());
    RouteWatch::new(watch, "gateway", ends, Arc::new(LearnedCaps::in_memory()))
}

#[test]
fn a_route_is_shown_from_its_plan_to_its_end() {
    let watch = Watch::default();
    assert!(watch.routes().is_empty());
    let route = route(&watch);
    let state = || watch.routes()[0].state;
    assert_eq!(state(), RouteState::Starting);
    route.listening("ws://127.0.0.1:7");
    assert_eq!(state(), RouteState::Listening);
    assert_eq!(watch.routes()[0].listen, "ws://127.0.0.1:7");
    route.stopping();
    assert_eq!(state(), RouteState::Stopping);
    drop(route);
    assert!(watch.routes().is_empty());
    assert!(Watch::off().state().routes.is_empty());
}

#[test]
fn refused_clients_are_counted_by_reason_and_told_among_the_faults() {
    let watch = Watch::default();
    let route = route(&watch);
    for (times, why) in [(2, Refused::NoTarget), (1, Refused::TooManySessions)] {
        for _ in 0..times {
            route
                .arrived("127.0.0.1:9")
                .refused(why, "a\u{1b}[2J reason");
        }
    }
    let refused = watch.routes()[0].refused.clone();
    let counted: Vec<_> = refused.iter().filter(|(_, count)| **count > 0).collect();
    assert_eq!(counted, [(&"no_target", &2), (&"too_many_sessions", &1)]);
    let faults = watch.state().faults;
    assert_eq!(faults.len(), 3);
    assert!(!faults[0].what.contains('\u{1b}'), "{faults:?}");
    for _ in 0..2 * FAULTS {
        route.arrived("x").refused(Refused::Stopping, "again");
    }
    assert_eq!(watch.state().faults.len(), FAULTS);
}

/// A recorder that notes what it is given.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    fn add(&self, note: String) {
        lock(&self.0).push(note);
    }
}

struct LineNotes(Notes, u64);

impl Tap for LineNotes {
    fn frame(&self, direction: Direction, frame: &Frame) {
        let size = frame.bytes().len();
        self.0.add(format!("line {}: {direction:?} {size}", self.1));
    }

    fn closed(&self, by: ClosedBy, closed: &Closed) {
        self.0
            .add(format!("line {}: {by:?} {}", self.1, closed.code));
    }
}

impl RecordSink for Notes {
    fn session(&self, _id: &SessionId, route: &str, peer: &str, listen: &str, to: &str) {
        self.add(format!("session of {peer} at {route}: {listen} {to}"));
    }

    fn tap(&self, _id: &SessionId, side: Side, line: u64) -> Arc<dyn Tap> {
        self.add(format!("line {line} of {side}"));
        Arc::new(LineNotes(self.clone(), line))
    }

    fn ended(&self, _id: &SessionId, end: Option<&crate::SessionEnd>, counts: &SessionView) {
        let frames = counts.inward.frames;
        self.add(format!("ended {}, {frames} frames", end.is_some()));
    }
}

#[test]
fn the_frames_of_a_line_belong_to_the_session_that_it_turns_out_to_carry() {
    let watch = Watch::default();
    let notes = Notes::default();
    watch.set_record(Arc::new(notes.clone()));
    let route = route(&watch);
    let session = route.arrived("a client");
    let first = session.side(Side::Listen).tap();
    first.frame(Direction::Received, &Frame::Text("hello".into()));
    // Another line, whose first frame names the session.
    let second = SessionTap::unknown();
    second.frame(Direction::Received, &Frame::Text("resume".into()));
    second.bind(&session.side(Side::Listen));
    second.frame(Direction::Sent, &Frame::Text("resumed".into()));
    let closed = Closed {
        code: 1000,
        reason: String::new(),
    };
    second.closed(ClosedBy::Peer, &closed);
    session.refused(Refused::NoTarget, "no target");
    assert_eq!(
        *lock(&notes.0),
        [
            "session of a client at gateway: ws://0 exec:cat",
            "line 1 of listen",
            "line 1: Received 5",
            "line 2 of listen",
            "line 2: Received 6",
            "line 2: Sent 7",
            "line 2: Peer 1000",
            "ended false, 2 frames",
        ]
    );
}

// ADMIN-6
#[test]
fn the_last_messages_are_kept_without_more() {
    let mut kept = messages::Messages::default();
    let budget = breakbulk_link::Budget::new(1 << 20);
    let (now, wall) = (breakbulk_net::now(), milliseconds(SystemTime::now()));
    for number in 0..5_u64 {
        let text = format!(r#"{{"id":{number},"method":"m{number}"}}"#);
        let shape = breakbulk_wire::shape_of(&text);
        let head = Head::read(text.as_bytes(), &shape, 4);
        let arrived = messages::Arrived {
            at: now - Duration::from_secs(100 - number),
            from: Side::Listen,
            bytes: text.len(),
            pieces: 1,
        };
        kept.add(3, messages::Entry::new(arrived, head, Some(&budget)));
    }
    // The first one is not there any more.
    let sent = [0, 3, 5].map(|number| {
        kept.sent(messages::Departed {
            number,
            frames: 9,
            after: Duration::from_millis(5),
        })
    });
    // The last of these messages has not arrived yet.
    assert_eq!(sent, [true, true, false]);
    let shown: Vec<_> = kept
        .view()
        .into_iter()
        .map(|it| (it.frames, it.ms))
        .collect();
    assert_eq!(shown, [(1, None), (9, Some(5.0)), (1, None)]);
    assert_eq!(kept.view()[0].body.as_deref(), Some("{\"id"));
    // Each is shown with the time at which it came, whenever somebody looks.
    let ago = kept.view()[2].at.abs_diff(wall - 96_000);
    assert!(ago < 30_000, "{ago} ms");
    assert_eq!(budget.used(), 12);
    drop(kept);
    assert_eq!(budget.used(), 0);
}

/// The last messages of the only session: direction, method, and whether it was sent.
fn last(watch: &Watch) -> Vec<(&'static str, String, bool)> {
    let id = watch.sessions()[0].id.clone();
    let messages = watch.session(&id).unwrap().messages.into_iter();
    messages
        .map(|it| (it.direction, it.method.unwrap_or_default(), it.ms.is_some()))
        .collect()
}

#[test]
fn messages_are_counted_at_once_and_listed_when_the_pump_waits() {
    let watch = Watch::new(WatchOptions::default());
    let route = route(&watch);
    let session = route.arrived("a client");
    let _live = session.begun();
    let [mut listen, mut to] =
        [Side::Listen, Side::To].map(|side| PumpedEnd::new(session.side(side)));
    let come = |end: &mut PumpedEnd, number: u64| {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m{number}"}}"#);
        let head = end.head(text.as_bytes(), &breakbulk_wire::shape_of(&text));
        end.received(head, text.len(), 1)
    };
    let show = |listen: &mut PumpedEnd, to: &mut PumpedEnd| {
        listen.turn();
        to.turn();
        listen.show(0, 0);
        to.show(0, 0);
    };
    // A message arrives from a target, and is sent to the client in the same turn.
    let noted = come(&mut to, 0);
    listen.sent(noted, 38, 1);
    let counts = || {
        let view = &watch.sessions()[0];
        (
            view.inward.messages,
            view.outward.messages,
            view.target.received.bytes,
        )
    };
    assert_eq!(counts(), (0, 1, 38));
    show(&mut listen, &mut to);
    assert_eq!(last(&watch), [("out", "m0".to_owned(), true)]);
    // More messages than are collected at once; the last ones are not sent.
    let noted: Vec<Noted> = (1..30).map(|number| come(&mut listen, number)).collect();
    for noted in &noted[..20] {
        to.sent(*noted, 1, 1);
    }
    show(&mut listen, &mut to);
    let expected: Vec<_> = std::iter::once(("out", "m0".to_owned(), true))
        .chain((1..30).map(|number| ("in", format!("m{number}"), number <= 20)))
        .collect();
    assert_eq!(last(&watch), expected);
    assert_eq!(counts(), (29, 1, 38));
    // What is kept back when the pump ends is not lost.
    let noted = come(&mut to, 30);
    listen.sent(noted, 1, 1);
    drop((to, listen));
    assert_eq!(last(&watch).len(), 31);
}

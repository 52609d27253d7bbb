//! What layers above the link rely on: openings and accepts are reported, reading stops in time, and room is
//! made only for pieces that are stored.

use std::sync::Arc;

use breakbulk_link::{
    Cap, Carries, Event, FrameKind, Lane, Link, Outgoing, Received, SendError, Sent,
};
use breakbulk_wire::Loro;

use crate::common::Kit;
use crate::{Bench, MESSAGE, link, message, outgoing};

// WIRE-5
#[test]
fn a_transfer_that_was_told_as_opened_has_an_end() {
    for kit in [Kit::Ahp, Kit::Tywrap, Kit::Cep22, Kit::Loro] {
        let mut bench = Bench::new(link(kit, |config| config.report_opened = true));
        for frame in kit.transfer(1, &message(200), 50) {
            bench.take(frame);
        }
        let words = bench.words();
        assert!(words[0].starts_with("opened"), "{kit:?}: {words:?}");
        assert_eq!(words.last().unwrap(), "message 200", "{kit:?}");
        // AHP drops a transfer that times out without telling the peer; the application gets an event all
        // the same.
        if kit != Kit::Tywrap {
            bench.take(kit.transfer(2, &message(200), 50).remove(0));
            bench.pass(std::time::Duration::from_secs(1000));
            let words = bench.words();
            assert!(words[0].starts_with("opened"), "{kit:?}: {words:?}");
            assert_eq!(words[1..], ["failed timed-out"], "{kit:?}");
        }
    }
}

#[test]
fn leave_is_told_and_answers_name_the_transfer_they_answer() {
    let kit = Kit::Cep22;
    let mut client = Bench::new(link(kit, |_| {}));
    client.link.set_peer(breakbulk_link::PeerSupport::Unknown);
    client.send(outgoing(kit, 1, 3000));
    client.next();
    client.take(kit.special(1, 2, "accept").frame());
    assert_eq!(client.words(), ["accepted 1"]);
    // A receiver's abort names the transfer too.
    let mut frame = Vec::new();
    let mut server = Bench::new(link(kit, |_| {}));
    server.take(kit.transfer(7, &message(200), 50).remove(0));
    server.take(kit.end(7, 3));
    for kind in [FrameKind::Accept, FrameKind::Abort] {
        let transmit = server.link.poll_transmit(server.now(), &mut frame).unwrap();
        assert_eq!((transmit.kind, transmit.answers), (kind, Some(kit.key(7))));
    }
}

/// A retried fragment near the limit on all pending bytes must not evict its own batch.
#[test]
fn nothing_makes_room_for_a_piece_that_is_here_already() {
    let kit = Kit::Loro;
    for rules in [Loro::rules(), Loro::http_rules()] {
        let mut bench = Bench::new(link(kit, |config| {
            config.rules = rules;
            config.limits.pending_bytes = 1000;
        }));
        let frames = kit.transfer(1, &message(1000), 100);
        for frame in &frames[..10] {
            bench.take(frame.clone());
        }
        let again = bench.take(frames[5].clone());
        assert!(!matches!(again, Received::Done(_) | Received::Pending));
        assert_eq!(bench.link.open_transfers(), 1, "the batch lives");
        assert!(matches!(bench.take(frames[10].clone()), Received::Done(_)));
    }
}

/// A burst that stops near its end, when it has taken nearly all memory, must not block the bridge.
#[test]
fn an_unfinished_burst_never_stands_in_the_way_of_the_next() {
    let kit = Kit::Bridge;
    let mut bench = Bench::new(link(kit, |config| {
        config.limits.message = 8000;
        config.limits.memory = 11_000;
    }));
    for frame in &kit.transfer(1, &message(8000), 1000)[..7] {
        assert_eq!(bench.take(frame.clone()), Received::Pending);
    }
    let frames = kit.transfer(2, &message(8000), 1000);
    let last = frames.into_iter().map(|frame| bench.take(frame)).last();
    assert!(matches!(last, Some(Received::Done(_))), "{last:?}");
    // A message in one line must not be blocked either.
    drop(bench.events());
    for frame in &kit.transfer(3, &message(8000), 1000)[..7] {
        bench.take(frame.clone());
    }
    let line = bench.take(kit.whole(&message(6000)));
    assert!(matches!(line, Received::Done(_)), "{line:?}");
}

#[test]
fn reading_stops_before_finished_messages_fill_the_memory() {
    let kit = Kit::Ahp;
    let mut bench = Bench::new(link(kit, |config| {
        config.limits.message = 1000;
        config.limits.memory = 4000;
    }));
    let mut taken = Vec::new();
    while bench.link.wants_frame() {
        assert!(matches!(
            bench.take(kit.whole(&message(900))),
            Received::Done(_)
        ));
        // The application has taken these messages, but not dropped them.
        taken.extend(bench.events());
    }
    assert!(taken.len() >= 2, "{}", taken.len());
    assert!(bench.link.closed().is_none());
    taken.clear();
    assert!(bench.link.wants_frame());
}

#[test]
fn a_message_may_have_smaller_pieces_than_the_cap_allows() {
    let kit = Kit::Cep22;
    let count = |cut_above| {
        let mut bench = Bench::new(link(kit, |_| {}));
        bench.send(Outgoing {
            cut_above,
            ..outgoing(kit, 1, 5000)
        });
        bench.tags().len()
    };
    assert!(count(Some(500)) > 2 * count(None) - 4);
}

#[test]
fn a_message_that_is_passed_on_stays_charged_until_it_is_out() {
    let kit = Kit::Ahp;
    let mut from = Bench::new(link(kit, |_| {}));
    from.take(kit.whole(&message(900)));
    let Some(Event::Message(arrived)) = from.link.poll_event() else {
        panic!("a message came")
    };
    let (bytes, charge) = arrived.into_parts();
    let mut to = Bench::new(link(kit, |_| {}));
    to.send(Outgoing {
        charge: Some(Arc::new(charge)),
        ..Outgoing::new(bytes)
    });
    assert!(from.link.memory() >= 900);
    assert!(!to.link.is_idle());
    to.tags();
    assert_eq!(from.link.memory(), 0);
    assert!(to.link.is_idle());
}

#[test]
fn answers_and_lanes_take_turns() {
    let kit = Kit::Cep22;
    let mut bench = Bench::new(link(kit, |_| {}));
    bench.send(outgoing(kit, 1, 3000).in_lane(Lane(1)));
    for number in 10..20 {
        bench.take(kit.special(number, 1, "start").frame());
    }
    let kinds: Vec<FrameKind> = (0..6).map(|_| bench.next().unwrap().1).collect();
    let answers = kinds.iter().filter(|kind| **kind == FrameKind::Abort);
    assert_eq!(answers.count(), 3, "{kinds:?}");
}

/// If the transport does not report on each frame, the link cannot know which message a lost frame
/// belonged to.
// WIRE-6
#[test]
fn a_lost_frame_of_a_transport_that_confirms_nothing_ends_the_link() {
    let mut bench = Bench::new(link(Kit::Ahp, |_| {}));
    bench.send(Outgoing::new(MESSAGE));
    bench.next();
    bench.confirm(Sent::Failed);
    assert_eq!(bench.link.closed().map(|closed| closed.code), Some(1011));
}

#[test]
fn a_time_that_never_comes_is_no_timer() {
    let kit = Kit::Loro;
    let mut bench = Bench::new(link(kit, |config| {
        config.rules.timeouts.idle = None;
        config.rules.timeouts.age = Some(std::time::Duration::MAX);
    }));
    bench.take(kit.transfer(1, &message(200), 50).remove(0));
    assert_eq!(bench.link.poll_timeout(), None);
}

// WIRE-4
#[test]
fn text_that_is_no_text_is_never_sent_as_text() {
    for kit in [Kit::Ahp, Kit::Tywrap, Kit::Cep22, Kit::Whole] {
        for size in [10, 3000] {
            let mut bench = Bench::new(link(kit, |_| {}));
            bench.link.set_cap(Cap::frame(1000));
            bench.send(Outgoing {
                bytes: vec![0xff; size].into(),
                ..outgoing(kit, 1, 100)
            });
            assert_eq!(bench.next(), None, "{kit:?}");
            assert_eq!(bench.words(), ["send failed 1"], "{kit:?}");
        }
    }
}

/// A flood of pings must neither take memory nor hold up messages.
#[test]
fn a_control_word_goes_first_and_once_and_few_of_them_wait() {
    let mut bench = Bench::new(link(Kit::Loro, |_| {}));
    bench.send(outgoing(Kit::Loro, 1, 3000));
    bench.next();
    for _ in 0..1000 {
        bench.link.send_control("pong").unwrap();
    }
    let mut frame = Vec::new();
    let transmit = bench.link.poll_transmit(bench.now(), &mut frame).unwrap();
    assert_eq!(
        (transmit.kind, transmit.carries, &frame[..]),
        (FrameKind::Control, Carries::Text, &b"pong"[..])
    );
    frame.clear();
    let transmit = bench.link.poll_transmit(bench.now(), &mut frame).unwrap();
    assert_eq!(transmit.kind, FrameKind::Piece);
    let refused = |link: &mut Link, word: String| link.send_control(word).unwrap_err();
    let long = refused(&mut bench.link, "x".repeat(1025));
    let (size, limit) = (1025, 1024);
    assert_eq!(long, SendError::MessageTooLarge { size, limit });
    for word in 0..16 {
        bench.link.send_control(word.to_string()).unwrap();
    }
    let full = refused(&mut bench.link, "one more".to_owned());
    assert_eq!(
        full.to_string(),
        "the send queue is full: 16 control words wait, the limit is 16; wait until it is writable again"
    );
    bench.link.close(1000, "");
    let closed = refused(&mut bench.link, "late".to_owned());
    assert_eq!(closed, SendError::Closed);
}

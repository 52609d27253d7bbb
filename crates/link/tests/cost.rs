//! The cost of a piece does not grow with the number of pieces: ten times as many take at most twelve times
//! as many allocations and allocated bytes. The time that they take is measured by `bench/src/bin/pieces.rs`.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;
mod counting;

use breakbulk_link::{
    Budget, Cap, Config, Frame, Link, Outgoing, PeerLimits, PeerSupport, Received,
};
use breakbulk_testkit::links::Clock;
use common::Kit;
use counting::allocated;

const PIECE: usize = 12;
const FEW: usize = 1000;
const MANY: usize = 10_000;
/// Allocations, and their bytes.
type Cost = (usize, usize);

/// In which order the pieces come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Forwards,
    /// From the last piece to the first, or backwards within the wire's window if it has one.
    Backwards,
    /// Every other piece first, and then those between them.
    Gaps,
}

fn link(kit: Kit) -> Link {
    let mut config = Config::new(kit.rules());
    config.limits.memory = usize::MAX;
    let mut link = Link::new(kit.wire(), kit.wire(), config, Budget::unlimited(), [5; 32]);
    link.set_peer(PeerSupport::Yes(PeerLimits::NONE));
    link
}

/// A message that is cut into this many pieces of [`PIECE`] bytes.
fn message(pieces: usize) -> Vec<u8> {
    let frame = br#"{"jsonrpc":"2.0","id":1,"method":"m","params":[""]}"#;
    let (head, tail) = frame.split_at(frame.len() - 3);
    [head, &vec![b'x'; pieces * PIECE - frame.len()], tail].concat()
}

fn frames(kit: Kit, pieces: usize, order: Order) -> Vec<Frame> {
    let mut frames = kit.transfer(1, &message(pieces), PIECE);
    let first = usize::from(matches!(kit, Kit::Cep22 | Kit::Loro));
    let middle = &mut frames[first..first + pieces];
    let window = if kit == Kit::Cep22 { 20 } else { pieces };
    for part in middle.chunks_mut(window) {
        match order {
            Order::Forwards => {}
            Order::Backwards => part.reverse(),
            Order::Gaps => {
                let (odd, even): (Vec<_>, Vec<_>) = part
                    .iter()
                    .cloned()
                    .enumerate()
                    .partition(|(at, _)| at % 2 == 1);
                for (place, (_, frame)) in part.iter_mut().zip(odd.into_iter().chain(even)) {
                    *place = frame;
                }
            }
        }
    }
    frames
}

/// What all steps cost together.
fn cost(mut step: impl FnMut() -> bool) -> Cost {
    let before = allocated();
    while step() {}
    let after = allocated();
    (after.0 - before.0, after.1 - before.1)
}

fn receive(kit: Kit, frames: &[Frame]) -> Cost {
    let (mut link, clock) = (link(kit), Clock::new());
    let mut frames = frames.iter().cloned();
    let mut last = Received::Pending;
    let cost = cost(|| {
        let frame = frames.next();
        frame
            .map(|frame| last = link.handle_frame(clock.now(), frame))
            .is_some()
    });
    assert!(matches!(last, Received::Done(_)), "{kit:?}: {last:?}");
    cost
}

fn send(kit: Kit, pieces: usize) -> Cost {
    let (mut link, clock) = (link(kit), Clock::new());
    link.set_cap(match kit {
        // Room for 12 bytes beside a short groupId.
        Kit::Ahp => Cap::frame(109 + 2 + 16),
        _ => Cap::piece(PIECE),
    });
    link.send(
        clock.now(),
        Outgoing::new(message(pieces)).with_key(kit.key(1)),
    )
    .unwrap();
    let (mut frame, mut made) = (Vec::new(), 0);
    let cost = cost(|| {
        frame.clear();
        made += 1;
        link.poll_transmit(clock.now(), &mut frame).is_some()
    });
    assert!(made > pieces, "{kit:?}: {made} frames");
    cost
}

/// Opens transfers that are never finished.
fn open(kit: Kit, transfers: usize) -> Cost {
    let mut config = Config::new(kit.rules());
    (config.limits.transfers, config.limits.memory) = (usize::MAX, usize::MAX);
    let mut link = Link::new(kit.wire(), kit.wire(), config, Budget::unlimited(), [5; 32]);
    let clock = Clock::new();
    let frames = |number| {
        kit.open(number, 2, 20, &[0; 32])
            .into_iter()
            .chain([kit.piece(number, 0, 2, 20, b"x")])
    };
    let frames: Vec<Frame> = (0..transfers as u64).flat_map(frames).collect();
    let mut frames = frames.into_iter();
    cost(|| {
        let frame = frames.next();
        while link.poll_event().is_some() {}
        frame
            .map(|frame| link.handle_frame(clock.now(), frame))
            .is_some()
    })
}

/// Checks that many cost at most `at_most` times as much as few.
fn compare(name: &str, at_most: usize, few: Cost, many: Cost) {
    let fits = many.0 <= few.0 * at_most && many.1 <= few.1 * at_most;
    assert!(
        fits,
        "{name}: {MANY} cost {many:?} allocations and bytes, {FEW} only {few:?}"
    );
}

#[test]
fn a_piece_costs_the_same_however_many_there_are() {
    for kit in Kit::CUTTING {
        for order in [Order::Forwards, Order::Backwards, Order::Gaps] {
            if kit == Kit::Ahp && order != Order::Forwards {
                continue; // Its order is strict.
            }
            let (few, many) = (frames(kit, FEW, order), frames(kit, MANY, order));
            compare(
                &format!("{kit:?}, in, {order:?}"),
                12,
                receive(kit, &few),
                receive(kit, &many),
            );
        }
        compare(
            &format!("{kit:?}, out"),
            12,
            send(kit, FEW),
            send(kit, MANY),
        );
        // The factor is larger here, because tables grow by doubling.
        compare(
            &format!("{kit:?}, transfers"),
            20,
            open(kit, FEW),
            open(kit, MANY),
        );
    }
}

/// A message in one frame takes one allocation at the sender (the frame) and one at the receiver (the counter
/// that shares the frame's memory).
#[test]
fn a_message_in_one_frame_allocates_once_on_each_side() {
    const MESSAGES: usize = 100;
    let text = message(20);
    for kit in Kit::ALL {
        let (mut sender, mut receiver, clock) = (link(kit), link(kit), Clock::new());
        let (bytes, key) = (bytes::Bytes::from(text.clone()), kit.key(1));
        let (mut sent, mut received) = ((0, 0), (0, 0));
        for number in 0..2 * MESSAGES {
            // Only the second half is counted: the first half grows buffers and tables that are then reused.
            if number == MESSAGES {
                (sent, received) = ((0, 0), (0, 0));
            }
            let (mut frame, mut transmit) = (Vec::new(), None);
            let one = once(|| {
                let outgoing = Outgoing::new(bytes.clone()).with_key(key.clone());
                sender.send(clock.now(), outgoing).unwrap();
                transmit = sender.poll_transmit(clock.now(), &mut frame);
                while sender.poll_event().is_some() {}
            });
            sent = (sent.0 + one.0, sent.1 + one.1);
            let frame = match transmit.unwrap().carries {
                breakbulk_link::Carries::Text => Frame::Text(frame.into()),
                breakbulk_link::Carries::Binary => Frame::Binary(frame.into()),
            };
            let one = once(|| {
                let outcome = receiver.handle_frame(clock.now(), frame);
                assert!(matches!(outcome, Received::Done(_)), "{kit:?}: {outcome:?}");
                while receiver.poll_event().is_some() {}
            });
            received = (received.0 + one.0, received.1 + one.1);
        }
        assert!(sent.0 <= MESSAGES, "{kit:?}: {sent:?} for {MESSAGES} sent");
        assert!(
            received.0 <= MESSAGES,
            "{kit:?}: {received:?} for {MESSAGES} received"
        );
    }
}

fn once(work: impl FnOnce()) -> Cost {
    let mut work = Some(work);
    cost(|| work.take().map(|work| work()).is_some())
}

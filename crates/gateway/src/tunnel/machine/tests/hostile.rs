//! Tests of what a hostile other end may try.

use super::*;

const CAP: usize = 1000;

fn machine(budget: &Budget) -> Machine {
    Machine::new(Instant::now(), settings(CAP, budget), None, true)
}

fn frame(size: usize) -> Frame {
    Frame::Text("x".repeat(size).into())
}

fn control(control: Control) -> Frame {
    Frame::Text(control.to_json().into())
}

fn part(last: bool, size: usize) -> Frame {
    let data = vec![b'x'; size];
    control(Control::Part { at: 0, last, data })
}

// TUN-7
#[test]
fn what_breaks_a_rule_of_the_tunnel() {
    let close = || {
        control(Control::Close {
            code: 1000,
            reason: String::new(),
        })
    };
    let hello = Control::Hello(config(CAP, &Budget::unlimited()).hello(None));
    for (name, frames, rule) in [
        (
            "acknowledges what it was not sent",
            vec![control(Control::Ack { taken: 3 })],
            "it acknowledges frames that it was not sent",
        ),
        (
            "acknowledges what was made and not sent",
            vec![control(Control::Ack { taken: u64::MAX })],
            "it acknowledges frames that it was not sent",
        ),
        (
            "a frame between parts",
            vec![part(false, 10), frame(10)],
            "a frame came between the parts of another",
        ),
        (
            "parts without end",
            (0..20).map(|_| part(false, 100)).collect(),
            "the parts of a frame are larger than a frame may be",
        ),
        (
            "a part of a frame whose beginning did not come",
            vec![control(Control::Part {
                at: 5,
                last: false,
                data: vec![b'x'; 10],
            })],
            "a part of a frame continues at bytes that did not arrive",
        ),
        (
            "empty parts",
            vec![part(false, 0)],
            "a part of a frame is empty",
        ),
        (
            "a frame after the close",
            vec![close(), frame(1)],
            "a frame came after the close",
        ),
        (
            "a part after the close",
            vec![close(), part(true, 1)],
            "a frame came after the close",
        ),
        (
            "a second hello",
            vec![control(hello)],
            "it begins a session within a session",
        ),
        (
            "a control frame of no known kind",
            vec![Frame::Text(format!("{CONTROL}x\"}}").into())],
            "a control frame is invalid",
        ),
    ] {
        let budget = Budget::new(1 << 20);
        let mut machine = machine(&budget);
        for _ in 0..2 {
            machine.push(frame(10)).unwrap();
            machine.poll_transmit(0).unwrap();
        }
        let now = Instant::now();
        let outcome = frames
            .into_iter()
            .find_map(|frame| machine.handle_frame(now, 0, frame).err());
        assert_eq!(outcome, Some(Violation::Protocol(rule)), "{name}");
        machine.broken(rule);
        let (closed, broken) = machine.ended().unwrap_or_else(|| panic!("{name}"));
        assert!(broken || closed.code == 1000, "{name}: {closed:?}");
    }
}

// TUN-7
#[test]
fn an_end_that_never_acknowledges_costs_a_window() {
    let budget = Budget::new(1 << 20);
    let mut machine = machine(&budget);
    let mut kept = 0;
    while machine.push(frame(1000)).is_ok() {
        machine.poll_transmit(0).unwrap();
        kept += 1;
        assert!(kept < 1000);
    }
    assert_eq!(kept, (16 << 10) / 1128);
    assert!(budget.used() <= 16 << 10, "{}", budget.used());
    // Short of memory it keeps a few, however large they are.
    let poor = Budget::new(100);
    let mut machine = Machine::new(Instant::now(), settings(CAP, &poor), None, true);
    assert!(machine.push(frame(1000)).is_ok());
    assert!(machine.push(frame(1000)).is_ok());
    assert_eq!(machine.push(frame(1)), Err(frame(1)));
    drop(machine);
    assert_eq!(poor.used(), 0);
}

// TUN-7
#[test]
fn an_end_that_sends_more_than_the_window_is_refused_and_charged_until_then() {
    let budget = Budget::new(1 << 20);
    let mut machine = machine(&budget);
    let now = Instant::now();
    let mut stashed = 0;
    let violation = loop {
        let Ok(Heard::Frame(frame)) = machine.handle_frame(now, 0, frame(500)) else {
            panic!("no frame");
        };
        match machine.stash(frame) {
            Ok(true) => stashed += 1,
            Ok(false) => panic!("no memory"),
            Err(violation) => break violation,
        }
        assert!(budget.used() <= 16 << 10);
    };
    assert_eq!(
        violation,
        Violation::Protocol("more frames came than the window allows")
    );
    assert_eq!(stashed, (16 << 10) / 628);
    // Without memory the line is not read further, and what is there is charged all the same.
    let poor = Budget::new(100);
    let mut machine = Machine::new(now, settings(CAP, &poor), None, true);
    let Ok(Heard::Frame(frame)) = machine.handle_frame(now, 0, frame(500)) else {
        panic!("no frame");
    };
    assert_eq!(machine.stash(frame), Ok(false));
    assert!(!machine.reads_ahead());
    assert_eq!(poor.used(), 628);
    assert!(machine.take_stashed(now).is_some());
    assert!(machine.reads_ahead());
    // Parts for which there is no memory end the line, not the session.
    let parts = machine.handle_frame(now, 0, part(false, 500));
    assert_eq!(parts, Err(Violation::Memory));
    drop(machine);
    assert_eq!(poor.used(), 0);
}

// TUN-7
#[test]
fn a_session_is_resumed_only_where_it_can_go_on() {
    for (received, gone) in [
        (0, Some(Gone::Numbers)),
        (1, None),
        (3, None),
        (4, Some(Gone::Numbers)),
        (u64::MAX, Some(Gone::Numbers)),
    ] {
        let budget = Budget::new(1 << 20);
        let mut machine = machine(&budget);
        let now = Instant::now();
        for _ in 0..3 {
            machine.push(frame(10)).unwrap();
            machine.poll_transmit(0).unwrap();
        }
        machine
            .handle_frame(now, 0, control(Control::Ack { taken: 1 }))
            .unwrap();
        let up = machine.line_up(now, Received::frames(received), None, true);
        assert_eq!(up.err(), gone, "{received}");
        match gone {
            None => {
                let again = std::iter::from_fn(|| machine.poll_transmit(machine.line())).count();
                assert_eq!(again as u64, 3 - received);
            }
            Some(_) => assert_eq!(machine.ended().unwrap().0.code, 1011),
        }
    }
}

/// A frame of a line that is lost is sent again on the next one, so it must not count.
// TUN-1
#[test]
fn frames_of_a_lost_line_do_not_count() {
    let budget = Budget::new(1 << 20);
    let mut machine = machine(&budget);
    let now = Instant::now();
    machine.handle_frame(now, 0, part(false, 10)).unwrap();
    let line = machine
        .line_up(now, Received::default(), None, true)
        .unwrap();
    assert_eq!(machine.handle_frame(now, 0, frame(1)), Ok(Heard::Handled));
    assert_eq!(machine.received().frames, 0);
    // A gateway that does not go on with parts sends the whole frame.
    assert_eq!(
        machine.handle_frame(now, line, frame(1)),
        Ok(Heard::Frame(frame(1)))
    );
    assert_eq!(machine.received(), Received::frames(1));
}

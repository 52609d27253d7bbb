//! Sessions whose lines are cut: each message arrives once and in order.

use super::super::timing::KEEPALIVE;
use super::*;

const CAP: usize = 1000;

fn reset() -> Closed {
    Closed {
        code: 1006,
        reason: "reset".to_owned(),
    }
}

/// 200 messages, half of them each way.
fn session(world: &mut World, random: &mut Random) -> (Vec<String>, Vec<String>) {
    let (up, down) = (messages(100, "up", random), messages(100, "down", random));
    for (up, down) in up.iter().zip(&down) {
        world.client.send(world.now, up);
        world.server.send(world.now, down);
    }
    (up, down)
}

fn run(cut_after: &[u64]) -> u64 {
    let budget = Budget::new(64 << 20);
    let mut world = World::new(CAP, &budget);
    let (up, down) = session(&mut world, &mut Random::new(7));
    let mut cuts = cut_after.iter().copied().peekable();
    let mut turn = false;
    while !world.has_all(&up, &down) {
        turn = !turn;
        if !world.step(turn) && !world.step(!turn) {
            world.now += Duration::from_secs(1);
        }
        if cuts.peek().is_some_and(|after| world.passed >= *after) {
            cuts.next();
            world.cut(reset());
        }
    }
    world.check(&up, &down, &format!("cut after {cut_after:?}"));
    drop(world.client.link);
    drop(world.server.link);
    drop((world.client.machine, world.server.machine));
    assert_eq!(budget.used(), 0, "cut after {cut_after:?}");
    world.passed
}

// TUN-1
#[test]
fn a_cut_after_every_frame_in_turn_loses_and_repeats_nothing() {
    let frames = run(&[]);
    assert!(frames > 400, "{frames}");
    for after in 0..frames {
        run(&[after]);
    }
}

// TUN-1, TUN-9
#[test]
fn a_cut_after_each_few_frames_loses_and_repeats_nothing() {
    // Each line also carries the two frames that resume the session.
    for every in 1..20 {
        let cuts: Vec<u64> = (1..4000).map(|cut| cut * every).collect();
        run(&cuts);
    }
}

/// A session that an application holds up now and then, on lines that are cut and paths that have caps.
fn random_session(seed: u64) {
    let mut random = Random::new(seed);
    let budget = Budget::new(64 << 20);
    let mut world = World::new(9000, &budget);
    let (up, down) = session(&mut world, &mut random);
    for end in [&mut world.client, &mut world.server] {
        if random.below(3) == 0 {
            let cap = 4096 + random.below(4000) as usize;
            end.path = Some((cap, random.below(2) == 0));
        }
    }
    let mut steps = 0;
    while !world.has_all(&up, &down) {
        steps += 1;
        assert!(steps < 200_000, "seed {seed}: nothing moves");
        match random.below(100) {
            0..2 => world.cut(reset()),
            2..4 => world.client.takes = !world.client.takes,
            4..6 => world.server.takes = !world.server.takes,
            6..8 => world.now += Duration::from_millis(random.below(1500)),
            way => drop(world.step(way % 2 == 0)),
        }
    }
    (world.client.takes, world.server.takes) = (true, true);
    world.check(&up, &down, &format!("seed {seed}"));
    for end in [&world.client, &world.server] {
        let mut sizes = end.refused.clone();
        sizes.dedup();
        assert!(
            sizes.is_sorted_by(|before, after| before > after),
            "seed {seed}: a refused size was sent again: {:?}",
            end.refused
        );
    }
}

// TUN-1, TUN-5
#[test]
fn two_thousand_random_sessions_lose_and_repeat_nothing() {
    let seeds = match std::env::var("BREAKBULK_SEED") {
        Ok(seed) => seed.parse().map(|seed| seed..seed + 1).unwrap(),
        Err(_) => 0..2000,
    };
    for seed in seeds {
        let ran = std::panic::catch_unwind(|| random_session(seed));
        assert!(ran.is_ok(), "run again with BREAKBULK_SEED={seed}");
    }
}

// TUN-2
#[test]
fn an_application_that_does_not_read_holds_up_its_own_direction_alone() {
    let budget = Budget::new(64 << 20);
    let mut world = World::new(CAP, &budget);
    world.client.takes = false;
    let text = "x".repeat(500);
    let texts: Vec<String> = (0..400)
        .map(|n| format!(r#"{{"jsonrpc":"2.0","method":"m","n":{n},"params":["{text}"]}}"#))
        .collect();
    for text in &texts {
        world.client.send(world.now, text);
        world.server.send(world.now, text);
    }
    world.settle();
    // The direction to the server is not held up; the one to the client stops with a full window.
    assert!(world.server.got == texts, "{}", world.server.got.len());
    assert!(world.client.got.is_empty());
    assert!(world.client.machine.received().frames >= 16);
    world.cut(reset());
    world.settle();
    assert!(world.client.got.is_empty());
    world.client.takes = true;
    world.check(&texts, &texts, "held up");
}

// TUN-4
#[test]
fn a_close_comes_after_all_frames_and_is_answered() {
    for cut_after in 0..60 {
        let budget = Budget::new(64 << 20);
        let mut world = World::new(CAP, &budget);
        let up = messages(20, "up", &mut Random::new(3));
        for text in &up {
            world.client.send(world.now, text);
        }
        world.client.transmit(world.now);
        let mut closing = false;
        while !world.client.machine.is_closed() {
            if world.client.waiting.is_none() && world.client.link.is_idle() && !closing {
                closing = true;
                world.client.machine.close(4001, "enough");
            }
            if !world.step(true) && !world.step(false) {
                world.now += Duration::from_secs(1);
            }
            if world.passed == cut_after && world.cuts == 0 && !world.client.machine.is_closed() {
                world.cut(reset());
            }
        }
        assert!(world.server.got == up, "cut after {cut_after}");
        let closed = Closed {
            code: 4001,
            reason: "enough".to_owned(),
        };
        assert_eq!(world.server.machine.ended(), Some((closed, false)));
        assert_eq!(world.client.machine.undelivered(), 0);
        assert!(!world.server.machine.needs_line());
    }
}

// TUN-3
#[test]
fn a_session_without_a_line_waits_for_its_time_and_says_why_it_ends() {
    let budget = Budget::new(64 << 20);
    let mut machine = Machine::new(Instant::now(), settings(CAP, &budget), None, true);
    let now = Instant::now();
    machine.line_down(now, 0, reset());
    assert!(machine.dials_now(now), "the first attempt is made at once");
    let mut pauses = Vec::new();
    let mut at = now;
    for _ in 0..12 {
        machine.dialing();
        machine.dial_failed(at, "refused".to_owned());
        let next = machine.attempts.next_at;
        pauses.push((next - at).as_millis());
        at = next;
    }
    for (pause, longest) in pauses
        .iter()
        .zip([100, 200, 400, 800, 1600, 3200, 5000, 5000])
    {
        assert!((longest / 2..=longest).contains(pause), "{pauses:?}");
    }
    machine.handle_timeout(now + Duration::from_millis(59_999));
    assert!(machine.needs_line());
    machine.handle_timeout(now + Duration::from_secs(60));
    assert!(!machine.needs_line());
    let (closed, broken) = machine.ended().unwrap();
    assert_eq!(closed.code, 1011);
    assert_eq!(
        closed.reason,
        "the connection to the other gateway was lost and not restored within 60 s (resume-for)"
    );
    assert!(!broken);
    assert_eq!(machine.why_no_line(), "refused");
    assert_eq!(
        machine.line_up(now, Received::default(), None, true),
        Err(Gone::Expired)
    );
}

/// A frame in parts continues where the last line ended, so that it arrives even if each line carries only
/// three frames, two of which resume the session.
// TUN-9
#[test]
fn parts_of_a_frame_that_arrived_are_not_sent_again() {
    let budget = Budget::new(64 << 20);
    let now = Instant::now();
    let mut sender = Machine::new(now, settings(9000, &budget), None, true);
    let mut receiver = Machine::new(now, settings(9000, &budget), None, true);
    let frame = Frame::Text("x".repeat(8000).into());
    sender.push(frame.clone()).unwrap();
    let mut heard = Vec::new();
    for line in 1..20 {
        // The line lets less through than the frame was made for.
        sender
            .line_up(now, receiver.received(), Some(1000), true)
            .unwrap();
        let on = receiver
            .line_up(now, Received::default(), None, true)
            .unwrap();
        let part = sender.poll_transmit(sender.line()).unwrap();
        assert!(part.bytes().len() <= 1000);
        match receiver.handle_frame(now, on, part).unwrap() {
            Heard::Handled => assert_eq!(receiver.received().frames, 0),
            Heard::Frame(whole) => {
                heard.push(whole);
                assert_eq!((receiver.received(), line), (Received::frames(1), 12));
                break;
            }
        }
    }
    assert_eq!(heard, [frame]);
}

/// A gateway that does not know where parts go on sends them again from the first, or the whole frame.
// TUN-9
#[test]
fn a_gateway_that_begins_a_frame_anew_is_understood() {
    let budget = Budget::new(64 << 20);
    let now = Instant::now();
    for whole in [true, false] {
        let mut machine = Machine::new(now, settings(CAP, &budget), None, true);
        let part = |at, last, data: &[u8]| {
            let data = data.to_vec();
            let control = Control::Part { at, last, data };
            Frame::Text(control.to_json().into())
        };
        machine
            .handle_frame(now, 0, part(0, false, b"abc"))
            .unwrap();
        assert_eq!(
            machine.received(),
            Received {
                frames: 0,
                bytes: 3
            }
        );
        let line = machine
            .line_up(now, Received::default(), None, true)
            .unwrap();
        let expected = Frame::Text("abcdef".into());
        let heard = match whole {
            true => machine.handle_frame(now, line, expected.clone()),
            false => {
                let first = machine.handle_frame(now, line, part(0, false, b"abcd"));
                assert_eq!(first, Ok(Heard::Handled));
                machine.handle_frame(now, line, part(0, true, b"ef"))
            }
        };
        assert_eq!(heard, Ok(Heard::Frame(expected)));
        assert_eq!(machine.received(), Received::frames(1));
    }
}

/// Lines that end before anything passes: the session ends with a reason, whether its frame was on the line
/// or not. A session that has nothing to send is kept.
// TUN-9
#[test]
fn lines_that_carry_nothing_end_a_session_by_name() {
    let budget = Budget::new(64 << 20);
    let now = Instant::now();
    for (size, on_the_line, expected) in [
        (None, false, None),
        (
            Some(100),
            false,
            Some("64 connections to the other gateway in a row were lost before a frame arrived"),
        ),
        (
            Some(100),
            true,
            Some("every connection to the other gateway ends when a frame of 100 bytes is sent"),
        ),
        (
            Some(900_000),
            true,
            Some("every connection to the other gateway ends when a frame of 4096 bytes is sent"),
        ),
    ] {
        let mut machine = Machine::new(now, settings(900_000, &budget), None, true);
        if let Some(size) = size {
            machine.push(Frame::Text("x".repeat(size).into())).unwrap();
        }
        let mut lines = 0;
        while machine.ended().is_none() && lines < 1000 {
            lines += 1;
            while on_the_line && machine.poll_transmit(machine.line()).is_some() {}
            machine.line_down(now, machine.line(), reset());
            let _ = machine.line_up(now, Received::default(), None, true);
        }
        let ended = machine.ended().map(|(closed, _)| closed.reason);
        assert_eq!(ended.as_deref(), expected);
        assert_eq!(lines < 70, expected.is_some(), "{lines} lines");
    }
}

/// The cap that the other end found out is kept once a frame came within it, and is never below the least
/// cap.
// TUN-8
#[test]
fn a_cap_that_the_other_end_found_out_is_kept_when_a_frame_or_a_part_came() {
    let budget = Budget::new(64 << 20);
    let now = Instant::now();
    let mut machine = Machine::new(now, settings(CAP, &budget), None, true);
    machine.handle_told(50_000);
    machine.handle_told(10);
    assert_eq!(machine.poll_told(), None);
    machine
        .handle_frame(now, 0, Frame::Text("x".into()))
        .unwrap();
    assert_eq!(machine.poll_told(), Some(4096));
    assert_eq!(machine.poll_told(), None);
    // Frames that were made for a larger cap come in parts, and a short session has no others.
    machine.handle_told(60_000);
    let part = Control::Part {
        at: 0,
        last: false,
        data: b"x".to_vec(),
    };
    machine
        .handle_frame(now, 0, Frame::Text(part.to_json().into()))
        .unwrap();
    assert_eq!(machine.poll_told(), Some(60_000));
}

// TUN-3
#[test]
fn a_session_that_is_not_resumed_ends_with_its_line() {
    let budget = Budget::new(64 << 20);
    let mut settings = settings(CAP, &budget);
    settings.resume_for = Duration::ZERO;
    let mut machine = Machine::new(Instant::now(), settings, None, true);
    machine.line_down(Instant::now(), 0, reset());
    assert!(!machine.needs_line());
    assert_eq!(machine.ended(), Some((reset(), false)));
}

// TUN-6
#[test]
fn a_silent_line_is_lost_and_a_paused_one_is_not() {
    let budget = Budget::new(64 << 20);
    let now = Instant::now();
    for paused in [false, true] {
        let mut machine = Machine::new(now, settings(CAP, &budget), None, true);
        machine.line.paused = paused;
        let pings: Vec<u64> = (0..60)
            .filter(|second| {
                let at = now + Duration::from_secs(*second);
                machine.handle_timeout(at);
                machine.poll_write(at) == Some((0, Write::Ping))
            })
            .collect();
        match paused {
            false => assert_eq!(pings, [10, 20]),
            true => assert_eq!(pings, [10, 20, 30, 40, 50]),
        }
        assert_eq!(machine.needs_line(), !paused);
    }
    // A carrier without pings gets an acknowledgement instead.
    let mut machine = Machine::new(now, settings(CAP, &budget), None, false);
    let ack = Write::Control(Control::Ack { taken: 0 });
    assert_eq!(machine.poll_write(now + KEEPALIVE), Some((0, ack)));
}

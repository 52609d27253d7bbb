//! Tests of the persistent protocol: literal bytes, simulated time, lost streams and hostile peers.

use std::time::{Duration, Instant};

use breakbulk_message::vscode::ipc::{Frame, FrameType};
use bytes::Bytes;

use super::*;

fn config() -> PersistentConfig {
    PersistentConfig::default().with(|config| {
        config.replay_bytes = 4000;
        config.replay_messages = 8;
    })
}

fn at(start: Instant, millis: u64) -> Instant {
    start + Duration::from_millis(millis)
}

/// All bytes to be written, as frames.
fn written(protocol: &mut PersistentProtocol, now: Instant) -> Vec<Frame> {
    let mut bytes = Vec::new();
    while let Some(out) = protocol.outgoing(now) {
        let Some(some) = out.pop(usize::MAX) else {
            break;
        };
        bytes.extend_from_slice(&some);
    }
    let mut bytes = Bytes::from(bytes);
    let mut reader = breakbulk_message::vscode::ipc::IpcReader::new(1 << 30);
    std::iter::from_fn(|| reader.read(&mut bytes).unwrap()).collect()
}

fn frame(frame_type: FrameType, id: u32, ack: u32, payload: &'static str) -> Frame {
    Frame {
        frame_type,
        id,
        ack,
        payload: Bytes::from_static(payload.as_bytes()),
    }
}

fn text(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

use FrameType::{
    Ack, Control, Disconnect, KeepAlive, Pause, Regular, ReplayRequest, Resume, Unknown,
};

#[test]
fn ids_count_from_one_and_acks_ride_along() {
    let now = Instant::now();
    let mut a = PersistentProtocol::new(now, config());
    a.send(now, &text("m1")).unwrap();
    a.send(now, &text("m2")).unwrap();
    let sent = written(&mut a, now);
    assert_eq!(
        sent,
        [frame(Regular, 1, 0, "m1"), frame(Regular, 2, 0, "m2")]
    );
    let mut b = PersistentProtocol::new(now, config());
    for (frame, message) in sent.into_iter().zip(["m1", "m2"]) {
        assert_eq!(b.handle_frame(now, frame), Received::Message(text(message)));
    }
    b.send(now, &text("r1")).unwrap();
    let sent = written(&mut b, now);
    assert_eq!(sent, [frame(Regular, 1, 2, "r1")]);
    assert_eq!(a.unacknowledged(), 2);
    a.handle_frame(now, sent[0].clone());
    assert_eq!((a.unacknowledged(), a.replay_bytes()), (0, 0));
    a.send_control(&text("x")).unwrap();
    assert_eq!(written(&mut a, now), [frame(Control, 0, 0, "x")]);
}

#[test]
fn an_ack_goes_out_two_seconds_after_the_last_message() {
    let start = Instant::now();
    let mut b = PersistentProtocol::new(start, config().with(|it| it.keep_alive = None));
    b.handle_frame(start, frame(Regular, 1, 0, "a"));
    b.handle_frame(at(start, 1500), frame(Regular, 2, 0, "b"));
    let mut acks = Vec::new();
    for millis in (0..6000).step_by(100) {
        b.handle_timeout(at(start, millis));
        acks.extend(
            written(&mut b, at(start, millis))
                .into_iter()
                .map(|frame| (millis, frame)),
        );
    }
    assert_eq!(acks, [(3500, frame(Ack, 0, 2, ""))]);
    assert_eq!(b.poll_timeout(), None);
}

// VSCODE-2
#[test]
fn an_ack_goes_out_at_once_after_much_was_received() {
    let usual = PersistentConfig::default();
    assert_eq!((usual.ack_bytes, usual.ack_messages), (1 << 20, 4096));
    let now = Instant::now();
    let mut b = PersistentProtocol::new(
        now,
        config().with(|it| {
            it.ack_messages = 3;
            it.ack_bytes = 10;
        }),
    );
    for id in 1..=3 {
        assert_eq!(written(&mut b, now), []);
        b.handle_frame(now, frame(Regular, id, 0, "x"));
    }
    assert_eq!(written(&mut b, now), [frame(Ack, 0, 3, "")]);
    b.handle_frame(now, frame(Regular, 4, 0, "0123456789"));
    assert_eq!(written(&mut b, now), [frame(Ack, 0, 4, "")]);
}

#[test]
fn keep_alive_every_five_seconds() {
    let start = Instant::now();
    let mut a = PersistentProtocol::new(start, config());
    a.handle_frame(at(start, 4900), frame(Regular, 1, 0, "x"));
    let mut sent = Vec::new();
    for millis in (0..=10_000).step_by(100) {
        let now = at(start, millis);
        if a.poll_timeout().is_some_and(|(due, _)| now >= due) {
            a.handle_timeout(now);
        }
        sent.extend(
            written(&mut a, now)
                .into_iter()
                .map(|frame| (millis, frame)),
        );
    }
    let expected = [
        (5000, frame(KeepAlive, 0, 1, "")),
        (10_000, frame(KeepAlive, 0, 1, "")),
    ];
    assert_eq!(sent, expected);
}

#[test]
fn a_gap_is_asked_about_once_in_ten_seconds_and_duplicates_are_dropped() {
    let start = Instant::now();
    let mut b = PersistentProtocol::new(start, config().with(|it| it.keep_alive = None));
    let mut give =
        |millis, id, payload| b.handle_frame(at(start, millis), frame(Regular, id, 0, payload));
    assert_eq!(give(0, 1, "one"), Received::Message(text("one")));
    for (millis, id) in [(10, 3), (20, 4), (30, 1), (9000, 3)] {
        assert_eq!(give(millis, id, "?"), Received::Nothing);
    }
    assert_eq!(give(9500, 2, "two"), Received::Message(text("two")));
    assert_eq!(give(10_020, 9, "?"), Received::Nothing);
    let junk = frame(Unknown(4), 77, 0, "?");
    assert_eq!(b.handle_frame(start, junk), Received::Nothing);
    let sent = written(&mut b, start);
    assert_eq!(
        sent,
        [
            frame(ReplayRequest, 0, 0, ""),
            frame(ReplayRequest, 0, 0, "")
        ]
    );
}

#[test]
fn pause_stops_everything_until_resume() {
    let start = Instant::now();
    let mut b = PersistentProtocol::new(start, config());
    b.handle_frame(start, frame(Regular, 1, 0, "a"));
    b.handle_frame(start, frame(Pause, 0, 0, ""));
    b.send(start, &text("queued while paused")).unwrap();
    // Keep-alives and acknowledgements do not pile up meanwhile.
    for seconds in 0..1000 {
        b.handle_timeout(at(start, seconds * 1000));
        assert_eq!(written(&mut b, start), []);
    }
    b.handle_frame(start, frame(Resume, 0, 0, ""));
    let sent = written(&mut b, start);
    assert_eq!(sent[0], frame(Regular, 1, 1, "queued while paused"));
    assert!(sent.len() <= 3, "{sent:?}");
}

#[test]
fn a_disconnect_is_said_once_and_ends_it() {
    let now = Instant::now();
    let mut a = PersistentProtocol::new(now, config());
    a.send_disconnect();
    a.send_disconnect();
    let sent = written(&mut a, now);
    assert_eq!(sent, [frame(Disconnect, 0, 0, "")]);
    let mut b = PersistentProtocol::new(now, config());
    assert_eq!(b.handle_frame(now, sent[0].clone()), Received::Disconnect);
    assert_eq!(
        b.handle_frame(now, frame(Regular, 1, 0, "late")),
        Received::Nothing
    );
    assert!(b.is_over() && b.poll_timeout().is_none());
}

#[test]
fn another_stream_gets_an_ack_and_all_that_was_not_acknowledged() {
    let now = Instant::now();
    let large = Bytes::from(vec![b'x'; 20_000]);
    let mut a = PersistentProtocol::new(now, PersistentConfig::default());
    a.send(now, &text("m1")).unwrap();
    a.handle_frame(now, frame(Regular, 1, 0, "r"));
    a.send(now, &large).unwrap();
    a.send(now, &text("m3")).unwrap();
    written(&mut a, now);
    a.handle_frame(now, frame(Ack, 0, 1, ""));
    a.stream_lost();
    a.send(now, &text("m4 sent while reconnecting")).unwrap();
    assert!(a.outgoing(now).is_none());
    a.resume(now);
    let sent = written(&mut a, now);
    assert_eq!(sent[0], frame(Ack, 0, 1, ""));
    // The messages with their own ids and acks; the large buffer is not copied for it.
    let rest: Vec<_> = sent[1..]
        .iter()
        .map(|frame| (frame.id, frame.ack, frame.payload.len()))
        .collect();
    assert_eq!(rest, [(2, 1, 20_000), (3, 1, 2), (4, 1, 26)]);
}

#[test]
fn a_replay_request_sends_again_once_however_often_it_comes() {
    let now = Instant::now();
    let mut a = PersistentProtocol::new(now, config());
    a.send(now, &text("m1")).unwrap();
    a.send(now, &text("m2")).unwrap();
    for _ in 0..1000 {
        a.handle_frame(now, frame(ReplayRequest, 0, 0, ""));
    }
    a.send(now, &text("m3")).unwrap();
    let ids: Vec<_> = written(&mut a, now).iter().map(|frame| frame.id).collect();
    assert_eq!(ids, [1, 2, 1, 2, 3]);
}

// VSCODE-2
#[test]
fn a_peer_that_never_acknowledges_ends_the_session() {
    let start = Instant::now();
    for large in [false, true] {
        let mut a = PersistentProtocol::new(start, config());
        let message = Bytes::from(vec![0; if large { 900 } else { 1 }]);
        let mut taken = 0;
        while a.has_room() {
            a.send(start, &message).unwrap();
            taken += 1;
        }
        assert_eq!(taken, if large { 4 } else { 8 });
        let refused = a.send(start, &message).unwrap_err();
        assert!(matches!(refused, PersistentError::NoRoom { .. }));
        assert!(a.replay_bytes() < 6000);
        // The peer sends frames, so the stream is not dead, but acknowledges nothing.
        let mut failed = None;
        for seconds in 1..60 {
            let now = at(start, seconds * 1000);
            a.handle_frame(now, frame(KeepAlive, 0, 0, ""));
            a.handle_timeout(now);
            if let Some(event) = a.poll_event() {
                failed = Some((seconds, event));
                break;
            }
        }
        let Some((20, PersistentEvent::Failed(error))) = failed else {
            panic!("{failed:?}")
        };
        let words = "acknowledged nothing for 20 s";
        assert!(error.to_string().contains(words), "{error}");
        assert!(a.is_over());
    }
}

#[test]
fn a_peer_that_acknowledges_late_makes_room() {
    let start = Instant::now();
    let mut a = PersistentProtocol::new(start, config());
    while a.has_room() {
        a.send(start, &text("x")).unwrap();
    }
    for seconds in 1..100_u32 {
        let now = at(start, u64::from(seconds) * 1000);
        a.handle_frame(now, frame(KeepAlive, 0, seconds, ""));
        a.handle_timeout(now);
        assert_eq!(a.poll_event(), None);
        assert!(a.has_room());
        a.send(now, &text("x")).unwrap();
    }
}

#[test]
fn a_peer_that_acknowledges_what_it_never_read_gets_no_more_than_fits() {
    let now = Instant::now();
    let mut a = PersistentProtocol::new(now, config());
    a.handle_frame(now, frame(Pause, 0, 0, ""));
    let message = Bytes::from(vec![1; 987]);
    let mut sent = 0;
    while a.has_room() && sent < 100 {
        a.send(now, &message).unwrap();
        sent += 1;
        a.handle_frame(now, frame(Ack, 0, sent, ""));
        assert_eq!(a.unacknowledged(), 0);
    }
    assert_eq!((sent, a.queued_bytes()), (4, 4000));
    assert!(a.send(now, &message).is_err());

    // A peer that reads after all makes room, and its late reading is not held against it.
    a.handle_frame(now, frame(Resume, 0, 0, ""));
    assert_eq!(written(&mut a, now).len(), 4);
    assert!(a.has_room());
    a.handle_timeout(at(now, 60_000));
    assert_eq!(a.poll_event(), None);
    assert!(!a.is_over());
}

#[test]
fn a_silent_stream_is_dead_after_twenty_seconds_unless_we_were_busy() {
    let start = Instant::now();
    for busy in [false, true] {
        let mut a = PersistentProtocol::new(start, PersistentConfig::default());
        a.send(start, &text("x")).unwrap();
        let mut dead = None;
        let mut seconds = 0;
        while dead.is_none() && seconds < 100 {
            // A busy process checks only every twenty seconds.
            seconds += if busy { 20 } else { 1 };
            let now = at(start, seconds * 1000);
            if a.poll_timeout().is_some_and(|(due, _)| now >= due) {
                a.handle_timeout(now);
            }
            dead = a.poll_event();
        }
        let event = PersistentEvent::StreamTimeout {
            unacknowledged: 1,
            oldest: Duration::from_secs(20),
            silence: Duration::from_secs(20),
        };
        assert_eq!(dead, (!busy).then_some(event));
    }
    // Any frame, and a pause in our own reading, restarts the timeout.
    let mut a = PersistentProtocol::new(start, PersistentConfig::default());
    a.send(start, &text("x")).unwrap();
    for seconds in 1..200 {
        let now = at(start, seconds * 1000);
        if seconds % 19 == 0 {
            match seconds % 2 {
                0 => drop(a.handle_frame(now, frame(KeepAlive, 0, 0, ""))),
                _ => a.reading_paused(now),
            }
        }
        a.handle_timeout(now);
        assert_eq!(a.poll_event(), None, "{seconds}");
    }
}

#[test]
fn hostile_frames_change_nothing() {
    let now = Instant::now();
    let mut a = PersistentProtocol::new(now, config());
    a.send(now, &text("x")).unwrap();
    // An acknowledgement beyond the last message acknowledges all that were sent.
    a.handle_frame(now, frame(Ack, 0, u32::MAX, ""));
    assert_eq!(a.unacknowledged(), 0);
    a.send(now, &text("y")).unwrap();
    assert_eq!(a.unacknowledged(), 1);
    for id in [0, u32::MAX, 5] {
        let got = a.handle_frame(now, frame(Regular, id, 0, "?"));
        assert_eq!(got, Received::Nothing);
    }
    let mut over = Bytes::from_static(b"\x01\0\0\0\x01\0\0\0\0\xff\xff\xff\xff");
    assert!(a.handle_bytes(now, &mut over).is_err());
}

/// Two ends whose stream is cut at random bytes: every message arrives once and in order.
#[test]
fn cut_at_random_bytes_everything_arrives_once() {
    for seed in 0..200_u64 {
        let mut random = breakbulk_link::Random::from_number(seed);
        let now = Instant::now();
        let mut ends = [
            PersistentProtocol::new(now, PersistentConfig::default()),
            PersistentProtocol::new(now, PersistentConfig::default()),
        ];
        let mut sent = [0_u32; 2];
        let mut got = [0_u32; 2];
        for _ in 0..100 {
            for side in 0..2 {
                for _ in 0..random.below(4) {
                    sent[side] += 1;
                    let size = 4 + random.below(20_000) as usize;
                    let mut message = vec![0; size];
                    message[..4].copy_from_slice(&sent[side].to_be_bytes());
                    ends[side].send(now, &Bytes::from(message)).unwrap();
                }
            }
            for side in 0..2 {
                let mut budget = random.below(60_000) as usize;
                while budget > 0
                    && let Some(bytes) = ends[side].outgoing(now).and_then(|out| out.pop(budget))
                {
                    budget -= bytes.len();
                    let mut bytes = bytes;
                    while let Some(received) = ends[1 - side].handle_bytes(now, &mut bytes).unwrap()
                    {
                        if let Received::Message(message) = received {
                            got[1 - side] += 1;
                            assert_eq!(message[..4], got[1 - side].to_be_bytes(), "seed {seed}");
                        }
                    }
                }
            }
            if random.one_in(5) {
                ends.iter_mut().for_each(PersistentProtocol::stream_lost);
                ends.iter_mut().for_each(|end| end.resume(now));
            }
        }
        ends.iter_mut().for_each(|end| end.resume(now));
        for side in [0, 1] {
            while let Some(mut bytes) = ends[side].outgoing(now).and_then(|out| out.pop(usize::MAX))
            {
                while let Some(received) = ends[1 - side].handle_bytes(now, &mut bytes).unwrap() {
                    got[1 - side] += u32::from(matches!(received, Received::Message(_)));
                }
            }
        }
        assert_eq!([got[1], got[0]], sent, "seed {seed}");
    }
}

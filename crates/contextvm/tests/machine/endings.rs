//! Timeouts, cancelled requests, and messages that remain too large.

use std::time::Duration;

use breakbulk_contextvm::{
    Event, Failure, Kind, Learned, Machine, Prepared, Refused, Role, Timeouts,
};
use breakbulk_testkit::log::{Level, Log};
use serde_json::Value;

use crate::machine::{LONG, answer, answer_to, exchange, pair, plain};
use crate::sim::{Sim, call, key, reply, text};

#[test]
fn a_request_without_an_answer_ends_and_frames_hold_it_up() {
    let timeouts = Timeouts::default().with(|config| {
        config.soft = Some(Duration::from_secs(5));
        config.hard = Some(Duration::from_secs(12));
    });
    let client = plain().with(|config| config.timeouts = timeouts);
    let mut sim = pair(plain(), client);
    sim.send(1, 0, &call(1, "x", 1));
    sim.run(LONG).unwrap();
    let (to, _, error) = sim.run(LONG).unwrap();
    assert_eq!((to, sim.now), (1, Duration::from_secs(5)));
    assert!(
        error.contains(r#""code":-32001"#) && error.contains("5 s"),
        "{error}"
    );
    let after = Duration::from_secs(5);
    let silent = Failure::NoServer { after };
    assert_eq!(sim.failed(1), Some((Kind::Request, silent)));
    let (to, _, cancelled) = sim.run(LONG).unwrap();
    assert_eq!(to, 0);
    assert!(cancelled.contains("notifications/cancelled"), "{cancelled}");
    // The server's late answer belongs to no open request any more; sending it is no error.
    let late = answer_to(&mut sim, key(1), r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    assert!(late.is_ok(), "{late:?}");
    // Progress puts off the timeout, but not for ever.
    sim.send(1, 0, &call(2, "x", 1));
    let begun = sim.now;
    let (_, _, heard) = sim.run(LONG).unwrap();
    let heard: Value = serde_json::from_str(&heard).unwrap();
    let token = &heard["params"]["_meta"]["progressToken"];
    for step in 1..=3 {
        assert!(
            sim.run(begun + Duration::from_secs(4) * step - Duration::from_millis(1))
                .is_none()
        );
        let progress = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{step}}}}}"#
        );
        answer_to(&mut sim, key(1), &progress).unwrap();
    }
    let (_, _, error) = sim.run(LONG).unwrap();
    assert_eq!(sim.now, begun + Duration::from_secs(12));
    assert!(
        error.contains("the most that a request may take"),
        "{error}"
    );
    sim.run(LONG).unwrap();
    sim.assert_clean("timeouts");
}

#[test]
fn a_server_that_does_not_accept_gets_no_chunks() {
    let mut config = plain();
    config.timeouts.learn = Duration::from_secs(3);
    config.fresh_key = true;
    let mut sim = pair(plain(), config);
    // No machine has the server's key: nobody answers.
    sim.keys[0] = key(77);
    let to = key(0);
    let message = Prepared::outgoing(call(1, &text(0, 100_000), 1).into(), Some("t")).unwrap();
    let now = sim.time();
    sim.machines[1].send(now, to, message).unwrap();
    let (_, _, error) = sim.run(LONG).unwrap();
    assert!(error.contains(r#""reason":"notAccepted""#), "{error}");
    let (kind, failure) = sim.failed(1).unwrap();
    assert_eq!((kind, failure.reason()), (Kind::Request, "notAccepted"));
    assert_eq!(
        sim.now,
        Duration::from_secs(33),
        "the question, then the leave"
    );
    let kinds: Vec<_> = sim
        .tape
        .iter()
        .filter_map(|seen| seen.frame_type())
        .collect();
    assert_eq!(kinds, ["start", "abort"]);
    // With `unasked` the chunks are sent without `accept`.
    let mut config = plain();
    config.unasked = true;
    sim.restart_client(1, config, None);
    sim.tape.clear();
    let message = Prepared::outgoing(call(1, &text(0, 100_000), 1).into(), Some("t")).unwrap();
    let now = sim.time();
    sim.machines[1].send(now, to, message).unwrap();
    sim.run(sim.now + Duration::from_secs(1));
    let kinds: Vec<_> = sim
        .tape
        .iter()
        .filter_map(|seen| seen.frame_type())
        .collect();
    assert_eq!(kinds, ["start", "chunk", "chunk", "chunk", "end"]);
    assert!(sim.tape[1].content.contains(r#""progress":3,"#));
}

#[test]
fn nothing_is_further_ahead_than_a_receiver_can_put_in_order() {
    let learned = Learned {
        oversized: true,
        ..Learned::default()
    };
    let config = plain().with(|config| config.plan_elsewhere = None);
    let now = std::time::Instant::now();
    let role = Role::Client { server: key(0) };
    let mut machine = Machine::new(role, config, Some(learned), [3; 32], now);
    let request = call(1, &text(0, 5_000_000), 1);
    let message = Prepared::outgoing(request.into(), Some("t")).unwrap();
    machine.send(now, key(0), message).unwrap();
    let number = |content: &str| {
        let frame: Value = serde_json::from_str(content).unwrap();
        frame["params"]["progress"].as_u64().unwrap()
    };
    // The start alone, then the first chunk alone, then as many as a receiver can put in order.
    for expected in [1..2, 2..3, 3..24] {
        let out: Vec<_> = std::iter::from_fn(|| machine.poll_publish(now)).collect();
        let numbers: Vec<u64> = out.iter().map(|publish| number(&publish.content)).collect();
        assert_eq!(numbers, expected.collect::<Vec<u64>>());
        // Chunk 3 stays unconfirmed.
        for publish in out.iter().filter(|publish| number(&publish.content) != 3) {
            machine.handle_sent(now, publish.id, breakbulk_link::Sent::Ok);
        }
    }
    assert!(
        machine.poll_publish(now).is_none(),
        "chunk 24 would be 21 ahead"
    );
}

// CEP22-24
#[test]
fn a_cancelled_request_stops_on_both_sides() {
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#;
    let mut sim = pair(plain(), plain());
    exchange(&mut sim, &call(1, "x", 1));
    // Cancelled while the request is being sent: the abort tells the server.
    sim.weather.delay = Duration::from_secs(1);
    sim.send(1, 0, &call(2, &text(0, 3_000_000), 1));
    sim.run(sim.now + Duration::from_secs(3));
    sim.send(1, 0, cancel);
    let mut errors = 0;
    while let Some((to, _, message)) = sim.run(sim.now + Duration::from_secs(20)) {
        assert!(message.contains("cancelled"), "{message}");
        errors += usize::from(to == 1 && message.contains(r#""id":2,"error""#));
    }
    // The server never gets the whole request, so the client itself reports the error.
    assert_eq!(errors, 1);
    let aborts = |sim: &Sim| {
        let aborts = sim
            .tape
            .iter()
            .filter(|seen| seen.frame_type().as_deref() == Some("abort"));
        aborts.count()
    };
    assert_eq!(aborts(&sim), 1);
    sim.assert_clean("cancelled upload");
    // Cancelled while the answer is being sent.
    sim.send(1, 0, &call(2, "x", 3_000_000));
    let (_, _, heard) = sim.run(LONG).unwrap();
    answer(&mut sim, &reply(&heard, 0));
    sim.run(sim.now + Duration::from_secs(3));
    sim.send(1, 0, cancel);
    let (to, _, message) = sim.run(LONG).unwrap();
    assert_eq!((to, message.as_str()), (0, cancel));
    let (to, _, message) = sim.run(LONG).unwrap();
    assert_eq!(to, 1);
    assert!(message.contains(r#""id":2,"error""#), "{message}");
    assert!(message.contains(r#""reason":"cancelled""#), "{message}");
    assert!(sim.run(sim.now + Duration::from_secs(60)).is_none());
    assert_eq!(aborts(&sim), 2);
    sim.assert_clean("cancelled answer");
}

/// MCP lets a server respond to a cancelled request, and a caller may wait for that.
// CEP22-24
#[test]
fn the_response_to_a_cancelled_request_is_delivered() {
    let mut sim = pair(plain(), plain());
    exchange(&mut sim, &call(1, "x", 1));
    for (id, size) in [(2, 1), (3, 200_000)] {
        let cancel = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
        );
        sim.send(1, 0, &call(id, "x", size));
        let (_, _, heard) = sim.run(LONG).unwrap();
        sim.send(1, 0, &cancel);
        assert_eq!(sim.run(LONG).unwrap().2, cancel);
        // It is unknown whether an answer will come: the request counts as open on neither side.
        sim.assert_clean("cancelled");
        answer(&mut sim, &reply(&heard, 0));
        let (to, _, got) = sim.run(LONG).unwrap();
        assert_eq!((to, got), (1, reply(&heard, 0)));
    }
    // Most are never answered: a bounded number is remembered, and an id may be used again.
    for id in 10..200 {
        sim.send(1, 0, &call(id, "x", 1));
        sim.run(LONG).unwrap();
        let cancel = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
        );
        sim.send(1, 0, &cancel);
        sim.run(LONG).unwrap();
    }
    let forgotten = answer_to(&mut sim, key(1), r#"{"jsonrpc":"2.0","id":10,"result":{}}"#);
    assert_eq!(forgotten, Err(Refused::NoSuchRequest("10".to_owned())));
    exchange(&mut sim, &call(199, "x", 1));
    sim.assert_clean("cancelled");
}

// CEP22-11
#[test]
fn what_a_relay_finds_too_large_is_sent_once_more_in_smaller_pieces() {
    let mut sim = pair(plain(), plain());
    exchange(&mut sim, &call(1, "x", 1));
    sim.weather.event_max = 30_000;
    let (heard, got) = exchange(&mut sim, &call(2, &text(0, 200_000), 200_000));
    assert_eq!(got, reply(&heard, 0));
    let frames = |from: usize| -> Vec<(String, String)> {
        let key = sim.keys[from];
        let frames = sim.tape.iter().filter(|seen| seen.from == key);
        let named = frames.filter_map(|seen| Some((seen.frame_type()?, seen.token()?)));
        named
            .filter(|(kind, _)| kind != "chunk" && kind != "accept")
            .collect()
    };
    let up = frames(1);
    let kinds: Vec<&str> = up.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["start", "abort", "start", "end"]);
    assert_eq!(
        up[2].1,
        format!("{}-2", up[0].1),
        "a request gets another token"
    );
    assert_eq!(up[0].1, up[1].1);
    let down = frames(0);
    let kinds: Vec<&str> = down.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["start", "abort", "start", "end"]);
    assert_eq!(down[0].1, down[2].1, "an answer keeps the request's");
    // The smaller size is remembered.
    sim.tape.clear();
    exchange(&mut sim, &call(3, &text(0, 200_000), 200_000));
    assert!(
        !sim.tape
            .iter()
            .any(|seen| seen.frame_type().as_deref() == Some("abort"))
    );
    sim.assert_clean("smaller");
}

#[test]
fn what_stays_too_large_is_an_error_and_never_silence() {
    let mut sim = pair(plain(), plain());
    exchange(&mut sim, &call(1, "x", 1));
    sim.weather.event_max = 10_000;
    // An answer that is too large.
    sim.send(1, 0, &call(2, "x", 200_000));
    let (_, _, heard) = sim.run(LONG).unwrap();
    answer(&mut sim, &reply(&heard, 0));
    let (to, _, error) = sim.run(LONG).unwrap();
    assert_eq!(to, 1);
    assert!(
        error.contains(r#""id":2,"error":{"code":-32011"#),
        "{error}"
    );
    assert!(error.contains(r#""reason":"messageTooLarge""#), "{error}");
    // A request that is too large.
    sim.send(1, 0, &call(3, &text(0, 200_000), 1));
    let (to, _, error) = sim.run(LONG).unwrap();
    assert_eq!(to, 1);
    assert!(
        error.contains(r#""id":3,"error":{"code":-32011"#),
        "{error}"
    );
    // Nobody waits for an answer to a notification, so the sending application gets an event.
    let note = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"data":"{}"}}}}"#,
        text(0, 100_000)
    );
    answer_to(&mut sim, key(1), &note).unwrap();
    assert!(sim.run(sim.now + Duration::from_secs(60)).is_none());
    let told = sim
        .news
        .iter()
        .rev()
        .find_map(|(_, who, event)| match event {
            Event::Failed { kind, failure, .. } if *who == 0 => Some((*kind, failure.clone())),
            _ => None,
        });
    let told = told
        .as_ref()
        .map(|(kind, failure)| (*kind, failure.reason()));
    assert_eq!(told, Some((Kind::Notification, "messageTooLarge")));
    assert_eq!(sim.machines[0].stats().lost, 1);
    sim.assert_clean("too large");
}

/// A response keeps its place behind a notification, and must not stay there when that one fails.
// CEP22-20
#[test]
fn what_waits_behind_a_message_that_fails_is_sent() {
    let log = Log::capture();
    let mut sim = pair(plain(), plain());
    exchange(&mut sim, &call(1, "x", 1));
    sim.send(1, 0, &call(2, "x", 1));
    let (_, _, heard) = sim.run(LONG).unwrap();
    let note = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"data":"{}"}}}}"#,
        text(0, 100_000)
    );
    answer_to(&mut sim, key(1), &note).unwrap();
    answer(&mut sim, &reply(&heard, 0));
    let (to, _, got) = sim.run(sim.now + Duration::from_secs(1)).unwrap();
    assert_eq!((to, got), (1, reply(&heard, 0)));
    let warning = [
        "a notification is dropped",
        "65536",
        r#"method="notifications/message""#,
        &format!("size={}", note.len()),
        &key(1).to_hex(),
    ];
    log.assert_line(Level::WARN, &warning);
}

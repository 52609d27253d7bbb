//! Misbehaving clients of a server: only their own transfers fail, and they are told why.

use std::time::Duration;

use breakbulk_contextvm::{Config, Encryption, Event, Failure, Kind, Limits, Prepared};
use breakbulk_link::SendError;
use sha2::{Digest, Sha256};

use crate::sim::{Sim, Weather, call, key, reply, text};

const LONG: Duration = Duration::from_secs(10_000);

fn config() -> Config {
    Config::default().with(|config| {
        config.encryption = Encryption::Disabled;
        config.limits = Limits::default().with(|limits| {
            limits.message = 1 << 20;
            limits.transfers = 4;
            limits.peers = 64;
        });
    })
}

/// A frame as a peer would write it: `rest` is what follows the frame type.
fn frame(token: &str, progress: u64, kind: &str, rest: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":"{token}","progress":{progress},"cvm":{{"type":"oversized-transfer","frameType":"{kind}"{rest}}}}}}}"#
    )
}

fn start(token: &str, message: &str, chunks: u64) -> String {
    let digest = Sha256::digest(message.as_bytes());
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let bytes = message.len();
    frame(
        token,
        1,
        "start",
        &format!(
            r#","completionMode":"render","digest":"sha256:{digest}","totalBytes":{bytes},"totalChunks":{chunks}"#
        ),
    )
}

fn chunk(token: &str, progress: u64, data: &str) -> String {
    let data = serde_json::Value::from(data);
    frame(token, progress, "chunk", &format!(r#","data":{data}"#))
}

/// The reasons of the aborts that went to this client.
fn aborts(sim: &Sim, to: u64) -> Vec<String> {
    let aborts = sim.tape.iter().filter(|seen| seen.to == key(to));
    let aborts = aborts.filter(|seen| seen.frame_type().as_deref() == Some("abort"));
    let reason = |content: &str| {
        let frame: serde_json::Value = serde_json::from_str(content).unwrap();
        assert!(frame["params"]["progress"].as_u64().unwrap() > 1);
        frame["params"]["cvm"]["reason"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    aborts.map(|seen| reason(&seen.content)).collect()
}

/// Checks that an honest client is still served.
fn serves(sim: &mut Sim) {
    let request = call(1, &text(0, 120_000), 120_000);
    sim.send(1, 0, &request);
    loop {
        let (to, from, message) = sim.run(LONG).unwrap();
        if to == 1 {
            assert!(
                message.contains(r#""heard":12"#),
                "{}",
                &message[..message.len().min(200)]
            );
            return;
        }
        let answer = if message.contains(r#""method":"ping""#) {
            let ping: serde_json::Value = serde_json::from_str(&message).unwrap();
            format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, ping["id"])
        } else {
            reply(&message, 0)
        };
        let now = sim.time();
        let answer = Prepared::outgoing(answer.into(), None).unwrap();
        sim.machines[0].send(now, from, answer).unwrap();
    }
}

fn sim() -> Sim {
    Sim::new(5, Weather::CALM, vec![config(), config()])
}

// CEP22-7
#[test]
fn bad_transfers_fail_alone_and_are_told_why() {
    let message = r#"{"jsonrpc":"2.0","id":9,"method":"m","params":{}}"#;
    let (one, two) = message.split_at(20);
    let digest = |text: &str| start("t", text, 2);
    let giant = |bytes: u64, chunks: u64| {
        frame(
            "t",
            1,
            "start",
            &format!(
                r#","completionMode":"render","digest":"sha256:{}","totalBytes":{bytes},"totalChunks":{chunks}"#,
                "0".repeat(64)
            ),
        )
    };
    let other = message.replace("\"m\"", "\"n\"");
    let cases: Vec<(&str, Vec<String>, &str)> = vec![
        (
            "wrong digest",
            vec![
                digest(&other),
                chunk("t", 2, one),
                chunk("t", 3, two),
                frame("t", 4, "end", ""),
            ],
            "digest",
        ),
        (
            "missing chunk",
            vec![
                digest(message),
                chunk("t", 2, one),
                frame("t", 4, "end", ""),
            ],
            "1 of 2",
        ),
        ("giant bytes", vec![giant(u64::MAX, 2)], "limit of 1048576"),
        ("giant chunks", vec![giant(1 << 20, 10_001)], "10000"),
        ("more chunks than bytes", vec![giant(5, 6)], "totalChunks"),
        ("no chunks", vec![giant(5, 0)], "totalChunks"),
        (
            "conflicting duplicate",
            vec![digest(message), chunk("t", 2, one), chunk("t", 2, "x")],
            "different content",
        ),
        (
            "too many bytes",
            vec![digest(message), chunk("t", 2, &"x".repeat(100))],
            "declared",
        ),
        (
            "beyond the window",
            vec![
                start("t", &"x".repeat(500), 500),
                chunk("t", 2, "x"),
                chunk("t", 260, "x"),
            ],
            "ahead",
        ),
        (
            "unknown mode",
            vec![frame("t", 1, "start", r#","completionMode":"stream""#)],
            "render",
        ),
        (
            "no mode",
            vec![frame("t", 1, "start", r#","totalBytes":1"#)],
            "render",
        ),
        (
            "not a message",
            vec![
                start("t", "abc", 1),
                chunk("t", 2, "abc"),
                frame("t", 3, "end", ""),
            ],
            "JSON-RPC",
        ),
        (
            "a frame in a frame",
            {
                let inner = frame("u", 1, "end", "");
                vec![
                    start("t", &inner, 1),
                    chunk("t", 2, &inner),
                    frame("t", 3, "end", ""),
                ]
            },
            "itself",
        ),
        (
            "a chunk before its start",
            vec![chunk("t", 2, one), digest(message)],
            "before",
        ),
        (
            "an end before its start",
            vec![frame("t", 4, "end", ""), digest(message)],
            "before",
        ),
    ];
    for (name, frames, reason) in cases {
        let mut sim = sim();
        for frame in &frames {
            sim.inject(key(66), 0, frame, &[]);
            assert!(
                sim.run(sim.now + Duration::from_millis(10)).is_none(),
                "{name}"
            );
        }
        let told = aborts(&sim, 66);
        assert_eq!(told.len(), 1, "{name}: {told:?}");
        assert!(told[0].contains(reason), "{name}: {told:?}");
        let failed = sim.news.iter().filter(
            |(_, _, event)| matches!(event, Event::TransferFailed { peer, .. } if *peer == key(66)),
        );
        assert_eq!(failed.count(), 1, "{name}: {:?}", sim.news);
        serves(&mut sim);
        sim.assert_clean(name);
    }
}

/// After an outage of a relay chunks that came late may overtake those that are sent again.
// CEP22-25
#[test]
fn chunks_far_ahead_of_a_missing_one_wait_for_it() {
    let fill = "x".repeat(60);
    let message = format!(r#"{{"jsonrpc":"2.0","id":"far","method":"{fill}"}}"#);
    let chunks: Vec<&str> = (0..message.len()).map(|at| &message[at..=at]).collect();
    let mut sim = sim();
    let mut inject = |frame: &str| {
        sim.inject(key(66), 0, frame, &[]);
        sim.run(sim.now + Duration::from_millis(10))
    };
    assert!(inject(&start("t", &message, chunks.len() as u64)).is_none());
    for (number, data) in (2..).zip(&chunks).filter(|(number, _)| *number != 3) {
        assert!(inject(&chunk("t", number, data)).is_none());
    }
    assert!(inject(&chunk("t", 3, chunks[1])).is_none());
    let (to, _, whole) = inject(&frame("t", chunks.len() as u64 + 2, "end", "")).unwrap();
    assert_eq!((to, whole), (0, message.clone()));
    assert!(aborts(&sim, 66).is_empty());
}

#[test]
fn a_transfer_that_never_ends_is_let_go() {
    let mut sim = sim();
    sim.inject(key(66), 0, &start("t", &"x".repeat(1000), 3), &[]);
    sim.inject(key(66), 0, &chunk("t", 2, "xxx"), &[]);
    assert!(sim.run(Duration::from_secs(299)).is_none());
    assert_eq!(sim.machines[0].stats().transfers, 1);
    assert!(sim.run(Duration::from_secs(301)).is_none());
    assert_eq!(sim.machines[0].stats().transfers, 0);
    assert_eq!(aborts(&sim, 66).len(), 1);
    serves(&mut sim);
    sim.assert_clean("never ends");
}

#[test]
fn tokens_of_others_are_worth_nothing() {
    let mut sim = sim();
    let message = r#"{"jsonrpc":"2.0","id":9,"method":"m","params":{}}"#;
    let (one, two) = message.split_at(20);
    sim.inject(key(10), 0, &start("t", message, 2), &[]);
    sim.inject(key(10), 0, &chunk("t", 2, one), &[]);
    // Another key with the same token: chunks, an end, an abort, a start of its own.
    for frame in [
        chunk("t", 3, "evil"),
        frame("t", 4, "end", ""),
        frame("t", 9, "abort", r#","reason":"x""#),
        start("t", "{}", 1),
    ] {
        sim.inject(key(66), 0, &frame, &[]);
    }
    sim.inject(key(10), 0, &chunk("t", 3, two), &[]);
    sim.inject(key(10), 0, &frame("t", 4, "end", ""), &[]);
    let (_, from, heard) = sim.run(LONG).unwrap();
    assert_eq!((from, heard.as_str()), (key(10), message));
    assert!(aborts(&sim, 10).is_empty());
}

// CEP22-10
#[test]
fn ten_thousand_keys_take_bounded_memory_and_nobodys_place() {
    let mut sim = sim();
    serves(&mut sim);
    // An honest client is in the middle of a transfer.
    let message = r#"{"jsonrpc":"2.0","id":9,"method":"m","params":{}}"#;
    let (one, two) = message.split_at(20);
    let known = key(7);
    sim.inject(
        known,
        0,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        &[],
    );
    sim.run(LONG).unwrap();
    sim.inject(known, 0, &start("t", message, 2), &[]);
    sim.inject(known, 0, &chunk("t", 2, one), &[]);
    for number in 0..10_000 {
        let hostile = key(1_000 + number);
        sim.inject(hostile, 0, &start("t", &"x".repeat(500_000), 40), &[]);
        sim.inject(hostile, 0, &chunk("t", 2, &"x".repeat(1_000)), &[]);
        let stats = sim.machines[0].stats();
        assert!(stats.peers <= 64, "{stats:?}");
        assert!(stats.memory < 1 << 20, "{stats:?}");
        // The aborts to these clients need not be delivered one by one.
        if number % 100 == 0 {
            sim.run(sim.now + Duration::from_millis(1));
        }
    }
    assert!(sim.machines[0].stats().evicted > 9_000);
    sim.inject(known, 0, &chunk("t", 3, two), &[]);
    sim.inject(known, 0, &frame("t", 4, "end", ""), &[]);
    let (_, from, heard) = sim.run(LONG).unwrap();
    assert_eq!((from, heard.as_str()), (known, message));
    let answer =
        Prepared::outgoing(r#"{"jsonrpc":"2.0","id":9,"result":{}}"#.into(), None).unwrap();
    let now = sim.time();
    sim.machines[0].send(now, known, answer).unwrap();
    let told = aborts(&sim, 1_000);
    assert!(told.len() == 1 && told[0].contains("too many"), "{told:?}");
    serves(&mut sim);
    sim.run(sim.now + Duration::from_secs(400));
    sim.assert_clean("ten thousand keys");
}

#[test]
fn strangers_with_open_requests_leave_room_for_known_keys() {
    let known = key(7);
    let server = config().with(|it| {
        it.known = [known].into();
        it.limits = config().limits.with(|it| it.peers = 8);
    });
    let mut sim = Sim::new(5, Weather::CALM, vec![server, config()]);
    // An unanswered request keeps its peer in the table.
    let request = r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#;
    for number in 0..100 {
        sim.inject(key(1_000 + number), 0, request, &[]);
    }
    assert_eq!(sim.machines[0].stats().peers, 6);
    for _ in 0..6 {
        assert_ne!(sim.run(LONG).unwrap().1, known);
    }
    sim.inject(known, 0, request, &[]);
    assert_eq!(sim.run(LONG).unwrap().1, known);
    assert_eq!(sim.machines[0].stats().peers, 7);
}

#[test]
fn a_flood_of_frames_is_no_flood_of_answers() {
    let mut sim = sim();
    for number in 0..5_000 {
        let token = format!("t{number}");
        sim.inject(key(66), 0, &start(&token, "{}", 1), &[]);
        sim.inject(key(66), 0, &frame(&token, 2, "nonsense", ""), &[]);
        sim.inject(key(66), 0, "not even JSON", &[]);
    }
    let stats = sim.machines[0].stats();
    assert!(stats.memory < 4 << 20, "{stats:?}");
    while sim.run(sim.now + Duration::from_secs(400)).is_some() {}
    serves(&mut sim);
    sim.assert_clean("flood");
}

/// A client with an open request stays in the table, even if others are more active.
// CEP22-10
#[test]
fn who_waits_for_an_answer_keeps_its_place() {
    let mut config = config();
    config.limits.peers = 4;
    let mut sim = Sim::new(5, Weather::CALM, vec![config.clone(), config]);
    sim.inject(key(7), 0, &call(9, "x", 1), &[]);
    let (_, _, heard) = sim.run(LONG).unwrap();
    let note = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    for number in 100..120 {
        sim.inject(key(number), 0, note, &[]);
        sim.run(sim.now + Duration::from_secs(1)).unwrap();
        assert!(sim.machines[0].stats().peers <= 4);
    }
    assert!(sim.machines[0].stats().evicted >= 16);
    let answer = Prepared::outgoing(reply(&heard, 0).into(), None).unwrap();
    let now = sim.time();
    sim.machines[0].send(now, key(7), answer).unwrap();
    sim.run(sim.now);
    assert_eq!(sim.tape.last().unwrap().to, key(7));
}

/// No relay accepts an event: a request fails with an error, other messages with an event.
#[test]
fn what_no_relay_takes_is_lost_and_told() {
    let plain = || Config::default().with(|config| config.encryption = Encryption::Disabled);
    let mut sim = Sim::new(1, Weather::CALM, vec![plain(), plain()]);
    sim.send(1, 0, &call(1, "x", 1));
    sim.run(Duration::from_secs(1)).unwrap();
    sim.weather.closed = true;
    let say = |sim: &mut Sim, from: usize, to: u64, text: &str| {
        let message = Prepared::outgoing(text.to_owned().into(), Some("t")).unwrap();
        let now = sim.time();
        sim.machines[from].send(now, key(to), message).unwrap();
        sim.run(sim.now + Duration::from_secs(1))
    };
    let (to, _, error) = say(&mut sim, 1, 0, &call(2, "x", 1)).unwrap();
    assert_eq!(to, 1);
    assert_eq!(
        error,
        r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32000,"message":"the transport lost a frame of this message","data":{"reason":"lost"}}}"#
    );
    assert_eq!(
        sim.failed(1),
        Some((Kind::Request, Failure::Unsent(SendError::Lost)))
    );
    // Neither the response nor the error in its place arrives: the sending application gets an event.
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    assert_eq!(say(&mut sim, 0, 1, answer), None);
    assert_eq!(
        sim.failed(0),
        Some((Kind::Response, Failure::Unsent(SendError::Lost)))
    );
    let note = r#"{"jsonrpc":"2.0","method":"n"}"#;
    assert_eq!(say(&mut sim, 0, 1, note), None);
    assert_eq!(
        sim.failed(0),
        Some((Kind::Notification, Failure::Unsent(SendError::Lost)))
    );
    assert_eq!(sim.machines[0].stats().lost, 1);
}

/// All memory is taken by a message that the application holds: a request is answered with `busy`.
#[test]
fn a_request_that_finds_no_memory_is_answered() {
    let server = Config::default().with(|config| {
        config.encryption = Encryption::Disabled;
        config.limits.memory = 20_000;
    });
    let mut sim = Sim::new(1, Weather::CALM, vec![server]);
    let request = call(1, &text(0, 30_000), 1);
    let event = sim.inject(key(1), 0, &request, &[]);
    assert_eq!(sim.run(Duration::from_secs(1)), None, "it is not heard");
    let answer = sim.tape.last().unwrap();
    assert_eq!(answer.e(), Some(event.to_hex().as_str()));
    assert_eq!(
        answer.content,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"all memory for messages is in use; try again later","data":{"reason":"busy"}}}"#
    );
}

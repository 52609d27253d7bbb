//! Waiting: requests for responses, messages for the confirmation of earlier ones, and a client for the
//! first event of its server.

use std::time::{Duration, Instant};

use breakbulk_contextvm::{
    Config, Encryption, Failure, Kind, Learned, Machine, Prepared, PublishId, Role, Seal,
};
use breakbulk_link::Sent;
use breakbulk_testkit::log::Log;
use serde_json::Value;

use crate::sim::{Sim, Weather, call, key, text};

const LONG: Duration = Duration::from_secs(10_000);

fn second(number: u64) -> Duration {
    Duration::from_secs(number)
}

fn plain() -> Config {
    Config::default().with(|config| config.encryption = Encryption::Disabled)
}

/// A client whose server is scripted: the test injects the server's events.
fn alone(config: Config, learned: Option<Learned>) -> Sim {
    let mut sim = Sim::new(1, Weather::CALM, vec![plain(), config.clone()]);
    sim.keys[0] = key(77);
    sim.restart_client(1, config, learned);
    sim
}

const SERVER: u64 = 0;

/// The client sends a message with this token; the events that it publishes at once are on the tape.
fn say(sim: &mut Sim, message: &str, token: &str) {
    let now = sim.time();
    let message = Prepared::outgoing(message.to_owned().into(), Some(token)).unwrap();
    sim.machines[1].send(now, key(SERVER), message).unwrap();
    assert!(sim.run(sim.now).is_none());
}

fn error(sim: &mut Sim) -> Value {
    let (to, _, message) = sim.run(LONG).unwrap();
    assert_eq!(to, 1, "{message}");
    let message: Value = serde_json::from_str(&message).unwrap();
    assert!(message["error"].is_object(), "{message}");
    message
}

fn frame(token: &str, progress: u64, rest: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":"{token}","progress":{progress}{rest}}}}}"#
    )
}

// CEP22-7
#[test]
fn after_an_aborted_answer_ten_seconds_are_left() {
    let zeros = "0".repeat(64);
    let start = format!(
        r#","cvm":{{"type":"oversized-transfer","frameType":"start","completionMode":"render","digest":"sha256:{zeros}","totalBytes":100,"totalChunks":2}}"#
    );
    let abort = r#","cvm":{"type":"oversized-transfer","frameType":"abort","reason":"too big"}"#;
    for answered in [false, true] {
        let mut sim = alone(plain(), None);
        say(&mut sim, &call(1, "x", 1), "t");
        sim.inject(key(SERVER), 1, &frame("t", 1, &start), &[]);
        assert!(sim.run(second(5)).is_none());
        sim.inject(key(SERVER), 1, &frame("t", 9, abort), &[]);
        if answered {
            // The response of a second attempt, or an error of the server itself.
            assert!(sim.run(second(14)).is_none());
            let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
            sim.inject(key(SERVER), 1, answer, &[]);
            assert_eq!(sim.run(LONG).unwrap().2, answer);
        } else {
            let error = error(&mut sim);
            assert_eq!(error["error"]["data"]["reason"], "aborted", "{error}");
            assert_eq!(sim.now, second(15), "10 s after the abort");
        }
    }
}

// CEP22-8
#[test]
fn discovery_tags_are_repeated_until_the_server_has_spoken() {
    let hello = "support_oversized_transfer";
    let learned = Learned {
        oversized: true,
        ..Learned::default()
    };
    let mut sim = alone(plain(), Some(learned));
    for id in 1..=2 {
        say(&mut sim, &call(id, "x", 1), &format!("t{id}"));
    }
    say(&mut sim, &call(3, &text(0, 100_000), 1), "t3");
    let tagged = |sim: &Sim| -> Vec<(Option<String>, bool)> {
        let seen = sim.tape.iter();
        seen.map(|seen| (seen.frame_type(), seen.has_tag(hello)))
            .collect()
    };
    let before = tagged(&sim);
    assert_eq!(before[..2], [(None, true), (None, true)]);
    assert!(before.len() > 4, "{before:?}");
    for (kind, has_tag) in &before[2..] {
        assert_eq!(*has_tag, kind.as_deref() == Some("start"), "{before:?}");
    }
    sim.tape.clear();
    sim.inject(
        key(SERVER),
        1,
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        &[],
    );
    sim.run(LONG).unwrap();
    say(&mut sim, &call(4, "x", 1), "t4");
    assert_eq!(tagged(&sim), [(None, false)]);
}

/// A client that has queued these messages, with their method as token; its server supports chunks.
fn queued(messages: &[(&str, Kind, usize)]) -> (Instant, Machine) {
    let now = Instant::now();
    let role = Role::Client { server: key(0) };
    let learned = Learned {
        oversized: true,
        ..Learned::default()
    };
    let mut machine = Machine::new(role, plain(), Some(learned), [3; 32], now);
    for &(method, kind, size) in messages {
        let id = match kind {
            Kind::Notification => String::new(),
            _ => format!(r#""id":"{method}","#),
        };
        let content = "x".repeat(size);
        let text = format!(
            r#"{{"jsonrpc":"2.0",{id}"method":"{method}","params":{{"content":"{content}"}}}}"#
        );
        let message = Prepared::outgoing(text.into(), Some(method)).unwrap();
        machine.send(now, key(0), message).unwrap();
    }
    (now, machine)
}

/// The methods of the messages that the machine publishes now, sorted; for a frame its token.
fn published(machine: &mut Machine, now: Instant) -> Vec<(String, PublishId)> {
    let name = |content: &str| {
        let message: Value = serde_json::from_str(content).unwrap();
        let token = message["params"]["progressToken"].as_str();
        token.or(message["method"].as_str()).unwrap().to_owned()
    };
    let out = std::iter::from_fn(|| machine.poll_publish(now));
    let mut out: Vec<_> = out
        .map(|publish| (name(&publish.content), publish.id))
        .collect();
    out.sort();
    out
}

fn names(published: &[(String, PublishId)]) -> Vec<&str> {
    published.iter().map(|(name, _)| name.as_str()).collect()
}

const CALLED: Kind = Kind::Request;
const TOLD: Kind = Kind::Notification;

// CEP22-9
#[test]
fn requests_wait_for_nothing_but_a_notification_before_them() {
    let (now, mut machine) = queued(&[
        ("a", CALLED, 1),
        ("b", CALLED, 1),
        ("first", TOLD, 1),
        ("second", TOLD, 1),
        ("c", CALLED, 1),
    ]);
    // First nothing is confirmed, then one message at a time.
    for expected in [&["a", "b", "first"][..], &["second"], &["c"]] {
        let out = published(&mut machine, now);
        assert_eq!(names(&out), expected);
        machine.handle_sent(now, out[out.len() - 1].1, Sent::Ok);
    }
}

// CEP22-9
#[test]
fn a_large_message_overtakes_no_notification_and_holds_up_none() {
    for outcome in [Sent::Ok, Sent::TooLarge, Sent::Failed] {
        let (now, mut machine) = queued(&[
            ("first", TOLD, 1),
            ("second", TOLD, 1),
            ("large", CALLED, 100_000),
            ("third", TOLD, 1),
        ]);
        let out = published(&mut machine, now);
        assert_eq!(names(&out), ["first"]);
        machine.handle_sent(now, out[0].1, outcome);
        let out = published(&mut machine, now);
        assert_eq!(names(&out), ["second"]);
        machine.handle_sent(now, out[0].1, outcome);
        // The messages after the large one do not wait for its chunks, nor does it wait for them.
        let out = published(&mut machine, now);
        assert_eq!(names(&out), ["large", "third"], "{outcome:?}");
    }
}

// CEP22-12
#[test]
fn a_call_waits_two_minutes_for_a_server_that_is_not_there_and_an_hour_for_one_that_is() {
    // No event ever came from the server.
    let log = Log::capture();
    let mut sim = alone(plain(), None);
    say(&mut sim, &call(1, "x", 1), "t1");
    let failed = error(&mut sim);
    let after = second(120);
    assert_eq!(
        sim.failed(1),
        Some((Kind::Request, Failure::NoServer { after }))
    );
    log.assert_quiet();
    assert_eq!((failed["id"].as_u64(), sim.now), (Some(1), second(120)));
    let words = failed["error"]["message"].as_str().unwrap();
    assert!(
        words.contains("is the other end at these relays"),
        "{words}"
    );
    // The server has sent an event: a silent tool may be at work.
    let begun = sim.now;
    say(&mut sim, &call(2, "x", 1), "t2");
    let other = r#"{"jsonrpc":"2.0","method":"notifications/message"}"#;
    sim.inject(key(SERVER), 1, other, &[]);
    assert_eq!(sim.run(LONG).unwrap().2, other);
    let failed = error(&mut sim);
    assert_eq!(
        (failed["id"].as_u64(), sim.now),
        (Some(2), begun + second(3600))
    );
    let words = failed["error"]["message"].as_str().unwrap();
    assert!(words.contains("timeout= of a gateway"), "{words}");
    // Unless the configuration limits how long it may be silent.
    let config = plain().with(|config| config.timeouts.soft = Some(second(120)));
    let mut sim = alone(config, None);
    say(&mut sim, &call(2, "x", 1), "t2");
    for step in 1..36 {
        assert!(sim.run(second(100 * step)).is_none(), "{step}");
        sim.inject(key(SERVER), 1, &frame("t2", step, ""), &[]);
    }
    assert_eq!(error(&mut sim)["id"], 2);
    assert_eq!(sim.now, second(3600));
    let begun = sim.now;
    say(&mut sim, &call(3, "x", 1), "t3");
    let failed = error(&mut sim);
    assert_eq!(
        (failed["id"].as_u64(), sim.now),
        (Some(3), begun + second(120))
    );
    let words = failed["error"]["message"].as_str().unwrap();
    assert!(words.contains("timeout= of a gateway"), "{words}");
}

/// A tool call to a server that opens streams has no token, so a large answer cannot be sent.
// CEP22-12
#[test]
fn a_call_without_a_token_to_a_server_of_streams_fails_with_the_remedy() {
    let learned = Learned {
        streams: true,
        ..Learned::default()
    };
    let mut sim = alone(plain(), Some(learned));
    let message = Prepared::outgoing(call(1, "x", 1).into(), None).unwrap();
    let now = sim.time();
    sim.machines[1].send(now, key(SERVER), message).unwrap();
    let other = r#"{"jsonrpc":"2.0","method":"notifications/message"}"#;
    sim.inject(key(SERVER), 1, other, &[]);
    assert_eq!(sim.run(LONG).unwrap().2, other);
    let failed = error(&mut sim);
    assert_eq!(sim.now, second(120));
    let words = failed["error"]["message"].as_str().unwrap();
    assert!(
        words.contains("give the request a progressToken"),
        "{words}"
    );
    let after = second(120);
    assert_eq!(
        sim.failed(1),
        Some((Kind::Request, Failure::NoToken { after }))
    );
}

// CEP22-14
#[test]
fn a_client_that_seals_never_falls_back_to_plain_messages() {
    let config = Config::default().with(|config| config.encryption = Encryption::Optional);
    let mut sim = alone(config, None);
    for id in 1..=3 {
        say(&mut sim, &call(id, "x", 1), &format!("t{id}"));
        assert_eq!(error(&mut sim)["id"], id);
    }
    assert!(sim.tape.len() >= 3);
    assert!(sim.tape.iter().all(|seen| seen.seal != Seal::Plain));
}

/// The TypeScript SDK expects the response to a request in chunks only once its relay confirmed the `end`.
// CEP22-22
#[test]
fn the_response_to_a_request_in_chunks_waits_a_moment_after_its_end() {
    let hold = Duration::from_millis(250);
    let hello = vec![vec!["support_oversized_transfer".to_owned()]];
    let large = call(1, &text(0, 60_000), 1);
    let with_token = large.replacen(
        r#""params":{"#,
        r#""params":{"_meta":{"progressToken":"t"},"#,
        1,
    );
    for (chunks, working, held) in [
        (true, Duration::ZERO, hold),
        (true, Duration::from_millis(100), Duration::from_millis(150)),
        (true, hold, Duration::ZERO),
        (false, Duration::ZERO, Duration::ZERO),
    ] {
        let mut sim = Sim::new(1, Weather::CALM, vec![plain()]);
        if chunks {
            for frame in crate::defects::frames("t", &with_token, 30_000, 2) {
                sim.inject(key(1), 0, &frame, &hello);
            }
        } else {
            sim.inject(key(1), 0, &call(1, "x", 1), &hello);
        }
        sim.run(second(1)).unwrap();
        let ended = sim.now;
        sim.now = ended + working;
        let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        let message = Prepared::outgoing(answer.to_owned().into(), None).unwrap();
        let now = sim.time();
        sim.machines[0].send(now, key(1), message).unwrap();
        let asked = sim.now;
        sim.run(asked + second(1));
        let sent = sim.tape.iter().find(|seen| seen.content == answer).unwrap();
        assert_eq!(sent.at - asked, held, "{chunks} {working:?}");
        sim.assert_clean("held");
    }
}

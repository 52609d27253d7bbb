//! Tags, references between events, learning, and which messages may be sent.

use std::collections::BTreeSet;
use std::time::Duration;

use breakbulk_contextvm::{
    Config, Encryption, Event, Kind, Learned, Limits, Prepared, Refused, Seal, SendId, Wraps,
};
use breakbulk_testkit::log::{Level, Log};
use serde_json::Value;

use crate::sim::{Sim, Weather, call, key, reply, text};

pub(crate) const LONG: Duration = Duration::from_secs(10_000);

pub(crate) fn plain() -> Config {
    Config::default().with(|config| config.encryption = Encryption::Disabled)
}

pub(crate) fn pair(server: Config, client: Config) -> Sim {
    Sim::new(1, Weather::CALM, vec![server, client])
}

pub(crate) fn answer(sim: &mut Sim, text: &str) {
    let client = sim.keys[1];
    answer_to(sim, client, text).unwrap();
}

pub(crate) fn answer_to(
    sim: &mut Sim,
    client: breakbulk_contextvm::PublicKey,
    text: &str,
) -> Result<SendId, Refused> {
    let now = sim.time();
    let message = Prepared::outgoing(text.to_owned().into(), None).unwrap();
    sim.machines[0].send(now, client, message)
}

/// A whole exchange: returns the request as the server got it, and the answer as the client did.
pub(crate) fn exchange(sim: &mut Sim, request: &str) -> (String, String) {
    sim.send(1, 0, request);
    let (to, _, heard) = sim.run(LONG).unwrap();
    assert_eq!(to, 0, "{heard}");
    answer(sim, &reply(&heard, 0));
    let (to, _, answer) = sim.run(LONG).unwrap();
    assert_eq!(to, 1, "{answer}");
    (heard, answer)
}

#[test]
fn the_first_event_introduces_and_answers_name_the_request() {
    let mut sim = pair(plain(), plain());
    exchange(&mut sim, &call(1, "x", 1));
    exchange(&mut sim, &call(2, "x", 1));
    let [first, reply1, second, reply2] = &sim.tape[..] else {
        panic!("{:?}", sim.tape);
    };
    let hello = "support_oversized_transfer";
    assert!(first.has_tag(hello) && reply1.has_tag(hello));
    assert!(!second.has_tag(hello) && !reply2.has_tag(hello));
    assert!(!first.has_tag("support_encryption"));
    assert_eq!(first.tags[0], ["p", &sim.keys[0].to_hex()]);
    assert_eq!((first.e(), second.e()), (None, None));
    assert_eq!(reply1.e(), Some(first.id.to_hex().as_str()));
    assert_eq!(reply2.e(), Some(second.id.to_hex().as_str()));
    // A new session of the same client gets the discovery tags again.
    let initialize = r#"{"jsonrpc":"2.0","id":9,"method":"initialize","params":{}}"#;
    sim.send(1, 0, initialize);
    sim.run(LONG).unwrap();
    answer(&mut sim, r#"{"jsonrpc":"2.0","id":9,"result":{}}"#);
    sim.run(LONG).unwrap();
    assert!(sim.tape.last().unwrap().has_tag(hello));
}

#[test]
fn a_large_exchange_with_a_known_server_goes_direct_both_ways() {
    let mut sim = pair(plain(), plain());
    exchange(&mut sim, &call(1, "x", 1));
    let data = text(0, 200_000);
    let (heard, got) = exchange(&mut sim, &call(2, &data, 200_000));
    assert_eq!(got, reply(&heard, 0));
    assert_eq!(
        serde_json::from_str::<Value>(&got).unwrap()["result"]["heard"],
        data.len()
    );
    let kinds = |from: usize| -> Vec<String> {
        let key = sim.keys[from];
        let frames = sim.tape.iter().filter(|seen| seen.from == key);
        frames.filter_map(|seen| seen.frame_type()).collect()
    };
    let upload = kinds(1);
    assert_eq!((upload[0].as_str(), upload[1].as_str()), ("start", "chunk"));
    assert_eq!(upload.last().unwrap(), "end");
    assert!(upload.len() < 10, "{upload:?}");
    let download = kinds(0);
    assert_eq!(download[0], "accept", "every admitted start is accepted");
    assert_eq!(
        (download[1].as_str(), download[2].as_str()),
        ("start", "chunk")
    );
    let find = |from: usize, kind: &str| {
        let key = sim.keys[from];
        let mut frames = sim.tape.iter().filter(move |seen| seen.from == key);
        frames
            .find(|seen| seen.frame_type().as_deref() == Some(kind))
            .unwrap()
    };
    let (start, end) = (find(1, "start").id.to_hex(), find(1, "end").id.to_hex());
    assert_eq!(find(0, "accept").e(), Some(start.as_str()));
    assert!(find(0, "accept").has_tag("support_oversized_transfer"));
    assert_eq!(
        find(0, "start").e(),
        Some(end.as_str()),
        "the answer names the end"
    );
    assert_eq!(find(0, "chunk").e(), Some(end.as_str()));
    let first = sim
        .tape
        .iter()
        .find(|seen| seen.frame_type().as_deref() == Some("chunk"));
    assert!(
        first.unwrap().content.contains(r#""progress":2,"#),
        "direct layout"
    );
    sim.assert_clean("known server");
}

#[test]
fn an_unknown_server_is_asked_before_a_large_upload() {
    let mut sim = pair(plain(), plain());
    let request = call(1, &text(0, 200_000), 1);
    sim.send(1, 0, &request);
    let (_, _, ping) = sim.run(LONG).unwrap();
    let ping: Value = serde_json::from_str(&ping).unwrap();
    assert_eq!(ping["method"], "ping");
    answer(
        &mut sim,
        &format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, ping["id"]),
    );
    let (to, _, heard) = sim.run(LONG).unwrap();
    assert_eq!((to, heard.len() > 200_000), (0, true));
    answer(&mut sim, &reply(&heard, 0));
    let (to, _, got) = sim.run(LONG).unwrap();
    assert_eq!(
        (to, got),
        (1, reply(&heard, 0)),
        "the ping's answer stays inside"
    );
    let learned = sim.news.iter().any(|(_, who, event)| {
        *who == 1 && matches!(event, Event::Learned { learned, .. } if learned.oversized)
    });
    assert!(learned);
    sim.assert_clean("asked");
}

/// A server that speaks several versions of MCP uses the one of the first request.
// PROG-9
#[test]
fn an_unknown_server_is_asked_in_the_version_of_the_request() {
    let meta = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
    let request = call(1, &text(0, 200_000), 1).replacen(
        r#""params":{"#,
        &format!(r#""params":{{"_meta":{meta},"#),
        1,
    );
    let mut sim = pair(plain(), plain());
    sim.send(1, 0, &request);
    let (_, _, asked) = sim.run(LONG).unwrap();
    let asked: Value = serde_json::from_str(&asked).unwrap();
    assert_eq!(asked["method"], "server/discover");
    assert_eq!(asked["params"]["_meta"].to_string(), meta);
    answer(
        &mut sim,
        &format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, asked["id"]),
    );
    let (to, _, heard) = sim.run(LONG).unwrap();
    assert_eq!((to, heard.len() > 200_000), (0, true));
}

#[test]
fn what_was_learned_before_saves_the_question() {
    let learned = Learned {
        oversized: true,
        ..Learned::default()
    };
    let mut sim = pair(plain(), plain());
    sim.restart_client(1, plain(), Some(learned));
    exchange(&mut sim, &call(1, &text(0, 100_000), 1));
    assert!(!sim.tape.iter().any(|seen| seen.content.contains("ping")));
}

// CEP22-6
#[test]
fn frames_go_up_as_progress_under_the_applications_token() {
    let mut sim = pair(plain(), plain());
    exchange(&mut sim, &call(1, "x", 1));
    let request = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"arguments":{"answer":200000,"data":""},"_meta":{"progressToken":42}}}"#;
    sim.send(1, 0, request);
    let (_, _, heard) = sim.run(LONG).unwrap();
    let token = serde_json::from_str::<Value>(&heard).unwrap()["params"]["_meta"]["progressToken"]
        .as_str()
        .unwrap()
        .to_owned();
    let client = sim.keys[1];
    let progress = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":"{token}","progress":0.5,"total":1,"message":"half"}}}}"#
    );
    answer_to(&mut sim, client, &progress).unwrap();
    let (to, _, up) = sim.run(LONG).unwrap();
    assert_eq!(
        (to, up.as_str()),
        (
            1,
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":42,"progress":0.5,"total":1,"message":"half"}}"#
        )
    );
    let carried = sim.tape.last().unwrap();
    assert!(carried.e().is_some(), "progress names its request");
    answer(&mut sim, &reply(&heard, 0));
    let (mut last, mut count) = (0.5, 0);
    loop {
        let (_, _, up) = sim.run(LONG).unwrap();
        let up: Value = serde_json::from_str(&up).unwrap();
        if up["result"].is_object() {
            break;
        }
        assert_eq!(up["params"]["progressToken"], 42);
        assert!(up["params"].get("cvm").is_none());
        let now = up["params"]["progress"].as_f64().unwrap();
        assert!(now > last, "{now} after {last}");
        (last, count) = (now, count + 1);
    }
    assert!(count >= 4, "{count}");
    sim.assert_clean("progress");
}

/// The server's own progress passes unchanged, whatever was reported of the upload before.
// CEP22-6
#[test]
fn a_servers_progress_passes_unchanged() {
    for upload in [1, 200_000] {
        let mut sim = pair(plain(), plain());
        exchange(&mut sim, &call(1, "x", 1));
        let request = format!(
            r#"{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{{"arguments":{{"answer":1,"data":"{}"}},"_meta":{{"progressToken":"mine"}}}}}}"#,
            "x".repeat(upload)
        );
        sim.send(1, 0, &request);
        let (mut last, mut sent) = (f64::NEG_INFINITY, 0);
        let heard = loop {
            let (to, _, text) = sim.run(LONG).unwrap();
            if to == 0 {
                break text;
            }
            let up: Value = serde_json::from_str(&text).unwrap();
            let value = up["params"]["progress"].as_f64().unwrap();
            assert!(last < value && value < 0.0, "{text} after {last}");
            (last, sent) = (value, sent + 1);
        };
        assert_eq!(sent > 2, upload > 1, "{sent}");
        let heard: Value = serde_json::from_str(&heard).unwrap();
        let token = &heard["params"]["_meta"]["progressToken"];
        for rest in [
            r#""progress":0,"total":3"#,
            r#""progress":1,"total":3,"message":"é \u0041""#,
            r#""progress":2.50,"total":3.0"#,
            r#""progress":2.50,"total":3.0"#,
            r#""progress":3,"_meta":{"a":[1, 2]}"#,
        ] {
            let with = |token: &str| {
                format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},{rest}}}}}"#
                )
            };
            answer_to(&mut sim, key(1), &with(&token.to_string())).unwrap();
            let (to, _, up) = sim.run(LONG).unwrap();
            // The last progress of the upload may come before it.
            let (to, up) = match up.contains("bytes\"") {
                true => sim.run(LONG).map(|(to, _, up)| (to, up)).unwrap(),
                false => (to, up),
            };
            assert_eq!((to, up), (1, with(r#""mine""#)));
        }
    }
}

// CEP22-2
#[test]
fn without_a_token_or_support_one_event_up_to_the_cap_else_an_error() {
    // This client is scripted and announces no support for chunks.
    let mut sim = Sim::new(1, Weather::CALM, vec![plain()]);
    let client = key(5);
    let ask = |sim: &mut Sim, id: u64, token: bool, size: usize| {
        let meta = if token {
            r#","_meta":{"progressToken":7}"#
        } else {
            ""
        };
        let request = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"m","params":{{"arguments":{{"answer":{size},"data":""}}{meta}}}}}"#
        );
        let event = sim.inject(client, 0, &request, &[]);
        let (_, from, heard) = sim.run(LONG).unwrap();
        answer_to(sim, from, &reply(&heard, 0)).unwrap();
        assert!(sim.run(sim.now + Duration::from_secs(1)).is_none());
        let answer = sim.tape.last().unwrap().clone();
        assert_eq!(answer.e(), Some(event.to_hex().as_str()));
        answer
    };
    for (id, token) in [(1, false), (2, true)] {
        let fits = ask(&mut sim, id, token, 55_000);
        assert!(
            fits.content.contains(r#""heard":0"#),
            "between the two sizes it goes out whole"
        );
        let too_large = ask(&mut sim, id, token, 100_000);
        assert!(
            too_large.content.contains("messageTooLarge"),
            "{}",
            too_large.content
        );
        let (kind, failure) = sim.failed(0).unwrap();
        assert_eq!(
            (kind, failure.reason()),
            (Kind::Response, "messageTooLarge")
        );
        sim.news.clear();
    }
}

#[test]
fn an_answer_to_an_older_request_is_not_taken_for_this_one() {
    let log = Log::capture();
    let mut sim = pair(plain(), plain());
    sim.send(1, 0, &call(1, "x", 1));
    sim.run(LONG).unwrap();
    let stale = vec!["e".to_owned(), "ab".repeat(32)];
    let text = r#"{"jsonrpc":"2.0","id":1,"result":"stale"}"#;
    sim.inject(key(0), 1, text, &[stale]);
    assert!(sim.run(sim.now + Duration::from_secs(1)).is_none());
    log.assert_line(Level::DEBUG, &["response dropped", "id=1"]);
    log.assert_quiet();
    // Without a reference the id decides; a response from another key is ignored.
    sim.inject(key(9), 1, text, &[]);
    assert!(sim.run(sim.now + Duration::from_secs(1)).is_none());
    sim.inject(key(0), 1, text, &[]);
    assert_eq!(sim.run(LONG).unwrap().2, text);
}

// CEP22-13, CEP22-23
#[test]
fn sealed_and_bare() {
    let config = |encryption, wraps| {
        Config::default().with(|config| {
            config.encryption = encryption;
            config.wraps = wraps;
        })
    };
    use Encryption::{Disabled, Optional, Required};
    // (server, client, form of the first request, form of the second)
    for (server, client, wraps, first, second) in [
        (Optional, Disabled, Wraps::Any, Seal::Plain, Seal::Plain),
        (
            Optional,
            Optional,
            Wraps::Any,
            Seal::Persistent,
            Seal::Ephemeral,
        ),
        (
            Optional,
            Required,
            Wraps::Persistent,
            Seal::Persistent,
            Seal::Persistent,
        ),
        (
            Required,
            Optional,
            Wraps::Ephemeral,
            Seal::Ephemeral,
            Seal::Ephemeral,
        ),
        (
            Required,
            Required,
            Wraps::Any,
            Seal::Persistent,
            Seal::Ephemeral,
        ),
    ] {
        let mut sim = pair(config(server, Wraps::Any), config(client, wraps));
        exchange(&mut sim, &call(1, "x", 1));
        exchange(&mut sim, &call(2, &text(1, 100_000), 100_000));
        let seals: Vec<Seal> = sim.tape.iter().map(|seen| seen.seal).collect();
        assert_eq!(seals[..2], [first, first], "{server:?} {client:?}");
        assert!(seals[2..].iter().all(|seal| *seal == second), "{seals:?}");
        sim.assert_clean("seals");
    }
    // An unencrypted request to a server that requires encryption is answered with an error.
    let mut sim = pair(config(Required, Wraps::Any), config(Disabled, Wraps::Any));
    sim.send(1, 0, &call(1, "x", 1));
    let (to, _, error) = sim.run(LONG).unwrap();
    assert_eq!(to, 1);
    assert!(error.contains("encryptionRequired"), "{error}");
    // So is an encrypted one to a server that disables encryption.
    let mut sim = pair(config(Disabled, Wraps::Any), config(Required, Wraps::Any));
    sim.send(1, 0, &call(1, "x", 1));
    let (to, _, error) = sim.run(LONG).unwrap();
    assert_eq!(to, 1);
    assert!(error.contains("encryptionDisabled"), "{error}");
    // A client that requires encryption ignores an unencrypted answer.
    let mut sim = pair(config(Optional, Wraps::Any), config(Required, Wraps::Any));
    sim.send(1, 0, &call(1, "x", 1));
    sim.run(LONG).unwrap();
    sim.inject(key(0), 1, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, &[]);
    assert!(sim.run(sim.now + Duration::from_secs(1)).is_none());
}

// CEP22-23
#[test]
fn only_those_on_the_list_are_heard() {
    let mut server = plain();
    server.allowed = Some(BTreeSet::from([key(1)]));
    let mut sim = Sim::new(1, Weather::CALM, vec![server, plain(), plain()]);
    exchange(&mut sim, &call(1, "x", 1));
    // Other keys get an error, once a second, and take no place in the table.
    let mut answers = 0;
    for id in 1..=6 {
        sim.send(2, 0, &call(id, "x", 1));
        if let Some((to, _, error)) = sim.run(sim.now + Duration::from_millis(300)) {
            assert_eq!(to, 2);
            assert!(error.contains(r#""reason":"notAllowed""#), "{error}");
            assert!(error.contains(&key(2).to_hex()), "{error}");
            answers += 1;
        }
    }
    assert_eq!(answers, 2);
    assert_eq!(sim.machines[0].stats().peers, 1);
}

#[test]
fn limits_on_requests_are_told() {
    let log = Log::capture();
    let mut server = plain();
    server.limits = Limits::default().with(|limits| limits.requests = 2);
    let mut sim = pair(server, plain());
    for id in 1..=3 {
        sim.send(1, 0, &call(id, "x", 1));
    }
    let mut heard = 0;
    loop {
        let (to, _, message) = sim.run(LONG).unwrap();
        if to == 1 {
            assert!(message.contains(r#""reason":"busy""#), "{message}");
            assert!(message.contains(r#""code":-32000"#), "{message}");
            break;
        }
        heard += 1;
    }
    assert_eq!(heard, 2);
    // Only the client is told.
    log.assert_quiet();
    // A second request with the id of an open one is refused.
    let twice = Prepared::outgoing(call(1, "x", 1).into(), Some("t2")).unwrap();
    let now = sim.time();
    assert_eq!(
        sim.machines[1].send(now, key(0), twice),
        Err(Refused::IdInUse("1".to_owned()))
    );
}

//! How many events a message takes, and that no event is too large.

use std::time::Duration;

use breakbulk_contextvm::{Config, Encryption, Event, Kind, Learned, Prepared, Seal};

use crate::sim::{Sim, Weather, call, key, reply, text};

const LONG: Duration = Duration::from_secs(10_000);

fn upload(
    encryption: Encryption,
    event_max: usize,
    cut_above: usize,
    kind: u64,
    size: usize,
) -> Sim {
    let config = Config::default().with(|config| {
        config.encryption = encryption;
        config.event_max = event_max;
        config.cut_above = cut_above;
        config.plan_elsewhere = None;
        config.introduction = vec![vec!["name".to_owned(), "a \"long\" name".repeat(8)]];
    });
    let weather = Weather {
        event_max,
        ..Weather::CALM
    };
    let mut sim = Sim::new(3, weather, vec![config.clone(), config.clone()]);
    let learned = Learned {
        oversized: true,
        encryption: true,
        ephemeral: true,
        streams: false,
    };
    sim.restart_client(1, config, Some(learned));
    let request = call(1, &text(kind, size), size);
    sim.send(1, 0, &request);
    let (_, _, heard) = sim.run(LONG).unwrap();
    let answer = Prepared::outgoing(reply(&heard, kind).into(), None).unwrap();
    let now = sim.time();
    sim.machines[0].send(now, key(1), answer).unwrap();
    let (to, _, got) = sim.run(LONG).unwrap();
    assert!(
        to == 1 && got == reply(&heard, kind),
        "{}",
        &got[..got.len().min(300)]
    );
    sim.assert_clean("sizes");
    sim
}

/// The simulated relay refuses an event that is too large, which would lead to an abort.
#[test]
fn no_event_is_over_the_cap_and_no_seal_over_its_own_limit() {
    for encryption in [Encryption::Disabled, Encryption::Required] {
        for kind in 0..4 {
            for (event_max, cut_above) in [
                (65_536, 48_000),
                (65_536, 65_536),
                (1 << 20, 1 << 20),
                (16_000, 48_000),
                (4_000, 3_000),
            ] {
                let sim = upload(encryption, event_max, cut_above, kind, 300_000);
                let aborts = sim
                    .tape
                    .iter()
                    .filter(|seen| seen.frame_type().as_deref() == Some("abort"));
                assert_eq!(aborts.count(), 0, "{encryption:?} {kind} {event_max}");
                let sealed = encryption != Encryption::Disabled;
                assert!(
                    sim.tape
                        .iter()
                        .all(|seen| (seen.seal != Seal::Plain) == sealed)
                );
            }
        }
    }
}

#[test]
fn ascii_takes_a_quarter_of_the_events_that_fixed_chunks_would() {
    let size = 5 << 20;
    let sim = upload(Encryption::Disabled, 65_536, 48_000, 0, size);
    let chunks = |from: usize| {
        let key = sim.keys[from];
        let frames = sim.tape.iter().filter(|seen| seen.from == key);
        frames
            .filter(|seen| seen.frame_type().as_deref() == Some("chunk"))
            .count()
    };
    let fixed = size.div_ceil(11_800);
    for (way, chunks) in [("up", chunks(1)), ("down", chunks(0))] {
        println!("{way}: {chunks} chunks where chunks of 11,800 bytes would be {fixed}");
        assert!(chunks * 3 <= fixed, "{way}: {chunks} of {fixed}");
    }
}

#[test]
fn what_no_seal_holds_is_refused_with_its_own_size() {
    let config = Config::default().with(|config| config.encryption = Encryption::Required);
    let mut sim = Sim::new(1, Weather::CALM, vec![config.clone(), config]);
    let note = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"data":"{}"}}}}"#,
        text(0, 100_000)
    );
    sim.send(1, 0, &note);
    assert!(sim.run(Duration::from_secs(60)).is_none());
    let told = sim.news.iter().find_map(|(_, _, event)| match event {
        Event::Failed { failure, .. } => Some(failure.to_string()),
        _ => None,
    });
    let expected = format!("frame of {} bytes exceeds the cap of 65536", note.len());
    assert!(
        told.as_ref().is_some_and(|told| told.contains(&expected)),
        "{told:?}"
    );
}

/// The limit of CEP-22 for a receiver that announced none, in both directions.
#[test]
fn a_message_over_100_mib_is_refused_before_it_is_sent() {
    let plain = || Config::default().with(|config| config.encryption = Encryption::Disabled);
    let learned = Learned {
        oversized: true,
        ..Learned::default()
    };
    let mut sim = Sim::new(1, Weather::CALM, vec![plain(), plain()]);
    sim.restart_client(1, plain(), Some(learned));
    let limit = 100 << 20;
    // A request: the application gets the error.
    sim.send(1, 0, &call(1, &"x".repeat(limit), 1));
    let (to, _, request_error) = sim.run(Duration::from_secs(60)).unwrap();
    assert_eq!(to, 1);
    let (kind, failure) = sim.failed(1).unwrap();
    assert_eq!((kind, failure.reason()), (Kind::Request, "messageTooLarge"));
    // A response: the client gets an error in its place.
    sim.send(1, 0, &call(2, "x", 1));
    sim.run(Duration::from_secs(60)).unwrap();
    let large = format!(
        r#"{{"jsonrpc":"2.0","id":2,"result":"{}"}}"#,
        "x".repeat(limit)
    );
    let message = Prepared::outgoing(large.into(), None).unwrap();
    let now = sim.time();
    sim.machines[0].send(now, key(1), message).unwrap();
    let (to, _, response_error) = sim.run(Duration::from_secs(60)).unwrap();
    assert_eq!(to, 1);
    let (kind, failure) = sim.failed(0).unwrap();
    assert_eq!(
        (kind, failure.reason()),
        (Kind::Response, "messageTooLarge")
    );
    for (id, error) in [(1, request_error), (2, response_error)] {
        let error: serde_json::Value = serde_json::from_str(&error).unwrap();
        assert_eq!(error["id"], id, "{error}");
        assert_eq!(error["error"]["code"], -32011, "{error}");
        assert_eq!(error["error"]["data"]["reason"], "messageTooLarge");
        let words = error["error"]["message"].as_str().unwrap();
        assert!(words.contains(&limit.to_string()), "{words}");
    }
    // No frame of either was sent.
    assert!(sim.tape.iter().all(|seen| seen.frame_type().is_none()));
    sim.assert_clean("over 100 MiB");
}

/// 24 MB each way over 1.5 Mbit/s, plain and encrypted: no timeout mistakes a slow path for a dead one.
#[test]
fn twenty_four_megabytes_arrive_over_a_slow_path_both_ways() {
    const SIZE: usize = 24_000_000;
    for encryption in [Encryption::Disabled, Encryption::Required] {
        let config = Config::default().with(|config| {
            config.encryption = encryption;
            config.plan_elsewhere = None;
        });
        let weather = Weather {
            pace: Some(187_500),
            delay: Duration::from_millis(60),
            ..Weather::CALM
        };
        let mut sim = Sim::new(3, weather, vec![config.clone(), config.clone()]);
        let learned = Learned {
            oversized: true,
            encryption: true,
            ephemeral: true,
            streams: false,
        };
        sim.restart_client(1, config, Some(learned));
        sim.send(1, 0, &call(1, &text(0, SIZE), SIZE));
        let heard = sim.run(LONG);
        let (_, _, heard) = heard.unwrap_or_else(|| panic!("{encryption:?}: {:?}", sim.news));
        let uploaded = sim.now;
        let answer = reply(&heard, 0);
        let message = Prepared::outgoing(answer.clone().into(), None).unwrap();
        let now = sim.time();
        sim.machines[0].send(now, key(1), message).unwrap();
        let got = sim.run(LONG);
        let (to, _, got) = got.unwrap_or_else(|| panic!("{encryption:?}: {:?}", sim.news));
        println!("{encryption:?}: {uploaded:?} there, {:?} in all", sim.now);
        assert!(
            to == 1 && got == answer,
            "{encryption:?}: not byte for byte"
        );
        assert!(uploaded > Duration::from_secs(128), "{uploaded:?}");
        sim.assert_clean("slow");
    }
}

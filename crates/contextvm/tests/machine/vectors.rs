//! Recorded sessions of the real SDK, with our machine in place of either end. `cargo xtask vectors`
//! compares the frames themselves byte for byte, with the recorded chunk sizes.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use breakbulk_contextvm::{
    Arrival, Config, Encryption, Event, EventId, Learned, Machine, Prepared, PublicKey, Publish,
    Role, Seal, Wraps,
};
use breakbulk_link::Sent;
use serde_json::Value;

struct Recorded {
    from_client: bool,
    arrival: Arrival,
    text: String,
}

struct Session {
    name: String,
    server: PublicKey,
    client: PublicKey,
    events: Vec<Recorded>,
    /// Whole messages that were sent in chunks: (to the server, token, message).
    transfers: Vec<(bool, String, String)>,
    /// Where each client process begins.
    begins: Vec<usize>,
    config: Config,
}

fn sessions() -> Vec<Session> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/cep22");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    let sessions: Vec<Session> = files
        .iter()
        .map(|file| {
            let value: Value =
                serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
            session(&value)
        })
        .collect();
    assert!(sessions.len() >= 7, "the recordings are gone");
    sessions
}

fn session(value: &Value) -> Session {
    let key = |name: &str| PublicKey::from_hex(value[name].as_str().unwrap()).unwrap();
    let (server, client) = (key("server_pubkey"), key("client_pubkey"));
    let sealed = value["server_args"]
        .as_array()
        .unwrap()
        .iter()
        .any(|arg| arg == "required");
    let events = value["events"].as_array().unwrap().iter().map(|event| {
        let from_client = event["from"] == "client";
        let tags = event.get("inner_tags").or(event.get("tags")).unwrap();
        let id = event.get("inner_id").or(event.get("id")).unwrap();
        let text = event["content"].as_str().unwrap().to_owned();
        Recorded {
            from_client,
            arrival: Arrival {
                from: if from_client { client } else { server },
                id: EventId::from_hex(id.as_str().unwrap()).unwrap(),
                tags: serde_json::from_value(tags.clone()).unwrap(),
                content: text.clone().into(),
                seal: Seal::of_kind(event["kind"].as_u64().unwrap() as u16).unwrap(),
                created_at: 1_700_000_000,
                received_at: 1_700_000_000,
            },
            text,
        }
    });
    let transfers = value["transfers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|transfer| {
            let text = |name: &str| transfer[name].as_str().unwrap().to_owned();
            (
                text("direction") == "client->server",
                text("token"),
                text("message"),
            )
        });
    let clients = value["clients"].as_array().unwrap();
    Session {
        name: value["name"].as_str().unwrap().to_owned(),
        server,
        client,
        events: events.collect(),
        transfers: transfers.collect(),
        begins: clients
            .iter()
            .map(|client| client["first_event"].as_u64().unwrap() as usize)
            .collect(),
        config: Config::default().with(|config| {
            config.encryption = if sealed {
                Encryption::Required
            } else {
                Encryption::Disabled
            };
            config.wraps = Wraps::Persistent;
            // The recorded servers answer at once.
            config.timeouts.hold_response = Duration::ZERO;

            // One recorded answer is a single event of 100 KB.
            config.event_max = 200_000;
            config.plan_elsewhere = None;
        }),
    }
}

fn frame_type(text: &str) -> Option<String> {
    let frame: Value = serde_json::from_str(text).ok()?;
    Some(frame["params"]["cvm"]["frameType"].as_str()?.to_owned())
}

/// The part of a frame that does not depend on how the message is cut.
fn essence(text: &str) -> Option<String> {
    let frame: Value = serde_json::from_str(text).unwrap();
    let cvm = &frame["params"]["cvm"];
    match frame_type(text).as_deref() {
        None => Some(text.to_owned()),
        Some("start") => Some(format!("start {} {}", cvm["digest"], cvm["totalBytes"])),
        Some("end") => Some("end".to_owned()),
        _ => None,
    }
}

/// All events that a machine publishes, with the ids of `sign`, each confirmed at once.
fn publishes(
    machine: &mut Machine,
    now: Instant,
    mut sign: impl FnMut(&Publish) -> EventId,
) -> Vec<Publish> {
    let mut all = Vec::new();
    while let Some(publish) = machine.poll_publish(now) {
        let id = sign(&publish);
        machine.handle_signed(publish.id, id);
        machine.handle_sent(now, publish.id, Sent::Ok);
        all.push(publish);
    }
    all
}

fn fresh(count: &mut u8) -> EventId {
    *count += 1;
    EventId::from_byte_array([*count; 32])
}

/// Our server in place of the real one: it gets the same messages, and responds with the same tags.
#[test]
fn our_server_in_recorded_sessions() {
    for session in sessions() {
        let name = &session.name;
        let mut config = session.config.clone();
        config.introduction = vec![vec!["name".to_owned(), "cvm-peer-server".to_owned()]];
        // The recorded servers cut at other sizes.
        let small = session
            .transfers
            .iter()
            .filter(|(up, ..)| !up)
            .map(|(.., text)| text.len())
            .min();
        config.cut_above = small.map_or(48_000, |len| (len / 2).clamp(2_400, 48_000));
        let now = Instant::now();
        let mut machine = Machine::new(Role::Server, config, None, [1; 32], now);
        let theirs = session.events.iter().filter(|event| !event.from_client);
        let mut answers: VecDeque<String> = theirs
            .clone()
            .filter(|event| frame_type(&event.text).is_none())
            .map(|event| event.text.clone())
            .chain(
                session
                    .transfers
                    .iter()
                    .filter(|(up, ..)| !up)
                    .map(|(.., text)| text.clone()),
            )
            .collect();
        let mut heard = Vec::new();
        let (mut ours, mut count) = (Vec::new(), 0);
        for event in session.events.iter().filter(|event| event.from_client) {
            machine.handle_event(now, event.arrival.clone());
            ours.extend(publishes(&mut machine, now, |_| fresh(&mut count)));
            while let Some(event) = machine.poll_event() {
                let Event::Message(message) = event else {
                    assert!(
                        !matches!(event, Event::TransferFailed { .. }),
                        "{name}: {event:?}"
                    );
                    continue;
                };
                let text = String::from_utf8(message.bytes.to_vec()).unwrap();
                let id = serde_json::from_str::<Value>(&text).unwrap()["id"].clone();
                heard.push(text);
                let answer = answers.iter().position(|answer| {
                    !id.is_null() && serde_json::from_str::<Value>(answer).unwrap()["id"] == id
                });
                if let Some(answer) = answer {
                    let answer = answers.remove(answer).unwrap();
                    let answer = Prepared::outgoing(answer.into(), None).unwrap();
                    machine.send(now, session.client, answer).unwrap();
                    ours.extend(publishes(&mut machine, now, |_| fresh(&mut count)));
                }
            }
        }
        assert!(answers.is_empty(), "{name}: {answers:?}");
        for (_, _, message) in session.transfers.iter().filter(|(up, ..)| *up) {
            assert!(heard.contains(message), "{name}: an upload was not heard");
        }
        let said = |text: &str, tags: &[Vec<String>]| Some((essence(text)?, tags.to_vec()));
        let ours_said: Vec<_> = ours
            .iter()
            .filter_map(|publish| said(&publish.content, &publish.tags))
            .collect();
        let theirs_said: Vec<_> = theirs
            .clone()
            .filter_map(|event| said(&event.text, &event.arrival.tags))
            .collect();
        assert_eq!(ours_said, theirs_said, "{name}");
        // Chunks have the tags of their start, and every upload is answered with `accept`.
        let mut current = Vec::new();
        for publish in &ours {
            match frame_type(&publish.content).as_deref() {
                Some("start") => current = publish.tags.clone(),
                Some("chunk") => assert_eq!(publish.tags, current, "{name}"),
                _ => {}
            }
            assert_eq!(publish.seal, session.events[0].arrival.seal, "{name}");
        }
        let accepts: Vec<_> = ours
            .iter()
            .filter(|publish| frame_type(&publish.content).as_deref() == Some("accept"))
            .collect();
        assert_eq!(
            accepts.len(),
            session.transfers.iter().filter(|(up, ..)| *up).count(),
            "{name}"
        );
        // The recorded `accept` has no `e` tag; apart from that the tags are the same.
        if let Some(theirs) = theirs
            .clone()
            .find(|event| frame_type(&event.text).as_deref() == Some("accept"))
        {
            let mut tags = accepts[0].tags.clone();
            assert_eq!(tags.remove(1)[0], "e", "{name}");
            assert_eq!(
                (&tags, &accepts[0].content),
                (&theirs.arrival.tags, &theirs.text),
                "{name}"
            );
        }
    }
}

/// Our client in place of the real one: it receives the recorded answers and delivers the same messages.
#[test]
fn our_client_in_recorded_sessions() {
    for session in sessions() {
        let name = &session.name;
        for (number, begin) in session.begins.iter().enumerate() {
            let end = session
                .begins
                .get(number + 1)
                .copied()
                .unwrap_or(session.events.len());
            let events = &session.events[*begin..end];
            let now = Instant::now();
            let mut config = session.config.clone();
            // The recorded client does not wait for `accept`, and cuts at other sizes.
            config.unasked = true;
            let uploads: Vec<_> = session.transfers.iter().filter(|(up, ..)| *up).collect();
            if let Some((.., text)) = uploads.first() {
                config.cut_above = (text.len() / 2).clamp(2_400, 48_000);
            }
            let role = Role::Client {
                server: session.server,
            };
            let learned: Option<Learned> = None;
            let mut machine = Machine::new(role, config, learned, [2; 32], now);
            let mut expected: Vec<String> = events
                .iter()
                .filter(|event| !event.from_client && frame_type(&event.text).is_none())
                .map(|event| event.text.clone())
                .collect();
            let downloads = session.transfers.iter().filter(|(up, ..)| !up);
            expected.extend(downloads.map(|(.., text)| text.clone()));
            let mut got = Vec::new();
            let mut ours = Vec::new();
            for event in events {
                let kind = frame_type(&event.text);
                match (event.from_client, kind.as_deref()) {
                    // An upload is sent at its recorded start; its start and end get the recorded ids.
                    (true, Some("start")) => {
                        let (_, _, message) = uploads[number.min(uploads.len() - 1)];
                        let last = events
                            .iter()
                            .find(|event| frame_type(&event.text).as_deref() == Some("end"))
                            .unwrap()
                            .arrival
                            .id;
                        let message = Prepared::outgoing(message.clone().into(), None).unwrap();
                        machine.send(now, session.server, message).unwrap();
                        let first = event.arrival.id;
                        ours.extend(publishes(&mut machine, now, |publish| {
                            match frame_type(&publish.content).as_deref() {
                                Some("end") => last,
                                Some("start") => first,
                                _ => EventId::from_byte_array([7; 32]),
                            }
                        }));
                    }
                    (true, Some(_)) => {}
                    (true, None) => {
                        let message = Prepared::outgoing(event.text.clone().into(), None).unwrap();
                        machine.send(now, session.server, message).unwrap();
                        ours.extend(publishes(&mut machine, now, |_| event.arrival.id));
                    }
                    (false, _) => {
                        machine.handle_event(now, event.arrival.clone());
                    }
                }
                while let Some(event) = machine.poll_event() {
                    match event {
                        Event::Message(message) => {
                            let text = String::from_utf8(message.bytes.to_vec()).unwrap();
                            if !text.contains("notifications/progress") {
                                got.push(text);
                            }
                        }
                        Event::Failed { .. } | Event::TransferFailed { .. } => {
                            panic!("{name}: {event:?}")
                        }
                        _ => {}
                    }
                }
            }
            assert_eq!(got, expected, "{name}");
            let said = |text: &str, tags: &[Vec<String>]| Some((essence(text)?, tags.to_vec()));
            let ours: Vec<_> = ours
                .iter()
                .filter_map(|publish| said(&publish.content, &publish.tags))
                .collect();
            let theirs = events.iter().filter(|event| event.from_client);
            let theirs: Vec<_> = theirs
                .filter_map(|event| said(&event.text, &event.arrival.tags))
                .collect();
            assert_eq!(ours, theirs, "{name}");
            let stats = machine.stats();
            assert_eq!(
                (stats.memory, stats.asked, stats.transfers),
                (0, 0, 0),
                "{name}"
            );
            assert_eq!(machine.poll_timeout(), None, "{name}");
            let _ = Duration::ZERO;
        }
    }
}

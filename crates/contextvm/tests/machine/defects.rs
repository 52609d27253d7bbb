//! Known defects of existing implementations, played by scripted peers.

use std::time::Duration;

use breakbulk_contextvm::{Config, Encryption, EventId, Prepared, PublicKey};
use sha2::{Digest, Sha256};

use crate::sim::{Seen, Sim, Weather, call, key, reply, text};

const LONG: Duration = Duration::from_secs(10_000);

fn plain() -> Config {
    Config::default().with(|config| config.encryption = Encryption::Disabled)
}

fn frame(token: &str, progress: u64, kind: &str, rest: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":"{token}","progress":{progress},"cvm":{{"type":"oversized-transfer","frameType":"{kind}"{rest}}}}}}}"#
    )
}

/// The frames of a message in chunks of `size` characters, the first of them with this number.
pub(crate) fn frames(token: &str, message: &str, size: usize, first: u64) -> Vec<String> {
    let chars: Vec<char> = message.chars().collect();
    let chunks: Vec<String> = chars
        .chunks(size)
        .map(|chunk| chunk.iter().collect())
        .collect();
    let digest: String = Sha256::digest(message.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let mut all = vec![frame(
        token,
        1,
        "start",
        &format!(
            r#","completionMode":"render","digest":"sha256:{digest}","totalBytes":{},"totalChunks":{}"#,
            message.len(),
            chunks.len()
        ),
    )];
    for (chunk, number) in chunks.iter().zip(first..) {
        let data = serde_json::Value::from(chunk.as_str());
        all.push(frame(token, number, "chunk", &format!(r#","data":{data}"#)));
    }
    all.push(frame(token, first + chunks.len() as u64, "end", ""));
    all
}

/// 1. A client that never waits for `accept`: its chunks have later numbers, and come before our `accept`.
#[test]
fn a_client_that_does_not_wait_for_leave() {
    let mut sim = Sim::new(1, Weather::CALM, vec![plain()]);
    let message = call(1, &text(1, 90_000), 1);
    let hello = vec![vec!["support_oversized_transfer".to_owned()]];
    let mut last = None;
    for (number, frame) in frames("1", &message, 9_000, 3).iter().enumerate() {
        // The client sends all frames without reading ours.
        last = Some(sim.inject(key(1), 0, frame, if number == 0 { &hello } else { &[] }));
    }
    let (_, from, heard) = sim.run(LONG).unwrap();
    assert_eq!((from, heard), (key(1), message.clone()));
    let answer = Prepared::outgoing(reply(&message, 0).into(), None).unwrap();
    let now = sim.time();
    sim.machines[0].send(now, key(1), answer).unwrap();
    sim.run(sim.now + Duration::from_secs(1));
    assert_eq!(
        sim.tape.last().unwrap().e(),
        last.map(|event: EventId| event.to_hex()).as_deref()
    );
}

/// A scripted server: what it remembers of the frames of clients.
#[derive(Default)]
struct RealServer {
    /// Transfers by token alone, as this server mixes up clients: (sender, chunks that came, text).
    open: std::collections::BTreeMap<String, (PublicKey, u64, String)>,
    introduced: bool,
    /// The server sends nothing to clients that it knows: no `accept`, no discovery tags.
    knows_us: bool,
    failed: Vec<String>,
    /// Assembled messages.
    whole: Vec<(PublicKey, String)>,
}

impl RealServer {
    /// Handles an event of a client; returns what the server publishes to it: (text, tags).
    fn take(&mut self, seen: &Seen) -> Vec<(String, Vec<Vec<String>>)> {
        let hello = vec!["support_oversized_transfer".to_owned()];
        let introduce = |introduced: &mut bool, knows_us: bool| {
            if knows_us || std::mem::replace(introduced, true) {
                vec![]
            } else {
                vec![hello.clone()]
            }
        };
        let value: serde_json::Value = serde_json::from_str(&seen.content).unwrap();
        let e = vec!["e".to_owned(), seen.id.to_hex()];
        let Some(kind) = seen.frame_type() else {
            if value["id"].is_null() {
                return Vec::new();
            }
            let mut tags = vec![e];
            tags.extend(introduce(&mut self.introduced, self.knows_us));
            return vec![(
                format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, value["id"]),
                tags,
            )];
        };
        let (token, progress) = (
            seen.token().unwrap(),
            value["params"]["progress"].as_u64().unwrap(),
        );
        match kind.as_str() {
            "start" => {
                if self.open.contains_key(&token) {
                    self.failed.push(format!("{token} is in use"));
                    return Vec::new();
                }
                self.open
                    .insert(token.clone(), (seen.from, 0, String::new()));
                let tags = introduce(&mut self.introduced, self.knows_us);
                if tags.is_empty() {
                    return Vec::new();
                }
                vec![(frame(&token, 2, "accept", ""), tags)]
            }
            "chunk" => {
                let Some((from, count, data)) = self.open.get_mut(&token) else {
                    return Vec::new();
                };
                if *from != seen.from {
                    self.failed.push(format!("{token} mixes two clients"));
                }
                // Defect 2: it counts wrongly, so chunks numbered after an `accept` exceed the window.
                if progress == 3 && *count == 0 {
                    *count = 1_000;
                }
                *count += 1;
                if *count > 1_021 {
                    self.failed.push("gap 22 exceeds limit 21".to_owned());
                }
                data.push_str(value["params"]["cvm"]["data"].as_str().unwrap());
                Vec::new()
            }
            "end" => {
                let Some((from, _, data)) = self.open.remove(&token) else {
                    return Vec::new();
                };
                let request: serde_json::Value = serde_json::from_str(&data).unwrap();
                self.whole.push((from, data));
                vec![(
                    format!(
                        r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#,
                        request["id"]
                    ),
                    vec![e],
                )]
            }
            _ => Vec::new(),
        }
    }
}

/// Runs our clients against such a server until nothing more happens.
fn against(server: &mut RealServer, sim: &mut Sim) -> Vec<(usize, String)> {
    // No machine has the server's key: events to it are only recorded.
    let place = std::mem::replace(&mut sim.keys[0], key(99));
    let (mut read, mut got) = (sim.tape.len(), Vec::new());
    loop {
        let message = sim.run(sim.now + Duration::from_secs(1));
        if let Some((to, _, text)) = message {
            got.push((to, text));
            continue;
        }
        let said: Vec<Seen> = sim.tape[read..].to_vec();
        read = sim.tape.len();
        if said.is_empty() {
            break;
        }
        for seen in said.iter().filter(|seen| seen.to == place) {
            let client = sim.keys.iter().position(|key| *key == seen.from).unwrap();
            for (text, tags) in server.take(seen) {
                sim.inject(place, client, &text, &tags);
            }
        }
    }
    sim.keys[0] = place;
    got
}

/// A large upload in more than 21 chunks.
fn upload(sim: &mut Sim, client: usize, id: u64) {
    let message = call(id, &text(0, 1_500_000), 1);
    let token = format!("token-{client}-{id}");
    let message = Prepared::outgoing(message.into(), Some(&token)).unwrap();
    let now = sim.time();
    sim.machines[client].send(now, key(0), message).unwrap();
}

/// 2. A server that takes no more than 21 chunks after an `accept`: we learn its support before we send.
#[test]
fn a_server_that_fails_uploads_with_leave() {
    let mut sim = Sim::new(1, Weather::CALM, vec![plain(), plain()]);
    let mut server = RealServer::default();
    upload(&mut sim, 1, 1);
    let got = against(&mut server, &mut sim);
    assert_eq!(server.failed, Vec::<String>::new());
    assert_eq!(
        got,
        [(1, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_owned())]
    );
    assert!(server.whole[0].1.len() > 1_500_000);
    // Without learning first, in the numbering after an `accept`, the server fails: so the check can fail.
    let config = plain().with(|config| config.unasked = true);
    sim.restart_client(1, config, None);
    upload(&mut sim, 1, 2);
    against(&mut server, &mut sim);
    assert_eq!(
        server.failed.first().map(String::as_str),
        Some("gap 22 exceeds limit 21")
    );
}

/// 3. A server that knows our key from before sends neither `accept` nor discovery tags.
#[test]
fn a_server_that_knew_us_before_is_not_waited_for() {
    let mut sim = Sim::new(1, Weather::CALM, vec![plain(), plain()]);
    let mut server = RealServer {
        knows_us: true,
        ..RealServer::default()
    };
    upload(&mut sim, 1, 1);
    let got = against(&mut server, &mut sim);
    assert_eq!(
        got,
        [(1, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_owned())]
    );
    assert!(
        sim.now < Duration::from_secs(25),
        "{:?}: nobody waited for leave",
        sim.now
    );
    // With a key that no server can know, silence means no support: then we wait for `accept`.
    let config = plain().with(|config| config.fresh_key = true);
    sim.restart_client(1, config, None);
    upload(&mut sim, 1, 2);
    let got = against(&mut server, &mut sim);
    let got: Vec<_> = got
        .into_iter()
        .chain(std::iter::from_fn(|| {
            sim.run(LONG).map(|(to, _, text)| (to, text))
        }))
        .collect();
    assert!(
        got.len() == 1 && got[0].1.contains("notAccepted"),
        "{got:?}"
    );
}

/// 3, the other way: a client that always waits for `accept` gets it from our server, known or not.
#[test]
fn a_client_that_waits_for_leave_again_and_again() {
    let mut sim = Sim::new(1, Weather::CALM, vec![plain()]);
    for round in 0..3 {
        let message = call(round, &text(0, 60_000), 1);
        let frames = frames(&format!("r{round}"), &message, 9_000, 3);
        let start = sim.inject(key(1), 0, &frames[0], &[]);
        assert!(sim.run(sim.now + Duration::from_secs(1)).is_none());
        let accept = sim.tape.last().unwrap().clone();
        assert_eq!(accept.frame_type().as_deref(), Some("accept"));
        assert!(
            accept.content.contains(r#""progress":2,"#),
            "{}",
            accept.content
        );
        assert!(accept.has_tag("support_oversized_transfer"));
        assert_eq!(accept.e(), Some(start.to_hex().as_str()));
        for frame in &frames[1..] {
            sim.inject(key(1), 0, frame, &[]);
        }
        assert_eq!(sim.run(LONG).unwrap().2, message);
    }
}

/// 4. A server that tells transfers apart by their tokens alone: each of our clients uses different tokens.
// CEP22-6
#[test]
fn a_server_that_mixes_up_clients_with_one_token() {
    let mut sim = Sim::new(1, Weather::CALM, vec![plain(), plain(), plain()]);
    let mut server = RealServer::default();
    // Both applications use the same id and the same token.
    let request = |data: &str| {
        let data = text(0, 200_000) + data;
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"data":"{data}","_meta":{{"progressToken":1}}}}}}"#
        )
    };
    sim.send(1, 0, &request("one"));
    sim.send(2, 0, &request("two"));
    let got = against(&mut server, &mut sim);
    assert_eq!(server.failed, Vec::<String>::new());
    let answers: Vec<_> = got
        .iter()
        .filter(|(_, text)| text.contains(r#""result""#))
        .map(|(to, _)| *to)
        .collect();
    assert_eq!(answers.len(), 2, "{got:?}");
    assert_eq!(server.whole.len(), 2);
    // Our own server keeps clients apart even if their tokens are the same.
    let mut sim = Sim::new(1, Weather::CALM, vec![plain()]);
    let (one, two) = (call(1, &text(0, 50_000), 1), call(1, &text(1, 50_000), 1));
    let (first, second) = (frames("1", &one, 9_000, 2), frames("1", &two, 9_000, 2));
    for index in 0..first.len().max(second.len()) {
        for (client, frames) in [(1, &first), (2, &second)] {
            if let Some(frame) = frames.get(index) {
                sim.inject(key(client), 0, frame, &[]);
            }
        }
    }
    let mut heard = [sim.run(LONG).unwrap(), sim.run(LONG).unwrap()];
    heard.sort_by_key(|(_, from, _)| *from);
    assert_eq!(
        heard.map(|(_, from, text)| (from, text)),
        [(key(1), one), (key(2), two)]
    );
}

/// 5. A peer that can decrypt at most 65,535 bytes: none of our texts is longer, whatever the relays accept.
// The simulation checks this for each event.
#[test]
fn a_peer_whose_seal_is_small() {
    let config = Config::default().with(|config| {
        config.encryption = Encryption::Required;
        config.cut_above = 1 << 20;
        config.event_max = 1 << 20;
    });
    let weather = Weather {
        event_max: 1 << 20,
        ..Weather::CALM
    };
    for kind in 0..4 {
        let mut sim = Sim::new(1, weather, vec![config.clone(), config.clone()]);
        sim.send(1, 0, &call(1, "x", 1));
        let (_, from, heard) = sim.run(LONG).unwrap();
        let answer = Prepared::outgoing(reply(&heard, kind).into(), None).unwrap();
        let now = sim.time();
        sim.machines[0].send(now, from, answer).unwrap();
        sim.run(LONG).unwrap();
        sim.send(1, 0, &call(2, &text(kind, 400_000), 400_000));
        let (_, from, heard) = sim.run(LONG).unwrap();
        let answer = Prepared::outgoing(reply(&heard, kind).into(), None).unwrap();
        let now = sim.time();
        sim.machines[0].send(now, from, answer).unwrap();
        assert_eq!(sim.run(LONG).unwrap().2, reply(&heard, kind));
        assert!(sim.tape.len() > 12, "{}", sim.tape.len());
    }
}

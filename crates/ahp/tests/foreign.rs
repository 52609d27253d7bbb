//! Tests of the middle boxes between a client and a host that do not know segments.

#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use breakbulk_ahp::Config;
use breakbulk_ahp::foreign::{ClientSide, HostSide, Instead, Sessions};
use breakbulk_link::{Cap, Event, Link, SendError};
use breakbulk_message::ahp::{Chunking, TimeoutFrom};
use breakbulk_net::memory::carry;
use bytes::Bytes;

const OURS: &str = r#"{"maxIncomingFrameBytes":400,"maxIncomingMessageBytes":20000,"maxIncomingGroups":4,"groupTimeoutMs":1000,"groupTimeoutFrom":"last"}"#;

fn config() -> Config {
    Config::default().with(|config| {
        config.chunking = Chunking {
            max_frame_bytes: 400,
            max_message_bytes: 20_000,
            max_groups: Some(4),
            group_timeout_ms: Some(1000),
            timeout_from: TimeoutFrom::Last,
        };
        config.cap = Cap::frame(400);
        config.seed = Some([1; 32]);
    })
}

/// A client's box, a capped path, and a host's box.
struct Path {
    client: ClientSide,
    near: Link,
    far: Link,
    host: HostSide,
    now: Instant,
    frames: usize,
    /// The last frame that crossed the path.
    crossed: String,
}

impl Path {
    fn new(clients: &Sessions, hosts: &Sessions) -> Self {
        Self {
            client: ClientSide::new(config(), clients.clone()),
            near: config().fresh_link(),
            far: config().fresh_link(),
            host: HostSide::new(config(), hosts.clone()),
            now: Instant::now(),
            frames: 0,
            crossed: String::new(),
        }
    }

    /// Sends a message of the client; returns what reaches the host.
    fn up(&mut self, text: &str) -> Vec<String> {
        let out = self
            .client
            .to_host(&mut self.near, Bytes::from(text.to_owned()));
        self.near.send(self.now, out).unwrap();
        let (frames, crossed) = (&mut self.frames, &mut self.crossed);
        carry(&mut self.near, &mut self.far, self.now, |_, frame| {
            assert!(frame.len() <= 400);
            *frames += 1;
            *crossed = String::from_utf8_lossy(frame).into_owned();
        });
        let mut heard = Vec::new();
        while let Some(event) = self.far.poll_event() {
            if let Event::Message(message) = event {
                let bytes = self.host.from_client(message.bytes);
                heard.push(String::from_utf8(bytes.to_vec()).unwrap());
            }
        }
        heard
    }

    /// Sends a message of the host; returns what reaches the client.
    fn down(&mut self, text: &str) -> Vec<String> {
        let out = self
            .host
            .to_client(self.now, &mut self.far, Bytes::from(text.to_owned()));
        self.far.send(self.now, out).unwrap();
        self.carry_down(usize::MAX)
    }

    fn carry_down(&mut self, mut most: usize) -> Vec<String> {
        let mut heard = Vec::new();
        let mut frame = Vec::new();
        while most > 0 && self.far.poll_transmit(self.now, &mut frame).is_some() {
            most -= 1;
            assert!(frame.len() <= 400);
            self.frames += 1;
            self.crossed = String::from_utf8_lossy(&frame).into_owned();
            let bytes = Bytes::from(std::mem::take(&mut frame));
            self.near
                .handle_frame(self.now, breakbulk_link::Frame::Text(bytes));
            while let Some(event) = self.near.poll_event() {
                self.client.heard(&event);
                if let Event::Message(message) = event {
                    let key = message.key.clone();
                    let bytes = self
                        .client
                        .from_host(&mut self.near, message.bytes, key.as_ref());
                    heard.push(String::from_utf8(bytes.to_vec()).unwrap());
                }
            }
        }
        heard
    }
}

fn action(seq: i64, size: usize) -> String {
    let text = "x".repeat(size);
    format!(
        r#"{{"jsonrpc":"2.0","method":"action","params":{{"channel":"c","action":{{"t":"{text}"}},"serverSeq":{seq}}}}}"#
    )
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"channel":"ahp-root://","clientId":"c","protocolVersions":["1.0.0"]}}"#;

fn initialize(path: &mut Path) {
    let advertised = format!(r#""capabilities":{{"chunking":{OURS}}}"#);
    let heard = path.up(INITIALIZE);
    assert!(path.crossed.contains(&advertised), "{}", path.crossed);
    let expected = INITIALIZE.replace("]}}", r#"],"capabilities":{}}}"#);
    assert_eq!(heard, [expected]);
    let result = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"1.0.0","serverSeq":420,"snapshots":[]}}"#;
    let heard = path.down(result);
    assert!(path.crossed.contains(&advertised), "{}", path.crossed);
    // The limits that the boxes advertise to each other reach neither program.
    let expected = result.replace("}}", r#","capabilities":{}}}"#);
    assert_eq!(heard, [expected]);
}

#[test]
fn the_advertisement_goes_in_and_large_messages_cross_unchanged() {
    let mut path = Path::new(&Sessions::default(), &Sessions::default());
    initialize(&mut path);
    path.frames = 0;
    let large = action(421, 10_000);
    assert_eq!(path.down(&large), [large]);
    assert!(path.frames > 30);
    let request = format!(
        r#"{{"jsonrpc":"2.0","id":2,"method":"resourceWrite","params":{{"data":"{}"}}}}"#,
        "é".repeat(5000)
    );
    assert_eq!(path.up(&request), [request]);
}

#[test]
fn other_protocols_pass_untouched() {
    let mut path = Path::new(&Sessions::default(), &Sessions::default());
    for text in [
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{}}}"#,
        r#"{"jsonrpc":"2.0","method":"x"}"#,
        r#"[1]"#,
        "no JSON at all",
        "",
    ] {
        assert_eq!(path.up(text), [text]);
        assert_eq!(path.down(text), [text]);
    }
}

// AHP-17
#[test]
fn what_was_overtaken_when_the_line_dropped_comes_with_the_replay() {
    let (clients, hosts) = (Sessions::default(), Sessions::default());
    let mut path = Path::new(&clients, &hosts);
    initialize(&mut path);
    // 421 is being sent when 422 overtakes it, as with a sender without lanes.
    let out = path
        .host
        .to_client(path.now, &mut path.far, action(421, 3000).into());
    path.far.send(path.now, out).unwrap();
    assert!(path.carry_down(3).is_empty());
    let out = breakbulk_link::Outgoing::new(action(422, 10)).in_lane(breakbulk_link::Lane(9));
    path.far.send(path.now, out).unwrap();
    assert_eq!(path.carry_down(2), [action(422, 10)]);
    drop(path);

    // The client reconnects from 422 twice: the first of these connections drops before the answer.
    let reconnect = r#"{"jsonrpc":"2.0","id":2,"method":"reconnect","params":{"channel":"ahp-root://","clientId":"c","lastSeenServerSeq":422,"subscriptions":["c"]}}"#;
    let rewritten = reconnect
        .replace("422", "420")
        .replace("]}}", r#"],"capabilities":{}}}"#);
    assert!(Path::new(&clients, &hosts).up(reconnect) == [&*rewritten]);
    let mut path = Path::new(&clients, &hosts);
    assert_eq!(path.up(reconnect), [rewritten]);
    let params = |text: String| {
        text[r#"{"jsonrpc":"2.0","method":"action","params":"#.len()..text.len() - 1].to_owned()
    };
    let replay = |actions: &[String]| {
        format!(
            r#"{{"jsonrpc":"2.0","id":2,"result":{{"type":"replay","actions":[{}],"missing":[]}}}}"#,
            actions.join(",")
        )
    };
    let (lost, seen, new) = (
        params(action(421, 3000)),
        params(action(422, 10)),
        params(action(423, 10)),
    );
    let heard = path.down(&replay(&[lost.clone(), seen, new.clone()]));
    assert_eq!(heard, [replay(&[lost, new])]);
    // The limits that the host advertised on the first connection still apply.
    assert!(path.client.host_takes().is_some());

    let mut path = Path::new(&clients, &hosts);
    let again = reconnect.replace("422", "423");
    assert!(path.up(&again)[0].contains(r#""lastSeenServerSeq":423,"#));
}

#[test]
fn a_second_handshake_that_is_refused_changes_nothing() {
    let mut path = Path::new(&Sessions::default(), &Sessions::default());
    initialize(&mut path);
    path.up(&INITIALIZE.replace(r#""id":1"#, r#""id":2"#));
    let refused = r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32600,"message":"already"}}"#;
    assert_eq!(path.down(refused), [refused]);
    let large = format!(
        r#"{{"jsonrpc":"2.0","id":3,"method":"x","params":["{}"]}}"#,
        "y".repeat(2000)
    );
    assert_eq!(path.up(&large), [large]);
    let large = action(421, 5000);
    assert_eq!(path.down(&large), [large]);
}

/// A second handshake with another clientId is refused; the actions after it still belong to the first.
#[test]
fn a_name_that_the_host_refuses_is_nobodys() {
    let (clients, hosts) = (Sessions::default(), Sessions::default());
    let mut path = Path::new(&clients, &hosts);
    initialize(&mut path);
    let other = INITIALIZE.replace(r#""id":1"#, r#""id":2"#);
    path.up(&other.replace(r#""clientId":"c""#, r#""clientId":"d""#));
    let refused = r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32600,"message":"already"}}"#;
    assert_eq!(path.down(refused), [refused]);
    // 422 overtakes 421, and the connection drops.
    let out = path
        .host
        .to_client(path.now, &mut path.far, action(421, 3000).into());
    path.far.send(path.now, out).unwrap();
    assert!(path.carry_down(3).is_empty());
    let out = breakbulk_link::Outgoing::new(action(422, 10)).in_lane(breakbulk_link::Lane(9));
    path.far.send(path.now, out).unwrap();
    assert_eq!(path.carry_down(2), [action(422, 10)]);
    drop(path);
    for (name, from) in [("c", 420), ("d", 422)] {
        let reconnect = format!(
            r#"{{"jsonrpc":"2.0","id":3,"method":"reconnect","params":{{"channel":"ahp-root://","clientId":"{name}","lastSeenServerSeq":422,"subscriptions":["c"]}}}}"#
        );
        let heard = Path::new(&clients, &hosts).up(&reconnect);
        let expected = format!(r#""lastSeenServerSeq":{from},"#);
        assert!(heard[0].contains(&expected), "{name}: {}", heard[0]);
    }
}

/// A client that waits one second for a message gets an error in place of one that was too slow once.
#[test]
fn an_answer_larger_than_what_was_too_slow_is_refused() {
    let strict = config().with(|config| config.chunking.timeout_from = TimeoutFrom::First);
    let hosts = Sessions::default();
    let result = |id: u32, size: usize| {
        let text = "x".repeat(size);
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"serverSeq":1,"snapshots":["{text}"]}}}}"#
        )
    };
    // A client that counts from the last segment waits long enough for any size.
    for (config, refuses) in [(strict, true), (config(), false)] {
        let connect = |method: &str| {
            let mut path = Path::new(&Sessions::default(), &hosts);
            path.client = ClientSide::new(config.clone(), Sessions::default());
            let params = r#""channel":"ahp-root://","clientId":"c","protocolVersions":["1.0.0"],"lastSeenServerSeq":1,"subscriptions":[]"#;
            let said =
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params}}}}}"#);
            path.up(&said);
            path
        };
        let mut path = connect("initialize");
        assert!(path.down(&result(1, 5000))[0].contains("capabilities"));
        // The path is slow: 421 has begun when the second is over.
        let out = path
            .host
            .to_client(path.now, &mut path.far, action(421, 5000).into());
        path.far.send(path.now, out).unwrap();
        assert!(path.carry_down(9).is_empty());
        path.far.handle_timeout(path.now + Duration::from_secs(1));
        while let Some(event) = path.far.poll_event() {
            path.host.heard(path.now, &event);
        }
        drop(path);
        for method in ["reconnect", "initialize"] {
            let mut path = connect(method);
            let heard = path.down(&result(1, 5000));
            let refused = heard[0].contains(
                r#""code":-32011,"message":"message too large for this path: 5"#,
            ) && heard[0].contains(
                r#" bytes, and only 1728 went out in the 1 s that the receiver gives a message; send less or raise its groupTimeoutMs","data":{"reason":"messageTooLarge","messageBytes":5"#,
            );
            assert_eq!(refused, refuses, "{method}: {}", heard[0]);
            // A smaller result is sent, and an action is sent whatever its size.
            assert_eq!(path.down(&result(2, 1500)), [result(2, 1500)]);
            assert_eq!(path.down(&action(1, 5000)), [action(1, 5000)]);
        }
    }
}

#[test]
fn an_id_that_is_used_again_is_in_the_lane_of_its_last_use() {
    let mut path = Path::new(&Sessions::default(), &Sessions::default());
    initialize(&mut path);
    path.up(r#"{"jsonrpc":"2.0","id":7,"method":"resourceRead","params":{}}"#);
    // The client gave up the request before this one, and the host never answered it.
    path.up(r#"{"jsonrpc":"2.0","id":7,"method":"subscribe","params":{"channel":"c"}}"#);
    let answer = Bytes::from_static(br#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
    let out = path.host.to_client(path.now, &mut path.far, answer);
    assert_eq!(out.lane, breakbulk_link::Lane::ORDERED);
}

// AHP-18
#[test]
fn what_cannot_be_sent_is_answered_replaced_or_ends_the_link() {
    let error = SendError::MessageTooLarge {
        size: 30_000,
        limit: 20_000,
    };
    let mut path = Path::new(&Sessions::default(), &Sessions::default());
    initialize(&mut path);
    let tail = "x".repeat(100);
    let data = |size: usize| {
        format!(
            r#""data":{{"reason":"messageTooLarge","messageBytes":{size},"maxFrameBytes":400,"maxMessageBytes":20000,"chunking":true}}"#
        )
    };
    let show = |instead: Instead| match instead {
        Instead::Answer(bytes) => format!("answer {}", String::from_utf8_lossy(&bytes)),
        Instead::Replace(out) => format!("replace {}", String::from_utf8_lossy(&out.bytes)),
        Instead::Drop(why) => format!("drop {why}"),
        Instead::Close(code, why) => format!("close {code} {why}"),
    };
    for (text, by_client, by_host) in [
        (
            format!(r#"{{"jsonrpc":"2.0","id":"a","method":"m","params":["{tail}"]}}"#),
            "answer",
            "answer",
        ),
        (
            format!(r#"{{"jsonrpc":"2.0","id":"a","result":"{tail}"}}"#),
            "replace",
            "replace",
        ),
        (action(1, 100), "close 4413", "close 4413"),
        (
            format!(r#"{{"jsonrpc":"2.0","method":"dispatchAction","params":["{tail}"]}}"#),
            "close 4413",
            "drop",
        ),
        (
            format!(r#"{{"jsonrpc":"2.0","method":"root/sessionAdded","params":["{tail}"]}}"#),
            "close 4413",
            "drop",
        ),
        ("no JSON".to_owned(), "close 4413", "close 4413"),
    ] {
        let bytes = Bytes::from(text.clone());
        for (said, expected) in [
            (show(path.client.not_sent(&bytes, &error)), by_client),
            (show(path.host.not_sent(&bytes, &error)), by_host),
        ] {
            assert!(said.starts_with(expected), "{text}: {said}");
            if said.starts_with(['a', 'r']) {
                assert!(
                    said.contains(r#""id":"a","error":{"code":-32011,"#),
                    "{said}"
                );
                assert!(said.contains(&data(text.len())), "{said}");
            } else {
                assert!(said.contains("30000") && said.contains("20000"), "{said}");
            }
        }
    }
}

//! A client that reconnects gets the actions that it missed, or a snapshot, never a gap.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use breakbulk_ahp::Host;
use breakbulk_ahp::log::{Entry, Limits, LogError, MemoryLog, Replay, ReplayLog, ReplayReader};
use breakbulk_link::Event;

use super::common::*;

fn replay(actions: &[i64], missing: &str) -> String {
    let actions: Vec<_> = actions
        .iter()
        .map(|seq| {
            envelope(
                if seq % 2 == 0 { ROOT } else { CHAT },
                &seq.to_string(),
                *seq,
            )
        })
        .collect();
    let actions = actions.join(",");
    format!(
        r#"{{"jsonrpc":"2.0","id":2,"result":{{"type":"replay","actions":[{actions}],"missing":[{missing}]}}}}"#
    )
}

fn snapshot(snapshots: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":2,"result":{{"type":"snapshot","snapshots":[{snapshots}]}}}}"#
    )
}

// AHP-8
#[tokio::test(start_paused = true)]
async fn what_reconnect_answers() {
    let limits = Limits::default().with(|limits| limits.count = 5);
    // The even numbers are on the root channel, the odd ones on the chat; the log keeps 6 to 10.
    let host = Host::new(
        Board::with(&[ROOT, CHAT]),
        MemoryLog::new(limits),
        config().with(|it| it.limits.replay_bytes = 300),
    );
    for seq in 1..=10 {
        publish(
            &host,
            if seq % 2 == 0 { ROOT } else { CHAT },
            &seq.to_string(),
        )
        .await;
    }
    let root = r#"{"resource":"ahp-root://","state":[2,4,6,8,10],"fromSeq":10}"#;
    let chat = r#"{"resource":"ahp-chat:/a","state":[1,3,5,7,9],"fromSeq":10}"#;
    let both = r#""ahp-root://","ahp-chat:/a""#;
    let error = |code: i32, message: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":2,"error":{{"code":{code},"message":"{message}"}}}}"#)
    };
    for (name, said, expected) in [
        (
            "nothing missed",
            reconnect("c", 10, both, ""),
            replay(&[], ""),
        ),
        ("some", reconnect("c", 8, both, ""), replay(&[9, 10], "")),
        (
            "all that is kept",
            reconnect("c", 5, both, ""),
            replay(&[6, 7, 8, 9, 10], ""),
        ),
        (
            "one channel",
            reconnect("c", 5, r#""ahp-chat:/a""#, ""),
            replay(&[7, 9], ""),
        ),
        ("no channel", reconnect("c", 5, "", ""), replay(&[], "")),
        (
            "a channel that is gone",
            reconnect("c", 7, r#""ahp-chat:/b","ahp-root://","ahp-chat:/b""#, ""),
            replay(&[8, 10], r#""ahp-chat:/b""#),
        ),
        (
            "a channel that is not for it",
            reconnect("guest", 7, both, ""),
            replay(&[8, 10], r#""ahp-chat:/a""#),
        ),
        (
            "too old",
            reconnect("c", 4, both, ""),
            snapshot(&format!("{chat},{root}")),
        ),
        (
            "from a future that never was",
            reconnect("c", 11, r#""ahp-chat:/a""#, ""),
            snapshot(chat),
        ),
        (
            "no number of ours",
            reconnect("c", -1, r#""ahp-chat:/a""#, ""),
            snapshot(chat),
        ),
        (
            "a snapshot without what is gone",
            reconnect("c", 0, r#""ahp-chat:/b","ahp-root://""#, ""),
            snapshot(root),
        ),
        (
            "a replay that is larger than the client takes",
            reconnect("c", 5, both, &takes(220, 220)),
            snapshot(&format!("{chat},{root}")),
        ),
        (
            "no number",
            reconnect("c", 0, "", r#","lastSeenServerSeq":1.5"#),
            error(-32602, "`lastSeenServerSeq` must be an integer of 64 bits"),
        ),
        (
            "a stranger",
            reconnect("stranger", 5, both, ""),
            error(-32007, "who are you?"),
        ),
    ] {
        assert_eq!(Client::new(&host).ask(said).await, expected, "{name}");
    }
    // If a replay exceeds the host's own limit, a snapshot is sent, too.
    let long = format!(r#""{}""#, "x".repeat(200));
    for _ in 0..2 {
        publish(&host, CHAT, &long).await;
    }
    let answer = Client::new(&host).ask(reconnect("d", 10, both, "")).await;
    assert!(answer.contains(r#""type":"snapshot""#), "{answer}");
}

/// A `reconnect` without limits keeps those of the handshake before; one with limits replaces them.
// AHP-8
#[tokio::test(start_paused = true)]
async fn limits_are_remembered_for_a_bounded_number_of_clients() {
    let host = host(config().with(|it| {
        it.limits.clients = 2;
        it.limits.sessions = 2;
    }));
    let big = format!(r#""{}""#, "x".repeat(1000));
    publish(&host, CHAT, &big).await;
    for (name, others, more, in_segments) in [
        ("as before", 0, String::new(), true),
        ("still as before", 1, String::new(), true),
        ("forgotten for others", 2, String::new(), false),
        ("said anew", 0, takes(2000, 5000), false),
        ("taken back", 0, r#","capabilities":{}"#.to_owned(), false),
        (
            "a bad one",
            0,
            r#","capabilities":{"chunking":7}"#.to_owned(),
            false,
        ),
    ] {
        let client = Client::new(&host);
        client.ask(initialize("c", "", &takes(300, 5000))).await;
        client.leave().await;
        for other in 0..others {
            let client = Client::new(&host);
            client.initialize(&format!("other{other}"), "").await;
            client.leave().await;
        }
        let back = Client::new(&host);
        back.say(reconnect("c", 0, r#""ahp-chat:/a""#, &more));
        let key = loop {
            if let Some(Event::Message(message)) = back.connection.event().await {
                break message.key;
            }
        };
        assert_eq!(key.is_some(), in_segments, "{name}");
        back.leave().await;
    }
}

/// A log whose reader waits for a signal, as for a slow disk.
struct Gated {
    log: MemoryLog,
    gate: Arc<Mutex<mpsc::Receiver<()>>>,
    asked: tokio::sync::mpsc::UnboundedSender<()>,
}

struct GatedReader(
    Arc<dyn ReplayReader>,
    Arc<Mutex<mpsc::Receiver<()>>>,
    tokio::sync::mpsc::UnboundedSender<()>,
);

impl ReplayLog for Gated {
    fn last(&self) -> i64 {
        self.log.last()
    }
    fn append(&mut self, batch: &[Entry]) -> Result<(), LogError> {
        self.log.append(batch)
    }
    fn reader(&self) -> Arc<dyn ReplayReader> {
        let reader = self.log.reader();
        Arc::new(GatedReader(reader, self.gate.clone(), self.asked.clone()))
    }
    fn blocks(&self) -> bool {
        true
    }
}

impl ReplayReader for GatedReader {
    fn since(
        &self,
        seq: i64,
        upto: i64,
        wants: &dyn Fn(&str) -> bool,
        max_bytes: usize,
    ) -> Result<Replay, LogError> {
        self.2.send(()).unwrap();
        self.1.lock().unwrap().recv().unwrap();
        self.0.since(seq, upto, wants, max_bytes)
    }
}

/// A host whose replays wait, the signal that lets one continue, and a receiver of replay requests.
fn gated() -> (
    Host<Board>,
    mpsc::Sender<()>,
    tokio::sync::mpsc::UnboundedReceiver<()>,
) {
    let (open, gate) = mpsc::channel();
    let (asked, asks) = tokio::sync::mpsc::unbounded_channel();
    let log = Gated {
        log: MemoryLog::default(),
        gate: Arc::new(Mutex::new(gate)),
        asked,
    };
    let host = Host::new(Board::with(&[ROOT, CHAT]), log, config());
    (host, open, asks)
}

/// While a replay is read no other client waits, and new actions are sent after it, each once.
// AHP-6
#[tokio::test]
async fn what_happens_while_a_replay_is_read_comes_behind_it() {
    for (more, answer) in [
        (String::new(), replay(&[1, 2, 3], "")),
        // The replay is too large: the snapshot sent instead contains all actions, none is sent again.
        (
            takes(200, 200),
            snapshot(concat!(
                r#"{"resource":"ahp-chat:/a","state":[1,3,5],"fromSeq":5},"#,
                r#"{"resource":"ahp-root://","state":[2,4],"fromSeq":5}"#
            )),
        ),
    ] {
        let (host, open, mut asks) = gated();
        for seq in 1..=3 {
            publish(
                &host,
                if seq % 2 == 0 { ROOT } else { CHAT },
                &seq.to_string(),
            )
            .await;
        }
        let client = Client::new(&host);
        client.say(reconnect("c", 0, r#""ahp-root://","ahp-chat:/a""#, &more));
        asks.recv().await.unwrap();
        publish(&host, ROOT, "4").await;
        publish(&host, CHAT, "5").await;
        open.send(()).unwrap();
        assert_eq!(client.hear().await, answer);
        if answer.contains("replay") {
            assert_eq!(client.hear().await, action(ROOT, "4", 4));
            assert_eq!(client.hear().await, action(CHAT, "5", 5));
        }
        publish(&host, ROOT, "6").await;
        assert_eq!(client.hear().await, action(ROOT, "6", 6));
    }
}

/// The first connection is dead without the host knowing. When its replay has been read, the client has
/// reconnected over a second one long ago.
// AHP-11
#[tokio::test]
async fn a_reconnect_that_is_late_takes_nothing_from_its_successor() {
    for successor in [
        initialize("c", r#""ahp-root://""#, ""),
        // From a number that the host never used: the answer needs no replay.
        reconnect("c", 9, r#""ahp-root://""#, ""),
    ] {
        for gone in [false, true] {
            let (host, open, mut asks) = gated();
            publish(&host, ROOT, "1").await;
            let first = Client::new(&host);
            first.say(reconnect("c", 0, r#""ahp-root://""#, ""));
            asks.recv().await.unwrap();
            let second = Client::new(&host);
            assert!(second.ask(&*successor).await.contains("result"));
            let second = if gone {
                second.leave().await;
                None
            } else {
                Some(second)
            };
            open.send(()).unwrap();
            let closed = tokio::time::timeout(Duration::from_secs(20), first.closed());
            let closed = closed.await.expect("it takes over from its successor");
            assert_eq!(
                (closed.code, &*closed.reason),
                (4409, "another connection with this clientId has taken over")
            );
            if let Some(second) = second {
                publish(&host, ROOT, "2").await;
                assert_eq!(second.hear().await, action(ROOT, "2", 2));
            }
            // A third connection after both is accepted.
            let third = Client::new(&host);
            assert!(
                third
                    .initialize("c", r#""ahp-root://""#)
                    .await
                    .contains("result")
            );
        }
    }
}

#[tokio::test]
async fn a_channel_that_vanishes_while_the_replay_is_read_is_not_followed() {
    let (host, open, mut asks) = gated();
    for seq in 1..=3 {
        let channel = if seq % 2 == 0 { ROOT } else { CHAT };
        publish(&host, channel, &seq.to_string()).await;
    }
    let client = Client::new(&host);
    let both = r#""ahp-root://","ahp-chat:/a""#;
    client.say(reconnect("c", 0, both, &takes(200, 200)));
    asks.recv().await.unwrap();
    host.notify(CHAT, "note", &raw("[1]"));
    host.notify(ROOT, "note", &raw("[2]"));
    host.app().shut(CHAT);
    open.send(()).unwrap();
    let root = r#"{"resource":"ahp-root://","state":[2],"fromSeq":3}"#;
    assert_eq!(client.hear().await, snapshot(root));
    // The client is not subscribed to a new channel with the name of the removed one.
    host.app().open(CHAT, &[]);
    publish(&host, CHAT, "4").await;
    host.notify(CHAT, "note", &raw("[3]"));
    publish(&host, ROOT, "5").await;
    let note = r#"{"jsonrpc":"2.0","method":"note","params":[2]}"#;
    assert_eq!(client.hear().await, note);
    assert_eq!(client.hear().await, action(ROOT, "5", 5));
}

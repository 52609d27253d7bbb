//! Tests of the host's state machine alone: which messages wait, and which clients are disconnected.
#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::time::{Duration, Instant};

use breakbulk_ahp::log::{MemoryLog, ReplayLog};
use breakbulk_ahp::machine::host::{
    Applied, Channels, ClientId, Draft, Next, Output, Pending, State, When, Work,
};
use breakbulk_ahp::machine::{Client, Host};
use breakbulk_ahp::{ClientConfig, Config, HostConfig};
use breakbulk_link::{Frame, Link, SendError};
use serde_json::value::RawValue;

const ROOT: &str = "ahp-root://";

/// One channel without a state, and a log that has room or not.
struct App {
    room: Cell<bool>,
}

impl Channels for App {
    fn snapshot(&self, channel: &str) -> Option<State> {
        (channel == ROOT).then(State::none)
    }

    fn apply(&self, _action: &Applied<'_>) {}

    fn has_room(&self, _bytes: usize) -> bool {
        self.room.get()
    }
}

/// A host, and the host's link to one client.
struct Desk {
    host: Host,
    app: App,
    log: MemoryLog,
    now: Instant,
    client: ClientId,
    link: Link,
}

impl Desk {
    fn new() -> Self {
        let config = HostConfig::default().with(|config| config.limits.requests = 1);
        let (mut host, now) = (Host::new(config, 0), Instant::now());
        let client = host.connect(now).unwrap();
        let mut desk = Self {
            host,
            app: App {
                room: Cell::new(true),
            },
            log: MemoryLog::default(),
            now,
            client,
            link: Config::default().link([7; 32]),
        };
        let told = desk.say(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"channel":"ahp-root://","clientId":"c","initialSubscriptions":["ahp-root://"],"protocolVersions":["1.0.0"]}}"#);
        let [Output::Work { work, .. }] = &told[..] else {
            panic!("{told:?}")
        };
        let Work::Introduce(introduction) = work else {
            panic!("{work:?}")
        };
        let introduced = introduction.read(desk.host.config(), &desk.app);
        desk.host
            .handle_introduced(desk.client, introduced, &desk.app);
        let told = desk.told();
        let [
            Output::Work {
                work: Work::Write(writing),
                ..
            },
        ] = &told[..]
        else {
            panic!("{told:?}")
        };
        let text = writing.run(&*desk.log.reader());
        desk.host
            .handle_written(desk.now, desk.client, text, &desk.app);
        let told = desk.told();
        assert!(
            matches!(
                &told[..],
                [Output::Negotiated { peer: None, .. }, Output::Send { .. }]
            ),
            "{told:?}"
        );
        desk
    }

    fn told(&mut self) -> Vec<Output> {
        std::iter::from_fn(|| self.host.poll_output()).collect()
    }

    /// Passes a message of the client to the host, and returns the host's outputs.
    fn say(&mut self, text: &str) -> Vec<Output> {
        self.link
            .handle_frame(self.now, Frame::Text(text.to_owned().into()));
        while let Some(event) = self.link.poll_event() {
            self.host
                .handle_event(self.now, self.client, event, &self.app);
        }
        self.told()
    }

    fn publish(&mut self, pending: &mut Pending) {
        let action = RawValue::from_string("1".to_owned()).unwrap();
        pending.push(Draft::new(ROOT, &action, None, None)).unwrap();
        let Next::Append(batch) = pending.poll_append() else {
            panic!("nothing was published")
        };
        for published in &batch {
            self.host.handle_committed(published, &self.app);
        }
    }
}

const PING: &str = r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#;

#[test]
fn what_a_client_says_waits_in_order_for_room_in_the_log() {
    let mut desk = Desk::new();
    desk.app.room.set(false);
    let action = r#"{"jsonrpc":"2.0","method":"dispatchAction","params":{"channel":"ahp-root://","clientSeq":1,"action":1}}"#;
    assert!(desk.say(action).is_empty());
    assert!(desk.say(PING).is_empty(), "it would overtake the action");
    let held = desk.link.memory();
    assert!(held > action.len(), "what waits is charged: {held}");
    desk.host.handle_room(&desk.app);
    assert!(desk.told().is_empty());
    desk.app.room.set(true);
    desk.host.handle_room(&desk.app);
    let mut told = desk.told();
    let Some(Output::Work {
        work: Work::Dispatch(dispatching),
        ..
    }) = told.pop()
    else {
        panic!("{told:?}")
    };
    let dispatched = dispatching.run(|dispatch| {
        assert_eq!((dispatch.client_seq, dispatch.client_id), (1, "c"));
        Ok(())
    });
    desk.host
        .handle_dispatched(desk.client, &dispatched, &desk.app);
    assert!(matches!(&desk.told()[..], [Output::Send { .. }]));
    assert_eq!(desk.link.memory(), 0);
}

#[test]
fn nothing_follows_an_action_that_a_full_queue_did_not_take() {
    let mut desk = Desk::new();
    let mut pending = Pending::new(0, 1 << 20);
    desk.publish(&mut pending);
    desk.publish(&mut pending);
    let Some(Output::Send { client, message }) = desk.host.poll_output() else {
        panic!("nothing is told")
    };
    let full = SendError::QueueFull {
        queued: 1,
        limit: 1,
        unit: breakbulk_link::Unit::Messages,
    };
    desk.host.handle_rejected(client, &message, &full);
    desk.publish(&mut pending);
    let told = desk.told();
    assert!(
        matches!(
            &told[..],
            [Output::Close {
                code: 1013,
                when: When::Now,
                ..
            }]
        ),
        "{told:?}"
    );
}

#[test]
fn a_client_that_has_gone_leaves_nothing_behind() {
    let mut desk = Desk::new();
    let mut told = desk.say(r#"{"jsonrpc":"2.0","id":3,"method":"echo"}"#);
    let Some(Output::Work {
        work: Work::Call(request, call),
        ..
    }) = told.pop()
    else {
        panic!("{told:?}")
    };
    // The client has its maximum of open requests.
    assert!(desk.say(PING).is_empty());
    desk.host.disconnect(desk.client);
    drop(call);
    assert_eq!(desk.link.memory(), 0);
    let late = Ok(RawValue::from_string("1".to_owned()).unwrap());
    desk.host
        .handle_answer(desk.client, request, &late, &desk.app);
    let mut pending = Pending::new(0, 1 << 20);
    desk.publish(&mut pending);
    assert!(desk.told().is_empty());
    assert_eq!(desk.host.poll_timeout(), None);
}

#[test]
fn messages_that_waited_are_handled_in_turns_and_in_order() {
    const WAITING: usize = 1000;
    // The most outputs of one call of the host, however many messages waited: its own answer, the answers
    // to 64 of these messages, and the request to continue.
    const MOST: usize = 66;
    let mut desk = Desk::new();
    let mut told = desk.say(r#"{"jsonrpc":"2.0","id":"slow","method":"echo"}"#);
    let Some(Output::Work {
        work: Work::Call(request, _),
        ..
    }) = told.pop()
    else {
        panic!("{told:?}")
    };
    for id in 0..WAITING {
        let ping = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        assert!(desk.say(&ping).is_empty(), "it waits for the open request");
    }
    let answer = Ok(RawValue::from_string("1".to_owned()).unwrap());
    desk.host
        .handle_answer(desk.client, request, &answer, &desk.app);
    let (mut answered, mut later) = (Vec::new(), 0);
    loop {
        let told = desk.told();
        assert!(told.len() <= MOST, "{} outputs", told.len());
        let mut goes_on = false;
        for output in told {
            match output {
                Output::Send { message, .. } => answered.push(message.bytes),
                Output::Work {
                    work: Work::Continue,
                    ..
                } => goes_on = true,
                other => panic!("{other:?}"),
            }
        }
        if !goes_on {
            break;
        }
        // A new message does not overtake those that wait.
        assert!(desk.say(PING).is_empty());
        later += 1;
        desk.host.handle_continue(desk.client, &desk.app);
    }
    assert_eq!(answered.len(), 1 + WAITING + later);
    for (id, answer) in answered[1..=WAITING].iter().enumerate() {
        let expected = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":null}}"#);
        assert_eq!(answer, expected.as_bytes());
    }
    assert_eq!(desk.link.memory(), 0);
}

#[test]
fn a_client_that_has_gone_within_a_turn_is_not_continued() {
    let mut desk = Desk::new();
    let mut told = desk.say(r#"{"jsonrpc":"2.0","id":"slow","method":"echo"}"#);
    let Some(Output::Work {
        work: Work::Call(request, _),
        ..
    }) = told.pop()
    else {
        panic!("{told:?}")
    };
    for _ in 0..200 {
        desk.say(PING);
    }
    let answer = Ok(RawValue::from_string("1".to_owned()).unwrap());
    desk.host
        .handle_answer(desk.client, request, &answer, &desk.app);
    desk.told();
    desk.host.handle_closed(desk.client);
    desk.host.handle_continue(desk.client, &desk.app);
    assert!(desk.told().is_empty());
    assert_eq!(desk.link.memory(), 0);
}

// AHP-14
#[test]
fn a_call_fails_when_its_time_is_up_and_a_handshake_ends_with_it() {
    use breakbulk_ahp::ClientError::TimedOut;
    use breakbulk_ahp::machine::client::{Direction, Output};
    let now = Instant::now();
    let at = |seconds| now + Duration::from_secs(seconds);
    let mut client = Client::new(ClientConfig::new("c"));
    assert_eq!(client.poll_timeout(), None);
    client.initialize(now, &[ROOT]).unwrap();
    client.handle_moved(at(5), Direction::Out);
    assert_eq!(client.poll_timeout(), Some(at(35)));
    client.handle_timeout(at(34));
    assert!(client.poll_output().is_none());
    client.handle_timeout(at(35));
    assert!(matches!(
        client.poll_output(),
        Some(Output::Close { code: 1000, .. })
    ));
    let Some(Output::Answered { answer, .. }) = client.poll_output() else {
        panic!("nobody is told")
    };
    assert!(matches!(answer, Err(TimedOut { method, .. }) if method == "initialize"));
    assert_eq!(client.poll_timeout(), None);
}

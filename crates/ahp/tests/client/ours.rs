//! This project's client against this project's host.

use std::sync::Mutex;

use breakbulk_ahp::host::{Application, Applied, Call, Dispatch, State};
use breakbulk_ahp::log::{Limits, MemoryLog};
use breakbulk_ahp::{
    Client, ClientConfig, Event, Host, HostConfig, PublishError, Resumed, RpcError,
};
use breakbulk_link::Cap;
use breakbulk_net::memory;
use serde_json::value::RawValue;

const ROOM: &str = "ahp-chat:/room";

/// A room whose state is all that was said in it.
#[derive(Default)]
struct Room(Mutex<Vec<String>>);

impl Application for Room {
    fn snapshot(&self, channel: &str) -> Option<State> {
        (channel == ROOM).then(|| {
            let said = self.0.lock().unwrap().join(",");
            State::new(RawValue::from_string(format!("[{said}]")).unwrap())
        })
    }

    fn apply(&self, action: &Applied<'_>) {
        self.0.lock().unwrap().push(action.action.to_owned());
    }

    fn dispatched(&self, host: &Host<Self>, dispatch: &Dispatch<'_>) -> Result<(), PublishError> {
        host.accept(dispatch).map(drop)
    }

    async fn request(&self, _: &Host<Self>, call: Call) -> Result<Box<RawValue>, RpcError> {
        Ok(RawValue::from_string(call.params().to_owned()).unwrap())
    }
}

fn raw(text: &str) -> &RawValue {
    serde_json::from_str(text).unwrap()
}

/// Follows the room by `next` alone until it has heard this many.
async fn follow(client: &Client, said: &mut Vec<String>, until: usize) {
    while said.len() < until {
        match client.next().await.unwrap() {
            Event::Snapshot(snapshot) => {
                let all: Vec<Box<RawValue>> = serde_json::from_str(&snapshot.state).unwrap();
                *said = all.iter().map(|one| one.get().to_owned()).collect();
            }
            Event::Action(action) => said.push(action.action.to_string()),
            Event::Disconnected { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn our_client_and_our_host_agree_over_drops() {
    let mut config = HostConfig::default();
    config.connection.cap = Cap::frame(9_000);
    let limits = Limits::default().with(|limits| limits.count = 4);
    let host = Host::new(Room::default(), MemoryLog::new(limits), config);
    let mut config = ClientConfig::new("c");
    config.connection.cap = Cap::frame(9_000);
    config.connection.chunking.max_frame_bytes = 9_000;
    let client = Client::new(config);
    let connect = || {
        let (ours, theirs) = memory::pair(1);
        tokio::spawn(host.serve(theirs));
        ours
    };
    let large = |name: &str| format!(r#""{name}{}""#, "x".repeat(2 << 20));
    host.publish(ROOM, raw(&large("first")), None).unwrap();
    host.visible(1).await.unwrap();
    let initialized = client.initialize(connect(), &[ROOM]).await.unwrap();
    assert_eq!(
        (initialized.server_seq, initialized.snapshots.len()),
        (1, 1)
    );
    let mut said = Vec::new();
    follow(&client, &mut said, 1).await;
    assert_eq!(client.dispatch(ROOM, raw(&large("ours"))).await.unwrap(), 1);
    let params = large("echo");
    let params = format!("[{params}]");
    let echo = client.request("echo", Some(raw(&params))).await.unwrap();
    assert_eq!(echo, &*params);
    client.ping().await.unwrap();
    follow(&client, &mut said, 2).await;

    // The connection is closed while a large action is being sent: the replay contains it.
    host.publish(ROOM, raw(&large("third")), None).unwrap();
    host.visible(3).await.unwrap();
    client.close(1001, "cut");
    for body in ["4", "5"] {
        host.publish(ROOM, raw(body), None).unwrap();
    }
    host.visible(5).await.unwrap();
    let resumed = client.reconnect(connect()).await.unwrap();
    assert!(
        matches!(resumed, Resumed::Replay { actions: 2..=3, .. }),
        "{resumed:?}"
    );
    follow(&client, &mut said, 5).await;

    // Too much was missed for a replay: the host sends the state.
    client.close(1001, "cut");
    for body in ["6", "7", "8", "9", "10", "11"] {
        host.publish(ROOM, raw(body), None).unwrap();
    }
    host.visible(11).await.unwrap();
    let resumed = client.reconnect(connect()).await.unwrap();
    assert!(matches!(resumed, Resumed::Snapshot(_)), "{resumed:?}");
    host.publish(ROOM, raw("12"), None).unwrap();
    follow(&client, &mut said, 12).await;
    assert!(said == *host.app().0.lock().unwrap());
    assert_eq!(client.last_seen(), 12);
}

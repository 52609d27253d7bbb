//! A client that follows the session and comes back whenever its connection ends.

use std::sync::{Arc, Mutex};

use breakbulk::ahp::{Client, ClientConfig, ClientError, Config, Event, Resumed};
use breakbulk::link::Cap;
use breakbulk::net::ws::{self, ConnectOptions};
use interop_ahp::app::SESSION;
use interop_ahp::text::{digest, title};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The number and the digest of an action.
pub(crate) type Applied = (i64, String);

pub(crate) struct Follower {
    applied: Arc<Mutex<Vec<Applied>>>,
    count: watch::Receiver<usize>,
    connections: watch::Receiver<u64>,
    task: JoinHandle<()>,
}

impl Follower {
    /// Starts a client that follows the session at this address, and connects whenever the host is up.
    pub(crate) fn start(url: String, up: watch::Receiver<bool>) -> Self {
        let applied = Arc::new(Mutex::new(Vec::new()));
        let (tell_count, count) = watch::channel(0);
        let (tell_connections, connections) = watch::channel(0);
        let following = Following {
            applied: applied.clone(),
            count: tell_count,
            connections: tell_connections,
            up,
        };
        Self {
            applied,
            count,
            connections,
            task: tokio::spawn(following.run(url)),
        }
    }

    /// All applied actions, in the order in which they were applied.
    pub(crate) fn applied(&self) -> Vec<Applied> {
        self.applied.lock().unwrap().clone()
    }

    /// Waits until so many actions are applied.
    pub(crate) async fn until(&self, actions: usize) {
        let mut count = self.count.clone();
        let enough = count.wait_for(|count| *count >= actions).await;
        enough.expect("the client has failed");
    }

    /// How many connections the client has made.
    pub(crate) fn connections(&self) -> u64 {
        *self.connections.borrow()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Following {
    applied: Arc<Mutex<Vec<Applied>>>,
    count: watch::Sender<usize>,
    connections: watch::Sender<u64>,
    up: watch::Receiver<bool>,
}

impl Following {
    async fn run(mut self, url: String) {
        let mut config = ClientConfig::new("long");
        config.connection = Config::default().with(|config| config.cap = Cap::frame(900_000));
        let client = Client::new(config);
        let mut started = false;
        while self.up.wait_for(|up| *up).await.is_ok() {
            let Ok(socket) = ws::connect(&url, &ConnectOptions::default()).await else {
                continue;
            };
            self.connections
                .send_modify(|connections| *connections += 1);
            let shaken = match started {
                false => client.initialize(socket, &[SESSION]).await.map(drop),
                true => client.reconnect(socket).await.map(|resumed| match resumed {
                    Resumed::Replay { missing, .. } => assert!(missing.is_empty()),
                    // All that is missing fits one answer, and the log has all of it.
                    Resumed::Snapshot(_) => panic!("a snapshot where a replay was due"),
                }),
            };
            match shaken {
                Ok(()) => started = true,
                Err(ClientError::Disconnected { .. }) => {}
                Err(error) => panic!("{error}"),
            }
            // Takes events until the connection has ended.
            while let Some(event) = client.next().await {
                self.apply(event);
            }
        }
    }

    fn apply(&self, event: Event) {
        if let Event::Action(action) = event {
            let title = title(&action.action).expect("an action without a title");
            let mut applied = self.applied.lock().unwrap();
            applied.push((action.seq, digest([&*title])));
            self.count.send_replace(applied.len());
        }
    }
}

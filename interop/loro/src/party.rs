//! A Rust peer that edits a document over connections that are cut again and again.

use std::time::Duration;

use anyhow::{Result, anyhow};
use breakbulk::loro::store::MemoryStore;
use breakbulk::loro::{Backoff, Config, Dial, Doc, Node, Remote, Way};
use breakbulk_testkit::bad_path::{BadPath, How, Weather};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use crate::content::{Random, edit};
use crate::state::version_of;

/// The time limit for connecting to the server.
const PATIENCE: Duration = Duration::from_secs(30);

/// Milliseconds between two cuts, at least and at most.
const BETWEEN_CUTS: (usize, usize) = (500, 2500);

pub(crate) struct Party {
    pub(crate) name: &'static str,
    pub(crate) doc: Doc,
    pub(crate) path: BadPath,
    remote: Remote,
}

impl Party {
    /// Starts a peer that opens the server's document over this transport.
    pub(crate) async fn join(
        name: &'static str,
        way: Way,
        server: std::net::SocketAddr,
        doc: &str,
    ) -> Result<Self> {
        let (path, url) = match way {
            Way::WebSocket => {
                let path = BadPath::start(server, Weather::default()).await?;
                let url = format!("ws://{}/ws", path.address());
                (path, url)
            }
            Way::Sse | Way::Poll => {
                let path = BadPath::start_tcp(server, Weather::default()).await?;
                let transport = if way == Way::Sse { "sse" } else { "poll" };
                let url = format!("http://{}?transport={transport}", path.address());
                (path, url)
            }
            Way::DataChannel | Way::Exchange => {
                return Err(anyhow!("{way:?} cannot be cut on its way"));
            }
        };
        let node = Node::new(Config::client(name), MemoryStore::new())?;
        let doc = node.open(doc).await?;
        let mut dial = Dial::new(url);
        dial.backoff = Backoff {
            tries: u32::MAX,
            base: Duration::from_millis(100),
            cap: Duration::from_secs(2),
        };
        let remote = node.dial(dial);
        let party = Self {
            name,
            doc,
            path,
            remote,
        };
        party.established().await?;
        Ok(party)
    }

    async fn established(&self) -> Result<()> {
        let established = timeout(PATIENCE, self.remote.established()).await;
        established
            .map_err(|_| anyhow!("{}: no connection, {:?}", self.name, self.remote.status()))?
            .map_err(|reason| anyhow!("{}: {reason}", self.name))
    }

    /// A description of the peer's state, for an error message.
    pub(crate) fn describe(&self) -> String {
        let (name, doc) = (self.name, self.doc.loro());
        let (peer, version) = (doc.peer_id(), version_of(&doc));
        let status = self.remote.status().borrow().clone();
        format!("{name} is {peer} and {status:?}, with {version:?}")
    }

    /// Edits the document and cuts the path again and again; returns the number of edits.
    pub(crate) async fn edit_until(
        &self,
        end: Instant,
        every: Duration,
        random: &mut Random,
    ) -> Result<u64> {
        let mut count = 0;
        let mut edits = interval(every);
        edits.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut cut = next_cut(random);
        loop {
            tokio::select! {
                biased;
                () = sleep_until(end) => return Ok(count),
                () = sleep_until(cut) => {
                    self.path.cut(How::Reset);
                    cut = next_cut(random);
                }
                _ = edits.tick() => {
                    edit(&self.doc.loro(), self.name, count, random)?;
                    count += 1;
                }
            }
        }
    }
}

/// The time of the next cut.
pub(crate) fn next_cut(random: &mut Random) -> Instant {
    let (least, most) = BETWEEN_CUTS;
    let wait = least + random.below(most - least);
    Instant::now() + Duration::from_millis(wait as u64)
}

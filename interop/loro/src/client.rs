//! A client of either implementation with one interface, so that the same tests run with both.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use breakbulk::loro::store::MemoryStore;
use breakbulk::loro::{Backoff, Config, Dial, Doc, Node, Remote, Way};
use loro::ToJson;
use loro::awareness::EphemeralStore;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::containers;
use crate::content::fill;
use crate::hub::Whose;
use crate::repo::{Repo, fresh_peer_id};
use crate::state::{State, Version, until};

/// The time limit for everything that a test waits for.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The namespace of the presence store; `repo.mjs` has the same.
const PRESENCE: &str = "presence";

/// Milliseconds after which a store forgets a value that was not sent again; longer than any test.
const KEPT_FOR: i64 = 600_000;

/// A client of a hub.
pub enum Client {
    /// A [`Node`] of this process.
    Ours(Ours),
    /// A Repo in a process of its own.
    Npm(Box<Repo>),
}

/// A node with the documents that it opened.
pub struct Ours {
    node: Node,
    peer_id: String,
    _remote: Remote,
    docs: BTreeMap<String, Doc>,
}

impl Client {
    /// Starts a client that connects to a hub by this transport.
    pub async fn start(whose: Whose, name: &str, way: Way, url: &str) -> Result<Self> {
        if whose == Whose::Npm {
            return Ok(Self::Npm(Box::new(Repo::client(name, way, url).await?)));
        }
        let mut config = Config::client(name);
        config.identity.peer_id = fresh_peer_id();
        let peer_id = config.identity.peer_id.clone();
        let node = Node::new(config, MemoryStore::new())?;
        let mut dial = Dial::new(match way {
            Way::WebSocket => format!("{}/ws", url.replace("http", "ws")),
            Way::Sse => format!("{url}?transport=sse"),
            Way::Poll => format!("{url}?transport=poll"),
            Way::DataChannel | Way::Exchange => bail!("a Repo in node has no {way:?}"),
        });
        dial.backoff = Backoff {
            tries: u32::MAX,
            base: Duration::from_millis(100),
            cap: Duration::from_secs(1),
        };
        Ok(Self::Ours(Ours {
            _remote: node.dial(dial),
            node,
            peer_id,
            docs: BTreeMap::new(),
        }))
    }

    /// The client's peer id, which is also its key in presence stores.
    pub fn peer_id(&self) -> String {
        match self {
            Self::Ours(ours) => ours.peer_id.clone(),
            Self::Npm(repo) => repo.peer_id.clone(),
        }
    }

    /// Opens a document and waits until it is synced with the hub: `waitForSync` of the Repo.
    pub async fn wait_for_sync(&mut self, doc: &str) -> Result<()> {
        match self {
            Self::Ours(ours) => {
                let doc = ours.open(doc).await?;
                let synced = timeout(PATIENCE, doc.sync()).await;
                Ok(synced.context("sync does not end")??)
            }
            Self::Npm(repo) => {
                let options = json!({"timeout": PATIENCE.as_millis() as u64});
                let within = PATIENCE * 2;
                let _: u64 = repo
                    .call("waitForSync", json!([doc, options]), within)
                    .await?;
                Ok(())
            }
        }
    }

    /// The current state of a document.
    pub async fn state(&mut self, doc: &str) -> Result<State> {
        match self {
            Self::Ours(ours) => Ok(State::of(&ours.open(doc).await?.loro())),
            Self::Npm(repo) => repo.call("state", json!([doc]), PATIENCE).await,
        }
    }

    /// The current value of a document, as JSON.
    pub async fn json(&mut self, doc: &str) -> Result<Value> {
        match self {
            Self::Ours(ours) => {
                let doc = ours.open(doc).await?;
                Ok(doc.loro().get_deep_value().to_json_value())
            }
            Self::Npm(repo) => repo.call("json", json!([doc]), PATIENCE).await,
        }
    }

    /// Waits until a document has all of a version.
    pub async fn until(&mut self, doc: &str, version: &Version, within: Duration) -> Result<State> {
        match self {
            Self::Ours(ours) => {
                let doc = ours.open(doc).await?;
                timeout(within, until(&doc, version)).await?
            }
            Self::Npm(repo) => repo.call("until", json!([doc, version]), within).await,
        }
    }

    /// Changes something in each kind of container.
    pub async fn edit(&mut self, doc: &str, name: &str) -> Result<State> {
        match self {
            Self::Ours(ours) => {
                let doc = ours.open(doc).await?;
                containers::edit(&doc.loro(), name)?;
                Ok(State::of(&doc.loro()))
            }
            Self::Npm(repo) => repo.call("edit", json!([doc, name]), PATIENCE).await,
        }
    }

    /// Fills a document with so many bytes of text.
    pub async fn fill(&mut self, doc: &str, bytes: usize, within: Duration) -> Result<State> {
        match self {
            Self::Ours(ours) => {
                let doc = ours.open(doc).await?;
                fill(&doc.loro(), bytes, 1)?;
                Ok(State::of(&doc.loro()))
            }
            Self::Npm(repo) => {
                let options = json!({"bytes": bytes, "seed": 1});
                repo.call("fill", json!([doc, options]), within).await
            }
        }
    }

    /// Announces the client's presence in a document.
    pub async fn appear(&mut self, doc: &str) -> Result<()> {
        match self {
            Self::Ours(ours) => {
                let store = EphemeralStore::new(KEPT_FOR);
                store.set(&ours.peer_id, "ours");
                ours.open(doc)
                    .await?
                    .set_ephemeral(PRESENCE, store.encode_all())?;
                Ok(())
            }
            Self::Npm(repo) => repo.call("appear", json!([doc, "npm"]), PATIENCE).await,
        }
    }

    /// Waits until exactly these peers are seen at a document.
    pub async fn until_present(&mut self, doc: &str, peers: &[&str]) -> Result<()> {
        match self {
            Self::Ours(ours) => ours.until_present(doc, peers).await,
            Self::Npm(repo) => {
                repo.call("untilPresent", json!([doc, peers]), PATIENCE)
                    .await
            }
        }
    }

    /// Disconnects and ends the client in good order.
    pub async fn leave(self) -> Result<()> {
        match self {
            Self::Ours(ours) => {
                ours.node.shut_down(PATIENCE).await;
                Ok(())
            }
            Self::Npm(repo) => repo.stop().await,
        }
    }

    /// Ends the client without an announcement, as far as possible.
    pub async fn kill(self) -> Result<()> {
        match self {
            // A node of this process closes its sockets when it is dropped.
            Self::Ours(_) => Ok(()),
            Self::Npm(repo) => repo.kill().await,
        }
    }
}

impl Ours {
    async fn open(&mut self, doc: &str) -> Result<Doc> {
        if let Some(open) = self.docs.get(doc) {
            return Ok(open.clone());
        }
        let open = self.node.open(doc).await?;
        self.docs.insert(doc.to_owned(), open.clone());
        Ok(open)
    }

    async fn until_present(&mut self, doc: &str, peers: &[&str]) -> Result<()> {
        let doc = self.open(doc).await?;
        let mut wanted: Vec<_> = peers.iter().map(|peer| (*peer).to_owned()).collect();
        wanted.sort();
        let mut seen = doc.watch();
        let mut found = Vec::new();
        let arrives = async {
            loop {
                seen.mark_unchanged();
                found = present(&doc);
                if found == wanted {
                    return anyhow::Ok(());
                }
                seen.changed().await?;
            }
        };
        let arrived = timeout(PATIENCE, arrives).await;
        arrived.with_context(|| format!("{} has {found:?}, not {wanted:?}", doc.id()))?
    }
}

/// The keys of all stores together, as an application merges them.
fn present(doc: &Doc) -> Vec<String> {
    let all = EphemeralStore::new(KEPT_FOR);
    for store in doc.ephemeral() {
        if store.namespace == PRESENCE {
            // Data that is not a valid store has nobody's presence in it.
            let _ = all.apply(&store.data);
        }
    }
    let mut keys: Vec<_> = all.get_all_states().into_keys().collect();
    keys.sort();
    keys
}

//! The async sync peer: serves connections, dials peers, and opens documents for the application.

mod config;
mod core;
mod doc;
mod encoder;
mod error;
mod readers;
mod remote;
mod serve;
mod shares;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use breakbulk_link::lock;
use breakbulk_net::http::{Arrivals, Way};
use breakbulk_net::{Options, Transport};
use tokio::sync::{broadcast, oneshot, watch};
use tokio::task::JoinHandle;

use self::core::{Core, run_timers};
use super::machine::{DocId, Event, Head};
use super::repo::{Repo, Request, Told};
use super::store::{Store, StoreError, StoreStatus};
pub use config::{Config, Cut, Cuts};
pub use doc::{Doc, DocError, DocState};
pub use error::DialError;
pub use remote::{Backoff, Dial, Remote, Status};
use serve::Dialer;

/// The keepalive of WebSockets, on both sides: a ping after this much time in which nothing came in, and
/// the end of the connection. Event streams have the original's heartbeats (30 s), polls end after 30 s,
/// and data channels notice by themselves that the other end is gone.
const PING_AFTER: Duration = Duration::from_secs(10);
const LOST_AFTER: Duration = Duration::from_secs(30);
/// How long a client waits for `ready`.
const READY_WITHIN: Duration = Duration::from_secs(10);
const SHUTTING_DOWN: &str = "Server shutting down";
const DISCONNECTING: &str = "Client disconnecting";

/// A peer that syncs documents. Clones share it; it runs until it is shut down, or the last clone and
/// the last [`Doc`] are dropped.
#[derive(Clone)]
pub struct Node {
    core: Arc<Core>,
}

impl Node {
    /// Makes a node with the documents of this store.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(config: Config, store: impl Store) -> Result<Self, StoreError> {
        let known: Arc<OnceLock<Weak<Core>>> = Arc::default();
        let core = |known: &OnceLock<Weak<Core>>| known.get().and_then(Weak::upgrade);
        let (for_done, for_edits, for_status) = (known.clone(), known.clone(), known.clone());
        let for_others = known.clone();
        let finished = Arc::new(move |tasks| {
            if let Some(core) = core(&for_done) {
                core.done(tasks);
            }
        });
        let status = Arc::new(move |status| {
            if let Some(core) = core(&for_status) {
                core.store_changed(status);
            }
        });
        let edit = Arc::new(move |doc: &DocId| {
            if let Some(core) = core(&for_edits) {
                core.drive(|state, _| state.hub.edited(doc));
            }
        });
        // Changes by other nodes that are reported while this node is being made.
        let early: Arc<Mutex<Option<BTreeSet<DocId>>>> =
            Arc::new(Mutex::new(Some(BTreeSet::new())));
        let for_early = early.clone();
        let others = Arc::new(move |doc: &DocId| {
            if let Some(early) = &mut *lock(&for_early) {
                early.insert(doc.clone());
            } else if let Some(core) = core(&for_others) {
                core.drive(|state, _| state.hub.changed_by_others(doc));
            }
        });
        let told = Told {
            finished,
            status,
            edit,
            others,
        };
        let repo = Repo::start(Box::new(store), &config.limits, config.threads, told)?;
        let core = Arc::new(Core::new(config, repo));
        let _ = known.set(Arc::downgrade(&core));
        for doc in lock(&early).take().unwrap_or_default() {
            core.drive(|state, _| state.hub.changed_by_others(&doc));
        }
        tokio::spawn(run_timers(Arc::downgrade(&core)));
        tokio::spawn(readers::watch_readers(Arc::downgrade(&core)));
        Ok(Self { core })
    }

    /// Serves the connections of an HTTP router (WebSocket, SSE, polling, data channel) until the node is
    /// shut down or the router is dropped.
    pub fn serve(&self, mut arrivals: Arrivals) -> JoinHandle<()> {
        let node = self.clone();
        tokio::spawn(async move {
            while let Some(arrival) = arrivals.next().await {
                let (way, options) = (arrival.transport.way(), arrival.transport.options());
                let subject = arrival.grant.subject;
                let dialer = Dialer {
                    claim: subject.clone().unwrap_or(arrival.claim.peer_id),
                    subject,
                    address: arrival.claim.remote.map(|address| address.ip()),
                };
                node.accept_as(way, dialer, arrival.transport, options);
            }
        })
    }

    /// Serves one peer over any transport; `claim` is the name under which it connected.
    pub fn accept<T: Transport>(
        &self,
        way: Way,
        claim: impl Into<String>,
        transport: T,
        options: Options,
    ) -> JoinHandle<()> {
        let dialer = Dialer {
            claim: claim.into(),
            subject: None,
            address: None,
        };
        self.accept_as(way, dialer, transport, options)
    }

    /// The same for a peer whose name may be authenticated.
    fn accept_as<T: Transport>(
        &self,
        way: Way,
        dialer: Dialer,
        transport: T,
        options: Options,
    ) -> JoinHandle<()> {
        let core = self.core.clone();
        tokio::spawn(async move {
            match serve::accept(&core, way, dialer, transport, options).await {
                Ok(joined) => {
                    let closed = serve::run(&core, joined, |_, _| {}).await;
                    tracing::debug!(?way, %closed, "connection closed");
                }
                Err(error) => tracing::debug!(?way, %error, "connection failed"),
            }
        })
    }

    /// Dials a peer, and again whenever the connection ends.
    pub fn dial(&self, dial: Dial) -> Remote {
        let backoff = dial.backoff;
        remote::start(&self.core, backoff, move |core| {
            remote::call(core, dial.clone())
        })
    }

    /// Dials a peer over the transport that `connect` makes.
    pub fn dial_with<C, F, T, E>(&self, way: Way, backoff: Backoff, connect: C) -> Remote
    where
        C: Fn() -> F + Send + Sync + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: Transport,
        E: std::error::Error + Send + Sync + 'static,
    {
        let connect = Arc::new(connect);
        remote::start(&self.core, backoff, move |core| {
            let connect = connect.clone();
            async move {
                let connected = connect().await;
                let transport = connected.map_err(|error| DialError::Connect(Arc::new(error)))?;
                serve::join(&core, way, transport, Options::default()).await
            }
        })
    }

    /// Opens a document; creates it if there is none.
    pub async fn open(&self, doc: &str) -> Result<Doc, DocError> {
        let (len, limit) = (doc.len(), self.core.config.limits.doc_id);
        if len == 0 || len > limit {
            return Err(DocError::Name { len, limit });
        }
        let id: DocId = doc.into();
        let (reply, opened) = oneshot::channel();
        let seen = self.core.drive(|state, _| {
            if state.ended {
                return None;
            }
            state.hub.open_document(&id);
            Some(state.watch(&id))
        });
        let seen = seen.ok_or(DocError::ShutDown)?;
        let reply = Box::new(move |outcome| {
            let _ = reply.send(outcome);
        });
        self.core.repo().ask(Request::Open(id.clone(), reply));
        let opened = opened.await.map_err(|_| DocError::ShutDown);
        let slot = match opened.and_then(|opened| opened.map_err(DocError::from)) {
            Ok(slot) => slot,
            Err(error) => {
                self.core.drive(|state, _| state.hub.close_document(&id));
                return Err(error);
            }
        };
        Ok(Doc::new(self.core.clone(), id, slot, seen))
    }

    /// All documents of this node.
    pub fn documents(&self) -> Vec<(DocId, Head)> {
        let state = self.core.lock();
        let documents = state.hub.documents();
        documents
            .map(|(doc, head)| (doc.clone(), head.clone()))
            .collect()
    }

    /// Deletes a document of this node; false: there is none.
    pub async fn delete(&self, doc: &str) -> bool {
        let id: DocId = doc.into();
        let mut events = self.events();
        let found = self.core.drive(|state, _| {
            let found = state.hub.head(&id).is_some_and(|head| head.size > 0);
            state.hub.delete(&id);
            found
        });
        if !found {
            return false;
        }
        loop {
            match events.recv().await {
                Ok(Event::Deleted { doc }) if doc == id => return true,
                Ok(_) => {}
                // Events were missed: ask the machine.
                Err(_) => return self.core.lock().hub.head(&id).is_none_or(|h| h.size == 0),
            }
        }
    }

    /// Asks the dialed peers which documents they have; each responds with an [`Event::Directory`].
    /// False: none is connected.
    pub fn ask_directory(&self) -> bool {
        self.core.drive(|state, _| state.hub.ask_directory())
    }

    /// Asks the dialed peers to delete a document; each responds with an [`Event::DeleteAnswered`].
    /// False: none is connected.
    pub fn ask_delete(&self, doc: &str) -> bool {
        let id: DocId = doc.into();
        self.core.drive(|state, _| state.hub.ask_delete(&id))
    }

    /// The events from now on. A receiver that is too slow misses some.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.core.events.subscribe()
    }

    /// Whether the store takes changes; await changes on the receiver.
    pub fn store_status(&self) -> watch::Receiver<StoreStatus> {
        self.core.store_status.subscribe()
    }

    /// The number of connections.
    pub fn connections(&self) -> usize {
        self.core.lock().hub.channels()
    }

    /// Closes all connections once their queues are sent, at the latest after `grace`, and neither
    /// accepts nor dials any more. Changes that were reported as stored stay stored.
    pub async fn shut_down(&self, grace: Duration) {
        let (connections, dials) = {
            let mut state = self.core.lock();
            state.ended = true;
            (state.connections(), self.core.config.identity.kind)
        };
        let reason = match dials {
            breakbulk_message::loro::PeerType::Service => SHUTTING_DOWN,
            _ => DISCONNECTING,
        };
        let code = if reason == SHUTTING_DOWN { 1001 } else { 1000 };
        let finishing = async {
            for connection in &connections {
                connection.finish(code, reason).await;
            }
        };
        if tokio::time::timeout(grace, finishing).await.is_err() {
            for connection in &connections {
                connection.close(code, reason);
            }
        }
        self.core.timer.notify_one();
        for connection in connections {
            let _ = tokio::time::timeout(grace, connection.ended()).await;
        }
    }
}

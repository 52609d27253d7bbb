//! A document that is held open: edited here, synced with all peers.

use std::sync::Arc;
use std::time::Duration;

use breakbulk_message::loro::{EphemeralStore, VersionVector};
use bytes::Bytes;
use loro::LoroDoc;
use tokio::sync::watch;

use super::core::{Core, now};
use crate::machine::{DocId, WorkError, covers};
use crate::repo::crdt::to_wire;
use crate::repo::{Request, Slot};

/// How often a peer may answer without having taken what this side has.
const TRIES: u32 = 32;

/// It has to write it down first: the longest wait before it is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// What happened to a document since it was opened.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Changes that were kept, of whomever.
    pub changes: u64,
    /// What is kept on this side.
    pub kept: VersionVector,
    /// How often a peer answered what it has.
    pub answers: u64,
    /// What it said last; `None`: it does not have the document.
    pub answer: Option<VersionVector>,
    /// How often ephemeral stores changed.
    pub ephemeral: u64,
    /// Edits of this side cannot be kept any more.
    pub failed: Option<WorkError>,
}

/// Why a document is not synced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocError {
    /// Edits of this side cannot be kept.
    #[error(transparent)]
    Work(#[from] WorkError),
    /// The peer does not have the document, or does not show it.
    #[error("the peer has no document {doc:?}, or does not show it: ask its owner")]
    Unavailable {
        /// The document.
        doc: String,
    },
    /// The peer answers but does not take what this side has.
    #[error(
        "the peer does not take the changes of document {doc:?}: ask for the right to change it"
    )]
    NotTaken {
        /// The document.
        doc: String,
    },
    /// The node is shut down.
    #[error("the node is shut down")]
    ShutDown,
}

/// A document that is held open. Clones share it; with the last one it is closed.
#[derive(Clone)]
pub struct Doc {
    inner: Arc<Inner>,
}

struct Inner {
    core: Arc<Core>,
    id: DocId,
    slot: Arc<Slot>,
    seen: watch::Receiver<Seen>,
}

impl Doc {
    pub(super) fn new(
        core: Arc<Core>,
        id: DocId,
        slot: Arc<Slot>,
        seen: watch::Receiver<Seen>,
    ) -> Self {
        let inner = Inner {
            core,
            id,
            slot,
            seen,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Its name.
    pub fn id(&self) -> &DocId {
        &self.inner.id
    }

    /// The document itself. Edit it and `commit()`: the edits are kept and sent. Ask for it anew each
    /// time: hostile changes of a peer's can spoil one in memory, and another takes its place then.
    pub fn loro(&self) -> LoroDoc {
        self.inner.slot.get()
    }

    /// What happened to it; wait for changes on it.
    pub fn watch(&self) -> watch::Receiver<Seen> {
        self.inner.seen.clone()
    }

    /// Waits until all edits of this side are kept on this side.
    pub async fn kept(&self) -> Result<VersionVector, DocError> {
        let loro = self.loro();
        loro.commit();
        let wanted = to_wire(&loro.oplog_vv());
        let mut seen = self.watch();
        // Whatever told of the edit before, this makes sure that somebody looks.
        let id = self.inner.id.clone();
        self.inner.core.drive(|state, _| state.hub.edited(&id));
        let seen = seen
            .wait_for(|seen| seen.failed.is_some() || covers(&seen.kept, &wanted))
            .await
            .map_err(|_| DocError::ShutDown)?;
        match &seen.failed {
            Some(error) => Err(error.clone().into()),
            None => Ok(wanted),
        }
    }

    /// Waits until a peer that this side called has answered that it keeps all edits made here before,
    /// and all that it had is here. Connections may come and go meanwhile.
    pub async fn sync(&self) -> Result<(), DocError> {
        let wanted = self.kept().await?;
        let core = &self.inner.core;
        let mut established = core.established.subscribe();
        let mut seen = self.watch();
        let mut tries = 0;
        loop {
            established.borrow_and_update();
            let answers = seen.borrow_and_update().answers;
            let asked = core.drive(|state, _| {
                if state.ended {
                    return None;
                }
                Some(state.hub.ask(&self.inner.id, true))
            });
            let asked = asked.ok_or(DocError::ShutDown)?;
            let answered = async {
                if !asked {
                    std::future::pending::<()>().await;
                }
                let _ = seen.wait_for(|seen| seen.answers > answers).await;
            };
            tokio::select! {
                () = answered => {}
                changed = established.changed() => {
                    changed.map_err(|_| DocError::ShutDown)?;
                    continue;
                }
            }
            let doc = || self.inner.id.to_string();
            match &seen.borrow().answer {
                Some(version) if covers(version, &wanted) => return Ok(()),
                Some(_) => tries += 1,
                None => return Err(DocError::Unavailable { doc: doc() }),
            }
            if tries >= TRIES {
                return Err(DocError::NotTaken { doc: doc() });
            }
            let wait = Duration::from_millis(1 << tries.min(9));
            tokio::time::sleep(wait.min(ASK_AGAIN)).await;
        }
    }

    /// Sets this side's ephemeral store, as `loro::awareness::EphemeralStore` encodes it; empty data
    /// takes it away. It is told again by itself while the document is open.
    pub fn set_ephemeral(&self, namespace: &str, data: impl Into<Bytes>) {
        let data = data.into();
        self.inner.core.drive(|state, _| {
            let id = &self.inner.id;
            state.hub.set_ephemeral(now(), id, namespace, data);
        });
    }

    /// All ephemeral stores of the document, those of other peers too.
    pub fn ephemeral(&self) -> Vec<EphemeralStore> {
        self.inner.core.lock().hub.ephemeral(&self.inner.id)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Edits that nobody told of yet are kept before the document may go.
        let id = self.id.clone();
        self.core.drive(|state, _| {
            state.hub.edited(&id);
            state.hub.close_document(&id);
        });
        self.core.repo().ask(Request::Close(id));
    }
}

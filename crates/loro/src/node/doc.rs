//! An open document: edited by the application, synced with all peers.

use std::sync::Arc;
use std::time::Duration;

use breakbulk_message::loro::{EphemeralError, EphemeralStore, VersionVector};
use loro::LoroDoc;
use tokio::sync::watch;

use super::core::Core;
use crate::machine::control::Refusal;
use crate::machine::{DocId, WorkError, covers};
use crate::repo::crdt::to_wire;
use crate::repo::{Request, Slot};

/// How many responses of a peer may lack this node's changes before `sync` fails.
const TRIES: u32 = 32;

/// The longest wait before asking a peer again, which has to store the changes first.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// The state of a document since it was opened.
#[derive(Clone, Debug, Default)]
pub struct DocState {
    /// Stored changes, of this node and of peers.
    pub changes: u64,
    /// The version stored on this node.
    pub kept: VersionVector,
    /// Responses of peers to sync-requests.
    pub answers: u64,
    /// The peer's version in the last response; `None`: it does not have the document.
    pub answer: Option<VersionVector>,
    /// Changes of ephemeral stores.
    pub ephemeral: u64,
    /// Set when edits cannot be stored any more.
    pub failed: Option<WorkError>,
    /// How often a peer refused changes.
    pub refusals: u64,
    /// The last refusal.
    pub refusal: Option<Refusal>,
}

/// Why a document could not be opened or synced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocError {
    /// Edits cannot be stored, or the document cannot be loaded.
    #[error(transparent)]
    Work(#[from] WorkError),
    /// The peer does not have the document, or does not show it.
    #[error("the peer has no document {doc:?}, or does not show it: ask its owner")]
    Unavailable {
        /// The document.
        doc: String,
    },
    /// The peer responds but does not accept this node's changes.
    #[error(
        "the peer does not take the changes of document {doc:?}: ask for the right to change it"
    )]
    NotTaken {
        /// The document.
        doc: String,
    },
    /// The peer refused this node's changes, or this node a message of the peer.
    #[error("refused: {reason}")]
    Refused {
        /// The document.
        doc: String,
        /// An HTTP status: 400, 403, 413, 429 or 503.
        status: u16,
        /// What the peer said.
        reason: String,
    },
    /// No document can have this name.
    #[error("the document's name has {len} bytes; 1 to {limit} are allowed: give another name")]
    Name {
        /// Its bytes.
        len: usize,
        /// [`Limits::doc_id`](crate::Limits::doc_id).
        limit: usize,
    },
    /// The node is shut down.
    #[error("the node is shut down")]
    ShutDown,
}

/// An open document. Clones share it; dropping the last one closes it.
#[derive(Clone)]
pub struct Doc {
    inner: Arc<Inner>,
}

struct Inner {
    core: Arc<Core>,
    id: DocId,
    slot: Arc<Slot>,
    seen: watch::Receiver<DocState>,
}

impl Doc {
    pub(super) fn new(
        core: Arc<Core>,
        id: DocId,
        slot: Arc<Slot>,
        seen: watch::Receiver<DocState>,
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

    /// The Loro document. Edit it and `commit()`: the edits are stored and sent. Call this again each
    /// time: if a peer's hostile changes corrupt a document in memory, another takes its place.
    pub fn loro(&self) -> LoroDoc {
        self.inner.slot.get()
    }

    /// The document's state; await changes on the receiver.
    pub fn watch(&self) -> watch::Receiver<DocState> {
        self.inner.seen.clone()
    }

    /// Waits until all edits of the application are stored on this node; returns their version.
    pub async fn kept(&self) -> Result<VersionVector, DocError> {
        let loro = self.loro();
        loro.commit();
        let wanted = to_wire(&loro.oplog_vv());
        let mut seen = self.watch();
        // The subscription reports edits too; this makes sure that a task runs.
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

    /// Waits until a dialed peer has stored all edits made before this call, and its own changes are
    /// here. Survives reconnects.
    pub async fn sync(&self) -> Result<(), DocError> {
        let wanted = self.kept().await?;
        let core = &self.inner.core;
        let mut established = core.established.subscribe();
        let mut seen = self.watch();
        let refusals = seen.borrow().refusals;
        let refused = |seen: &DocState| seen.refusals > refusals;
        let mut tries = 0;
        // The peer is asked to request this node's changes only once per connection: asked again while they
        // are being sent, it would get all of them again.
        let mut asks_back = true;
        loop {
            established.borrow_and_update();
            let answers = seen.borrow_and_update().answers;
            let asked = core.drive(|state, _| {
                if state.ended {
                    return None;
                }
                Some(state.hub.ask(&self.inner.id, asks_back))
            });
            let asked = asked.ok_or(DocError::ShutDown)?;
            asks_back &= !asked;
            let answered = async {
                if !asked {
                    std::future::pending::<()>().await;
                }
                let answered = |seen: &DocState| seen.answers > answers;
                let _ = seen.wait_for(|seen| answered(seen) || refused(seen)).await;
            };
            tokio::select! {
                () = answered => {}
                changed = established.changed() => {
                    changed.map_err(|_| DocError::ShutDown)?;
                    asks_back = true;
                    continue;
                }
            }
            let doc = || self.inner.id.to_string();
            {
                let seen = seen.borrow();
                match (&seen.answer, &seen.refusal) {
                    (Some(version), _) if covers(version, &wanted) => return Ok(()),
                    (_, Some(refusal)) if refused(&seen) => {
                        return Err(DocError::Refused {
                            doc: doc(),
                            status: refusal.status,
                            reason: refusal.error.clone(),
                        });
                    }
                    (Some(_), _) => tries += 1,
                    (None, _) => return Err(DocError::Unavailable { doc: doc() }),
                }
            }
            if tries >= TRIES {
                return Err(DocError::NotTaken { doc: doc() });
            }
            let wait = Duration::from_millis(1 << tries.min(9));
            tokio::time::sleep(wait.min(ASK_AGAIN)).await;
        }
    }

    /// Sets keys of this node in an ephemeral store, as `loro::awareness::EphemeralStore` encodes them;
    /// empty data deletes them all. The node sends them again on every heartbeat.
    ///
    /// # Errors
    /// If the data is not what `loro` encodes.
    pub fn set_ephemeral(
        &self,
        namespace: &str,
        data: impl AsRef<[u8]>,
    ) -> Result<(), EphemeralError> {
        self.inner.core.drive(|state, now| {
            let id = &self.inner.id;
            state.hub.set_ephemeral(now, id, namespace, data.as_ref())
        })
    }

    /// The ephemeral stores of the document, one for each namespace, with the keys of all peers.
    pub fn ephemeral(&self) -> Vec<EphemeralStore> {
        self.inner.core.lock().hub.ephemeral(&self.inner.id)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Store edits that were not flushed before the document is closed.
        let id = self.id.clone();
        self.core.drive(|state, _| {
            state.hub.edited(&id);
            state.hub.close_document(&id);
        });
        self.core.repo().ask(Request::Close(id));
    }
}

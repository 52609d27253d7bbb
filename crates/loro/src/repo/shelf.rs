//! The documents of one thread: loaded when they are needed, dropped when others need the room.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use breakbulk_message::loro::{Transmission, VersionVector};
use bytes::Bytes;

use super::commit::{Batch, Flight};
use super::crdt::{self, CrdtError, from_wire, to_wire};
use super::loaded::Loaded;
use super::{Edited, Request};
use crate::limits::Limits;
use crate::machine::{DocId, Finished, Head, Outcome, Work, WorkError, covers, is_nothing};
use crate::store::{StoreReader, Write};

/// Changes that wait in loro for earlier ones, which is memory that nobody else counts.
const GAP_BYTES: usize = 4 << 20;

pub(super) struct Shelf {
    reader: Arc<dyn StoreReader>,
    limits: Limits,
    edited: Edited,
    docs: HashMap<DocId, Loaded>,
    clock: u64,
}

/// A task's result, and edits of this side that were found before it.
type Ran = (Option<Transmission>, Result<Outcome, WorkError>);

impl Shelf {
    pub(super) fn new(
        reader: Arc<dyn StoreReader>,
        mut limits: Limits,
        threads: usize,
        edited: Edited,
    ) -> Self {
        limits.loaded = (limits.loaded / threads).max(1);
        limits.loaded_bytes /= threads as u64;
        Self {
            reader,
            limits,
            edited,
            docs: HashMap::new(),
            clock: 0,
        }
    }

    pub(super) fn run(mut self, requests: &Receiver<Request>, committer: &Sender<Batch>) {
        while let Ok(request) = requests.recv() {
            match request {
                Request::Task(id, doc, work) => {
                    let mut writes = Vec::new();
                    let (flight, finished) = self.work(&doc, work, &mut writes);
                    flight.start();
                    let task = Some((id, finished));
                    let _ = committer.send(Batch {
                        writes,
                        task,
                        flight,
                    });
                }
                Request::Open(doc, reply) => {
                    let edited = self.edited.clone();
                    reply(self.load(&doc).map(|loaded| loaded.hold(&edited)));
                }
                Request::Close(doc) => {
                    if let Some(loaded) = self.docs.get_mut(&doc) {
                        loaded.release();
                    }
                }
            }
            self.make_room();
        }
    }

    fn work(
        &mut self,
        doc: &DocId,
        work: Work,
        writes: &mut Vec<Write>,
    ) -> (Arc<Flight>, Finished) {
        let (local, result) = match self.attempt(doc, work, writes) {
            Ok(ran) => ran,
            Err(error) => (None, Err(error)),
        };
        let loaded = self.docs.get(doc);
        let finished = Finished {
            head: loaded.map_or_else(Head::default, Loaded::head),
            local,
            result,
        };
        let flight = loaded.map_or_else(Arc::default, |loaded| loaded.flight.clone());
        (flight, finished)
    }

    fn attempt(
        &mut self,
        doc: &DocId,
        work: Work,
        writes: &mut Vec<Write>,
    ) -> Result<Ran, WorkError> {
        let limit = self.limits.document_bytes;
        let loaded = self.load(doc)?;
        let (local, failed) = match loaded.flush(writes) {
            Ok(local) => (local, None),
            Err(error) => (None, Some(error)),
        };
        let outcome = match (failed, work) {
            (Some(error), _) => Err(error),
            (None, Work::Import { data, snapshot }) => {
                if let Some(error) = too_large(doc, loaded, data.len(), limit, writes) {
                    return Ok((local, Err(error)));
                }
                import(loaded, data, snapshot, writes)
            }
            (None, Work::Answer { since }) => answer(loaded, &since).map(Outcome::Answer),
            (None, Work::Local) => Ok(Outcome::Local),
            (None, Work::Delete) => {
                let was = loaded.size() > 0;
                let edited = self.edited.clone();
                let Some(loaded) = self.docs.get_mut(doc) else {
                    return Ok((local, Ok(Outcome::Deleted(false))));
                };
                loaded.forget(&edited);
                writes.clear();
                writes.push(Write::Delete { doc: doc.clone() });
                return Ok((None, Ok(Outcome::Deleted(was))));
            }
        };
        match outcome {
            Ok(outcome) => {
                let local = self.tidy(doc, local, writes);
                Ok((local, Ok(outcome)))
            }
            Err(CrdtError::Refused(reason)) => {
                let doc = doc.to_string();
                Ok((local, Err(WorkError::Garbage { doc, reason })))
            }
            Err(CrdtError::Panicked) => {
                self.renew(doc, writes)?;
                let doc = doc.to_string();
                let reason = "loro gave up on them".to_owned();
                Ok((local, Err(WorkError::Garbage { doc, reason })))
            }
        }
    }

    /// Compacts where it is time, and drops what only waits.
    fn tidy(
        &mut self,
        doc: &DocId,
        local: Option<Transmission>,
        writes: &mut Vec<Write>,
    ) -> Option<Transmission> {
        let loaded = self.docs.get_mut(doc)?;
        if loaded.gaps > GAP_BYTES {
            if let Err(error) = self.renew(doc, writes) {
                tracing::warn!(%error, "a document could not be loaded again");
            }
            return local;
        }
        if loaded.wants_compaction()
            && let Err(error) = loaded.compact(writes)
        {
            tracing::warn!(?error, doc = &**doc, "a document could not be compacted");
        }
        local
    }

    /// A document that may be spoiled is made again from what is kept.
    fn renew(&mut self, doc: &DocId, writes: &mut [Write]) -> Result<(), WorkError> {
        let Some(mut spoiled) = self.docs.remove(doc) else {
            return Ok(());
        };
        // All that went to the store before must be there; what this task wrote is put on top.
        spoiled.flight.wait();
        let edited = self.edited.clone();
        let fresh = self.load(doc)?;
        for write in writes.iter() {
            if let Write::Append { data, .. } = write {
                let _ = crdt::import(&fresh.doc, data);
                fresh.update_bytes += data.len() as u64;
            }
        }
        if let Ok(now) = crdt::version(&fresh.doc) {
            fresh.told = now;
        }
        fresh.take_over(&mut spoiled, &edited);
        Ok(())
    }

    fn load(&mut self, doc: &DocId) -> Result<&mut Loaded, WorkError> {
        self.clock += 1;
        if !self.docs.contains_key(doc) {
            let kept = self.reader.load(doc).map_err(|error| WorkError::Store {
                reason: error.to_string(),
            })?;
            let loaded = Loaded::from_kept(doc, &kept, Arc::default()).map_err(|reason| {
                let doc = doc.to_string();
                WorkError::Damaged { doc, reason }
            })?;
            self.docs.insert(doc.clone(), loaded);
        }
        let clock = self.clock;
        match self.docs.get_mut(doc) {
            Some(loaded) => {
                loaded.used = clock;
                Ok(loaded)
            }
            None => Err(WorkError::Damaged {
                doc: doc.to_string(),
                reason: "it is not there".to_owned(),
            }),
        }
    }

    /// Drops whoever was not used for longest and loses nothing by it.
    fn make_room(&mut self) {
        loop {
            let idle = self.docs.iter().filter(|(_, loaded)| loaded.is_idle());
            let bytes: u64 = self.docs.values().map(Loaded::size).sum();
            if self.docs.len() <= self.limits.loaded && bytes <= self.limits.loaded_bytes {
                return;
            }
            let oldest = idle.min_by_key(|(_, loaded)| loaded.used);
            let Some(doc) = oldest.map(|(doc, _)| doc.clone()) else {
                return;
            };
            self.docs.remove(&doc);
        }
    }
}

/// A document that would grow too large is refused, but not before it was compacted.
fn too_large(
    doc: &DocId,
    loaded: &mut Loaded,
    more: usize,
    limit: u64,
    writes: &mut Vec<Write>,
) -> Option<WorkError> {
    let size = |loaded: &Loaded| loaded.size().saturating_add(more as u64);
    if size(loaded) > limit && (more as u64) <= limit && loaded.update_bytes > 0 {
        let _ = loaded.compact(writes);
    }
    let size = size(loaded);
    (size > limit).then(|| WorkError::TooLarge {
        doc: doc.to_string(),
        size,
        limit,
    })
}

fn import(
    loaded: &mut Loaded,
    data: Bytes,
    snapshot: bool,
    writes: &mut Vec<Write>,
) -> Result<Outcome, CrdtError> {
    let before = loaded.told.clone();
    let status = crdt::import(&loaded.doc, &data)?;
    for (peer, (_, end)) in status.success.iter() {
        let known = loaded.told.get(peer).copied().unwrap_or(0);
        if *end > known {
            loaded.told.insert(*peer, *end);
        }
    }
    let gap = status.pending.is_some();
    if gap {
        loaded.gaps += data.len();
    }
    if loaded.told == before {
        return Ok(if gap {
            Outcome::Gap
        } else {
            Outcome::Imported(None)
        });
    }
    let version = to_wire(&loaded.told);
    let first = before.is_empty();
    if gap || (snapshot && !first) {
        // Of what came only a part was news: that part is kept and told.
        let data = crdt::since(&loaded.doc, &before)?;
        loaded.append(data.clone(), writes);
        let news = Transmission::Update { data, version };
        return Ok(Outcome::Imported(Some(news)));
    }
    if snapshot {
        let head_data = data.clone();
        loaded.replace(head_data, writes);
        let news = Transmission::Snapshot { data, version };
        return Ok(Outcome::Imported(Some(news)));
    }
    loaded.append(data.clone(), writes);
    let news = Transmission::Update { data, version };
    Ok(Outcome::Imported(Some(news)))
}

/// What somebody lacks who has `since`.
fn answer(loaded: &mut Loaded, since: &VersionVector) -> Result<Transmission, CrdtError> {
    let version = to_wire(&loaded.told);
    if covers(since, &version) {
        return Ok(Transmission::UpToDate { version });
    }
    if is_nothing(since) {
        let data = loaded.snapshot()?;
        return Ok(Transmission::Snapshot { data, version });
    }
    let data = crdt::since(&loaded.doc, &from_wire(since))?;
    Ok(Transmission::Update { data, version })
}

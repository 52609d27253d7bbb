//! Takes over what other nodes did to a document in the store that they share.

use breakbulk_message::loro::{Transmission, VersionVector};
use bytes::Bytes;

use super::crdt::{self, CrdtError, from_wire, to_wire};
use super::loaded::Loaded;
use super::queue::{TOGETHER, TOGETHER_BYTES};
use super::together::join;
use super::worker::{Ran, Worker};
use crate::machine::{DocId, Outcome, WorkError, covers, is_nothing};
use crate::store::Write;

impl Worker {
    /// Takes over changes of other nodes, already stored; exports what peers with the version `since` lack.
    pub(super) fn take_others(
        &mut self,
        doc: &DocId,
        since: &VersionVector,
        writes: &mut Vec<Write>,
    ) -> Result<Ran, WorkError> {
        let others = self.reader.others(doc);
        self.taken = Some((doc.clone(), others.deletions));
        if others.deleted {
            self.load_anew(doc)?;
            return Ok((None, Ok(Outcome::Deleted(true))));
        }
        let refusing = self.condition.refusing();
        let limit = self.limits.expanded_bytes;
        let loaded = self.load(doc)?;
        let imported = import_all(loaded, &others.data, limit);
        (loaded.snapshot_bytes, loaded.update_bytes) = others.size;
        // No peer may see edits of the application that are not stored.
        let flushed = match refusing {
            None => loaded.flush(writes),
            Some(reason) if loaded.has_edits() => {
                return Ok((None, Err(WorkError::Store { reason })));
            }
            Some(_) => Ok(None),
        };
        let ran = imported.and(flushed).and_then(|local| {
            let news = export(loaded, since)?;
            Ok((local, Ok(Outcome::Imported(news))))
        });
        match ran {
            Ok(ran) => Ok(ran),
            Err(error) => {
                writes.clear();
                self.load_anew(doc)?;
                Err(WorkError::Damaged {
                    doc: doc.to_string(),
                    reason: error.to_string(),
                })
            }
        }
    }

    /// Replaces the loaded document by what is stored.
    fn load_anew(&mut self, doc: &DocId) -> Result<(), WorkError> {
        let Some(mut old) = self.docs.remove(doc) else {
            return Ok(());
        };
        old.pending.wait();
        let on_edit = self.on_edit.clone();
        self.load(doc)?.adopt_holders(&mut old, &on_edit);
        Ok(())
    }
}

/// Imports several updates at once where that is possible.
fn import_all(loaded: &mut Loaded, all: &[Bytes], limit: u64) -> Result<(), CrdtError> {
    let mut rest = all;
    while !rest.is_empty() {
        let (some, after) = rest.split_at(together(rest));
        rest = after;
        let joined = match some.len() {
            1 => None,
            _ => join(&some.iter().collect::<Vec<_>>(), limit),
        };
        match joined.map(|data| import(loaded, &[data])) {
            // One by one, which finds out whether one of them is invalid.
            None | Some(Err(CrdtError::Refused(_))) => import(loaded, some)?,
            Some(imported) => imported?,
        }
    }
    Ok(())
}

/// How many of these are imported at once.
fn together(all: &[Bytes]) -> usize {
    let mut bytes = 0;
    let fit = all.iter().take(TOGETHER).take_while(|data| {
        bytes += data.len();
        bytes <= TOGETHER_BYTES
    });
    fit.count().max(1)
}

fn import(loaded: &mut Loaded, all: &[Bytes]) -> Result<(), CrdtError> {
    for data in all {
        let status = crdt::import(&loaded.doc, data)?;
        loaded.record(&status);
    }
    Ok(())
}

/// What a peer with this version lacks, if anything.
fn export(loaded: &mut Loaded, since: &VersionVector) -> Result<Option<Transmission>, CrdtError> {
    let version = to_wire(&loaded.recorded);
    if covers(since, &version) {
        return Ok(None);
    }
    Ok(Some(match is_nothing(since) {
        true => Transmission::Snapshot {
            data: loaded.snapshot()?,
            version,
        },
        false => Transmission::Update {
            data: crdt::since(&loaded.doc, &from_wire(since))?,
            version,
        },
    }))
}

//! A disk that loses power when a test says so.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;

/// Storage for tests of what survives: give a clone to what opens a database, keep one, and
/// open another on what [`crash`], [`crash_torn`] or [`kill`] leave, or on a clone once the
/// first is dropped (a clean restart).
///
/// It lives in memory, and clones are one disk. What was written is on it for certain only after
/// a sync, as with a real one.
///
/// [`crash`]: CrashDisk::crash
/// [`crash_torn`]: CrashDisk::crash_torn
/// [`kill`]: CrashDisk::kill
#[derive(Clone, Default)]
pub struct CrashDisk(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// As a program sees it.
    seen: Vec<u8>,
    /// As it was at the last sync.
    synced: Vec<u8>,
    /// What happened since.
    unsynced: Vec<Change>,
    counts: Counts,
    /// After so many operations every further one fails.
    fails_after: Option<u64>,
}

enum Change {
    Write { offset: usize, data: Vec<u8> },
    Resize(usize),
}

/// What a disk was asked to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Writes, resizes and syncs: the points at which it can be made to fail.
    pub operations: u64,
    /// Syncs alone.
    pub syncs: u64,
    /// Bytes written.
    pub written: u64,
}

/// The unit that a disk writes wholly or not at all.
const SECTOR: usize = 512;

impl CrashDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// The power fails: a new disk with what was there at the last sync, and nothing since. This
    /// one goes on for whoever holds it, and the new one never hears of that.
    pub fn crash(&self) -> Self {
        Self::holding(self.lock().synced.clone())
    }

    /// The power fails while the disk is busy: of what was written since the last sync some sectors
    /// are there and some are not, in no order, as the seed has it.
    pub fn crash_torn(&self, seed: u64) -> Self {
        let state = self.lock();
        let mut bytes = state.synced.clone();
        let mut random = seed;
        for change in &state.unsynced {
            match change {
                Change::Resize(len) => bytes.resize(*len, 0),
                Change::Write { offset, data } => {
                    for (at, sector) in data.chunks(SECTOR).enumerate() {
                        if coin(&mut random) {
                            put(&mut bytes, offset + at * SECTOR, sector);
                        }
                    }
                }
            }
        }
        Self::holding(bytes)
    }

    /// The program dies and the machine does not: a new disk with all that was written.
    pub fn kill(&self) -> Self {
        Self::holding(self.lock().seen.clone())
    }

    /// From now on so many writes, resizes and syncs succeed, and every later one fails; `None`
    /// heals it.
    pub fn fail_after(&self, operations: Option<u64>) {
        let mut state = self.lock();
        state.fails_after = operations.map(|n| n.saturating_add(state.counts.operations));
    }

    /// What it was asked to do so far.
    pub fn counts(&self) -> Counts {
        self.lock().counts
    }

    /// How large it is.
    pub fn size(&self) -> usize {
        self.lock().seen.len()
    }

    /// Damages one byte: it is combined with `mask` by exclusive or. Nothing happens past the end.
    pub fn flip(&self, offset: usize, mask: u8) {
        let mut state = self.lock();
        let State { seen, synced, .. } = &mut *state;
        for bytes in [seen, synced] {
            if let Some(byte) = bytes.get_mut(offset) {
                *byte ^= mask;
            }
        }
    }

    /// A disk with these bytes.
    pub fn holding(bytes: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(State {
            seen: bytes.clone(),
            synced: bytes,
            ..State::default()
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Counts an operation, or refuses it.
    fn begin(&mut self) -> io::Result<()> {
        if self
            .fails_after
            .is_some_and(|end| self.counts.operations >= end)
        {
            return Err(io::Error::other("the test made this disk fail"));
        }
        self.counts.operations += 1;
        Ok(())
    }
}

impl StorageBackend for CrashDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.lock().seen.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.lock();
        let offset = index(offset)?;
        let end = offset.checked_add(out.len()).ok_or_else(past_end)?;
        let bytes = state.seen.get(offset..end).ok_or_else(past_end)?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.lock();
        state.begin()?;
        let len = index(len)?;
        state.seen.resize(len, 0);
        state.unsynced.push(Change::Resize(len));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.lock();
        state.begin()?;
        state.counts.syncs += 1;
        let State {
            synced, unsynced, ..
        } = &mut *state;
        for change in unsynced.drain(..) {
            match change {
                Change::Resize(len) => synced.resize(len, 0),
                Change::Write { offset, data } => put(synced, offset, &data),
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.lock();
        state.begin()?;
        let offset = index(offset)?;
        let end = offset.checked_add(data.len()).ok_or_else(past_end)?;
        let seen = state.seen.get_mut(offset..end).ok_or_else(past_end)?;
        seen.copy_from_slice(data);
        state.counts.written += data.len() as u64;
        state.unsynced.push(Change::Write {
            offset,
            data: data.to_vec(),
        });
        Ok(())
    }
}

impl fmt::Debug for CrashDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not its bytes: redb prints its storage.
        let state = self.lock();
        f.debug_struct("CrashDisk")
            .field("size", &state.seen.len())
            .field("unsynced", &state.unsynced.len())
            .field("counts", &state.counts)
            .finish()
    }
}

/// Writes where there is room; a resize that shrank the disk may have taken some away.
fn put(bytes: &mut [u8], offset: usize, data: &[u8]) {
    let room = bytes.get_mut(offset..).unwrap_or_default();
    let len = room.len().min(data.len());
    room[..len].copy_from_slice(&data[..len]);
}

fn index(offset: u64) -> io::Result<usize> {
    usize::try_from(offset).map_err(|_| past_end())
}

fn past_end() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "past the end of the disk")
}

/// One bit of a splitmix64 sequence.
fn coin(state: &mut u64) -> bool {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) & 1 == 1
}

//! A disk in memory that loses power when a test says so.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use breakbulk_link::lock;
use redb::StorageBackend;

/// Storage for tests of crash safety: open a database on a clone, keep another clone, and open the
/// database again on the result of [`crash`], [`crash_torn`] or [`kill`], or on a clone once the
/// first is dropped (a clean restart).
///
/// Clones share one disk. As with a real disk, a write is durable only after a sync.
///
/// [`crash`]: CrashDisk::crash
/// [`crash_torn`]: CrashDisk::crash_torn
/// [`kill`]: CrashDisk::kill
#[derive(Clone, Default)]
pub struct CrashDisk(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The content as a program sees it.
    seen: Vec<u8>,
    /// The content at the last sync.
    synced: Vec<u8>,
    /// The changes since the last sync.
    unsynced: Vec<Change>,
    counts: Counts,
    /// All operations after this many fail.
    fails_after: Option<u64>,
}

enum Change {
    Write { offset: usize, data: Vec<u8> },
    Resize(usize),
}

/// How many operations a disk has performed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Writes, resizes and syncs: the operations that can be made to fail.
    pub operations: u64,
    /// Only syncs.
    pub syncs: u64,
    /// Bytes written.
    pub written: u64,
}

/// The unit that a disk writes completely or not at all.
const SECTOR: usize = 512;

impl CrashDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Simulates a power failure: returns a new disk with the content at the last sync. This disk
    /// stays usable, independently of the new one.
    pub fn crash(&self) -> Self {
        Self::holding(self.lock().synced.clone())
    }

    /// Simulates a power failure during writes: returns a new disk on which a random part of the
    /// sectors written since the last sync was stored, as determined by the seed.
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

    /// Simulates a crash of the program but not of the machine: returns a new disk with everything
    /// written.
    pub fn kill(&self) -> Self {
        Self::holding(self.lock().seen.clone())
    }

    /// Makes all writes, resizes and syncs fail after this many more; `None` makes them succeed again.
    pub fn fail_after(&self, operations: Option<u64>) {
        let mut state = self.lock();
        state.fails_after = operations.map(|n| n.saturating_add(state.counts.operations));
    }

    /// The operations so far.
    pub fn counts(&self) -> Counts {
        self.lock().counts
    }

    /// The size of the disk.
    pub fn size(&self) -> usize {
        self.lock().seen.len()
    }

    /// Damages one byte by XOR with `mask`. Does nothing past the end.
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
        lock(&self.0)
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
        // Omits the bytes, since redb prints its storage.
        let state = self.lock();
        f.debug_struct("CrashDisk")
            .field("size", &state.seen.len())
            .field("unsynced", &state.unsynced.len())
            .field("counts", &state.counts)
            .finish()
    }
}

/// Writes as much as fits; the disk may have been shrunk since the write.
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

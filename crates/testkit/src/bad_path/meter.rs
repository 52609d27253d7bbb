//! Decides when a scheduled cut happens. Frames are counted before they are written, so that two
//! directions or two connections cannot both forward the last one.

use super::weather::{After, Cut, Direction, How, Over};

/// The frames and bytes in each direction, of one connection or of all.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    frames: [u64; 2],
    bytes: [u64; 2],
}

impl Tally {
    pub(super) fn add(&mut self, direction: Direction, frames: u64, bytes: u64) {
        self.frames[direction as usize] += frames;
        self.bytes[direction as usize] += bytes;
    }

    fn of(&self, cut: &Cut) -> u64 {
        let amounts = match cut.after {
            After::Frames(_) => self.frames,
            After::Bytes(_) => self.bytes,
        };
        match cut.counting {
            Some(direction) => amounts[direction as usize],
            None => amounts[0] + amounts[1],
        }
    }
}

/// What may still be forwarded in one direction of a connection; `u64::MAX` means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Left {
    pub(super) frames: u64,
    pub(super) bytes: u64,
}

impl Left {
    pub(super) const ALL: Self = Self {
        frames: u64::MAX,
        bytes: u64::MAX,
    };

    pub(super) fn is_used_up(&self) -> bool {
        self.frames == 0 || self.bytes == 0
    }
}

/// The scheduled cut, and the counts of the whole path.
#[derive(Debug, Default)]
pub(super) struct Meter {
    cut: Option<Cut>,
    /// The path's counts when the cut was scheduled.
    since: Tally,
    pub(super) path: Tally,
}

impl Meter {
    pub(super) fn set(&mut self, cut: Option<Cut>) {
        self.cut = cut;
        self.since = self.path;
    }

    pub(super) fn left(&self, own: &Tally, direction: Direction) -> Left {
        let Some(cut) = self.cut else {
            return Left::ALL;
        };
        if cut.counting.is_some_and(|counted| counted != direction) {
            return Left::ALL;
        }
        let counted = match cut.over {
            Over::EachConnection => own.of(&cut),
            Over::Path => self.path.of(&cut) - self.since.of(&cut),
        };
        match cut.after {
            After::Frames(frames) => Left {
                frames: frames.saturating_sub(counted),
                ..Left::ALL
            },
            After::Bytes(bytes) => Left {
                bytes: bytes.saturating_sub(counted),
                ..Left::ALL
            },
        }
    }

    /// Returns how to cut. A cut that counts over the whole path happens once.
    pub(super) fn trigger(&mut self) -> How {
        match self.cut {
            Some(cut) => {
                if cut.over == Over::Path {
                    self.cut = None;
                }
                cut.how
            }
            None => How::Reset,
        }
    }
}

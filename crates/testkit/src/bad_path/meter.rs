//! When a cut falls. Frames are counted before they are written, so that two directions or two
//! connections cannot both pass as the last one.

use super::weather::{After, Cut, Direction, How, Over};

/// Frames and bytes in both directions, of one connection or of all.
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

/// What may still pass in one direction of a connection; `u64::MAX` is without end.
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

    pub(super) fn spent(&self) -> bool {
        self.frames == 0 || self.bytes == 0
    }
}

/// The cut to come and what the whole path counted.
#[derive(Debug, Default)]
pub(super) struct Meter {
    cut: Option<Cut>,
    /// The path's tally when the cut was set.
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

    /// The cut falls. Over the path it falls once.
    pub(super) fn fall(&mut self) -> How {
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

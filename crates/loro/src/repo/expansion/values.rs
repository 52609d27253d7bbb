//! The values of operations, as `loro` writes them one behind the other. A list or map begins with its
//! length, for which `loro` allocates at once, and each entry of a map takes a copy of its key.

use super::{Left, Oversized, take, take_bytes, take_number};

/// About how many bytes `loro` allocates for each.
const VALUE: u64 = 16;
const ENTRY: u64 = 96;

/// The values of a block of changes, and the keys that they name.
pub(super) struct Values<'a> {
    rest: &'a [u8],
    keys: Vec<u64>,
}

/// A list or map whose values follow.
struct Open {
    left: u64,
    is_map: bool,
}

impl<'a> Values<'a> {
    pub(super) fn new(values: &'a [u8], keys: &[u8]) -> Result<Self, Oversized> {
        let (mut rest, mut lengths) = (keys, Vec::new());
        while !rest.is_empty() {
            lengths.push(take_bytes(&mut rest)?.len() as u64);
        }
        Ok(Self {
            rest: values,
            keys: lengths,
        })
    }

    /// Reads the values of this many operations of one kind.
    pub(super) fn read(&mut self, count: u64, kind: u8, left: &mut Left) -> Result<(), Oversized> {
        // Operations of these kinds have no value.
        if matches!(kind & 0x7f, 0..=2 | 8 | 9) {
            return Ok(());
        }
        for _ in 0..count {
            self.read_one(kind & 0x7f, left)?;
        }
        Ok(())
    }

    fn read_one(&mut self, kind: u8, left: &mut Left) -> Result<(), Oversized> {
        match kind {
            // An integer, the index of a container, a difference.
            3 | 7 | 10 => self.numbers(1),
            4 => self.skip(8),
            11 => self.value(left),
            // The start of a mark: flags, length, key, value.
            12 => {
                self.skip(1)?;
                self.numbers(2)?;
                self.value(left)
            }
            // A move in a tree: the node, whether it becomes a root, its position, its parent.
            13 => {
                self.numbers(1)?;
                let root = take(&mut self.rest, 1)?[0] != 0;
                self.numbers(1 + usize::from(!root))
            }
            // A move in a list.
            14 => self.numbers(3),
            15 => {
                self.numbers(2)?;
                self.value(left)
            }
            16 => {
                self.numbers(3)?;
                let root = take(&mut self.rest, 1)?[0] != 0;
                self.numbers(if root { 0 } else { 2 })
            }
            // Text, bytes, and kinds of later versions.
            _ => take_bytes(&mut self.rest).map(|_| ()),
        }
    }

    /// Reads a value with its kind before it, and all values nested in it.
    fn value(&mut self, left: &mut Left) -> Result<(), Oversized> {
        let mut open: Vec<Open> = Vec::new();
        loop {
            match take(&mut self.rest, 1)?[0] {
                0..=2 => {}
                3 => self.numbers(1)?,
                4 => self.skip(8)?,
                5 | 6 => {
                    take_bytes(&mut self.rest)?;
                }
                kind @ (7 | 8) => {
                    let len = take_number(&mut self.rest)?;
                    // Each value has at least one byte.
                    if len > self.rest.len() as u64 {
                        return Err(Oversized::Malformed);
                    }
                    let is_map = kind == 8;
                    left.take(len, if is_map { ENTRY } else { VALUE })?;
                    open.push(Open { left: len, is_map });
                }
                9 => self.skip(1)?,
                _ => return Err(Oversized::Malformed),
            }
            while open.last().is_some_and(|last| last.left == 0) {
                open.pop();
            }
            let Some(last) = open.last_mut() else {
                return Ok(());
            };
            last.left -= 1;
            if last.is_map {
                let key = take_number(&mut self.rest)?;
                let key = usize::try_from(key).ok().and_then(|key| self.keys.get(key));
                left.take(1, *key.ok_or(Oversized::Malformed)?)?;
            }
        }
    }

    fn numbers(&mut self, count: usize) -> Result<(), Oversized> {
        for _ in 0..count {
            take_number(&mut self.rest)?;
        }
        Ok(())
    }

    fn skip(&mut self, len: usize) -> Result<(), Oversized> {
        take(&mut self.rest, len).map(|_| ())
    }
}

//! Makes choices from a fuzzer's input.

/// Takes numbers and slices from the front; once the input is empty every choice is the first.
///
/// Written by hand rather than derived, so that a seed can be written by hand, too.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// Choices from these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first
    }

    /// A bit.
    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// Two bytes, big-endian.
    pub fn short(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    /// A number below `limit`, from one byte.
    pub fn below(&mut self, limit: usize) -> usize {
        usize::from(self.byte()) % limit
    }

    /// One of several.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Mostly a small number; otherwise one at a limit of a number type.
    pub fn number(&mut self) -> u64 {
        const EDGES: [u64; 8] = [
            65_535,
            65_536,
            u32::MAX as u64,
            u32::MAX as u64 + 1,
            (1 << 53) - 1,
            1 << 53,
            u64::MAX - 1,
            u64::MAX,
        ];
        match self.byte() {
            edge @ 248.. => EDGES[usize::from(edge - 248)],
            small => u64::from(small % 64),
        }
    }

    /// Bytes preceded by their length.
    pub fn slice(&mut self) -> &'a [u8] {
        let len = usize::from(self.byte()).min(self.0.len());
        let (slice, rest) = self.0.split_at(len);
        self.0 = rest;
        slice
    }

    /// The rest of the input.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

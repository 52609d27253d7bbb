//! A write buffer: copies small parts together, and keeps large ones as shared slices.

use std::collections::VecDeque;
use std::io::IoSlice;

use breakbulk_message::vscode::Out;
use bytes::{Buf, Bytes, BytesMut};

/// Buffers from this size on stay slices of their own; below, copying is cheaper.
const OWN_SLICE: usize = 8 << 10;

/// The size of a block of copied bytes; small, so that it is freed soon after it is written.
const BLOCK: usize = 64 << 10;

/// Bytes to be written, as a queue of slices.
#[derive(Debug, Default)]
pub struct Chunks {
    ready: VecDeque<Bytes>,
    gathering: BytesMut,
    len: usize,
}

impl Chunks {
    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends bytes without copying, whatever their size.
    pub fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.seal();
            self.len += bytes.len();
            self.ready.push_back(bytes);
        }
    }

    /// Fills `slices` from the front, for a vectored write; returns how many were filled.
    pub fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let gathering = (!self.gathering.is_empty()).then_some(&self.gathering[..]);
        let parts = self.ready.iter().map(|bytes| &bytes[..]).chain(gathering);
        let mut filled = 0;
        for (slice, part) in slices.iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
            filled += 1;
        }
        filled
    }

    /// Removes the first `count` bytes, which were written.
    pub fn advance(&mut self, mut count: usize) {
        count = count.min(self.len);
        self.len -= count;
        while let Some(front) = self.ready.front_mut() {
            if count < front.len() {
                front.advance(count);
                return;
            }
            count -= front.len();
            self.ready.pop_front();
        }
        if count < self.gathering.len() {
            self.gathering.advance(count);
        } else {
            // Keeps the memory for reuse.
            self.gathering.clear();
        }
    }

    /// Removes the first slice, at most `max` bytes of it.
    pub fn pop(&mut self, max: usize) -> Option<Bytes> {
        self.seal();
        let front = self.ready.front_mut()?;
        let bytes = match front.len() > max {
            true => front.split_to(max),
            false => self.ready.pop_front()?,
        };
        self.len -= bytes.len();
        Some(bytes)
    }

    /// All bytes as one slice, without a copy if it is one already.
    pub fn into_bytes(mut self) -> Bytes {
        self.seal();
        if let [_] = self.ready.make_contiguous() {
            return self.ready.pop_front().unwrap_or_default();
        }
        let mut all = BytesMut::with_capacity(self.len);
        for bytes in &self.ready {
            all.extend_from_slice(bytes);
        }
        all.freeze()
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    fn seal(&mut self) {
        if !self.gathering.is_empty() {
            let sealed = self.gathering.split().freeze();
            self.ready.push_back(sealed);
        }
    }
}

impl Out for Chunks {
    fn put(&mut self, bytes: &[u8]) {
        self.gathering.extend_from_slice(bytes);
        self.len += bytes.len();
        if self.gathering.len() >= BLOCK {
            self.seal();
        }
    }

    fn put_shared(&mut self, bytes: &Bytes) {
        match bytes.len() {
            ..OWN_SLICE => self.put(bytes),
            _ => self.push(bytes.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small, large, small: the large one is not copied.
    fn sample() -> (Chunks, Bytes) {
        let large = Bytes::from(vec![7; OWN_SLICE]);
        let mut chunks = Chunks::default();
        chunks.put(b"ab");
        chunks.put_shared(&Bytes::from_static(b"cd"));
        chunks.put_shared(&large);
        chunks.put(b"e");
        (chunks, large)
    }

    #[test]
    fn large_buffers_keep_their_memory_and_order_holds() {
        let (chunks, large) = sample();
        let mut slices = [IoSlice::new(&[]); 4];
        assert_eq!(chunks.slices(&mut slices), 3);
        assert_eq!(&*slices[0], b"abcd");
        assert_eq!(slices[1].as_ptr(), large.as_ptr());
        assert_eq!(&*slices[2], b"e");
        assert_eq!(chunks.len(), large.len() + 5);
        let all = chunks.into_bytes();
        assert_eq!(all[..4], *b"abcd");
        assert_eq!(all[4..4 + large.len()], *large);
        assert_eq!(all.last(), Some(&b'e'));
    }

    #[test]
    fn any_advance_leaves_the_rest() {
        let whole = sample().0.into_bytes();
        for step in [1, 3, 4, 5, OWN_SLICE, OWN_SLICE + 4, whole.len()] {
            let (mut chunks, _) = sample();
            let mut seen = Vec::new();
            while !chunks.is_empty() {
                let mut slices = [IoSlice::new(&[]); 4];
                let filled = chunks.slices(&mut slices);
                let all: Vec<u8> = slices[..filled].iter().flat_map(|s| s.to_vec()).collect();
                let take = step.min(all.len());
                seen.extend_from_slice(&all[..take]);
                chunks.advance(take);
                assert_eq!(chunks.len(), whole.len() - seen.len());
            }
            assert_eq!(seen, whole, "{step}");
            assert!(chunks.pop(1).is_none());
        }
    }

    #[test]
    fn pop_is_bounded() {
        let (mut chunks, large) = sample();
        let whole = sample().0.into_bytes();
        let mut seen = Vec::new();
        while let Some(bytes) = chunks.pop(1000) {
            assert!((1..=1000).contains(&bytes.len()));
            seen.extend_from_slice(&bytes);
        }
        assert_eq!(seen, whole);
        assert_eq!(seen.len(), large.len() + 5);
    }
}

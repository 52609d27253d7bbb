//! Bytes that keep something as long as there is a slice of them: the part of a message that still waits in the
//! buffer of a socket keeps the memory of the whole message.

use bytes::Bytes;

/// The same bytes, not copied, with something that is dropped with the last slice of them: their charge, for
/// example.
pub fn bytes_with<T: Send + 'static>(bytes: Bytes, kept: T) -> Bytes {
    Bytes::from_owner(With { bytes, _kept: kept })
}

struct With<T> {
    bytes: Bytes,
    _kept: T,
}

impl<T> AsRef<[u8]> for With<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use breakbulk_link::Budget;

    use super::*;

    #[test]
    fn the_last_slice_keeps_what_the_bytes_kept() {
        for size in [0, 1, 1000] {
            let budget = Budget::new(1 << 20);
            let held = budget.charge_allocated(7);
            let mut bytes = bytes_with(Bytes::from(vec![1; size]), held);
            let last = bytes.split_off(size / 2);
            drop(bytes);
            // Of no bytes nothing is left to slice.
            assert!(size == 0 || budget.used() == 7);
            drop(last);
            assert_eq!(budget.used(), 0);
        }
    }
}

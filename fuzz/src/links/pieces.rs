//! All pieces that a link ever received, by key and number.

use std::collections::BTreeMap;

use breakbulk_link::{Frame, Inbound, Key, Wire};

/// Everything is kept: late, repeated or invalid pieces may not explain a message, but do no harm.
#[derive(Default)]
pub(super) struct Seen(BTreeMap<Key, BTreeMap<u64, Vec<Vec<u8>>>>);

impl Seen {
    /// Notes the piece of a frame, if it has one.
    pub(super) fn note(&mut self, wire: &dyn Wire, frame: &Frame) {
        let Ok(Inbound::Piece(piece)) = wire.read(frame) else {
            return;
        };
        let mut data = Vec::new();
        if wire.decode(&piece, &mut data).is_err() {
            return;
        }
        let versions = self
            .0
            .entry(piece.key)
            .or_default()
            .entry(piece.seq)
            .or_default();
        if !versions.contains(&data) {
            versions.push(data);
        }
    }

    /// Whether some run of consecutive numbers, with one version of each piece, makes up the message.
    pub(super) fn explain(&self, key: &Key, message: &[u8]) -> bool {
        let Some(numbers) = self.0.get(key) else {
            return false;
        };
        numbers.keys().any(|&first| {
            // The offsets in the message that the pieces so far can have reached.
            let mut reached = vec![0];
            for versions in (first..).map_while(|number| numbers.get(&number)) {
                let mut next = Vec::new();
                for &at in &reached {
                    for data in versions {
                        let end = at + data.len();
                        if message[at..].starts_with(data) && !next.contains(&end) {
                            next.push(end);
                        }
                    }
                }
                if next.contains(&message.len()) {
                    return true;
                }
                reached = next;
            }
            false
        })
    }
}

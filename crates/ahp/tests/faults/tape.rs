//! A digest of the applied actions: two tapes are equal if the same actions were applied, each once.

use std::sync::Mutex;

use breakbulk_ahp::Application;
use breakbulk_ahp::host::{Applied, State};
use serde_json::value::RawValue;

pub(crate) const CHANNEL: &str = "ahp-session:/tape";

/// The digest of all actions that were applied so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tape {
    /// The number of the last action.
    pub(crate) seq: i64,
    pub(crate) count: u64,
    /// A checksum that depends on the order.
    pub(crate) chain: u64,
    /// A checksum that does not.
    pub(crate) sum: u64,
}

impl Tape {
    pub(crate) fn apply(&mut self, seq: i64, title: &str) {
        let mut hash = 0xcbf2_9ce4_8422_2325 ^ seq.unsigned_abs();
        for word in title.as_bytes().chunks(8) {
            let mut bytes = [0; 8];
            bytes[..word.len()].copy_from_slice(word);
            hash = (hash ^ u64::from_le_bytes(bytes)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            hash ^= hash >> 29;
        }
        self.seq = self.seq.max(seq);
        self.count += 1;
        self.chain = (self.chain.rotate_left(5) ^ hash).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.sum = self.sum.wrapping_add(hash);
    }

    pub(crate) fn to_json(self) -> String {
        format!("[{},{},{},{}]", self.seq, self.count, self.chain, self.sum)
    }

    pub(crate) fn read(json: &str) -> Self {
        let (seq, count, chain, sum) = serde_json::from_str(json).expect("a tape");
        Self {
            seq,
            count,
            chain,
            sum,
        }
    }

    /// The parts that do not depend on the order.
    pub(crate) fn unordered(self) -> (i64, u64, u64) {
        (self.seq, self.count, self.sum)
    }
}

const BEFORE: &str = r#"{"type":"session/titleChanged","title":""#;
const AFTER: &str = r#""}"#;

/// An action whose whole size is about this.
pub(crate) fn action(size: usize, mark: u64) -> Box<RawValue> {
    let mut title = format!("{mark:016x}");
    let letters: String = (mark.to_le_bytes().iter())
        .map(|byte| char::from(b'a' + byte % 26))
        .collect();
    title.push_str(&letters.repeat(size.saturating_sub(title.len()).div_ceil(8)));
    RawValue::from_string(format!("{BEFORE}{title}{AFTER}")).unwrap()
}

pub(crate) fn title(action: &str) -> &str {
    let title = action.strip_prefix(BEFORE).expect("our own action");
    title.strip_suffix(AFTER).expect("our own action")
}

/// The application: one channel whose state is its tape.
pub(crate) struct App {
    pub(crate) tape: Mutex<Tape>,
    /// Whether there are no states: the client of the crate `ahp` could not read those of this test.
    pub(crate) stateless: bool,
}

impl App {
    pub(crate) fn tape(&self) -> Tape {
        *self.tape.lock().unwrap()
    }
}

impl Application for App {
    fn snapshot(&self, channel: &str) -> Option<State> {
        let json = RawValue::from_string(self.tape().to_json()).unwrap();
        let state = if self.stateless {
            State::none()
        } else {
            State::new(json)
        };
        (channel == CHANNEL).then_some(state)
    }

    fn apply(&self, action: &Applied<'_>) {
        self.tape
            .lock()
            .unwrap()
            .apply(action.seq, title(action.action));
    }
}

//! Which answers may overtake: a response carries no method, so the requests are remembered.

use std::collections::{BTreeSet, VecDeque};

use breakbulk_link::Lane;
use breakbulk_message::jsonrpc::{Envelope, Kind};

use crate::Config;

/// Requests that are remembered at most, oldest forgotten first: their answers are in order.
const REQUESTS: usize = 4096;

/// A longer id is not remembered.
const ID: usize = 128;

/// The ids of open requests whose answers carry no state.
#[derive(Debug, Default)]
pub(super) struct Answers {
    free: BTreeSet<Box<str>>,
    oldest: VecDeque<Box<str>>,
}

impl Answers {
    /// A request passed; its answer will come the other way.
    pub(super) fn asked(&mut self, config: &Config, envelope: &Envelope<'_>) {
        let (Some(Kind::Request), Some(id), Some(method)) =
            (envelope.kind(), envelope.id, envelope.method())
        else {
            return;
        };
        let ordered = config.lane(Kind::Request, None);
        // Asked anew, the id has the meaning of the newest question.
        if self.free.remove(id.get()) {
            self.oldest.retain(|one| **one != *id.get());
        }
        if id.get().len() > ID || config.lane(Kind::Result, Some(&method)) == ordered {
            return;
        }
        if self.free.insert(id.get().into()) {
            self.oldest.push_back(id.get().into());
        }
        if self.oldest.len() > REQUESTS
            && let Some(oldest) = self.oldest.pop_front()
        {
            self.free.remove(&oldest);
        }
    }

    /// The lane of a message that answers one of them, or asks something itself.
    pub(super) fn lane(&mut self, config: &Config, envelope: &Envelope<'_>) -> Lane {
        let Some(kind) = envelope.kind() else {
            return Lane::ORDERED;
        };
        let method = envelope.method();
        let method = match (kind, envelope.id) {
            (Kind::Result | Kind::Error, Some(id)) if self.free.remove(id.get()) => {
                self.oldest.retain(|one| **one != *id.get());
                // Any method whose answer is free.
                Some("ping")
            }
            (Kind::Result | Kind::Error, _) => None,
            _ => method.as_deref(),
        };
        config.lane(kind, method)
    }
}

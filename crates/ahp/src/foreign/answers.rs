//! Remembers the ids of requests whose responses may overtake other messages, since a response does not
//! name its method.

use std::collections::{BTreeSet, VecDeque};

use breakbulk_link::Lane;
use breakbulk_message::jsonrpc::{Envelope, Kind};

use crate::Config;

/// The most requests that are remembered. Responses to forgotten ones do not overtake.
const REQUESTS: usize = 4096;

/// The longest id that is remembered.
const ID: usize = 128;

/// The ids of open requests whose responses change no state.
#[derive(Debug, Default)]
pub(super) struct Answers {
    free: BTreeSet<Box<str>>,
    oldest: VecDeque<Box<str>>,
}

impl Answers {
    /// Remembers a request that is passed on.
    pub(super) fn asked(&mut self, config: &Config, envelope: &Envelope<'_>) {
        let (Some(Kind::Request), Some(id), Some(method)) =
            (envelope.kind(), envelope.id, envelope.method())
        else {
            return;
        };
        let ordered = config.lane(Kind::Request, None);
        // If the id was used before, the newer request counts.
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

    /// The lane of a message; a response to a remembered request may overtake.
    pub(super) fn lane(&mut self, config: &Config, envelope: &Envelope<'_>) -> Lane {
        let Some(kind) = envelope.kind() else {
            return Lane::ORDERED;
        };
        let method = envelope.method();
        let method = match (kind, envelope.id) {
            (Kind::Result | Kind::Error, Some(id)) if self.free.remove(id.get()) => {
                self.oldest.retain(|one| **one != *id.get());
                // `ping` stands for any method whose response may overtake.
                Some("ping")
            }
            (Kind::Result | Kind::Error, _) => None,
            _ => method.as_deref(),
        };
        config.lane(kind, method)
    }
}

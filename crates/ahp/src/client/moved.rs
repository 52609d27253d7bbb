//! When a frame was last received and sent: a call does not time out while its segments make progress.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use breakbulk_link::lock;
pub(crate) use breakbulk_net::now;
use breakbulk_net::{Incoming, Observer};

/// The times of the last received and the last sent frame. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Moved(Arc<Mutex<(Instant, Instant)>>);

impl Moved {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new((now(), now()))))
    }

    /// When a frame was last received.
    pub(crate) fn incoming(&self) -> Instant {
        lock(&self.0).0
    }

    /// When the transport last took a frame.
    pub(crate) fn outgoing(&self) -> Instant {
        lock(&self.0).1
    }
}

impl Observer for Moved {
    fn received(&self, incoming: &Incoming) {
        if matches!(incoming, Incoming::Frame(_)) {
            lock(&self.0).0 = now();
        }
    }

    fn written(&self) {
        lock(&self.0).1 = now();
    }
}

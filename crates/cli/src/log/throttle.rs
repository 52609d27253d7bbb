//! At most so many lines of one kind in a second: whoever can connect can cause log lines.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter};

/// How many lines of one kind are written in a [`PAUSE`].
const LINES: u32 = 50;

const PAUSE: Duration = Duration::from_secs(1);

/// Lets only so many lines of one kind (one place in the code) pass in a second.
pub(super) struct Throttle {
    kinds: Mutex<HashMap<Identifier, Written>>,
    /// Called before the next line of a kind, with the number of lines of that kind that were left out.
    left_out: fn(u32),
}

struct Written {
    since: Instant,
    lines: u32,
}

impl Throttle {
    pub(super) fn new(left_out: fn(u32)) -> Self {
        Self {
            kinds: Mutex::default(),
            left_out,
        }
    }

    fn passes(&self, kind: Identifier, now: Instant) -> bool {
        let Ok(mut kinds) = self.kinds.lock() else {
            return true;
        };
        let written = kinds.entry(kind).or_insert(Written {
            since: now,
            lines: 0,
        });
        if now >= written.since + PAUSE {
            let left_out = written.lines.saturating_sub(LINES);
            *written = Written {
                since: now,
                lines: 0,
            };
            if left_out > 0 {
                (self.left_out)(left_out);
            }
        }
        written.lines = written.lines.saturating_add(1);
        written.lines <= LINES
    }
}

impl<S: Subscriber> Filter<S> for Throttle {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        // Levels below INFO are written only if a user asks for them, and then all of their lines are.
        let metadata = event.metadata();
        *metadata.level() > Level::INFO || self.passes(metadata.callsite(), Instant::now())
    }
}

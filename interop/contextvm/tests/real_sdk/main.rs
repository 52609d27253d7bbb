//! npm's `@contextvm/sdk` with this project's client and server, over a relay in this process.
//!
//! They need node, and are run by `cargo xtask interop contextvm`.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod counts;
mod defects;
mod meeting;
mod past;
mod refused;
mod sizes;

use std::time::Duration;

use breakbulk::contextvm::{Config, Encryption};
use breakbulk_testkit::bad_relay::{BadRelay, Weather};

async fn relay() -> BadRelay {
    BadRelay::start(Weather::default()).await.unwrap()
}

fn plain() -> Config {
    Config::default().with(|config| config.encryption = Encryption::Disabled)
}

/// Lets a request fail if the server sends nothing about it for this long.
fn patient(config: Config, soft: Duration) -> Config {
    config.with(|config| config.timeouts.soft = Some(soft))
}

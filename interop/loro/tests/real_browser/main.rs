//! A real browser with npm's `loro-crdt` against this project's server, over all four transports.
//!
//! They need node and Chromium, and are run by `cargo xtask interop loro`.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod codec;
mod converge;
mod large;
mod program;

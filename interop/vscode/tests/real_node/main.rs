//! VSCode's own RPCProtocol, in node, and this project's endpoint, over every carrier and in both directions.
//!
//! They need node, and are run by `cargo xtask interop vscode`.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod kinds;
mod life;
mod reconnect;
mod size;
mod uris;

//! What the live tests of ContextVM share: a published SDK in a process beside the test, this project's
//! client and server with the same tool, and a relay between the two.
//!
//! `cargo xtask interop contextvm` installs the SDK of npm and runs the tests.

pub mod call;
pub mod matrix;
pub mod ours;
pub mod peer;
pub mod spy;
pub mod text;

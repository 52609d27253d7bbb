//! What the live tests of the agent host protocol share: an application for this project's host, and
//! the programs that run beside a test.
//!
//! `cargo xtask interop ahp` runs the tests, `cargo xtask long ahp` the long one.

pub mod app;
pub mod program;
pub mod random;
pub mod text;
pub mod whole;

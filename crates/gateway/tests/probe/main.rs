//! Probes: what they find, and what others may try with them.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;
mod planted;
mod strangers;

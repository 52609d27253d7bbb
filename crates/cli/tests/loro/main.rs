//! `breakbulk loro`, run as users run it.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod commands;
mod common;
mod crash;

//! `breakbulk loro`, run as users run it.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod causes;
mod commands;
mod common;
mod crash;
mod documents;
mod fleet;
#[cfg(target_os = "linux")]
mod hostile;
#[cfg(target_os = "linux")]
mod raw;
#[cfg(target_os = "linux")]
mod slow_readers;
#[cfg(unix)]
mod unix;

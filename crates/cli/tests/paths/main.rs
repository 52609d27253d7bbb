//! What paths and receivers let through: `caps`, `client=NAME` and `probe`.

#![cfg(unix)]
#![allow(clippy::unwrap_used)]

mod caps;
mod client;
mod probe;

//! Frames in HTTP exchanges of bounded size: the way there and back, paths that lose and refuse, and
//! clients that do not keep to the rules.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "exchange/common.rs"]
mod common;
#[path = "exchange/hostile.rs"]
mod hostile;
#[path = "exchange/paths.rs"]
mod paths;
#[path = "exchange/round_trips.rs"]
mod round_trips;
#[path = "exchange/streams.rs"]
mod streams;

//! Frames in HTTP exchanges of bounded size: round trips, paths that lose and refuse bodies, and clients that
//! violate the protocol.
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

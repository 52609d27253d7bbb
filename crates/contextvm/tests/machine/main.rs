//! Tests of the state machine of ContextVM, on a simulated clock.
//!
//! `BREAKBULK_RELAY_SEEDS=500` runs more seeds, `BREAKBULK_RELAY_SEED=17` that one alone.

#![allow(clippy::unwrap_used)]

mod bad_relay;
mod defects;
mod endings;
mod hostile;
mod machine;
mod sim;
mod sizes;
mod streams;
mod vectors;
mod waiting;

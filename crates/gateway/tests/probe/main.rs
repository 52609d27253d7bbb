//! Probes: what they find, and what others may try with them.

mod common;
mod planted;
mod strangers;

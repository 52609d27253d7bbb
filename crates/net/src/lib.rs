//! What moves frames. So far only within a process.

#![forbid(unsafe_code)]

pub mod memory;

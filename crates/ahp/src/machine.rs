//! The pure state machines of a [`host`] and a [`client`], for any runtime.
//!
//! Both have the shape of a link: the caller passes in events and the time, and polls for what to do.
//! They know no socket, no task and no clock. The links stay outside: the caller drives them, and passes
//! their events to the machine.

pub mod client;
pub mod host;

pub use client::Client;
pub use host::Host;

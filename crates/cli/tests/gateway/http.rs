//! MCP over HTTP: the listener and the target, with raw requests, a server that follows a script, and a
//! server in Python behind pipes.

mod carry;
pub(crate) mod door;
mod failures;
mod fleet;
mod scripted;
mod secure;
mod target;
pub(crate) mod wire;

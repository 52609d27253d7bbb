//! What a whole message says. Pure formats: no state, no sockets, no clock.

#![forbid(unsafe_code)]

mod raw_members;
mod scan;
mod splice;

pub mod ahp;
pub mod jsonrpc;
pub mod loro;
pub mod mcp;
pub mod tunnel;
pub mod tywrap;
pub mod vscode;

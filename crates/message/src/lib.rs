//! The content of whole messages: reading and writing those of each protocol. No state, no IO, no
//! clock.

#![forbid(unsafe_code)]

mod list;
mod raw_members;
mod scan;
mod splice;

pub mod ahp;
pub mod jsonrpc;
pub mod loro;
pub mod lsp;
pub mod mcp;
pub mod tunnel;
pub mod tywrap;
pub mod vscode;

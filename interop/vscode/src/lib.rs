//! What the live tests of VSCode's extension-host RPC share: VSCode's own peer in a process of node beside
//! the test, this project's endpoint with the same methods, and the carriers between the two.
//!
//! `cargo xtask interop vscode` installs the peer and runs the tests.

pub mod actor;
pub mod bytes;
pub mod ends;
pub mod node;
mod sockets;
pub mod values;

//! What the live tests of the gateway between published MCP programs share.
//!
//! `cargo xtask interop mcp` installs what they need and runs them, `cargo xtask long mcp` the long one.

pub mod conformance;
pub mod doors;
pub mod eras;
pub mod inspector;
pub mod limits;
pub mod paths;
pub mod sdk;
pub mod table;
pub mod told;

//! What the live tests of the gateway between published MCP programs share.
//!
//! `cargo xtask interop mcp` installs the packages and runs the tests, `cargo xtask long mcp` the long test.

pub mod conformance;
pub mod doors;
pub mod eras;
pub mod inspector;
pub mod limits;
pub mod paths;
pub mod sdk;
pub mod table;
pub mod told;

//! What the fuzz targets share. A target is a few lines; the checks are here.

pub mod ahp_host;
pub mod contextvm_server;
pub mod hub;
pub mod input;
pub mod links;
pub mod machines;
pub mod mcp;
pub mod read;
pub mod record;
pub mod roundtrip;
pub mod routes;
pub mod streams;
pub mod tunnel;
pub mod websocket;

pub use input::Input;

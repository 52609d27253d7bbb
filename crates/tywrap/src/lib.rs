//! tywrap: calls from Rust into a Python process, or into any other bridge that speaks tywrap/1, over
//! its standard streams.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use breakbulk_tywrap::{Host, Config};
//!
//! # async fn call() -> Result<(), breakbulk_tywrap::CallError> {
//! let host = Host::python(Path::new("python3"), Config::default());
//! let root = host.call("math", "sqrt", "[16]", None).await?;
//! assert_eq!(root.json(), "4.0");
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

#[cfg(feature = "net")]
pub mod bridge;
#[cfg(feature = "net")]
mod error;
#[cfg(feature = "net")]
pub mod host;
pub mod machine;
#[cfg(feature = "net")]
pub mod pool;
pub mod python;

#[cfg(feature = "net")]
pub use error::{CallError, PoolError, StartError};
#[cfg(feature = "net")]
pub use host::{Host, Progress};
pub use machine::{About, Breach, Config, Raised, Returned};
#[cfg(feature = "net")]
pub use pool::{Lease, Pool, PoolConfig};

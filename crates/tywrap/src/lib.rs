//! tywrap: calls from Rust into a Python process, or into any other bridge that speaks tywrap/1, over
//! its standard streams.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use breakbulk_tywrap::{Host, Settings};
//!
//! # async fn call() -> Result<(), breakbulk_tywrap::CallError> {
//! let host = Host::python(Path::new("python3"), Settings::default());
//! let root = host.call("math", "sqrt", "[16]", None).await?;
//! assert_eq!(root.json(), "4.0");
//! # Ok(())
//! # }
//! ```

pub mod bridge;
mod error;
pub mod host;
pub mod pool;
pub mod python;
mod settings;

pub use error::{Breach, CallError, PoolError, Raised, StartError};
pub use host::{About, Host, Progress, Returned};
pub use pool::{Lease, Pool, PoolSettings};
pub use settings::Settings;

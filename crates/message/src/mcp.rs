//! The parts of MCP that CEP-22 needs: progress tokens, progress notifications, cancellation; and the trace
//! context of requests.
//!
//! ```
//! use breakbulk_message::jsonrpc::Envelope;
//! use breakbulk_message::mcp::{self, ProgressToken};
//!
//! let request = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
//! let token = ProgressToken::Text("t".into());
//! let edited = mcp::with_progress_token(request, &token).ok_or("no room for a token")?;
//! let envelope = Envelope::parse(&edited).ok_or("no JSON")?;
//! assert_eq!(mcp::progress_token(&envelope), Some(token));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cancelled;
mod progress;
mod token;
mod trace;
mod version;

pub use cancelled::{CANCELLED, cancellation, cancelled_request};
pub use progress::{PROGRESS, Progress, cvm, cvm_type, with_token};
pub use token::{ProgressToken, progress_token, replace_progress_token, with_progress_token};
pub use trace::{Traceparent, traceparent};
pub use version::{DISCOVER, version_meta};

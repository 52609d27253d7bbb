//! A bridge written in Rust: functions for a host that speaks tywrap/1 over standard streams.
//!
//! Calls run one after the other, in the order in which they came, as in the original. The host takes
//! everything on standard output for messages: functions must print to standard error.
//!
//! ```no_run
//! use breakbulk_tywrap::bridge::{Answer, Bridge, Functions};
//!
//! # async fn program() -> Result<(), Box<dyn std::error::Error>> {
//! let functions = Functions::new().with("math", "sqrt", |call| {
//!     Answer::number(call.float(0)?.sqrt())
//! });
//! Bridge::from_process(functions)?.stdio().await?;
//! # Ok(())
//! # }
//! ```

mod arguments;
mod config;
mod functions;
mod serve;

use std::future::Future;
use std::io;

use breakbulk_link::Fault;
use breakbulk_message::tywrap::ErrorBody;
use breakbulk_net::process::{self, Framing, Stream};
use tokio::io::{AsyncRead, AsyncWrite};

pub use arguments::{Answer, Arguments, raise};
pub use config::{BadSetting, BridgeConfig};
pub use functions::Functions;

/// The outcome of a call: a result, or an exception for the host.
pub type Outcome = Result<Answer, ErrorBody<'static>>;

/// Runs the calls. [`Functions`] is an implementation.
pub trait Handler: Send + Sync {
    /// Runs a function of a module. A panic fails this call alone.
    fn call(
        &self,
        module: &str,
        function: &str,
        arguments: &Arguments<'_>,
    ) -> impl Future<Output = Outcome> + Send;
}

/// A bridge: serves one host until its input ends.
#[derive(Debug)]
pub struct Bridge<H> {
    config: BridgeConfig,
    handler: H,
}

/// How serving ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The host closed the bridge's input, and all its calls are answered.
    Input,
    /// The host closed the bridge's output.
    Output,
}

/// Why a bridge cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BridgeError {
    /// The host's frames are invalid, so that frames cannot be matched to requests any more.
    #[error("the host's frames are wrong: {fault} ({code}); the host must start this bridge anew")]
    Frame {
        /// The original's error code.
        code: &'static str,
        /// What is wrong.
        fault: Fault,
    },
    /// The input cannot be read any further.
    #[error("the host's requests cannot be read any further: {reason}")]
    Input {
        /// Why.
        reason: String,
    },
    /// The standard streams cannot be used.
    #[error("the standard streams cannot be used: {0}")]
    Streams(#[from] io::Error),
}

impl<H: Handler> Bridge<H> {
    /// A bridge with this configuration.
    pub fn new(config: BridgeConfig, handler: H) -> Self {
        Self { config, handler }
    }

    /// A bridge with the configuration that the host passed to this process, by arguments and environment.
    ///
    /// # Errors
    /// If a setting is invalid.
    pub fn from_process(handler: H) -> Result<Self, BadSetting> {
        Ok(Self::new(BridgeConfig::from_process()?, handler))
    }

    /// Its configuration.
    pub fn config(&self) -> &BridgeConfig {
        &self.config
    }

    /// Serves over this process's standard input and output until they end.
    ///
    /// # Errors
    /// If the host breaks the framing, or the streams cannot be used.
    pub async fn stdio(&self) -> Result<Ended, BridgeError> {
        let stream = process::stdio(Framing::Lines, self.config.line_limit())?;
        self.serve_stream(stream).await
    }

    /// Serves over any reader and writer until they end.
    ///
    /// # Errors
    /// If the host breaks the framing.
    pub async fn serve(
        &self,
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Result<Ended, BridgeError> {
        let limit = self.config.line_limit();
        let stream = Stream::new(reader, writer, Framing::Lines, limit);
        self.serve_stream(stream).await
    }
}

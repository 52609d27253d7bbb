//! A bridge of one's own: functions in Rust for a host that speaks tywrap/1 over standard streams.
//!
//! Calls are run one after the other, in the order in which they came, as the original does. What a
//! function prints to standard output would be taken for a message by the host: print to standard error.
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
mod functions;
mod serve;
mod settings;

use std::future::Future;
use std::io;

use breakbulk_link::Fault;
use breakbulk_message::tywrap::ErrorBody;
use breakbulk_net::process::{self, Framing, Stream};
use tokio::io::{AsyncRead, AsyncWrite};

pub use arguments::{Answer, Arguments, raise};
pub use functions::Functions;
pub use settings::{BadSetting, BridgeSettings};

/// What became of a call: a result, or the exception that the host is told.
pub type Outcome = Result<Answer, ErrorBody<'static>>;

/// What runs the calls. A table of [`Functions`] is one.
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
    settings: BridgeSettings,
    handler: H,
}

/// How the service ended, where nothing is wrong with that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The host closed our input, and all it asked is answered.
    Input,
    /// The host takes no more of our output.
    Output,
}

/// Why a bridge cannot serve on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BridgeError {
    /// The host's frames break the rules: nobody knows any more what belongs to what.
    #[error("the host's frames are wrong: {fault} ({code}); the host must start this bridge anew")]
    Frame {
        /// The original's name for it.
        code: &'static str,
        /// What is wrong.
        fault: Fault,
    },
    /// The input cannot be read on.
    #[error("the host's requests cannot be read on: {reason}")]
    Input {
        /// Why.
        reason: String,
    },
    /// The standard streams cannot be used.
    #[error("the standard streams cannot be used: {0}")]
    Streams(#[from] io::Error),
}

impl<H: Handler> Bridge<H> {
    /// A bridge with these settings.
    pub fn new(settings: BridgeSettings, handler: H) -> Self {
        Self { settings, handler }
    }

    /// A bridge as the host that started this process wants it, by arguments and environment.
    ///
    /// # Errors
    /// If it wants something that cannot be.
    pub fn from_process(handler: H) -> Result<Self, BadSetting> {
        Ok(Self::new(BridgeSettings::from_process()?, handler))
    }

    /// Its settings.
    pub fn settings(&self) -> &BridgeSettings {
        &self.settings
    }

    /// Serves over this process's standard input and output, to their end.
    ///
    /// # Errors
    /// If the host breaks the framing, or the streams cannot be used.
    pub async fn stdio(&self) -> Result<Ended, BridgeError> {
        let stream = process::stdio(Framing::Lines, self.settings.line_limit())?;
        self.serve_stream(stream).await
    }

    /// Serves over any two directions of bytes, to their end.
    ///
    /// # Errors
    /// If the host breaks the framing.
    pub async fn serve(
        &self,
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Result<Ended, BridgeError> {
        let limit = self.settings.line_limit();
        let stream = Stream::new(reader, writer, Framing::Lines, limit);
        self.serve_stream(stream).await
    }
}

//! Gateways: they carry the messages of unchanged programs over paths whose frames are capped.
//!
//! A gateway stands between two ends, each given as text: this process's standard streams, a command, a
//! TCP or Unix socket, a WebSocket, MCP over HTTP, plain HTTP, NATS, a transport of loro-extended, or Nostr
//! relays. [`Plan::new`] checks both [`Endpoint`]s and the [`Config`];
//! [`Plan::run`] opens them and carries messages until a [`Stop`] fires. The program `breakbulk gateway`
//! only parses options and calls this library.
//!
//! ```
//! use breakbulk_gateway::{Config, Event, Plan, Stop};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # if cfg!(not(feature = "process")) { return Ok(()); }
//! // Each client of the WebSocket gets a `cat` of its own, which sends every message back.
//! let plan = Plan::new("ws://127.0.0.1:0".parse()?, "exec:cat".parse()?, Config::default())?;
//! let stop = Stop::new();
//! plan.run(&stop, |event| {
//!     if let Event::Listening(address) = event {
//!         println!("listening on {address}");
//!         // A program that serves fires it when it is asked to end, by a signal for example.
//!         stop.stop();
//!     }
//! })
//! .await?;
//! # Ok(())
//! # }
//! ```
//!
//! [`Routes`] runs several of them in one process, within one memory, and changes them while they run.
//!
//! Below that are the parts, for programs that have connections of their own: [`relay`] is the pump
//! between two [`Port`]s. Each direction is held back by its own receiver alone: a message stays charged
//! to the side it came by until it is out on the other, so that a slow receiver stops its sender and
//! nobody else. A [`Passing`] may edit the messages on their way: [`Plain`] for any JSON-RPC program,
//! [`Tunnel`] between two gateways, [`ClientBox`] and [`HostBox`] for AHP programs that do not know
//! segments, [`Raw`] for bytes.
//!
//! Nothing is lost silently: a request that cannot be sent is answered with an error, a response is
//! replaced by one, and any other message that cannot be sent closes both connections.

#![forbid(unsafe_code)]

#[cfg(feature = "admin")]
pub mod admin;
pub mod caps;
mod endpoint;
mod error;
#[cfg(feature = "nats")]
mod fleet;
#[cfg(feature = "loro")]
mod loro;
#[cfg(feature = "http")]
mod mcp;
mod nearest;
mod open;
mod plan;
pub mod probe;
mod pump;
pub mod record;
#[cfg(feature = "nostr")]
mod relays;
mod routes;
mod serve;
mod size;
mod stop;
mod token;
#[cfg(feature = "otlp")]
mod traces;
mod tunnel;
pub mod watch;

pub use endpoint::{Endpoint, EndpointError, Misspelt, OptionError, WireKind};
pub use error::{EndError, OpenError, Party, PlanError, RunError, SessionEnd, Unreachable};
#[cfg(feature = "nats")]
pub use fleet::{FleetAddress, FleetError};
#[cfg(feature = "loro")]
pub use loro::TokenCheck;
#[cfg(feature = "http")]
pub use mcp::HeadersError;
pub use nearest::nearest;
pub use plan::{Config, Overruled, Plan};
pub use pump::{
    BothBoxes, ClientBox, Cutting, Ended, HostBox, Incoming, NoProcessId, Options, Oversized, Pass,
    Passing, Plain, Port, Raw, RefusedFrame, Replacement, Side, Skipped, Tunnel, relay,
    session_memory, whole_link,
};
#[cfg(feature = "nostr")]
pub use relays::{IntroduceError, KeyFileError};
pub use routes::{Changes, Route, RouteEnd, RouteError, RouteFault, Routes};
pub use serve::Event;
pub use size::{Size, SizeError};
pub use stop::Stop;
pub use token::{BadToken, TokenError, TokenFile, token, token_from_file};
#[cfg(feature = "otlp")]
pub use traces::{OpenTracesExporter, Traces, TracesConfig, TracesExporter};
pub use tunnel::{
    Boxed, BrokenFile, Caller, Dial, Greeted, KnownCaps, LearnedCaps, Line, Lobby, Newcomer,
    NoTunnel, Stray, TunnelConfig, Tunnelled, WINDOW, connect,
};

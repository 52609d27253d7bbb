//! The pump between two connections: what comes in by one goes out by the other.
//!
//! Each direction is held back by its own receiver alone: a message stays charged to the connection
//! it came by until it is out on the other, so that a slow receiver stops its sender and nobody
//! else. What is done to a message on its way is a [`Passing`]: [`Plain`] for any JSON-RPC program,
//! [`Tunnel`] between two gateways, [`ClientBox`] and [`HostBox`] before AHP programs that know
//! nothing of segments, [`Raw`] for bytes.
//!
//! Nothing is lost silently: a request that cannot go out is answered, a response is replaced by an
//! error, and what cannot be answered ends both connections.

#![forbid(unsafe_code)]

mod endpoint;
mod error;
mod open;
mod plan;
mod pump;
#[cfg(feature = "nostr")]
mod relays;
mod serve;
mod size;
mod stop;
mod token;

pub use endpoint::{Endpoint, EndpointError, OptionError, UnknownPreset, WireKind, preset};
pub use error::{EndError, OpenError, Party, PlanError, RunError, SessionEnd, Unreachable};
pub use plan::{Config, Overruled, Plan};
pub use pump::{
    BothBoxes, ClientBox, Ended, HostBox, Incoming, NoTunnel, Options, Oversized, Pass, Passing,
    Plain, Port, Raw, Replacement, Side, Skipped, Tunnel, TunnelSettings, greet, relay,
    session_memory, whole_link,
};
#[cfg(feature = "nostr")]
pub use relays::{IntroduceError, KeyFileError};
pub use serve::Event;
pub use size::{Size, SizeError};
pub use stop::Stop;
pub use token::{BadToken, TokenError, token, token_from_file};

//! WebSockets: the client ([`connect`]), the server ([`Listener`]), and the [`WebSocket`] that both
//! return.
//!
//! Frames are not queued here: a frame goes from the link straight to the socket, so that what the link
//! decides to send next is what is sent next. For the same reason the kernel is asked to buffer little
//! unsent data.
//!
//! tungstenite parses the handshake and the frame headers. Frames are read and written here,
//! because tungstenite copies each outgoing frame into a buffer that never shrinks, and returns
//! incoming messages as slices of large read buffers, which a small message then keeps alive.

mod bearer;
mod client;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod head;
mod mask;
mod pages;
mod reader;
mod request;
mod server;
mod socket;
#[cfg(feature = "tls")]
mod tls;
mod transport;
mod writer;

pub use bearer::{Bearer, Tokens};
pub use client::{ConnectOptions, connect, dial};
pub use error::{ConnectError, ListenError};
pub use server::{Accepted, ListenOptions, Listener};
pub use socket::ByteStream;
#[cfg(feature = "tls")]
pub use tls::{Identity, Roots, check_client_files, check_server_files};
pub use transport::{Ending, WebSocket, WsSink, WsSource};

#[cfg(feature = "http")]
pub(crate) use client::without_secrets;
#[cfg(feature = "http")]
pub(crate) use error::is_drop;
#[cfg(feature = "http")]
pub(crate) use pages::PageRules;
#[cfg(feature = "http")]
pub(crate) use request::{Refusal, admit, holder};
pub(crate) use socket::{Socket, tune};
#[cfg(feature = "http")]
pub(crate) use tls::{accept, acceptor};
#[cfg(any(feature = "http", feature = "nats"))]
pub(crate) use tls::{client_config, provider};
#[cfg(feature = "http")]
pub(crate) use transport::Parts;

/// The default limit on an incoming WebSocket message, in bytes.
pub const FRAME_LIMIT: usize = 16 << 20;

/// By default a larger message is sent in fragments of this size: common libraries refuse WebSocket
/// frames over 16 MiB, although they accept larger messages.
pub const FRAGMENT: usize = 8 << 20;

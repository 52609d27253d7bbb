//! WebSockets: [`connect`] and [`Listener`], and the [`WebSocket`] that both give.
//!
//! Nothing waits here: a frame goes from the link to the socket without a queue in between, so that
//! what the link decides to send next is what goes out next. For the same reason the kernel is asked
//! to keep little that is not yet on its way.
//!
//! The handshake's grammar and the frame heads are tungstenite's. Frames are read and written here:
//! tungstenite would copy each into a buffer that never shrinks, and cut what it read from buffers
//! that a small message then keeps alive.

mod age;
mod bearer;
mod client;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod head;
mod mask;
mod reader;
mod request;
mod server;
mod socket;
#[cfg(feature = "tls")]
mod tls;
mod transport;
mod writer;

pub use bearer::Bearer;
pub use client::{ConnectOptions, connect};
pub use error::{ConnectError, ListenError};
pub use server::{Accepted, ListenOptions, Listener};
#[cfg(feature = "tls")]
pub use tls::{Identity, Roots};
pub use transport::{WebSocket, WsSink, WsSource};

#[cfg(feature = "http")]
pub(crate) use client::without_secrets;
#[cfg(feature = "http")]
pub(crate) use request::{admit, origin_allowed};
#[cfg(feature = "http")]
pub(crate) use server::{is_fatal, is_of_one};
#[cfg(feature = "http")]
pub(crate) use socket::{Socket, tune};
#[cfg(feature = "http")]
pub(crate) use tls::{acceptor, client_config, provider};
#[cfg(feature = "http")]
pub(crate) use transport::Parts;

/// The largest frame that is taken where nothing else is said.
pub const FRAME_LIMIT: usize = 16 << 20;

/// A larger message goes out in fragments of this size where nothing else is said: common libraries
/// refuse frames over 16 MiB, although they take larger messages.
pub const FRAGMENT: usize = 8 << 20;

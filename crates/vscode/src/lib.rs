//! VSCode's extension-host RPC: an endpoint that calls the peer's methods and serves its own.
//!
//! [`Endpoint`] talks to VSCode's `RPCProtocol` over any byte stream (framed by [`machine::ipc`]), over
//! WebSockets, or with one RPC message per message of a [`Connection`](breakbulk_net::Connection) where
//! the path is capped. Below it are two pure state machines that can be used alone, on any runtime:
//! [`machine::rpc::Rpc`] and [`machine::ipc::PersistentProtocol`].
//!
//! ```
//! use breakbulk_message::vscode::{RpcId, Thrown};
//! use breakbulk_vscode::{Actor, Actors, Endpoint, Config};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let commands = RpcId::new(2)?;
//! let adder = Actor::new().typed("$add", |(a, b): (i64, i64)| async move {
//!     Ok::<_, Thrown>(a + b)
//! });
//! let (here, there) = tokio::io::duplex(1 << 16); // or a TcpStream, a UnixStream
//! let actors = Actors::new().add(commands, "MainThreadCommands", adder);
//! let config = Config::default().with(|config| config.actors = actors);
//! let host = Endpoint::over_stream(there, config);
//! let client = Endpoint::over_stream(here, Config::default());
//! let sum: i64 = client.remote(commands).call("$add", &(4, 1)).await?.typed()?;
//! assert_eq!(sum, 5);
//! # drop(host);
//! # Ok(())
//! # }
//! ```
//!
//! Over a WebSocket the stream is cut into binary messages:
//! `Endpoint::over_stream(net::stream::over_frames(websocket, machine::ipc::WEBSOCKET_CUT)?, config)`.
//!
//! A session that survives its connections. How a new connection names its session is up to the
//! application:
//!
//! ```no_run
//! use breakbulk_net::tcp;
//! use breakbulk_vscode::{Endpoint, Config};
//! use std::time::Duration;
//!
//! # async fn example() -> std::io::Result<()> {
//! let dial = || tcp::connect("127.0.0.1:5007", Duration::from_secs(10));
//! let endpoint = Endpoint::persistent(dial().await?, Config::default());
//! let mut stream = 1;
//! while endpoint.lost(stream).await.is_ok() {
//!     // Messages that were not acknowledged are sent again; every call completes once.
//!     stream = endpoint.resume(dial().await?);
//! }
//! # Ok(())
//! # }
//! ```

#![cfg_attr(not(feature = "net"), allow(rustdoc::broken_intra_doc_links))]
#![forbid(unsafe_code)]

#[cfg(feature = "net")]
mod endpoint;
pub mod machine;

#[cfg(feature = "net")]
pub use endpoint::{
    Actor, Actors, Answer, AnswerError, Call, CallError, Cancellation, Config, Ended, Endpoint,
    Incoming, Remote, Returned, Status, Stream,
};

//! The listener for clients that connect over TCP or Unix sockets, without a handshake.

use std::future::pending;
use std::sync::Arc;

use breakbulk_net::process::StreamListener;
#[cfg(not(unix))]
use breakbulk_net::ws::ListenError;
use breakbulk_net::{ListenAddress, ListenSocket};

use super::{Arrival, Door, Entered, Tell, bind, check_target};
use crate::endpoint::{SocketAddress, listen_at};
use crate::error::RunError;
use crate::open;
use crate::plan::Plan;
use crate::stop::Stop;
use crate::tunnel::Caller;

/// A session for each client that connects.
pub(super) async fn listen(
    plan: Arc<Plan>,
    address: &SocketAddress,
    stop: &Stop,
    tell: Tell<'_>,
) -> Result<(), RunError> {
    check_target(&plan).await?;
    let socket = socket(&plan, address).await?;
    let per_address = plan.guests.per_address.clone();
    let listener = StreamListener::new(socket, plan.max_sessions, per_address);
    let listener = listener.map_err(RunError::Listen)?;
    let listener = listener.counting(plan.watched.turned_away());
    let heard_at = match listener.address() {
        ListenAddress::Unix(path) => format!("unix:{}", path.display()),
        at => format!("tcp://{at}"),
    };
    let door = StreamDoor(Some(listener));
    super::listen(plan, door, heard_at, stop, tell).await
}

/// Accepts clients at a socket; `None` once it is closed.
struct StreamDoor(Option<StreamListener>);

impl Door for StreamDoor {
    async fn accept(&mut self) -> Result<Arrival, RunError> {
        let Some(listener) = &mut self.0 else {
            return pending().await;
        };
        let accepted = listener.accept().await?;
        // All clients of a Unix socket have the same address.
        let name = match listener.address() {
            ListenAddress::Unix(path) => format!("unix:{}", path.display()),
            _ => accepted.peer.to_string(),
        };
        Ok(Arrival {
            name,
            caller: Caller {
                holder: None,
                address: Some(accepted.peer.ip()),
            },
            open: Box::new(move |end| {
                let stream = accepted.frames(end.framing, end.max_message);
                let opened = open::socket(end, stream)?;
                let connection = opened.port.connection().cloned();
                // A stream has no close codes: its client sees the end, and the log says why.
                let refuse = move |code, reason: &str| {
                    if let Some(connection) = &connection {
                        connection.close(code, reason);
                    }
                    Box::pin(async move {
                        if let Some(connection) = connection {
                            connection.ended().await;
                        }
                    }) as _
                };
                Ok(Entered::Port(Box::new(opened), Box::new(refuse)))
            }),
        })
    }

    async fn close(&mut self) {
        self.0 = None;
    }

    async fn finish(self) {}
}

async fn socket(plan: &Plan, address: &SocketAddress) -> Result<ListenSocket, RunError> {
    match address {
        SocketAddress::Tcp(authority) => bind::tcp(&plan.sockets, listen_at(authority)).await,
        #[cfg(unix)]
        SocketAddress::Unix(path) => {
            ListenSocket::unix(path, &plan.guests.users).map_err(RunError::Listen)
        }
        #[cfg(not(unix))]
        SocketAddress::Unix(_) => Err(RunError::Listen(ListenError::Bind {
            address: address.name(),
            error: std::io::ErrorKind::Unsupported.into(),
        })),
    }
}

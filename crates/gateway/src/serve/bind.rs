//! Opens the sockets of listeners, and says how clients write their addresses.

use std::io;

use breakbulk_net::ws::ListenError;
use breakbulk_net::{ListenAddress, ListenSocket};

use super::Sockets;
use crate::endpoint::WsAddress;
use crate::error::{EndError, RunError};
use crate::plan::Guests;
use crate::pump::Side;

/// A socket at a host and port, or why the endpoint names none.
pub(crate) async fn tcp(
    sockets: &Sockets,
    at: Result<(String, u16), EndError>,
) -> Result<ListenSocket, RunError> {
    let (host, port) = at.map_err(|error| RunError::Open {
        side: Side::Listen,
        error: error.into(),
    })?;
    let bound = sockets.bind(&host, port).await;
    bound
        .map(ListenSocket::from)
        .map_err(|error| not_bound(&host, port, error))
}

/// The error of a socket that cannot be opened.
pub(crate) fn not_bound(host: &str, port: u16, error: io::Error) -> RunError {
    let address = match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    };
    RunError::Listen(ListenError::Bind { address, error })
}

/// The socket of a listener for WebSockets or HTTP.
#[cfg_attr(
    not(unix),
    expect(unused_variables, reason = "only Unix sockets know users")
)]
pub(crate) async fn web(
    sockets: &Sockets,
    guests: &Guests,
    address: &WsAddress,
) -> Result<ListenSocket, RunError> {
    #[cfg(unix)]
    if let Some(path) = &address.socket {
        return ListenSocket::unix(path, &guests.users).map_err(RunError::Listen);
    }
    tcp(sockets, address.listen_at()).await
}

/// Where a socket listens.
#[cfg(any(feature = "http", feature = "loro"))]
pub(crate) fn address_of(socket: &ListenSocket) -> Result<ListenAddress, RunError> {
    socket.address().map_err(|error| {
        let address = "a socket without an address".to_owned();
        RunError::Listen(ListenError::Bind { address, error })
    })
}

/// Where a listener for WebSockets or HTTP is found, as its clients write it.
pub(crate) fn heard_at(address: &WsAddress, at: &ListenAddress) -> String {
    let path = match &*address.path {
        "/" => "",
        path => path,
    };
    match at {
        ListenAddress::Unix(socket) => {
            let query = match path {
                "" => String::new(),
                path => format!("?path={path}"),
            };
            format!("{}:{}{query}", address.scheme(), socket.display())
        }
        at => format!("{}://{at}{path}", address.scheme()),
    }
}

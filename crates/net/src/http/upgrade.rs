//! Handles requests that become WebSockets, on the same port as all other requests.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::time::{Duration, timeout};

use super::answer::Answer;
use super::arrival::{AcceptedTransport, Arrival};
use super::authorize::{Claim, Grant, Way};
use super::listen::WriteTimeoutSocket;
use super::server::ServerState;
use crate::gate::Permit;
use crate::ws::{ListenOptions, Parts, Socket, WebSocket, admit};

/// How long the switch to WebSocket may take once the answer is being sent.
const SWITCH_TIMEOUT: Duration = Duration::from_secs(10);

/// The letters of a generated peer id.
const LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

pub(crate) async fn upgrade(
    State(state): State<Arc<ServerState>>,
    request: Request,
) -> Result<Response<Body>, Answer> {
    let (mut head, _) = request.into_parts();
    // The CORS middleware has checked the origin and the host already.
    let listen = ListenOptions {
        allowed_origins: Some(vec!["*".to_owned()]),
        ..ListenOptions::default()
    };
    let mut bare = axum::http::Request::new(());
    *bare.method_mut() = head.method.clone();
    *bare.uri_mut() = head.uri.clone();
    *bare.version_mut() = head.version;
    *bare.headers_mut() = head.headers.clone();
    let response = admit(&bare, &listen, None)?.response;
    let on_upgrade = head
        .extensions
        .remove::<OnUpgrade>()
        .ok_or_else(|| Answer::bad("this connection cannot become a WebSocket"))?;
    let prefix = state.options.dialect.unnamed_prefix;
    let peer_id = state.peer_id(&head).unwrap_or_else(|| fresh_id(prefix));
    let (claim, grant) = state.authorize(Way::WebSocket, peer_id, &head)?;
    let permit = state.permit(&claim)?;
    tokio::spawn(async move {
        let peer_id = claim.peer_id.clone();
        let switched = timeout(
            SWITCH_TIMEOUT,
            switch(&state, on_upgrade, claim, grant, permit),
        );
        if switched.await.is_err() {
            tracing::debug!(peer_id, limit = ?SWITCH_TIMEOUT, "the switch to WebSocket took too long");
        }
    });
    Ok(response.map(|()| Body::empty()))
}

/// Waits until the HTTP server gives up the socket, and hands the WebSocket to the application.
async fn switch(
    state: &ServerState,
    on_upgrade: OnUpgrade,
    claim: Claim,
    grant: Grant,
    permit: Permit,
) {
    let upgraded = match on_upgrade.await {
        Ok(upgraded) => upgraded,
        Err(error) => {
            return tracing::debug!(peer_id = claim.peer_id, %error, "the switch to WebSocket failed");
        }
    };
    let unknown = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    // Our own server gives the socket back; under another server the upgraded stream is used.
    let (socket, rest) = match upgraded.downcast::<TokioIo<WriteTimeoutSocket>>() {
        Ok(parts) => (parts.io.into_inner().into_socket(), parts.read_buf.to_vec()),
        Err(upgraded) => (
            Socket::Upgraded(Box::new(TokioIo::new(upgraded))),
            Vec::new(),
        ),
    };
    let websocket = WebSocket::new(Parts {
        socket,
        peer: claim.remote.unwrap_or(unknown),
        rest,
        server: true,
        frame_limit: state.options.frame_limit,
        fragment: state.options.fragment,
        subprotocol: None,
        permit: Some(permit),
    });
    let arrival = Arrival {
        claim,
        grant,
        transport: AcceptedTransport::WebSocket(websocket),
    };
    let _ = state.queue_arrival(arrival).await;
}

/// A random peer id for a client that gives none.
fn fresh_id(prefix: &str) -> String {
    let seed = crate::connection::fresh_seed();
    let letters = seed
        .iter()
        .map(|byte| char::from(LETTERS[usize::from(byte % 32)]));
    format!("{prefix}{}", letters.take(12).collect::<String>())
}

//! Transports for the crate `rmcp`: a program that uses it moves to Nostr by swapping its transport.
//!
//! ```no_run
//! # async fn example(config: breakbulk_contextvm::ClientConfig) -> Result<(), Box<dyn std::error::Error>> {
//! use breakbulk_contextvm::{Client, rmcp::ClientTransport};
//! use rmcp::ServiceExt;
//!
//! let transport = ClientTransport::new(Client::connect(config).await?);
//! let service = ().serve(transport).await?;
//! let tools = service.list_all_tools().await?;
//! # Ok(())
//! # }
//! ```

use std::future::Future;

use rmcp::service::{RxJsonRpcMessage, ServiceRole, TxJsonRpcMessage, serve_directly};
use rmcp::transport::Transport;
use rmcp::{RoleClient, RoleServer, Service, ServiceExt};

use super::client::Client;
use super::error::SendError;
use super::server::{Server, Session};
use crate::machine::PublicKey;

/// The transport of an rmcp client.
pub struct ClientTransport(Client);

impl ClientTransport {
    /// Over this client; the transport receives all its messages.
    pub fn new(client: Client) -> Self {
        Self(client)
    }
}

/// The transport of an rmcp service that serves one client.
pub struct SessionTransport(Session);

impl SessionTransport {
    /// Over this session.
    pub fn new(session: Session) -> Self {
        Self(session)
    }
}

/// Why rmcp's message was not sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The message cannot be serialized.
    #[error("the message cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The endpoint did not queue it.
    #[error(transparent)]
    Send(#[from] SendError),
}

impl Transport<RoleClient> for ClientTransport {
    type Error = TransportError;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), TransportError>> + Send + 'static {
        let client = self.0.clone();
        async move {
            client.send(serde_json::to_vec(&item)?).await?;
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let message = self.0.recv().await?;
            if let Some(message) = read::<RoleClient>(&message.bytes) {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), TransportError> {
        self.0.drained().await;
        self.0.close();
        Ok(())
    }
}

impl Transport<RoleServer> for SessionTransport {
    type Error = TransportError;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), TransportError>> + Send + 'static {
        let (server, peer) = (self.0.server().clone(), self.0.peer);
        async move {
            server.send(peer, serde_json::to_vec(&item)?).await?;
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            let message = self.0.recv().await?;
            if let Some(message) = read::<RoleServer>(&message.bytes) {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), TransportError> {
        Ok(())
    }
}

fn read<R: ServiceRole>(bytes: &[u8]) -> Option<RxJsonRpcMessage<R>> {
    serde_json::from_slice(bytes)
        .inspect_err(
            |error| tracing::warn!(%error, "received message dropped: rmcp cannot parse it"),
        )
        .ok()
}

/// Serves each client with its own service, made by `make`, until the server is closed. Clients that
/// send no `initialize` are served without one.
pub async fn serve<S: Service<RoleServer>>(server: &Server, make: impl Fn(&PublicKey) -> S) {
    let mut sessions = server.sessions();
    while let Some(session) = sessions.recv().await {
        let service = make(&session.peer);
        tokio::spawn(async move {
            let initializes = session.initializes;
            let transport = SessionTransport::new(session);
            let running = if initializes {
                match service.serve(transport).await {
                    Ok(running) => running,
                    Err(error) => {
                        tracing::debug!(%error, "client session ended: initialize failed");
                        return;
                    }
                }
            } else {
                serve_directly(service, transport, None)
            };
            if let Err(error) = running.waiting().await {
                tracing::warn!(%error, "client session ended: its service task failed");
            }
        });
    }
}

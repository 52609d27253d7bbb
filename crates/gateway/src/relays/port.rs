//! ContextVM's endpoints as sides of the pump: messages go straight to the endpoint, and come straight
//! from it.
//!
//! A message that arrived is charged to the endpoint until it is sent on the other side of the pump. A
//! message to send stays charged to the other side until the endpoint has dropped its bytes; it waits
//! while the endpoint has more than [`Limits::queued_bytes`](breakbulk_contextvm::Limits) queued for a
//! peer, so that slow relays stop the program that sends and nobody else.

use std::future::{Future, pending};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use breakbulk_contextvm::{
    Client, Event, InboundMessage, Kind, PublicKey, Refused, SendError, SendId, Server, Session,
};
use breakbulk_link::{Closed, Outgoing};
use breakbulk_message::jsonrpc::{self, INVALID_REQUEST};
use breakbulk_net::bytes_with;
use breakbulk_wire::shape_of;
use bytes::Bytes;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::session::SessionState;
use crate::pump::{Arrived, Heard, Outcome, Replacement};

/// The client of one server.
pub(crate) struct ClientPort {
    client: Client,
    /// How long what is queued may take to reach a relay at the end.
    grace: Duration,
    closed: OnceLock<Closed>,
}

impl ClientPort {
    pub(crate) fn new(client: Client, grace: Duration) -> Self {
        Self {
            client,
            grace,
            closed: OnceLock::new(),
        }
    }

    pub(crate) async fn event(&self, takes: bool) -> Heard {
        if let Some(closed) = self.closed.get() {
            return Heard::Closed(closed.clone());
        }
        if !takes {
            return pending().await;
        }
        loop {
            match self.client.event().await {
                Some(event) => {
                    if let Some(heard) = heard(event) {
                        return heard;
                    }
                }
                None => return closed("the connection to the relays has ended"),
            }
        }
    }

    pub(crate) fn send(&self, message: Outgoing) -> impl Future<Output = Outcome> + Send + use<> {
        let client = self.client.clone();
        async move {
            let outcome = outcome(client.send(charged(message)).await);
            match outcome {
                // A batch, or not JSON: its sender gets an error.
                Err(error @ SendError::NotJsonRpc(_)) => {
                    let words = error.to_string();
                    let answer = jsonrpc::error(None, INVALID_REQUEST, &words, None);
                    Outcome::Refused(Replacement::Answer(answer.into()), words)
                }
                outcome => dropped(outcome),
            }
        }
    }

    pub(crate) fn close(&self, code: u16, reason: &str) {
        self.closed.get_or_init(|| Closed {
            code,
            reason: reason.to_owned(),
        });
    }

    /// Waits until a relay has all that was sent, for at most the grace time. Returns what was not sent.
    pub(crate) async fn ended(&self) -> usize {
        // What is not sent by then is counted.
        let _ = timeout(self.grace, self.client.drained()).await;
        let unsent = self.client.stats().outgoing;
        self.client.close();
        unsent
    }

    pub(crate) fn closed_by_peer(&self) -> bool {
        self.closed.get().is_none()
    }
}

/// The session of one client with our server.
pub(crate) struct SessionPort {
    pub(super) session: Arc<Mutex<Session>>,
    pub(super) server: Server,
    pub(super) peer: PublicKey,
    pub(super) state: Arc<SessionState>,
    /// The session ends after this much time without a message.
    pub(super) idle: Duration,
    /// The session accepts no more messages: the next one of its client begins another session.
    pub(super) ending: AtomicBool,
    pub(super) closed: OnceLock<Closed>,
}

impl SessionPort {
    pub(crate) async fn event(&self, takes: bool) -> Heard {
        loop {
            if let Some(closed) = self.closed.get() {
                return Heard::Closed(closed.clone());
            }
            let ending = self.ending.load(Ordering::Relaxed);
            let silent = tokio::select! {
                event = async { self.session.lock().await.event().await }, if takes => {
                    match event {
                        Some(event) => {
                            if let Event::Message(message) = &event {
                                self.state.heard(&message.bytes);
                            }
                            match heard(event) {
                                Some(heard) => return heard,
                                None => continue,
                            }
                        }
                        None if ending => return closed("the session has ended"),
                        None => {
                            self.state.abandon();
                            return closed("the session was ended to make room for another client");
                        }
                    }
                }
                () = self.state.silent(self.idle), if !ending => true,
                () = self.state.asked_to_end(), if !ending => false,
                else => return pending().await,
            };
            self.session.lock().await.close();
            self.ending.store(true, Ordering::Relaxed);
            if silent {
                tracing::info!(
                    "ended a session after {} s without a message; its client may begin another",
                    self.idle.as_secs()
                );
            }
        }
    }

    pub(crate) fn send(&self, message: Outgoing) -> impl Future<Output = Outcome> + Send + use<> {
        let (server, peer, state) = (self.server.clone(), self.peer, self.state.clone());
        async move {
            // After its client began another session, the ids stand for other requests.
            match state.sends(&message.bytes) {
                true => dropped(outcome(server.send(peer, charged(message)).await)),
                false => Outcome::Out,
            }
        }
    }

    pub(crate) fn close(&self, code: u16, reason: &str) {
        self.closed.get_or_init(|| Closed {
            code,
            reason: reason.to_owned(),
        });
    }

    pub(crate) fn closed_by_peer(&self) -> bool {
        self.closed.get().is_none()
    }
}

/// What an event of an endpoint is for the pump. A failed request has been answered with an error, and a
/// response that failed was replaced by one; a notification is lost, and the endpoint has logged it.
fn heard(event: Event) -> Option<Heard> {
    match event {
        Event::Message(message) => Some(arrived(message)),
        Event::Failed {
            kind: Kind::Notification,
            ..
        } => Some(Heard::Lost),
        Event::Failed {
            kind: Kind::Response,
            failure,
            ..
        } => {
            tracing::warn!(%failure, "a response could not be sent to a peer at relays");
            None
        }
        Event::TransferFailed { fault, .. } => {
            tracing::warn!(%fault, "a transfer of the server failed, and the server is told why");
            None
        }
        _ => None,
    }
}

fn arrived(message: InboundMessage) -> Heard {
    let (bytes, charge) = message.into_parts();
    Heard::Message(Arrived {
        shape: shape_of(std::str::from_utf8(&bytes).unwrap_or_default()),
        bytes,
        key: None,
        pieces: 1,
        id: None,
        charge,
    })
}

fn closed(reason: &str) -> Heard {
    Heard::Closed(Closed {
        code: 1000,
        reason: reason.to_owned(),
    })
}

/// The bytes of a message, which keep its memory charged until they are dropped.
fn charged(message: Outgoing) -> Bytes {
    match message.charge {
        Some(charge) => bytes_with(message.bytes, charge),
        None => message.bytes,
    }
}

fn outcome(sent: Result<SendId, SendError>) -> Result<Outcome, SendError> {
    match sent {
        Ok(_) => Ok(Outcome::Out),
        Err(SendError::Closed) => Ok(Outcome::Lost),
        // The client has cancelled the request, or is gone.
        Err(error @ SendError::Refused(Refused::NoSuchRequest(_) | Refused::NoSuchPeer(_))) => {
            tracing::debug!(%error, "dropped a message to a peer at relays");
            Ok(Outcome::Out)
        }
        Err(error) => Err(error),
    }
}

fn dropped(outcome: Result<Outcome, SendError>) -> Outcome {
    outcome.unwrap_or_else(|error| {
        let words = error.to_string();
        Outcome::Refused(
            Replacement::Drop(format!("a message is dropped: {words}")),
            words,
        )
    })
}

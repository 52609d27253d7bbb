//! The server's side of a connection that consists of single requests (an event stream or polls, and
//! POSTs): the frames that POSTs bring in, and how the connection ends.

use std::sync::Arc;

use breakbulk_link::{Closed, Frame};
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::Duration;

use super::authorize::{Claim, Grant, Way};
use super::presence::Presence;
use super::server::ServerState;
use crate::exchange::Exchange;
use crate::gate::Permit;
use crate::poll::Polls;
use crate::receipt::{Receipt, Verdict};
use crate::transport::{Incoming, Source};

/// A connection as its requests see it.
#[derive(Debug)]
pub(crate) struct HttpConnection {
    peer_id: String,
    subject: Option<String>,
    posts: Arc<Semaphore>,
    frames: mpsc::Sender<Incoming>,
    over: watch::Sender<Option<Closed>>,
    requests: Requests,
    /// Tracks whether the client is still there; `None` for an event stream, which ends with its client.
    presence: Option<Presence>,
}

/// What takes a connection's outgoing frames.
#[derive(Debug)]
pub(crate) enum Requests {
    /// An event stream.
    Events,
    /// Polls.
    Polls(Polls),
    /// Numbered polls, and numbered POSTs.
    Exchange(Exchange),
}

/// The connection has ended.
#[derive(Debug)]
pub(crate) struct Gone;

impl HttpConnection {
    /// A connection that belongs to no server.
    #[cfg(test)]
    pub(crate) fn for_tests() -> Arc<Self> {
        Arc::new(Self {
            peer_id: "peer".to_owned(),
            subject: None,
            posts: Arc::new(Semaphore::new(1)),
            frames: mpsc::channel(1).0,
            over: watch::channel(None).0,
            requests: Requests::Events,
            presence: Some(Presence::new()),
        })
    }

    /// Opens a connection and registers it under its peer id. The registration and the permit are
    /// released when both halves of the transport are dropped.
    pub(crate) fn open(
        state: &Arc<ServerState>,
        claim: &Claim,
        grant: &Grant,
        permit: Permit,
        requests: Requests,
    ) -> HttpSource {
        // Only the link queues frames: a POST waits until the link takes its frame.
        let (frame_sender, frames) = mpsc::channel(1);
        let (over, _) = watch::channel(None);
        let connection = Arc::new(Self {
            peer_id: claim.peer_id.clone(),
            subject: grant.subject.clone(),
            posts: Arc::new(Semaphore::new(
                state.options.posts.min(Semaphore::MAX_PERMITS),
            )),
            frames: frame_sender,
            over,
            presence: (!matches!(requests, Requests::Events)).then(Presence::new),
            requests,
        });
        state.registry.put(connection.clone());
        HttpSource {
            frames,
            over: connection.over.subscribe(),
            stale: state.options.stale,
            registration: Arc::new(Registration {
                state: state.clone(),
                connection,
                _permit: permit,
            }),
        }
    }

    pub(crate) fn peer_id(&self) -> &str {
        &self.peer_id
    }

    pub(crate) fn way(&self) -> Way {
        match self.requests {
            Requests::Events => Way::Sse,
            Requests::Polls(_) => Way::Poll,
            Requests::Exchange(_) => Way::Exchange,
        }
    }

    pub(crate) fn polls(&self) -> Option<&Polls> {
        match &self.requests {
            Requests::Polls(polls) => Some(polls),
            _ => None,
        }
    }

    pub(crate) fn exchange(&self) -> Option<&Exchange> {
        match &self.requests {
            Requests::Exchange(exchange) => Some(exchange),
            _ => None,
        }
    }

    pub(crate) fn presence(&self) -> Option<&Presence> {
        self.presence.as_ref()
    }

    /// Waits until the client has been away for this long; for ever if this is an event stream.
    pub(crate) async fn absent_for(&self, after: Duration) {
        match &self.presence {
            Some(presence) => presence.absent_for(after).await,
            None => std::future::pending().await,
        }
    }

    /// Whether a request with this grant may use this connection.
    pub(crate) fn belongs_to(&self, grant: &Grant) -> bool {
        self.subject == grant.subject
    }

    /// Ends the connection; only the first call sets the reason.
    pub(crate) fn end(&self, closed: Closed) {
        self.over.send_if_modified(|over| {
            let first = over.is_none();
            if first {
                *over = Some(closed);
            }
            first
        });
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.borrow().is_some() || self.frames.is_closed()
    }

    /// Waits until the connection has ended.
    pub(crate) async fn ended(&self) {
        let _ = self.over.subscribe().wait_for(Option::is_some).await;
    }

    /// Reports a sign of life from the client. If the channel is full, the frame in it is a sign of
    /// life, too.
    pub(crate) fn report_alive(&self) {
        let _ = self.frames.try_send(Incoming::Alive);
    }

    /// A permit for one POST; `None` if too many are in progress.
    pub(crate) fn post_permit(&self) -> Option<OwnedSemaphorePermit> {
        self.posts.clone().try_acquire_owned().ok()
    }

    /// Passes a frame to the link as soon as the link wants one, and waits for the verdict on it.
    pub(crate) async fn post(&self, frame: Bytes) -> Result<Verdict, Gone> {
        let (receipt, verdict) = Receipt::new();
        let posted = Incoming::Posted(Frame::Binary(frame), receipt);
        self.frames.send(posted).await.map_err(|_| Gone)?;
        verdict.await.map_err(|_| Gone)
    }
}

/// A connection's entry in the registry, removed when both halves of its transport are dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    state: Arc<ServerState>,
    pub(crate) connection: Arc<HttpConnection>,
    _permit: Permit,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.connection
            .end(closed(1006, "the connection was dropped"));
        self.state.registry.remove(&self.connection);
    }
}

/// The receiving half: the frames of POSTs.
#[derive(Debug)]
pub struct HttpSource {
    frames: mpsc::Receiver<Incoming>,
    over: watch::Receiver<Option<Closed>>,
    stale: Duration,
    registration: Arc<Registration>,
}

impl HttpSource {
    pub(crate) fn registration(&self) -> Arc<Registration> {
        self.registration.clone()
    }

    pub(crate) fn connection(&self) -> Arc<HttpConnection> {
        self.registration.connection.clone()
    }
}

impl Source for HttpSource {
    async fn next(&mut self) -> Incoming {
        tokio::select! {
            // Frames that were posted before the end are delivered before it.
            biased;
            Some(incoming) = self.frames.recv() => incoming,
            over = self.over.wait_for(Option::is_some) => {
                let over = over.ok().and_then(|over| over.clone());
                Incoming::Closed(over.unwrap_or_else(|| closed(1006, "")))
            }
            () = self.registration.connection.absent_for(self.stale) => {
                let seconds = self.stale.as_secs_f64();
                let gone = closed(1001, &format!("no poll for {seconds} s"));
                self.registration.connection.end(gone.clone());
                Incoming::Closed(gone)
            }
        }
    }
}

pub(crate) fn closed(code: u16, reason: &str) -> Closed {
    Closed {
        code,
        reason: reason.to_owned(),
    }
}

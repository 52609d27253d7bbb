//! One connection that is made of single requests: what comes in by POSTs, and its end.

use std::sync::Arc;

use breakbulk_link::{Closed, Frame};
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{Duration, Instant, sleep_until};

use super::authorize::{Claim, Grant, Way};
use super::server::ServerState;
use crate::poll::Polls;
use crate::receipt::{Receipt, Verdict};
use crate::transport::{Incoming, Source};

/// What its requests find of a connection.
#[derive(Debug)]
pub(crate) struct HttpConnection {
    peer_id: String,
    subject: Option<String>,
    posts: Arc<Semaphore>,
    frames: mpsc::Sender<Incoming>,
    over: watch::Sender<Option<Closed>>,
    /// Where frames go out by polls.
    polls: Option<Polls>,
}

/// The connection is no more.
#[derive(Debug)]
pub(crate) struct Gone;

impl HttpConnection {
    /// A new connection: takes the peer id's place and one leave, until its last half is dropped.
    pub(crate) fn open(
        state: &Arc<ServerState>,
        claim: &Claim,
        grant: &Grant,
        permit: OwnedSemaphorePermit,
        polls: Option<Polls>,
    ) -> HttpSource {
        // The link is the queue: what comes in waits in its request.
        let (tell, frames) = mpsc::channel(1);
        let (over, _) = watch::channel(None);
        let connection = Arc::new(Self {
            peer_id: claim.peer_id.clone(),
            subject: grant.subject.clone(),
            posts: Arc::new(Semaphore::new(
                state.options.posts.min(Semaphore::MAX_PERMITS),
            )),
            frames: tell,
            over,
            polls,
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
        match self.polls {
            Some(_) => Way::Poll,
            None => Way::Sse,
        }
    }

    pub(crate) fn polls(&self) -> Option<&Polls> {
        self.polls.as_ref()
    }

    /// Whether a request that was granted so may speak for this connection.
    pub(crate) fn is_of(&self, grant: &Grant) -> bool {
        self.subject == grant.subject
    }

    /// Ends it; the first reason counts.
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

    /// Waits for its end.
    pub(crate) async fn over(&self) {
        let _ = self.over.subscribe().wait_for(Option::is_some).await;
    }

    /// The other end showed that it lives. A frame that waits shows the same.
    pub(crate) fn alive(&self) {
        let _ = self.frames.try_send(Incoming::Life);
    }

    /// Leave for one POST; `None`: there are too many.
    pub(crate) fn may_post(&self) -> Option<OwnedSemaphorePermit> {
        self.posts.clone().try_acquire_owned().ok()
    }

    /// Hands a frame to the link when it wants one, and waits until its sender can be answered.
    pub(crate) async fn post(&self, frame: Bytes) -> Result<Verdict, Gone> {
        let (receipt, verdict) = Receipt::new();
        let posted = Incoming::Posted(Frame::Binary(frame), receipt);
        self.frames.send(posted).await.map_err(|_| Gone)?;
        verdict.await.map_err(|_| Gone)
    }
}

/// A connection's place among the others, given up with the last of its halves.
#[derive(Debug)]
pub(crate) struct Registration {
    state: Arc<ServerState>,
    pub(crate) connection: Arc<HttpConnection>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.connection
            .end(closed(1006, "the connection was given up"));
        self.state.registry.remove(&self.connection);
    }
}

/// The half by which the frames of POSTs come in.
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
            // What was posted before the end came before it.
            biased;
            Some(incoming) = self.frames.recv() => incoming,
            over = self.over.wait_for(Option::is_some) => {
                let over = over.ok().and_then(|over| over.clone());
                Incoming::Closed(over.unwrap_or_else(|| closed(1006, "")))
            }
            () = stale(self.registration.connection.polls(), self.stale) => {
                let seconds = self.stale.as_secs_f64();
                let gone = closed(1001, &format!("no poll for {seconds} s"));
                self.registration.connection.end(gone.clone());
                Incoming::Closed(gone)
            }
        }
    }
}

/// Waits until nobody has polled for so long; for ever where nobody polls.
async fn stale(polls: Option<&Polls>, after: Duration) {
    let Some(polls) = polls else {
        return std::future::pending().await;
    };
    let mut presence = polls.presence();
    loop {
        let due = presence
            .borrow_and_update()
            .absent_since
            .map(|at| at + after);
        if due.is_some_and(|due| due <= Instant::now()) {
            return;
        }
        let wait = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = wait => {}
            _ = presence.changed() => {}
        }
    }
}

pub(crate) fn closed(code: u16, reason: &str) -> Closed {
    Closed {
        code,
        reason: reason.to_owned(),
    }
}

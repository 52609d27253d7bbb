//! Dialed peers: connects, and reconnects with backoff.

use std::sync::{Arc, Weak};
use std::time::Duration;

use breakbulk_net::http::Way;
use breakbulk_net::{Options, Transport, poll, sse, ws};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::core::{Core, now};
use super::error::DialError;
use super::serve::{self, Joined};
use crate::http::client_options;
use crate::machine::{ChannelId, Event};

/// How long to wait between attempts to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Attempts in a row that may fail.
    pub tries: u32,
    /// The first wait; each further one is twice as long.
    pub base: Duration,
    /// The longest wait.
    pub cap: Duration,
}

impl Default for Backoff {
    /// The original's numbers.
    fn default() -> Self {
        Self {
            tries: 10,
            base: Duration::from_secs(1),
            cap: Duration::from_secs(30),
        }
    }
}

impl Backoff {
    /// The wait after this many failures in a row, from 1.
    pub fn delay(&self, failures: u32) -> Duration {
        let doubled = 1u32.checked_shl(failures.saturating_sub(1));
        let delay = doubled.and_then(|times| self.base.checked_mul(times));
        delay.unwrap_or(self.cap).min(self.cap)
    }
}

/// The address of a peer, and how to connect.
#[derive(Clone, Debug)]
pub struct Dial {
    /// `ws://` and `wss://` for a WebSocket; `http://` and `https://` with `transport=sse`, `poll` or
    /// `webrtc` in the query (SSE without it).
    pub url: String,
    /// Sent as `Authorization: Bearer …`.
    pub bearer: Option<ws::Bearer>,
    /// Further headers.
    pub headers: Vec<(String, String)>,
    /// How long to wait between attempts.
    pub backoff: Backoff,
    /// The trusted root certificates.
    pub roots: ws::Roots,
    /// The certificate to show to a server that asks for one.
    pub identity: Option<ws::Identity>,
}

impl Dial {
    /// This address, with the original's backoff.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            bearer: None,
            headers: Vec::new(),
            backoff: Backoff::default(),
            roots: ws::Roots::Native,
            identity: None,
        }
    }
}

/// The status of a dialed peer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Status {
    /// An attempt to connect is under way.
    Connecting,
    /// Connected, not established yet.
    Connected,
    /// Established: documents are synced.
    Established,
    /// Waiting before the next attempt.
    Waiting {
        /// Attempts that failed in a row.
        failures: u32,
        /// The wait.
        delay: Duration,
        /// Why the last attempt failed, or the connection ended.
        reason: DialError,
    },
    /// Too many attempts failed in a row.
    GaveUp {
        /// Why the last one failed.
        reason: DialError,
    },
    /// This node closed the connection.
    Closed,
}

/// A dialed peer. Dropping this disconnects it.
#[derive(Debug)]
pub struct Remote {
    status: watch::Receiver<Status>,
    task: JoinHandle<()>,
}

impl Remote {
    /// The status; await changes on the receiver.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// Waits until the connection is established.
    pub async fn established(&self) -> Result<(), DialError> {
        let mut status = self.status();
        let ended = |status: &Status| match status {
            Status::GaveUp { reason } => Some(Err(reason.clone())),
            Status::Closed => Some(Err(DialError::HungUp)),
            Status::Established => Some(Ok(())),
            _ => None,
        };
        let status = status.wait_for(|status| ended(status).is_some()).await;
        match status {
            Ok(status) => ended(&status).unwrap_or(Ok(())),
            Err(_) => Err(DialError::HungUp),
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(super) fn start<F, J>(core: &Arc<Core>, backoff: Backoff, call: F) -> Remote
where
    F: Fn(Arc<Core>) -> J + Send + 'static,
    J: Future<Output = Result<Joined, DialError>> + Send + 'static,
{
    let (status_sender, status) = watch::channel(Status::Connecting);
    let task = tokio::spawn(redial_loop(
        Arc::downgrade(core),
        backoff,
        call,
        status_sender,
    ));
    Remote { status, task }
}

async fn redial_loop<F, J>(
    core: Weak<Core>,
    backoff: Backoff,
    call: F,
    status_sender: watch::Sender<Status>,
) where
    F: Fn(Arc<Core>) -> J + Send + 'static,
    J: Future<Output = Result<Joined, DialError>> + Send + 'static,
{
    let mut failures: u32 = 0;
    loop {
        let Some(strong) = core.upgrade() else {
            break;
        };
        if strong.lock().ended {
            break;
        }
        status_sender.send_replace(Status::Connecting);
        let reason = match call(strong.clone()).await {
            Err(reason) => reason,
            Ok(joined) => {
                let begun = now();
                let (established, reason) = serve_one(&strong, joined, &status_sender).await;
                // A connection that the server soon ends, such as for a change that it cannot store, is a
                // failure too: without a growing delay each attempt would send the change again.
                let lasted = now().saturating_duration_since(begun);
                if established && lasted >= backoff.delay(failures.saturating_add(1)) {
                    failures = 0;
                }
                reason
            }
        };
        if strong.lock().ended {
            break;
        }
        drop(strong);
        failures = failures.saturating_add(1);
        if failures > backoff.tries {
            status_sender.send_replace(Status::GaveUp { reason });
            return;
        }
        let delay = backoff.delay(failures);
        status_sender.send_replace(Status::Waiting {
            failures,
            delay,
            reason,
        });
        tokio::time::sleep(delay).await;
    }
    status_sender.send_replace(Status::Closed);
}

/// Serves one connection to its end; returns whether it was established, and why it ended.
async fn serve_one(
    core: &Arc<Core>,
    joined: Joined,
    status_sender: &watch::Sender<Status>,
) -> (bool, DialError) {
    let mut events = core.events.subscribe();
    let (send_channel, own_channel) = tokio::sync::oneshot::channel::<ChannelId>();
    let serving = serve::run(core, joined, |channel, _| {
        status_sender.send_replace(Status::Connected);
        let _ = send_channel.send(channel);
    });
    let watching = async {
        let Ok(own_channel) = own_channel.await else {
            return std::future::pending().await;
        };
        loop {
            match events.recv().await {
                Ok(Event::Established { channel, .. }) if channel == own_channel => break,
                // Events were missed: ask the machine.
                Err(tokio::sync::broadcast::error::RecvError::Lagged(_))
                    if core.lock().hub.peers().any(|(id, _)| id == own_channel) =>
                {
                    break;
                }
                Err(tokio::sync::broadcast::error::RecvError::Closed) => {
                    return std::future::pending().await;
                }
                _ => {}
            }
        }
        status_sender.send_replace(Status::Established);
        std::future::pending::<()>().await
    };
    let closed = tokio::select! {
        closed = serving => closed,
        () = watching => return (false, DialError::HungUp),
    };
    let established = matches!(*status_sender.borrow(), Status::Established);
    (established, DialError::Ended(closed))
}

/// One attempt to connect.
pub(super) async fn call(core: Arc<Core>, dial: Dial) -> Result<Joined, DialError> {
    let peer_id = core.config.identity.peer_id.clone();
    let (url, transport) = take_transport(&dial.url);
    if url.starts_with("ws://") || url.starts_with("wss://") {
        let options = ws::ConnectOptions {
            bearer: dial.bearer,
            headers: dial.headers,
            roots: dial.roots,
            identity: dial.identity,
            ..ws::ConnectOptions::default()
        };
        let mark = if url.contains('?') { '&' } else { '?' };
        let url = format!("{url}{mark}peerId={peer_id}");
        let socket = ws::connect(&url, &options).await?;
        return serve::join(&core, Way::WebSocket, socket, Options::default()).await;
    }
    let mut options = client_options(peer_id);
    options.bearer = dial.bearer;
    options.headers = dial.headers;
    options.roots = dial.roots;
    options.identity = dial.identity;
    match transport.as_deref() {
        None | Some("sse") => {
            let opened = sse::connect(&url, &options).await?;
            joined(&core, Way::Sse, opened).await
        }
        Some("poll") => {
            let opened = poll::connect(&url, &options).await?;
            joined(&core, Way::Poll, opened).await
        }
        #[cfg(feature = "webrtc")]
        Some("webrtc") => {
            let channel = breakbulk_net::webrtc::ChannelOptions::default();
            let opened = breakbulk_net::webrtc::connect(&url, &options, &channel).await;
            joined(&core, Way::DataChannel, opened?).await
        }
        Some(other) => Err(DialError::UnknownTransport {
            name: other.to_owned(),
        }),
    }
}

async fn joined<T: Transport>(core: &Core, way: Way, transport: T) -> Result<Joined, DialError> {
    serve::join(core, way, transport, Options::default()).await
}

/// The address without `transport=…`, and the transport named there.
fn take_transport(url: &str) -> (String, Option<String>) {
    let Some((address, query)) = url.split_once('?') else {
        return (url.to_owned(), None);
    };
    let mut transport = None;
    let rest: Vec<&str> = query
        .split('&')
        .filter(|part| match part.strip_prefix("transport=") {
            Some(name) => {
                transport = Some(name.to_owned());
                false
            }
            None => true,
        })
        .collect();
    if rest.is_empty() {
        return (address.to_owned(), transport);
    }
    (format!("{address}?{}", rest.join("&")), transport)
}

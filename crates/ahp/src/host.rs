//! The host: numbers actions, keeps them for replays, and sends them to every subscriber in order.
//!
//! An action is *published*, then *committed* to the log, then *visible*: it is applied to the
//! application's states and sent to all subscribers of its channel. [`Host::publish`] never waits: not
//! for the log, and not for a client. A client that reads too slowly is disconnected and replays what it
//! missed when it reconnects.
//!
//! Clients are told apart by their clientId alone. A second connection with the same one takes over and
//! the first is closed ([`close::REPLACED`]): which client may use which id is decided by the code that
//! accepts the transport, or by [`Application::initialize`] and [`Application::reconnect`].
//!
//! One connection has one handshake. `initialize` and `reconnect` may be tried again after an
//! error, not after a success.
//!
//! ```
//! use breakbulk_ahp::host::{Applied, State};
//! use breakbulk_ahp::log::MemoryLog;
//! use breakbulk_ahp::{Application, Host, HostConfig};
//! use breakbulk_net::memory;
//! use serde_json::value::RawValue;
//!
//! /// One channel, which counts.
//! #[derive(Default)]
//! struct Counter(std::sync::atomic::AtomicU64);
//!
//! impl Application for Counter {
//!     fn snapshot(&self, channel: &str) -> Option<State> {
//!         let count = self.0.load(std::sync::atomic::Ordering::Relaxed);
//!         let state = RawValue::from_string(count.to_string()).ok()?;
//!         (channel == "ahp-root://").then(|| State::new(state))
//!     }
//!
//!     fn apply(&self, _action: &Applied<'_>) {
//!         self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let host = Host::new(Counter::default(), MemoryLog::default(), HostConfig::default());
//! let (_client, transport) = memory::pair(8);
//! tokio::spawn(host.serve(transport));
//! let action = RawValue::from_string(r#"{"type":"tick"}"#.to_owned())?;
//! let seq = host.publish("ahp-root://", &action, None)?;
//! host.visible(seq).await?;
//! assert_eq!((seq, host.last_visible()), (1, 1));
//! # Ok(())
//! # }
//! ```

mod application;
mod committer;
mod requests;
mod serve;

use std::future::Future;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use breakbulk_link::{Closed, lock};
use breakbulk_message::ahp::{InitializeParams, Origin, ReconnectParams};
use breakbulk_net::Transport;
use serde_json::value::RawValue;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

pub use application::Application;

use self::serve::Core;
#[cfg(doc)]
use crate::Config;
pub use crate::config::Unsound;
use crate::log::{ReplayLog, ReplayReader};
pub use crate::machine::host::{
    Applied, Call, Dispatch, Extras, HostConfig, PublishError, RpcError, State, close,
};
use crate::machine::host::{Channels, Draft, Pending, When};

/// The host of an application. Clones share it; dropping the last one closes its log.
pub struct Host<A: Application> {
    inner: Arc<Inner<A>>,
    _last: Arc<EndOnDrop<A>>,
}

pub(crate) struct Inner<A> {
    app: A,
    config: HostConfig,
    /// Actions that are not in the log yet: publishers lock this alone.
    pending: Mutex<Pending>,
    /// Wakes the committer: an action was published, or the host ends.
    wake: Notify,
    core: Mutex<Core>,
    reader: Arc<dyn ReplayReader>,
    /// Whether reading the log waits for a disk.
    blocks: bool,
    /// Whether other hosts append to the log.
    shared: bool,
    visible: watch::Sender<Visible>,
    /// The connections that are being refused because there are too many clients.
    refusing: AtomicUsize,
    committer: Mutex<Option<Committer>>,
}

/// The task that holds the log, and gives it back.
type Committer = JoinHandle<Option<Box<dyn ReplayLog>>>;

#[derive(Clone, Debug)]
struct Visible {
    seq: i64,
    /// Why no further action becomes visible, once that is so.
    ended: Option<PublishError>,
}

impl<A: Application> Host<A> {
    /// A host that numbers its actions after the last one in its log.
    ///
    /// The states of `app` must contain all actions of the log: [`Application::apply`] is called for
    /// actions that are published from now on, never for those that the log has already. An application
    /// that starts with older states first brings them up to [`ReplayLog::last`], from storage of its own
    /// or, as far as the log reaches, by [`ReplayLog::since`]. Otherwise its snapshots lack actions whose
    /// numbers they claim to contain, and no client can notice.
    ///
    /// If the configuration is invalid ([`Config::check`]) every call fails and says why, and clients are
    /// closed with 1011.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(app: A, log: impl ReplayLog, config: HostConfig) -> Self {
        Self::boxed(app, Box::new(log), config)
    }

    /// The same as [`new`](Self::new), for a log that is boxed already.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn boxed(app: A, log: Box<dyn ReplayLog>, config: HostConfig) -> Self {
        let last = log.last().max(config.start_after);
        let unsound = config.connection.check().err();
        let visible = Visible {
            seq: last,
            ended: None,
        };
        let inner = Arc::new(Inner {
            app,
            pending: Mutex::new(Pending::new(last, config.limits.uncommitted_bytes)),
            wake: Notify::new(),
            core: Mutex::new(Core::new(config.clone(), last)),
            reader: log.reader(),
            blocks: log.blocks(),
            shared: log.is_shared(),
            visible: watch::Sender::new(visible),
            refusing: AtomicUsize::new(0),
            committer: Mutex::new(None),
            config,
        });
        if let Some(unsound) = unsound {
            inner.fail(&unsound.to_string(), |machine| {
                let reason = "the host has invalid settings: ask its operator";
                machine.end(close::FAILED, reason, When::Now);
            });
        }
        let committer = tokio::spawn(committer::commit(inner.clone(), log));
        *lock(&inner.committer) = Some(committer);
        Self {
            _last: Arc::new(EndOnDrop(inner.clone())),
            inner,
        }
    }

    /// The application.
    pub fn app(&self) -> &A {
        &self.inner.app
    }

    /// Serves one client until its connection ends, and returns why it ended. Dropping the future closes
    /// the connection.
    pub fn serve(
        &self,
        transport: impl Transport,
    ) -> impl Future<Output = Closed> + Send + 'static {
        serve::serve(self.clone(), transport)
    }

    /// Publishes an action and returns its number. Never waits; the action becomes visible later,
    /// in the order of the numbers.
    ///
    /// In a log that several hosts share the action gets a larger number if another host stores its own
    /// first; [`visible`](Self::visible) with the number that was returned waits for this action all the
    /// same.
    pub fn publish(
        &self,
        channel: &str,
        action: &RawValue,
        origin: Option<Origin<'_>>,
    ) -> Result<i64, PublishError> {
        self.inner.push(Draft::new(channel, action, origin, None))
    }

    /// Publishes an action of a client unchanged.
    pub fn accept(&self, dispatch: &Dispatch<'_>) -> Result<i64, PublishError> {
        self.publish(dispatch.channel, dispatch.action, Some(dispatch.origin()))
    }

    /// Rejects an action of a client. All subscribers of the channel are told.
    pub fn reject(&self, dispatch: &Dispatch<'_>, reason: &str) -> Result<i64, PublishError> {
        let origin = Some(dispatch.origin());
        let draft = Draft::new(dispatch.channel, dispatch.action, origin, Some(reason));
        self.inner.push(draft)
    }

    /// Sends a notification to the subscribers of a channel. It has no number and is not replayed, may be
    /// dropped for a client that is slow or for which it is too large, and may overtake actions that are
    /// not visible yet.
    pub fn notify(&self, channel: &str, method: &str, params: &RawValue) {
        self.inner
            .drive(|machine| machine.notify(channel, method, params));
    }

    /// Waits until the action with this number is visible.
    pub async fn visible(&self, seq: i64) -> Result<(), PublishError> {
        let mut watch = self.inner.visible.subscribe();
        let state = watch
            .wait_for(|state| self.is_visible(state, seq) || state.ended.is_some())
            .await
            .map_err(|_| PublishError::ShutDown)?;
        match &state.ended {
            Some(ended) if !self.is_visible(&state, seq) => Err(ended.clone()),
            _ => Ok(()),
        }
    }

    /// In a log that several hosts share, an action of this one may have been given a larger number.
    fn is_visible(&self, state: &Visible, seq: i64) -> bool {
        state.seq >= seq && lock(&self.inner.pending).has_settled(seq)
    }

    /// The number of the last action that is visible.
    pub fn last_visible(&self) -> i64 {
        lock(&self.inner.core).machine.last_visible()
    }

    /// Ends the host: refuses further actions, makes those that were published visible, sends them to the
    /// clients for at most the grace time of their connections, and closes these. The first call returns
    /// the log.
    pub async fn shutdown(&self) -> Option<Box<dyn ReplayLog>> {
        let inner = &self.inner;
        inner.end(PublishError::ShutDown);
        let committer = lock(&inner.committer).take();
        let log = match committer {
            Some(committer) => committer.await.ok().flatten(),
            None => None,
        };
        let mut watch = inner.visible.subscribe();
        let _ = watch.wait_for(|state| state.ended.is_some()).await;
        let reason = "the host is shut down: reconnect later";
        inner.drive(|machine| machine.end(close::GOING_AWAY, reason, When::AfterQueue));
        let connections = lock(&inner.core).connections();
        for connection in connections {
            connection.ended().await;
        }
        log
    }
}

impl<A> Inner<A> {
    fn push(&self, draft: Draft<'_>) -> Result<i64, PublishError> {
        let seq = lock(&self.pending).push(draft)?;
        self.wake.notify_one();
        Ok(seq)
    }

    /// Refuses further actions.
    fn end(&self, why: PublishError) {
        lock(&self.pending).end(why);
        self.wake.notify_one();
    }
}

/// Passes the machine's questions to the application.
impl<A: Application> Channels for Inner<A> {
    fn snapshot(&self, channel: &str) -> Option<State> {
        self.app.snapshot(channel)
    }

    fn permits(&self, client_id: &str, channel: &str) -> bool {
        self.app.permits(client_id, channel)
    }

    fn apply(&self, action: &Applied<'_>) {
        self.app.apply(action);
    }

    fn has_room(&self, bytes: usize) -> bool {
        lock(&self.pending).has_room(bytes)
    }

    fn initialize(&self, params: &InitializeParams<'_>) -> Result<Extras, RpcError> {
        self.app.initialize(params)
    }

    fn reconnect(&self, params: &ReconnectParams<'_>) -> Result<(), RpcError> {
        self.app.reconnect(params)
    }
}

impl<A: Application> Clone for Host<A> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            _last: self._last.clone(),
        }
    }
}

/// Ends the committer when the last handle is dropped.
struct EndOnDrop<A>(Arc<Inner<A>>);

impl<A> Drop for EndOnDrop<A> {
    fn drop(&mut self) {
        self.0.end(PublishError::ShutDown);
    }
}

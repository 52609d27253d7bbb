//! What an application is to the host that carries its channels.

use std::future::Future;
use std::sync::Arc;

use breakbulk_link::Charge;
use breakbulk_message::ahp::{InitializeParams, Origin, ReconnectParams};
use bytes::Bytes;
use serde_json::value::RawValue;

use super::Host;
use super::error::{PublishError, RpcError};

/// The application behind a host: its channels, their states, and what clients may do.
///
/// The host numbers actions, keeps them for replays and tells every subscriber. The application
/// keeps the states. [`apply`](Self::apply) and [`snapshot`](Self::snapshot) are called under one
/// lock, so that a snapshot is exactly the state after the actions it claims to contain. For that the
/// states must be as far as the log is when the host starts: what the log has already is not applied
/// again (see [`Host::new`]).
pub trait Application: Sized + Send + Sync + 'static {
    /// The state of a channel, or `None` if there is no such channel (any more).
    ///
    /// It must be cheap, a clone of something cached: no action becomes visible meanwhile.
    fn snapshot(&self, channel: &str) -> Option<State>;

    /// An action became visible: it is in the log, and a snapshot from now on contains it.
    ///
    /// Called once for each action, in the order of their numbers. A rejected one changes no state.
    fn apply(&self, action: &Applied<'_>);

    /// A client introduces itself; what it gets to know beside the protocol's own, or why not.
    fn initialize(&self, _params: &InitializeParams<'_>) -> Result<Extras, RpcError> {
        Ok(Extras::default())
    }

    /// A client comes back. What `initialize` would refuse must be refused here too.
    fn reconnect(&self, _params: &ReconnectParams<'_>) -> Result<(), RpcError> {
        Ok(())
    }

    /// Whether this client may see this channel; called under the lock, as `snapshot` is.
    fn permits(&self, _client_id: &str, _channel: &str) -> bool {
        true
    }

    /// A client dispatched an action: [`Host::accept`] it, [`Host::publish`] something else, or
    /// [`Host::reject`] it. An error ends this client's connection, since it would wait for an echo
    /// that never comes.
    fn dispatched(&self, host: &Host<Self>, dispatch: &Dispatch<'_>) -> Result<(), PublishError> {
        host.reject(dispatch, "this host takes no actions")
            .map(|_| ())
    }

    /// Any other request. It is dropped when its client goes: what must be finished belongs in a
    /// task of its own.
    fn request(
        &self,
        _host: &Host<Self>,
        call: Call,
    ) -> impl Future<Output = Result<Box<RawValue>, RpcError>> + Send {
        let error = RpcError::method_not_found(call.method());
        async { Err(error) }
    }
}

/// The state of a channel as JSON, cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct State(Option<Arc<RawValue>>);

impl State {
    /// A state.
    pub fn new(state: impl Into<Arc<RawValue>>) -> Self {
        Self(Some(state.into()))
    }

    /// A channel that has no state: subscribers get its actions and no snapshot.
    pub fn none() -> Self {
        Self(None)
    }

    pub(super) fn json(&self) -> Option<&str> {
        self.0.as_deref().map(RawValue::get)
    }
}

/// An action that became visible.
#[derive(Clone, Copy, Debug)]
pub struct Applied<'a> {
    /// The channel.
    pub channel: &'a str,
    /// Its number.
    pub seq: i64,
    /// What happens, as JSON.
    pub action: &'a str,
    /// Which client dispatched it.
    pub origin: Option<&'a Origin<'static>>,
    /// Why it was refused; then it changes nothing.
    pub rejection: Option<&'a str>,
}

/// An action that a client dispatched.
#[derive(Clone, Copy, Debug)]
pub struct Dispatch<'a> {
    /// The client.
    pub client_id: &'a str,
    /// Its own number for it.
    pub client_seq: i64,
    /// The channel.
    pub channel: &'a str,
    /// What shall happen.
    pub action: &'a RawValue,
}

impl<'a> Dispatch<'a> {
    /// Who dispatched it.
    pub fn origin(&self) -> Origin<'a> {
        Origin {
            client_id: self.client_id.into(),
            client_seq: self.client_seq,
        }
    }
}

/// A client's request. Its memory counts as that client's until it is dropped.
#[derive(Debug)]
pub struct Call {
    pub(super) client_id: Arc<str>,
    pub(super) method: String,
    pub(super) params: Bytes,
    pub(super) _charge: Charge,
}

impl Call {
    /// The client.
    pub fn client_id(&self) -> &Arc<str> {
        &self.client_id
    }

    /// The method.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// The params as JSON, `null` where there are none.
    pub fn params(&self) -> &str {
        // It was read as text before.
        std::str::from_utf8(&self.params).unwrap_or("null")
    }
}

/// Members of the `initialize` result that the application adds, such as `serverInfo`.
#[derive(Clone, Debug, Default)]
pub struct Extras(pub(super) Vec<(String, Box<RawValue>)>);

impl Extras {
    /// The same with one more member. Those that the host writes itself cannot be changed.
    pub fn with(mut self, name: &str, value: Box<RawValue>) -> Self {
        let taken = ["protocolVersion", "serverSeq", "snapshots", "capabilities"];
        if !taken.contains(&name) {
            self.0.push((name.to_owned(), value));
        }
        self
    }
}

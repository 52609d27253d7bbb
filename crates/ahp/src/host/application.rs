//! What an application is to the host that carries its channels.

use std::future::Future;

use breakbulk_message::ahp::{InitializeParams, ReconnectParams};
use serde_json::value::RawValue;

use super::{Applied, Call, Dispatch, Extras, Host, PublishError, RpcError, State};

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

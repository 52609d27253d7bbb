//! The trait that an application implements.

use std::future::Future;

use breakbulk_message::ahp::{InitializeParams, ReconnectParams};
use serde_json::value::RawValue;

use super::{Applied, Call, Dispatch, Extras, Host, PublishError, RpcError, State};

/// The application behind a host: its channels, their states, and what clients may do.
///
/// The host numbers actions, keeps them for replays and sends them to every subscriber. The application
/// keeps the states. [`apply`](Self::apply) and [`snapshot`](Self::snapshot) are called under one
/// lock, so that a snapshot is exactly the state after the actions it claims to contain. For that the
/// states must contain all actions of the log when the host starts: those are not applied again (see
/// [`Host::new`]).
pub trait Application: Sized + Send + Sync + 'static {
    /// The state of a channel, or `None` if there is no such channel (any more).
    ///
    /// It must be cheap, a clone of something cached: no action becomes visible meanwhile.
    fn snapshot(&self, channel: &str) -> Option<State>;

    /// An action became visible: it is in the log, and a snapshot from now on contains it.
    ///
    /// Called once for each action, in the order of their numbers. A rejected one changes no state.
    fn apply(&self, action: &Applied<'_>);

    /// A client sent `initialize`: returns members to add to the result, or the error to answer with.
    fn initialize(&self, _params: &InitializeParams<'_>) -> Result<Extras, RpcError> {
        Ok(Extras::default())
    }

    /// A client sent `reconnect`. Clients that `initialize` would refuse must be refused here too.
    fn reconnect(&self, _params: &ReconnectParams<'_>) -> Result<(), RpcError> {
        Ok(())
    }

    /// Whether this client may see this channel; called under the lock, as `snapshot` is.
    fn permits(&self, _client_id: &str, _channel: &str) -> bool {
        true
    }

    /// A client dispatched an action: [`Host::accept`] it, [`Host::publish`] something else, or
    /// [`Host::reject`] it. An error closes this client's connection, since the client would wait forever
    /// for its action to come back.
    fn dispatched(&self, host: &Host<Self>, dispatch: &Dispatch<'_>) -> Result<(), PublishError> {
        host.reject(dispatch, "this host takes no actions")
            .map(|_| ())
    }

    /// Any other request. The future is dropped when its client disconnects: spawn a task for work that
    /// must be finished.
    fn request(
        &self,
        _host: &Host<Self>,
        call: Call,
    ) -> impl Future<Output = Result<Box<RawValue>, RpcError>> + Send {
        let error = RpcError::method_not_found(call.method());
        async { Err(error) }
    }
}

//! Actions that clients dispatch.

use std::ops::Range;
use std::sync::Arc;

use breakbulk_link::Charge;
use breakbulk_message::ahp::DispatchParams;
use bytes::Bytes;

use super::config::close;
use super::error::PublishError;
use super::types::Dispatch;

/// An action of a client on which the application decides. Its memory is charged to that client until it
/// is dropped.
#[derive(Debug)]
pub struct Dispatching {
    pub(super) client_id: Arc<str>,
    pub(super) bytes: Bytes,
    pub(super) params: Range<usize>,
    pub(super) _charge: Charge,
}

/// What the application decided on an action. `Err`: the client's connection is closed with this code
/// and reason, since the client would wait forever for the action to come back.
#[derive(Debug)]
pub struct Dispatched(pub(super) Result<(), (u16, &'static str)>);

impl Dispatching {
    /// Reads the action and lets `decide` accept, change or reject it.
    pub fn run(self, decide: impl FnOnce(&Dispatch<'_>) -> Result<(), PublishError>) -> Dispatched {
        let params = self.bytes.get(self.params.clone()).unwrap_or_default();
        // The wire has checked that it is UTF-8.
        let params = std::str::from_utf8(params).unwrap_or_default();
        let Ok(params) = DispatchParams::read(params) else {
            let reason = "invalid dispatchAction: channel, clientSeq and action are needed";
            return Dispatched(Err((close::PROTOCOL, reason)));
        };
        let decided = decide(&Dispatch {
            client_id: &self.client_id,
            client_seq: params.client_seq,
            channel: &params.channel,
            action: params.action,
        });
        Dispatched(decided.map_err(|error| match error {
            PublishError::Behind { .. } => (
                close::TRY_LATER,
                "your action was refused, too many are queued: reconnect and dispatch it again",
            ),
            PublishError::ShutDown => (
                close::GOING_AWAY,
                "your action was refused: the host is shut down",
            ),
            PublishError::Failed { .. } => (
                close::FAILED,
                "your action was refused: the host has failed",
            ),
        }))
    }
}

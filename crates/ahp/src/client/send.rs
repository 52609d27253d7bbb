//! Whether a message may go out at all, and why it did not.

use breakbulk_link::{Outgoing, PeerLimits, PeerSupport, PlanOptions, SendError, Wire};
use breakbulk_message::ahp::Chunking;
use breakbulk_net::Connection;
use breakbulk_wire::Ahp;

use super::ClientError;
use crate::Settings;

/// Asks the wire before the message is queued, so that its sender is told at once.
pub(super) fn fits(
    settings: &Settings,
    host: Option<&Chunking>,
    message: &Outgoing,
) -> Result<(), ClientError> {
    let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    // Only sizes count for the plan.
    let peer = host.map_or(PeerSupport::No, |host| {
        PeerSupport::Yes(PeerLimits {
            frame: size(host.max_frame_bytes),
            message: size(host.max_message_bytes),
            transfers: size(host.groups_to_open()),
            timeout: None,
            timeout_from_last: false,
        })
    });
    let options = PlanOptions {
        key: None,
        may_cut: message.may_cut,
        known_text: message.known_text,
        peer: &peer,
        cap: &settings.cap,
    };
    let planned = Ahp.plan(&message.bytes, &options);
    planned.map(drop).map_err(|error| match error {
        SendError::MessageTooLarge { .. } | SendError::FrameTooLarge { .. } => {
            ClientError::TooLarge(settings.too_large(message.bytes.len(), host))
        }
        error => ClientError::Send(error),
    })
}

/// A message was not queued.
pub(super) fn closed(connection: &Connection, error: SendError) -> ClientError {
    match connection.with(|link| link.closed().cloned()) {
        Some(closed) => closed.into(),
        None => ClientError::Send(error),
    }
}

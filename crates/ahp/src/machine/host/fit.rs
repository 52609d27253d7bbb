//! Whether an answer fits a client's limits, checked before it is sent.

use std::time::Instant;

use breakbulk_link::SendError;
use breakbulk_message::ahp::Chunking;
use serde_json::value::RawValue;

use super::error::RpcError;
use super::sessions::Session;
use crate::Config;

/// Whether an answer of this size can be sent to the client; `Err` is what to answer instead.
pub(super) fn check(
    config: &Config,
    session: &Session,
    size: usize,
    now: Instant,
) -> Result<(), RpcError> {
    let chunking = session.chunking.as_ref();
    let too_large = config.too_large(size, chunking);
    let slow = session.slow.as_ref();
    let text = match config.fits(size, true, chunking) {
        Err(_) => too_large.to_string(),
        Ok(()) => match slow.and_then(|slow| slow.refuses(chunking, size, now)) {
            None => return Ok(()),
            Some(reason) => reason,
        },
    };
    Err(RpcError {
        code: config.too_large_code,
        message: text,
        data: RawValue::from_string(too_large.data()).ok(),
    })
}

/// The most bytes of a replay for this client.
pub(super) fn replay_limit(config: &Config, chunking: Option<&Chunking>, most: usize) -> usize {
    let peer = chunking.map_or(config.cap.max, |chunking| {
        usize::try_from(chunking.max_message_bytes).unwrap_or(usize::MAX)
    });
    peer.min(most)
}

/// Why an action or answer could not be sent, short enough for a close frame.
pub(super) fn reason(what: &str, error: &SendError, size: usize) -> String {
    match error {
        SendError::MessageTooLarge { size, limit } => {
            format!("{what} of {size} bytes, and you take {limit}: reconnect for a snapshot")
        }
        SendError::FrameTooLarge { size, limit, .. } => format!(
            "{what} of {size} bytes, a frame holds {limit} and you take no segments: reconnect for a snapshot"
        ),
        SendError::CapTooSmall { cap, needed } => format!(
            "{what} of {size} bytes, and a frame of {cap} holds no segment ({needed} do): reconnect for a snapshot"
        ),
        _ => format!("{what} of {size} bytes cannot be sent: reconnect for a snapshot"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_fit_a_close_frame() {
        let huge = usize::MAX / 1_000_000;
        for error in [
            SendError::MessageTooLarge {
                size: huge,
                limit: huge,
            },
            SendError::FrameTooLarge {
                size: huge,
                limit: huge,
                uncut: breakbulk_link::Uncut::NotNegotiated,
            },
            SendError::CapTooSmall {
                cap: 100,
                needed: 145,
            },
            SendError::NotUtf8,
        ] {
            let reason = reason("answer", &error, huge);
            assert!(reason.len() <= 123, "{}: {reason}", reason.len());
        }
    }
}

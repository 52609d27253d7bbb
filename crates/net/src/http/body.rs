//! Reads the body of a POST, limited in size per request and in bytes over all requests.

use axum::body::Body;
use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderMap, StatusCode};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use tokio::time::{Duration, timeout};

use super::answer::Answer;
use super::bodies::BodyCharge;

/// How much of a refused body is still read: closing a socket with unread bytes resets it, and the
/// client would not see the answer.
const DRAIN_MAX: usize = 8 << 20;

/// How long reading the rest of a refused body may take, plus a second for each MiB beyond [`DRAIN_MAX`].
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// Why a body was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// It is over the limit.
    TooLarge {
        /// The length that its head declares.
        declared: Option<u64>,
        /// Whether the socket must be closed, since the rest of the body was not read.
        unread: bool,
    },
    /// The client ended before its end.
    EndedEarly,
    /// There is no memory for it.
    Busy,
}

/// Reads a body of at most `limit` bytes. The bytes that came in, not the declared length, are charged.
pub(crate) async fn read(
    headers: &HeaderMap,
    body: Body,
    limit: usize,
    charge: &mut BodyCharge,
) -> Result<Bytes, Answer> {
    let read = read_body(headers, body, (limit, DRAIN_MAX), charge, |_| {}).await;
    read.map_err(|error| match error {
        BodyError::TooLarge {
            declared,
            unread: false,
        } => too_large(declared, limit),
        BodyError::TooLarge { declared, .. } => too_large(declared, limit).closing(),
        BodyError::EndedEarly => Answer::bad("the body ended early").closing(),
        BodyError::Busy => {
            let text = "the server has no memory left for this body: try again later";
            Answer::busy(text).closing()
        }
    })
}

/// Reads a body of at most `limit` bytes. The bytes that came in, not the declared length, are charged. Of a
/// body that is too large up to `drained` bytes, and at least 8 MiB, are read, so that its sender sees the
/// answer; `refused` is called with these bytes, from the first one on.
pub async fn read_body(
    headers: &HeaderMap,
    body: Body,
    (limit, drained): (usize, usize),
    charge: &mut BodyCharge,
    mut refused: impl FnMut(&[u8]),
) -> Result<Bytes, BodyError> {
    let declared = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let mut chunks = body.into_data_stream();
    if let Some(size) = declared
        && size > limit as u64
    {
        let unread = size > drained.max(DRAIN_MAX) as u64;
        if !unread {
            drain(&mut chunks, drained, &mut refused).await;
        }
        return Err(BodyError::TooLarge { declared, unread });
    }
    // Grows with what comes in: a declared length must not cause an allocation.
    let mut bytes = BytesMut::new();
    while let Some(chunk) = chunks.next().await {
        let Ok(chunk) = chunk else {
            return Err(BodyError::EndedEarly);
        };
        if bytes.len() + chunk.len() > limit {
            refused(&bytes);
            drop(bytes);
            refused(&chunk);
            drain(&mut chunks, drained, &mut refused).await;
            let unread = false;
            return Err(BodyError::TooLarge { declared, unread });
        }
        if !charge.grow_to(bytes.len() + chunk.len()) {
            return Err(BodyError::Busy);
        }
        if bytes.capacity() - bytes.len() < chunk.len() {
            // Grows by a quarter, and never past the limit.
            let wanted = (bytes.len() + chunk.len()).max(bytes.len() + bytes.len() / 4);
            bytes.reserve(wanted.min(limit) - bytes.len());
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.freeze())
}

fn too_large(declared: Option<u64>, limit: usize) -> Answer {
    let size = declared.map_or_else(|| "this one".to_owned(), |size| format!("one of {size}"));
    let error = format!(
        "a body may have {limit} bytes, {size} is too large: send the message in fragments"
    );
    Answer::error(StatusCode::PAYLOAD_TOO_LARGE, &error)
}

async fn drain(
    chunks: &mut axum::body::BodyDataStream,
    drained: usize,
    refused: &mut impl FnMut(&[u8]),
) {
    let mut left = drained.max(DRAIN_MAX);
    let within = DRAIN_TIME + Duration::from_secs(((left - DRAIN_MAX) >> 20) as u64);
    let read = async {
        while let Some(Ok(chunk)) = chunks.next().await {
            refused(&chunk);
            left = left.saturating_sub(chunk.len());
            if left == 0 {
                return;
            }
        }
    };
    let _ = timeout(within, read).await;
}

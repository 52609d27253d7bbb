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

/// How long that may take.
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// Reads a body of at most `limit` bytes. The bytes that came in, not the declared length, are charged.
pub(crate) async fn read(
    headers: &HeaderMap,
    body: Body,
    limit: usize,
    charge: &mut BodyCharge,
) -> Result<Bytes, Answer> {
    let declared = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let mut chunks = body.into_data_stream();
    if let Some(size) = declared
        && size > limit as u64
    {
        if size > DRAIN_MAX as u64 {
            return Err(too_large(declared, limit).closing());
        }
        drain(&mut chunks).await;
        return Err(too_large(declared, limit));
    }
    // Grows with what comes in: a declared length must not cause an allocation.
    let mut bytes = BytesMut::new();
    while let Some(chunk) = chunks.next().await {
        let Ok(chunk) = chunk else {
            return Err(Answer::bad("the body ended early").closing());
        };
        if bytes.len() + chunk.len() > limit {
            drop(bytes);
            drain(&mut chunks).await;
            return Err(too_large(declared, limit));
        }
        if !charge.grow_to(bytes.len() + chunk.len()) {
            let error = "too much is being posted at once: try again later";
            return Err(Answer::busy(error).closing());
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

async fn drain(chunks: &mut axum::body::BodyDataStream) {
    let mut left = DRAIN_MAX;
    let drained = async {
        while let Some(Ok(chunk)) = chunks.next().await {
            left = left.saturating_sub(chunk.len());
            if left == 0 {
                return;
            }
        }
    };
    let _ = timeout(DRAIN_TIME, drained).await;
}

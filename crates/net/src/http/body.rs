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
        let unread = size > drained.max(DRAIN_MAX) as u64
            || !drain(&mut chunks, drained, &mut refused).await;
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
            let unread = !drain(&mut chunks, drained, &mut refused).await;
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

/// Reads the rest of a refused body, within limits; true if that was all of it.
async fn drain(
    chunks: &mut axum::body::BodyDataStream,
    drained: usize,
    refused: &mut impl FnMut(&[u8]),
) -> bool {
    let mut left = drained.max(DRAIN_MAX);
    let within = DRAIN_TIME + Duration::from_secs(((left - DRAIN_MAX) >> 20) as u64);
    let read = async {
        while let Some(chunk) = chunks.next().await {
            let Ok(chunk) = chunk else {
                return false;
            };
            refused(&chunk);
            left = left.saturating_sub(chunk.len());
            if left == 0 {
                return false;
            }
        }
        true
    };
    timeout(within, read).await.unwrap_or(false)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may")]
mod tests {
    use futures_util::stream;

    use super::*;
    use crate::http::Bodies;

    // A socket that is closed with unread bytes is reset, and one that is kept would take them for a request.
    #[tokio::test]
    async fn of_a_body_without_a_length_it_is_known_whether_all_was_read() {
        const MIB: usize = 1 << 20;
        let bodies = Bodies::new(64 * MIB, None);
        for (chunks, expected) in [(1, None), (3, Some(false)), (20, Some(true))] {
            let chunks = vec![Bytes::from(vec![0; MIB]); chunks];
            let chunks = chunks.into_iter().map(Ok::<_, std::io::Error>);
            let body = Body::from_stream(stream::iter(chunks));
            let mut charge = bodies.begin(1);
            let limits = (MIB, DRAIN_MAX);
            let read = read_body(&HeaderMap::new(), body, limits, &mut charge, |_| {}).await;
            let unread = read.err().map(|error| match error {
                BodyError::TooLarge { unread, .. } => unread,
                other => panic!("{other:?}"),
            });
            assert_eq!(unread, expected);
        }
    }
}

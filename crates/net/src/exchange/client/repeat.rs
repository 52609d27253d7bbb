//! Sends a request again when it or its answer was lost on the way.

use std::time::Duration;

use breakbulk_link::Closed;
use bytes::{Bytes, BytesMut};
use reqwest::header::CONTENT_TYPE;
use reqwest::{RequestBuilder, StatusCode};
use tokio::time::{Instant, sleep, timeout};

use super::Session;
use crate::http::client::{failure, printable_error};

/// How long a request is repeated on a path that loses it, before the session is given up.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// The pause before the first repetition; it doubles up to [`PAUSE_MAX`].
pub(super) const PAUSE: Duration = Duration::from_millis(50);

/// The longest pause.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A path that carries this many bytes of a body per second is fast enough.
const BYTES_A_SECOND: u64 = 4 << 10;

/// Why a request got no answer from the server.
#[derive(Debug)]
pub(super) enum NoReply {
    /// The session is over.
    Over(Closed),
    /// Something on the way answered instead of the server.
    Replaced(String),
}

/// A whole answer.
pub(super) struct Reply {
    pub(super) status: StatusCode,
    /// Its content type.
    pub(super) kind: String,
    pub(super) body: Bytes,
}

/// Sends a request with a body of `size` bytes until the server itself has answered it or, if `gives_up` is
/// set, until something on the way answers instead of it.
pub(super) async fn repeat(
    session: &Session,
    request: impl Fn() -> RequestBuilder,
    size: usize,
    answer_max: usize,
    gives_up: bool,
) -> Result<Reply, NoReply> {
    let usual = session.client.options().timeout;
    let within = session.wait + usual + Duration::from_secs(size as u64 / BYTES_A_SECOND);
    let (mut failing_since, mut pause) = (None, PAUSE);
    loop {
        let why = match send(request(), within, usual, answer_max).await {
            Ok(reply) => return Ok(reply),
            Err(Failed::Over(closed)) => return Err(NoReply::Over(closed)),
            Err(Failed::Replaced(why)) if gives_up => return Err(NoReply::Replaced(why)),
            Err(Failed::Lost(why) | Failed::Replaced(why)) => why,
        };
        let since = *failing_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= PATIENCE {
            return Err(NoReply::Over(over(1006, why)));
        }
        tracing::debug!(why, "a request is sent again");
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

enum Failed {
    /// It may have been lost on the way.
    Lost(String),
    /// A proxy or a busy server answered, and another try may help.
    Replaced(String),
    /// Another try would not help.
    Over(Closed),
}

fn over(code: u16, reason: String) -> Closed {
    Closed { code, reason }
}

/// Sends a request; the head of its answer must come within a time, and so must each part of its body.
async fn send(
    request: RequestBuilder,
    within: Duration,
    each_part: Duration,
    answer_max: usize,
) -> Result<Reply, Failed> {
    let late = |time: Duration| Failed::Lost(format!("no answer in {} s", time.as_secs_f64()));
    let again = |error: &reqwest::Error| Failed::Lost(failure(error));
    let response = timeout(within, request.send()).await;
    let mut response = response
        .map_err(|_| late(within))?
        .map_err(|error| again(&error))?;
    let status = response.status();
    if !status.is_success() {
        let text = timeout(each_part, printable_error(response)).await;
        return Err(refused(status, &text.unwrap_or_default()));
    }
    let kind = response.headers().get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or_default().to_owned();
    let mut body = BytesMut::new();
    loop {
        let part = timeout(each_part, response.chunk()).await;
        let part = part.map_err(|_| late(each_part))?;
        let Some(part) = part.map_err(|error| again(&error))? else {
            break;
        };
        if body.len() + part.len() > answer_max {
            let reason = format!("the server's answer is over the limit of {answer_max} bytes");
            return Err(Failed::Over(over(1002, reason)));
        }
        body.extend_from_slice(&part);
    }
    let body = body.freeze();
    Ok(Reply { status, kind, body })
}

/// What an answer with an error status means.
fn refused(status: StatusCode, text: &str) -> Failed {
    let code = status.as_u16();
    let told = match text {
        "" => format!("HTTP {code}"),
        text => format!("HTTP {code}: {text}"),
    };
    match status {
        // The reason names no size of this side's, which could be mistaken for the limit.
        StatusCode::PAYLOAD_TOO_LARGE => Failed::Over(over(1009, told)),
        // Proxies and servers that are busy, restart, or gave up a request.
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => Failed::Replaced(told),
        _ if status.is_server_error() => Failed::Replaced(told),
        _ => Failed::Over(over(1006, told)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // LINE-2
    #[test]
    fn a_refusal_for_the_size_is_told_as_on_web_sockets() {
        for (status, expected) in [
            (200, Some(1006)),
            (400, Some(1006)),
            (401, Some(1006)),
            (404, Some(1006)),
            (408, None),
            (409, Some(1006)),
            (413, Some(1009)),
            (429, None),
            (500, None),
            (502, None),
            (503, None),
            (504, None),
        ] {
            let status = StatusCode::from_u16(status).unwrap_or_default();
            let found = match refused(status, "no") {
                Failed::Lost(_) | Failed::Replaced(_) => None,
                Failed::Over(closed) => Some(closed.code),
            };
            assert_eq!(found, expected, "{status}");
        }
    }
}

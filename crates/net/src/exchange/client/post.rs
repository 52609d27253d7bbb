//! Posts the frames that wait to be sent: several bodies at a time if there are many.

use std::sync::Arc;

use breakbulk_link::Closed;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use reqwest::{Method, StatusCode};
use serde::Deserialize;

use super::super::outbox::SHARED;
use super::super::{REQUESTS, WINDOW};
use super::Session;
use super::repeat::{NoReply, Reply, repeat};

/// Up to this many POSTs are sent as soon as there is a frame; a further one only if so much waits that no
/// more small frames could share its body.
const EAGER: usize = 2;

/// How much of the answer to a POST is read.
const ANSWER_MAX: usize = 4096;

/// The answer to a POST.
#[derive(Deserialize)]
struct Next {
    next: u64,
}

/// Posts until the session ends, or this side's close is posted.
pub(super) async fn post_all(session: Arc<Session>) {
    let mut posts = FuturesUnordered::new();
    let (mut number, mut on_their_way, mut last) = (0u64, 0, false);
    loop {
        let least = match posts.len() {
            count if count < EAGER => 1,
            _ => SHARED.min(session.body_max),
        };
        let room = posts.len() < REQUESTS && (posts.is_empty() || on_their_way < WINDOW) && !last;
        tokio::select! {
            biased;
            Some(posted) = posts.next(), if !posts.is_empty() => match posted {
                Ok(size) => on_their_way -= size,
                Err(closed) => return session.end(closed),
            },
            () = session.outbox.filled(least), if room => {
                let body = match session.outbox.take(session.body_max) {
                    Ok(body) => body,
                    Err(error) => return session.end(error.closed()),
                };
                last = session.outbox.is_finished();
                number += 1;
                on_their_way += body.len();
                posts.push(post(&session, number, body));
            }
            _ = session.ended() => return,
        }
        if last && posts.is_empty() {
            session.posted.send_replace(true);
            return;
        }
    }
}

/// Posts a body until the server has it, and returns its size.
async fn post(session: &Session, number: u64, body: Bytes) -> Result<usize, Closed> {
    let (size, text) = (body.len(), number.to_string());
    loop {
        let request = || {
            let path = session.client.options().dialect.post;
            session
                .request(Method::POST, path, &[("number", &text)])
                .header("content-type", "application/octet-stream")
                .body(body.clone())
        };
        let reply = repeat(session, request, size, ANSWER_MAX, false).await;
        let Reply { status, body, .. } = reply.map_err(|error| match error {
            NoReply::Over(closed) => closed,
            NoReply::Replaced(reason) => Closed { code: 1006, reason },
        })?;
        let answer = match status {
            StatusCode::OK => serde_json::from_slice::<Next>(&body).ok(),
            _ => None,
        };
        match answer {
            Some(Next { next }) if next > number => return Ok(size),
            // The server's application does not read at the moment: the body is posted again.
            Some(_) => {}
            None => {
                return Err(Closed {
                    code: 1002,
                    reason: format!(
                        "a POST was answered with HTTP {status}, without the number of the next one"
                    ),
                });
            }
        }
    }
}

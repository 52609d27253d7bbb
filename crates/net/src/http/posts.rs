//! `POST /sync`: one frame up, answered when it is known what became of it.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use tokio::time::timeout;

use super::answer::Answer;
use super::authorize::Way;
use super::body;
use super::desk::{Desk, not_yours};

/// What the original's servers say, each in its own way.
pub(crate) struct Words {
    way: Way,
    no_peer: &'static str,
    unknown: &'static str,
}

impl Words {
    pub(crate) const SSE: Self = Self {
        way: Way::Sse,
        no_peer: "Missing peer ID",
        unknown: "Peer not connected",
    };
    pub(crate) const POLL: Self = Self {
        way: Way::Poll,
        no_peer: "x-peer-id header is required",
        unknown: "Connection not found. Poll first to establish connection.",
    };
}

pub(crate) async fn sync(desk: &Arc<Desk>, words: &Words, request: Request) -> Answer {
    let (head, body) = request.into_parts();
    match take(desk, words, &head, body).await {
        Ok(answer) | Err(answer) => answer,
    }
}

async fn take(
    desk: &Arc<Desk>,
    words: &Words,
    head: &axum::http::request::Parts,
    body: axum::body::Body,
) -> Result<Answer, Answer> {
    let header = |name: &str| head.headers.get(name).and_then(|it| it.to_str().ok());
    let peer_id = header("x-peer-id")
        .filter(|it| !it.is_empty())
        .ok_or_else(|| Answer::bad(words.no_peer))?;
    let line = desk.registry.find(peer_id);
    let way = line.as_ref().map_or(words.way, |line| line.way());
    let (_, grant) = desk.claim(way, peer_id.to_owned(), head)?;
    let unknown = || Answer::error(StatusCode::NOT_FOUND, words.unknown);
    let line = line.ok_or_else(unknown)?;
    if !line.is_of(&grant) {
        return Err(not_yours());
    }
    let _permit = line.may_post().ok_or_else(|| {
        let limit = desk.options.posts;
        let error = format!("{limit} POSTs are under way: send them one after another");
        Answer::error(StatusCode::TOO_MANY_REQUESTS, &error)
    })?;
    let binary = header(CONTENT_TYPE.as_str()).is_some_and(|kind| {
        let kind = kind.split(';').next().unwrap_or_default();
        kind.trim().eq_ignore_ascii_case("application/octet-stream")
    });
    let options = &desk.options;
    let work = async {
        let held = body::read(&head.headers, body, options.body_max, &desk.bodies).await?;
        if !binary {
            return Err(Answer::bad("Expected binary body"));
        }
        let gone = |_| Answer::busy("the connection was closed");
        // Charged until it is answered.
        let verdict = line.post(held.bytes).await.map_err(gone)?;
        Ok(Answer::of(verdict))
    };
    timeout(options.post_time, work).await.unwrap_or_else(|_| {
        let seconds = options.post_time.as_secs_f64();
        let error = format!("not taken and kept within {seconds} s: try again later");
        Err(Answer::busy(&error).closing())
    })
}

//! A POST: one frame up, answered when it is known what became of it.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use tokio::time::timeout;

use super::answer::Answer;
use super::authorize::Way;
use super::body;
use super::server::{ServerState, not_yours};

/// Takes a POST that belongs to a connection of this way, unless its id says otherwise.
pub(crate) async fn post(state: &Arc<ServerState>, way: Way, request: Request) -> Answer {
    let (head, body) = request.into_parts();
    match take(state, way, &head, body).await {
        Ok(answer) | Err(answer) => answer,
    }
}

async fn take(
    state: &Arc<ServerState>,
    usual: Way,
    head: &axum::http::request::Parts,
    body: axum::body::Body,
) -> Result<Answer, Answer> {
    let header = |name: &str| head.headers.get(name).and_then(|it| it.to_str().ok());
    let dialect = &state.options.dialect;
    let words = match usual {
        Way::Poll => &dialect.poll_posts,
        _ => &dialect.event_posts,
    };
    let peer_id = header(dialect.peer_header)
        .filter(|it| !it.is_empty())
        .ok_or_else(|| Answer::bad(words.no_peer))?;
    let connection = state.registry.find(peer_id);
    let way = connection
        .as_ref()
        .map_or(usual, |connection| connection.way());
    let (_, grant) = state.claim(way, peer_id.to_owned(), head)?;
    let unknown = || Answer::error(StatusCode::NOT_FOUND, words.unknown);
    let connection = connection.ok_or_else(unknown)?;
    if !connection.is_of(&grant) {
        return Err(not_yours());
    }
    let _permit = connection.may_post().ok_or_else(|| {
        let limit = state.options.posts;
        let error = format!("{limit} POSTs are under way: send them one after another");
        Answer::error(StatusCode::TOO_MANY_REQUESTS, &error)
    })?;
    let binary = header(CONTENT_TYPE.as_str()).is_some_and(|kind| {
        let kind = kind.split(';').next().unwrap_or_default();
        kind.trim().eq_ignore_ascii_case("application/octet-stream")
    });
    let options = &state.options;
    let work = async {
        let held = body::read(&head.headers, body, options.body_max, &state.bodies).await?;
        if !binary {
            return Err(Answer::bad(dialect.not_binary));
        }
        let gone = |_| Answer::busy("the connection was closed");
        // Charged until it is answered.
        let verdict = connection.post(held.bytes).await.map_err(gone)?;
        Ok(Answer::of(verdict, dialect))
    };
    timeout(options.post_time, work).await.unwrap_or_else(|_| {
        let seconds = options.post_time.as_secs_f64();
        let error = format!("not taken and kept within {seconds} s: try again later");
        Err(Answer::busy(&error).closing())
    })
}

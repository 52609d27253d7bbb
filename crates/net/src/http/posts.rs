//! Handles POSTs: each brings one frame, and is answered when the link or the application has
//! judged it.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use tokio::time::timeout;

use super::answer::Answer;
use super::authorize::Way;
use super::body;
use super::connection::closed;
use super::server::{ServerState, peer_id_taken};

/// Handles a POST. `way` is the kind of transport to assume if no connection has the POST's peer id.
pub(crate) async fn post(state: &Arc<ServerState>, way: Way, request: Request) -> Answer {
    let _posting = Posting::new(state);
    let (head, body) = request.into_parts();
    match handle(state, way, &head, body).await {
        Ok(answer) | Err(answer) => answer,
    }
}

/// Counts a POST as in progress, until this is dropped.
struct Posting<'s>(&'s ServerState);

impl<'s> Posting<'s> {
    fn new(state: &'s ServerState) -> Self {
        state.posting.send_modify(|posts| *posts += 1);
        Self(state)
    }
}

impl Drop for Posting<'_> {
    fn drop(&mut self) {
        self.0.posting.send_modify(|posts| *posts -= 1);
    }
}

async fn handle(
    state: &Arc<ServerState>,
    usual: Way,
    head: &axum::http::request::Parts,
    body: axum::body::Body,
) -> Result<Answer, Answer> {
    let header = |name: &str| head.headers.get(name).and_then(|it| it.to_str().ok());
    let dialect = &state.options.dialect;
    let errors = match usual {
        Way::Poll => &dialect.poll_posts,
        _ => &dialect.event_posts,
    };
    let peer_id = header(dialect.peer_header)
        .filter(|it| !it.is_empty())
        .ok_or_else(|| Answer::bad(errors.no_peer))?;
    let connection = state.registry.find(peer_id);
    let way = connection
        .as_ref()
        .map_or(usual, |connection| connection.way());
    let (_, grant) = state.authorize(way, peer_id.to_owned(), head)?;
    let unknown = || Answer::error(StatusCode::NOT_FOUND, errors.unknown);
    let connection = connection.ok_or_else(unknown)?;
    if !connection.belongs_to(&grant) {
        return Err(peer_id_taken());
    }
    let _permit = connection.post_permit().ok_or_else(|| {
        let limit = state.options.posts;
        let error = format!("{limit} POSTs are in progress: send them one after another");
        Answer::error(StatusCode::TOO_MANY_REQUESTS, &error)
    })?;
    let binary = header(CONTENT_TYPE.as_str()).is_some_and(|kind| {
        let kind = kind.split(';').next().unwrap_or_default();
        kind.trim().eq_ignore_ascii_case("application/octet-stream")
    });
    let options = &state.options;
    let mut charge = state.bodies.begin(Arc::as_ptr(&connection) as usize);
    let evicted = charge.evicted();
    let work = async {
        // The charge is held until the POST is answered.
        let body = body::read(&head.headers, body, options.body_max, &mut charge).await?;
        if !binary {
            return Err(Answer::bad(dialect.not_binary));
        }
        let gone = |_| Answer::busy("the connection was closed");
        let verdict = connection.post(body).await.map_err(gone)?;
        Ok(Answer::of(verdict, dialect))
    };
    let work = async {
        tokio::select! {
            answer = work => answer,
            () = evicted => {
                // The connection ends as well: otherwise a frame that waits for the link would keep
                // its memory.
                connection.end(closed(1013, "the bytes of waiting POSTs fill the memory for them, which others need: send less at once"));
                let error = "the memory for POST bodies is needed for others, and this connection holds most of it: try again later";
                Err(Answer::busy(error).closing())
            }
        }
    };
    timeout(options.post_time, work).await.unwrap_or_else(|_| {
        let seconds = options.post_time.as_secs_f64();
        let error = format!("the frame was not processed within {seconds} s: try again later");
        Err(Answer::busy(&error).closing())
    })
}

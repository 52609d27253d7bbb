//! Records as they are made, a JSON object in each line, for whoever follows the gateway.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{Response, StatusCode};
use bytes::Bytes;
use futures_util::stream;

use super::AdminState;
use super::answers::{failed, set_head};
use crate::record::Live;

/// The most bytes of records that are written at once.
const AT_ONCE: usize = 64 << 10;

/// A stream of records. A reader that is behind misses some, and is told how many.
pub(super) fn answer(state: &Arc<AdminState>) -> Response<Body> {
    let Some(records) = state.watch.follow() else {
        let words = "this gateway makes no records to follow";
        return failed(StatusCode::NOT_FOUND, words);
    };
    let Ok(permit) = state.streams.clone().try_acquire_owned() else {
        let words = "too many event streams are open: close one";
        return failed(StatusCode::SERVICE_UNAVAILABLE, words);
    };
    let start = (records, state.over.clone(), permit);
    let lines = stream::unfold(start, async |(mut records, mut over, permit)| {
        let mut next = tokio::select! {
            next = records.next() => Some(next),
            _ = over.wait_for(|over| *over) => return None,
        };
        let mut lines = Vec::new();
        // What is there already goes in the same write.
        while let Some(live) = next {
            add(&mut lines, &live);
            next = (lines.len() < AT_ONCE)
                .then(|| records.try_next())
                .flatten();
        }
        Some((
            Ok::<_, Infallible>(Bytes::from(lines)),
            (records, over, permit),
        ))
    });
    let mut response = Response::new(Body::from_stream(lines));
    set_head(&mut response, "application/x-ndjson");
    response
}

fn add(lines: &mut Vec<u8>, live: &Live) {
    // Such a value always has a form in JSON.
    if serde_json::to_writer(&mut *lines, live).is_ok() {
        lines.push(b'\n');
    }
}

//! The state, once a second, as server-sent events.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{Response, StatusCode};
use breakbulk_link::lock;
use breakbulk_net::now;
use bytes::Bytes;
use futures_util::stream;
use tokio::time::sleep;

use super::AdminState;
use super::answers::{failed, set_head};

/// How often the state is sent.
const EVERY: Duration = Duration::from_secs(1);

/// An event younger than this is sent to other readers too, instead of a new one.
const FRESH: Duration = Duration::from_millis(800);

/// The last event.
#[derive(Default)]
pub(super) struct Shared(Mutex<Option<(Instant, Bytes)>>);

impl Shared {
    fn event(&self, state: &AdminState) -> Bytes {
        let mut last = lock(&self.0);
        let now = now();
        if let Some((at, bytes)) = &*last
            && now.saturating_duration_since(*at) < FRESH
        {
            return bytes.clone();
        }
        // Such a view always has a form in JSON.
        let json = serde_json::to_string(&state.watch.state()).unwrap_or_default();
        let bytes = Bytes::from(format!("event: state\ndata: {json}\n\n"));
        *last = Some((now, bytes.clone()));
        bytes
    }
}

/// A stream of events. A reader that is behind gets the latest state next, and none in between.
pub(super) fn answer(state: &Arc<AdminState>) -> Response<Body> {
    let Ok(permit) = state.streams.clone().try_acquire_owned() else {
        let words = "too many event streams are open: close one, or ask for /api/state";
        return failed(StatusCode::SERVICE_UNAVAILABLE, words);
    };
    let state = state.clone();
    let events = stream::unfold((state, permit, true), async |(state, permit, is_first)| {
        let mut over = state.over.clone();
        if !is_first {
            tokio::select! {
                () = sleep(EVERY) => {}
                _ = over.wait_for(|over| *over) => return None,
            }
        }
        let event = state.shared.event(&state);
        Some((Ok::<_, Infallible>(event), (state, permit, false)))
    });
    let mut response = Response::new(Body::from_stream(events));
    set_head(&mut response, "text/event-stream");
    response
}

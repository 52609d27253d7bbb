//! Requests of sessions that are at another member of the fleet: they are forwarded, and a client whose
//! request is lost with that member is told so.

use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::http::Response;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use breakbulk_link::lock;
use breakbulk_message::jsonrpc;
use breakbulk_net::JsonScan;
use breakbulk_net::sse::EventText;
use bytes::Bytes;
use futures_util::StreamExt;

use super::DoorState;
use super::answer::{Refusal, refusal};
use crate::fleet::{Fleet, Member, Unreached};

use crate::mcp::head::{EVENTS, Headers, Refused, SERVER_ERROR, SESSION, SESSION_NOT_FOUND};

const DEAD: &str = "the member of the fleet that had this session is gone, and the session with it; begin another by initialize";
const LOST: &str = "the member of the fleet that has this session was lost before it answered; whether the request was carried out is not known";

/// The member of the fleet that has the session of a request, if that is another one.
pub(super) fn elsewhere(state: &DoorState, head: &Parts) -> Option<(Arc<Fleet>, Member)> {
    let fleet = state.fleet.as_ref()?;
    let session = head.headers.only(SESSION).ok()??;
    Some((fleet.clone(), fleet.elsewhere(head, &session)?))
}

/// Forwards a request, and returns the answer.
pub(super) async fn forward(
    fleet: &Arc<Fleet>,
    member: Member,
    head: &Parts,
    body: Body,
) -> Result<Response<Body>, Refusal> {
    let asked = Asked::default();
    let answer = fleet.ask(member, head, asked.listening(body)).await;
    let id = asked.id();
    let answer = match answer {
        Ok(answer) => answer,
        Err(unreached) => return Err(not_answered(unreached, id)),
    };
    let is_stream = answer
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind == EVENTS);
    Ok(match id.filter(|_| is_stream) {
        Some(id) => answer.map(|body| ending(body, &id)),
        None => answer,
    })
}

fn not_answered(unreached: Unreached, id: Option<String>) -> Refusal {
    let refused = match unreached {
        Unreached::Dead => Refused::new(404, SESSION_NOT_FOUND, DEAD),
        Unreached::Later(doubt) => Refused::new(503, SERVER_ERROR, doubt.to_string()),
        Unreached::Lost => Refused::new(502, SERVER_ERROR, LOST),
    };
    refusal(&Refused { id, ..refused })
}

/// Finds the id of a request while its body passes.
#[derive(Clone)]
struct Asked(Arc<Mutex<JsonScan>>);

impl Default for Asked {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(JsonScan::new(&["id", "method"]))))
    }
}

impl Asked {
    fn listening(&self, body: Body) -> Body {
        let scan = self.0.clone();
        Body::from_stream(body.into_data_stream().inspect(move |part| {
            if let Ok(part) = part {
                lock(&scan).feed(part);
            }
        }))
    }

    /// The id, as JSON, if the body was a request.
    fn id(self) -> Option<String> {
        let members = std::mem::take(&mut *lock(&self.0)).members();
        let id = members.get("id").filter(|_| members.has("method"))?;
        Some(id.to_owned())
    }
}

/// A stream of events which ends with an error for the request if it breaks off between two events. One
/// that breaks off within an event breaks off here too.
fn ending(body: Body, id: &str) -> Body {
    let error = jsonrpc::error(Some(id), SERVER_ERROR, LOST, None);
    let last: Vec<Bytes> = EventText::new(None, error.into(), usize::MAX).collect();
    let last = last.concat();
    let parts = body.into_data_stream();
    let state = (parts, Tail::default(), Some(Bytes::from(last)));
    let parts = futures_util::stream::unfold(state, |(mut parts, mut tail, last)| async move {
        let last = last?;
        match parts.next().await? {
            Ok(part) => {
                tail.push(&part);
                Some((Ok(part), (parts, tail, Some(last))))
            }
            Err(_) if tail.is_between_events() => Some((Ok(last), (parts, tail, None))),
            Err(error) => Some((Err(error), (parts, tail, None))),
        }
    });
    Body::from_stream(parts)
}

/// The last two bytes of what passed.
#[derive(Default)]
struct Tail(Option<[u8; 2]>);

impl Tail {
    fn push(&mut self, part: &[u8]) {
        let mut last = self.0.unwrap_or(*b"\n\n");
        for byte in part.iter().skip(part.len().saturating_sub(2)) {
            last = [last[1], *byte];
        }
        self.0 = Some(last);
    }

    fn is_between_events(&self) -> bool {
        self.0.is_none_or(|last| last == *b"\n\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(parts: Vec<Result<&'static str, &'static str>>) -> Result<String, String> {
        let parts = parts
            .into_iter()
            .map(|part| part.map_err(std::io::Error::other));
        let body = Body::from_stream(futures_util::stream::iter(parts));
        let mut parts = ending(body, "7").into_data_stream();
        let mut text = String::new();
        while let Some(part) = parts.next().await {
            match part {
                Ok(part) => text.push_str(&String::from_utf8_lossy(&part)),
                Err(error) => return Err(format!("{text}|{error}")),
            }
        }
        Ok(text)
    }

    // FLEET-2
    #[tokio::test]
    async fn a_stream_that_breaks_off_between_two_events_ends_with_an_error() {
        let error = jsonrpc::error(Some("7"), SERVER_ERROR, LOST, None);
        let last = format!("data: {error}\n\n");
        for (parts, expected) in [
            (vec![Ok("data: 1\n\n")], Ok("data: 1\n\n".to_owned())),
            (vec![Err("gone")], Ok(last.clone())),
            (
                vec![Ok("data: 1\n\n"), Err("gone")],
                Ok(format!("data: 1\n\n{last}")),
            ),
            (
                vec![Ok("data: 1\n"), Ok("\n"), Err("gone")],
                Ok(format!("data: 1\n\n{last}")),
            ),
            (
                vec![Ok("data: 1\n"), Err("gone")],
                Err("data: 1\n|gone".to_owned()),
            ),
            (vec![Ok("data"), Err("gone")], Err("data|gone".to_owned())),
        ] {
            assert_eq!(read(parts.clone()).await, expected, "{parts:?}");
        }
    }
}

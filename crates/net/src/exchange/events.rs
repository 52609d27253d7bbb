//! Writes and reads the events of an event stream that carries answers. An event stream leaves only text
//! unchanged, so a body is sent in base64.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use sse_stream::Sse;

/// The first event, sent at once: if it does not come soon, something on the path holds the stream back.
pub(super) const OPEN: &str = "event: open\ndata: \n\n";

/// The last event if there was nothing more to send in the time of the stream.
pub(super) const IDLE: &str = "event: end\ndata: idle\n\n";

/// The last event if the next answer has to be polled for.
pub(super) const MORE: &str = "event: end\ndata: more\n\n";

/// The longest last event.
pub(super) const END_MAX: usize = MORE.len();

/// An event with the answer of this number.
pub(super) fn event(number: u64, body: &[u8]) -> Bytes {
    let mut text = format!("id: {number}\ndata: ");
    STANDARD.encode_string(body, &mut text);
    text.push_str("\n\n");
    text.into()
}

/// What an event says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The stream is open.
    Open,
    /// The answer of this number.
    Answer(u64, Bytes),
    /// The stream ends; `more` if the next answer has to be polled for.
    End { more: bool },
    /// An event that this side does not know, and may ignore.
    Other,
}

/// An event that no server of this protocol sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of its stream has no number, or no body in base64")]
pub(super) struct BadEvent;

/// Reads an event.
pub(super) fn read(event: &Sse) -> Result<Event, BadEvent> {
    let data = event.data.as_deref();
    match (event.event.as_deref(), data) {
        (Some("open"), _) => Ok(Event::Open),
        (Some("end"), data) => Ok(Event::End {
            more: data == Some("more"),
        }),
        (Some(_), _) | (None, None) => Ok(Event::Other),
        (None, Some(data)) => {
            let number = event.id.as_deref().and_then(|id| id.parse().ok());
            let body = STANDARD.decode(data).ok();
            let (number, body) = number.zip(body).ok_or(BadEvent)?;
            Ok(Event::Answer(number, body.into()))
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use futures_util::StreamExt;
    use sse_stream::SseByteStream;

    use super::*;

    async fn events(text: impl Into<Bytes>) -> Vec<Result<Event, BadEvent>> {
        let bytes = futures_util::stream::iter([Ok::<_, std::convert::Infallible>(text.into())]);
        let events = SseByteStream::new(bytes).map(|event| read(&event.unwrap()));
        events.collect().await
    }

    #[tokio::test]
    async fn events_are_written_and_read_back() {
        let answer = event(7, b"t\0\0\0\x01a");
        assert_eq!(answer, "id: 7\ndata: dAAAAAFh\n\n");
        let stream = [OPEN.as_bytes(), &answer, IDLE.as_bytes(), MORE.as_bytes()].concat();
        let expected = [
            Ok(Event::Open),
            Ok(Event::Answer(7, Bytes::from_static(b"t\0\0\0\x01a"))),
            Ok(Event::End { more: false }),
            Ok(Event::End { more: true }),
        ];
        assert_eq!(events(stream).await, expected);
    }

    #[tokio::test]
    async fn what_no_server_sends_is_refused_and_what_is_new_is_passed_over() {
        for (text, expected) in [
            ("event: news\ndata: x\n\n", Ok(Event::Other)),
            ("id: 7\n\n", Ok(Event::Other)),
            ("data: dAAAAAFh\n\n", Err(BadEvent)),
            ("id: x\ndata: dAAAAAFh\n\n", Err(BadEvent)),
            ("id: 7\ndata: {}\n\n", Err(BadEvent)),
            ("id: 7\ndata: dAAA\ndata: AAFh\n\n", Err(BadEvent)),
        ] {
            assert_eq!(events(text).await, [expected], "{text:?}");
        }
    }
}

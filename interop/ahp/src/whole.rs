//! A transport that renames the `chunking` member both ways, so that neither end sees the other's support.

use breakbulk::link::{Carries, Frame};
use breakbulk::net::{Incoming, Lost, Sink, Source, Transport};
use bytes::{Bytes, BytesMut};
use memchr::memmem;

/// The advertisement of segments, and what it is replaced with: a member of the same length that
/// no implementation knows.
const NAME: &[u8] = br#"{"chunking":{"#;
const UNKNOWN: &[u8] = br#"{"unspoken":{"#;

/// How near the end of a message the member is: answers have it there, and requests are small.
const NEAR: usize = 4096;

/// The transport of a host that shall not use segments.
pub struct Whole<T>(pub T);

impl<T: Transport> Transport for Whole<T> {
    type Source = Whole<T::Source>;
    type Sink = Whole<T::Sink>;

    fn carries(&self, carries: Carries) -> bool {
        self.0.carries(carries)
    }

    fn limit_frames(&mut self, largest: usize) {
        self.0.limit_frames(largest);
    }

    fn split(self) -> (Self::Source, Self::Sink) {
        let (source, sink) = self.0.split();
        (Whole(source), Whole(sink))
    }
}

impl<T: Source> Source for Whole<T> {
    async fn next(&mut self) -> Incoming {
        match self.0.next().await {
            Incoming::Frame(Frame::Text(text)) => Incoming::Frame(Frame::Text(silenced(text))),
            other => other,
        }
    }
}

impl<T: Sink> Sink for Whole<T> {
    async fn send(&mut self, frame: Frame) -> Result<(), Lost> {
        let frame = match frame {
            Frame::Text(text) => Frame::Text(silenced(text)),
            binary => binary,
        };
        self.0.send(frame).await
    }

    async fn ping(&mut self) -> Result<(), Lost> {
        self.0.ping().await
    }

    async fn close(&mut self, code: u16, reason: &str) {
        self.0.close(code, reason).await;
    }
}

fn silenced(text: Bytes) -> Bytes {
    let from = text.len().saturating_sub(NEAR);
    let Some(at) = memmem::find(&text[from..], NAME) else {
        return text;
    };
    let mut text = BytesMut::from(text);
    text[from + at..][..NAME.len()].copy_from_slice(UNKNOWN);
    text.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_advertisement_is_unheard_and_nothing_else_changes() {
        let said = r#"{"id":1,"params":{"capabilities":{"chunking":{"maxIncomingFrameBytes":9}}}}"#;
        let heard =
            r#"{"id":1,"params":{"capabilities":{"unspoken":{"maxIncomingFrameBytes":9}}}}"#;
        assert_eq!(silenced(said.into()), heard);
        let other = format!(r#"{{"chunking":{{}},"x":"{}"}}"#, "x".repeat(NEAR));
        assert_eq!(silenced(other.clone().into()), other);
    }
}

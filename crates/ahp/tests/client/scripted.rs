//! A host that sends what a test tells it to: whole messages, or frame by frame.

#![allow(
    dead_code,
    reason = "two test programs share it, and neither uses all of it"
)]

use breakbulk_ahp::Config;
use breakbulk_link::{Closed, Event, Frame, Outgoing};
use breakbulk_message::ahp::{Chunking, InitializeParams, ReconnectParams};
use breakbulk_message::jsonrpc::Envelope;
use breakbulk_net::memory::{Memory, MemorySink, MemorySource};
use breakbulk_net::{Connection, Incoming, Sink, Source, Transport};

/// A host that sends single frames, valid or not.
pub(crate) struct Raw {
    source: MemorySource,
    sink: MemorySink,
}

impl Raw {
    pub(crate) fn new(transport: Memory) -> Self {
        let (source, sink) = transport.split();
        Self { source, sink }
    }

    /// The next frame, or how the client closed.
    pub(crate) async fn frame(&mut self) -> Result<String, Closed> {
        loop {
            match self.source.next().await {
                Incoming::Frame(Frame::Text(bytes) | Frame::Binary(bytes)) => {
                    return Ok(String::from_utf8(bytes.into()).unwrap());
                }
                Incoming::Alive | Incoming::Posted(..) => {}
                Incoming::Closed(closed) | Incoming::Broken(closed) => return Err(closed),
            }
        }
    }

    pub(crate) async fn hear(&mut self) -> String {
        self.frame().await.unwrap()
    }

    pub(crate) async fn say(&mut self, frame: impl Into<String>) {
        let frame = Frame::Text(frame.into().into());
        self.sink.send(frame).await.unwrap();
    }

    pub(crate) async fn close(&mut self, code: u16, reason: &str) {
        self.sink.close(code, reason).await;
    }
}

/// A host that sends whole messages.
pub(crate) struct Scripted {
    pub(crate) connection: Connection,
    pub(crate) config: Config,
}

impl Scripted {
    pub(crate) fn new(transport: impl Transport, config: Config) -> Self {
        let connection = Connection::open(config.fresh_link(), transport, config.options).unwrap();
        Self { connection, config }
    }

    /// The next message; `None` once the client is gone.
    pub(crate) async fn try_hear(&self) -> Option<String> {
        while let Some(event) = self.connection.event().await {
            match event {
                Event::Message(message) => {
                    let text = String::from_utf8(message.bytes.to_vec()).unwrap();
                    self.apply_peer(&text);
                    return Some(text);
                }
                Event::SendFailed { id, error, .. } => {
                    self.connection.with(|link| link.replace(id, None));
                    panic!("{error}");
                }
                _ => {}
            }
        }
        None
    }

    pub(crate) async fn hear(&self) -> String {
        self.try_hear().await.unwrap()
    }

    /// Applies the limits that the client advertises.
    fn apply_peer(&self, text: &str) {
        let envelope = Envelope::parse(text).unwrap();
        let params = envelope.params;
        let chunking: Option<Chunking> = match envelope.method().as_deref() {
            Some("initialize") => InitializeParams::read(params.unwrap()).unwrap().chunking(),
            Some("reconnect") => ReconnectParams::read(params.unwrap()).unwrap().chunking(),
            _ => return,
        };
        self.connection
            .with(|link| self.config.apply_peer(link, chunking.as_ref()));
    }

    pub(crate) fn say(&self, text: impl Into<String>) {
        let text = text.into();
        let lane = {
            let envelope = Envelope::parse(&text).unwrap();
            self.config
                .lane(envelope.kind().unwrap(), envelope.method().as_deref())
        };
        self.connection
            .send(Outgoing::new(text).in_lane(lane))
            .unwrap();
    }
}

/// The id of a request, as it was written.
pub(crate) fn id_of(request: &str) -> String {
    let envelope = Envelope::parse(request).unwrap();
    envelope.id.unwrap().get().to_owned()
}

/// An `action` notification.
pub(crate) fn action(seq: i64, body: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"action","params":{}}}"#,
        params(seq, body)
    )
}

/// The params of an `action` notification.
pub(crate) fn params(seq: i64, body: &str) -> String {
    format!(
        r#"{{"channel":"ahp-root://","action":{{"type":"t","body":"{body}"}},"serverSeq":{seq}}}"#
    )
}

/// The answer to `initialize` on the root channel.
pub(crate) fn welcome(request: &str, seq: i64, state: &str, chunking: Option<&Chunking>) -> String {
    let capabilities = chunking.map_or_else(String::new, |chunking| {
        format!(r#","capabilities":{{"chunking":{}}}"#, chunking.to_json())
    });
    format!(
        r#"{{"jsonrpc":"2.0","id":{},"result":{{"protocolVersion":"1.0.0","serverSeq":{seq},"snapshots":[{{"resource":"ahp-root://","state":{state},"fromSeq":{seq}}}]{capabilities}}}}}"#,
        id_of(request)
    )
}

/// The answer to `reconnect`: a replay.
pub(crate) fn replay(request: &str, actions: &[String]) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{},"result":{{"type":"replay","actions":[{}],"missing":[]}}}}"#,
        id_of(request),
        actions.join(",")
    )
}

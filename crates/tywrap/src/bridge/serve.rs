//! Serves one host: reads a request, runs it, writes the answer, and reads the next.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Instant;

use breakbulk_link::{
    Event, Fault, FaultKind, Frame, Inbound, Link, Message, Outgoing, Received, SendError, Wire,
};
use breakbulk_message::tywrap::{
    self, BridgeKind, Call, DecodeError, DecodeErrorKind, ErrorBody, Meta, Method, Request, Style,
    UNKNOWN_ID,
};
use breakbulk_net::process::{Ends, Stream as Lines, StreamSink, StreamSource, Unreadable};
use breakbulk_net::{Incoming, Sink, Source, Transport};
use breakbulk_wire::{Stream, Tywrap};
use bytes::Bytes;
use tokio::io::AsyncRead;
use tokio::sync::mpsc;

use super::{Arguments, Bridge, BridgeError, Ended, Handler, Outcome, raise};

/// The largest integer that every JSON parser keeps exact; ids beyond it are refused.
const MAX_SAFE: u64 = (1 << 53) - 1;

/// Why there is no next request.
enum End {
    Ended(Ended),
    Error(BridgeError),
}

struct Session<'a, H> {
    bridge: &'a Bridge<H>,
    link: Link,
    sink: StreamSink,
}

impl<H: Handler> Bridge<H> {
    /// Serves over these lines.
    pub(super) async fn serve_stream<R>(&self, mut lines: Lines<R>) -> Result<Ended, BridgeError>
    where
        R: AsyncRead + Send + Unpin + 'static,
    {
        let ends = lines.ends();
        let skipped = ends.skipped(&[]);
        let (source, sink) = lines.split();
        let mut session = Session {
            bridge: self,
            link: self.config.link(),
            sink,
        };
        let end = session.run(source, skipped, ends).await;
        session.sink.close(1000, "").await;
        match end {
            End::Ended(ended) => Ok(ended),
            End::Error(error) => {
                tracing::error!(%error, "the bridge stops");
                Err(error)
            }
        }
    }
}

impl<H: Handler> Session<'_, H> {
    async fn run<R>(
        &mut self,
        mut source: StreamSource<R>,
        mut skipped: mpsc::Receiver<Unreadable>,
        mut ends: Ends,
    ) -> End
    where
        R: AsyncRead + Send + Unpin + 'static,
    {
        loop {
            let incoming = tokio::select! {
                biased;
                incoming = source.next() => Some(incoming),
                Some(oversized) = skipped.recv() => {
                    if let Err(end) = self.skipped(&oversized).await {
                        return end;
                    }
                    None
                }
                () = ends.input_ended() => return End::Ended(Ended::Input),
            };
            // The skipped lines came before the frame: answer them first.
            while let Ok(oversized) = skipped.try_recv() {
                if let Err(end) = self.skipped(&oversized).await {
                    return end;
                }
            }
            let taken = match incoming {
                Some(Incoming::Frame(frame)) => self.frame(frame).await,
                Some(Incoming::Closed(closed) | Incoming::Broken(closed)) => {
                    self.unreadable(closed.reason).await
                }
                // There are no HTTP POSTs on a pipe.
                Some(Incoming::Alive | Incoming::Posted(..)) | None => Ok(()),
            };
            if let Err(end) = taken {
                return end;
            }
        }
    }

    async fn frame(&mut self, frame: Frame) -> Result<(), End> {
        let received = self.link.handle_frame(Instant::now(), frame.clone());
        if let Received::Fault(fault) = received {
            return self.fault(fault, &frame).await;
        }
        drop(frame);
        match self.message() {
            Some(message) => self.answer(message).await,
            None => Ok(()),
        }
    }

    /// The received message, if there is one; other events of the link are dropped.
    fn message(&mut self) -> Option<Message> {
        let mut found = None;
        while let Some(event) = self.link.poll_event() {
            if let Event::Message(message) = event {
                found = Some(message);
            }
        }
        found
    }

    async fn fault(&mut self, fault: Fault, frame: &Frame) -> Result<(), End> {
        self.message();
        let decode = |kind| DecodeError {
            id: UNKNOWN_ID,
            kind,
        };
        match fault.kind {
            FaultKind::NotJson => self.refuse(decode(DecodeErrorKind::NotJson)).await,
            FaultKind::Malformed { field: "frame", .. } => {
                self.refuse(decode(DecodeErrorKind::NotObject)).await
            }
            FaultKind::MessageTooLarge { size, .. } => {
                self.drop_rest(frame);
                self.too_large(size, None).await
            }
            FaultKind::TooManyPieces { pieces, limit } => {
                self.drop_rest(frame);
                self.too_large(pieces, Some(limit)).await
            }
            FaultKind::FrameTooLarge { size, .. } => self.too_large(size as u64, None).await,
            _ => {
                let code = Tywrap::default().code(&fault.kind);
                Err(End::Error(BridgeError::Frame { code, fault }))
            }
        }
    }

    /// Ignores further frames of a refused request, which is answered only once.
    fn drop_rest(&mut self, frame: &Frame) {
        if let Ok(Inbound::Piece(piece)) = Tywrap::default().read(frame)
            && piece.count.is_some_and(|count| piece.seq + 1 < count)
        {
            self.link.discard(piece.key);
        }
    }

    async fn too_large(&mut self, size: u64, pieces: Option<u64>) -> Result<(), End> {
        let text = match pieces {
            Some(limit) => format!("Request of {size} pieces is over {limit}; use larger frames"),
            None => format!(
                "Request of {size} bytes is over TYWRAP_REQUEST_MAX_BYTES={}; send less or raise it",
                self.bridge.config.request
            ),
        };
        tracing::warn!("{text}");
        self.fail(UNKNOWN_ID, &raise("RequestTooLargeError", text))
            .await
    }

    /// Answers a line that exceeded the limit and was skipped.
    async fn skipped(&mut self, line: &Unreadable) -> Result<(), End> {
        match line {
            Unreadable::Oversized { size, .. } => self.too_large(*size, None).await,
            other => self.unreadable(other.to_string()).await,
        }
    }

    async fn unreadable(&mut self, reason: String) -> Result<(), End> {
        self.fail(UNKNOWN_ID, &raise("ProtocolError", reason.as_str()))
            .await?;
        Err(End::Error(BridgeError::Input { reason }))
    }

    /// Answers a request that cannot be parsed.
    async fn refuse(&mut self, error: DecodeError) -> Result<(), End> {
        tracing::warn!(%error, "a request cannot be parsed; the host gets an error");
        self.send(error.id, error.reply(Style::Ascii)).await
    }

    async fn answer(&mut self, message: Message) -> Result<(), End> {
        // The link delivers only UTF-8.
        let text = std::str::from_utf8(&message.bytes).unwrap_or_default();
        let request = match Request::read(text) {
            Ok(request) => request,
            Err(error) => {
                let id = exact(error.id).unwrap_or(UNKNOWN_ID);
                return self.refuse(DecodeError { id, ..error }).await;
            }
        };
        let Some(id) = exact(request.id) else {
            let text = "`id` must be an integer within 2^53 - 1 of 0";
            tracing::warn!(
                error = text,
                "a request cannot be parsed; the host gets an error"
            );
            return self.fail(UNKNOWN_ID, &raise("ProtocolError", text)).await;
        };
        let outcome = match &request.method {
            Method::Meta => return self.send(id, self.meta(id)).await,
            Method::Call(call) => self.call(text, call).await,
        };
        match outcome {
            Err(error) => self.fail(id, &error).await,
            Ok(answer) => {
                let text = tywrap::result(id, &answer.0, Style::Ascii);
                drop((answer, message));
                match self.bridge.config.response {
                    Some(limit) if text.len() > limit => {
                        let size = text.len();
                        drop(text);
                        let text = format!(
                            "Response of {size} bytes is over TYWRAP_CODEC_MAX_BYTES={limit}; return less or raise it"
                        );
                        self.fail(id, &raise("PayloadTooLargeError", text)).await
                    }
                    _ => self.send(id, text).await,
                }
            }
        }
    }

    async fn call(&self, text: &str, call: &Call<'_>) -> Outcome {
        if has_lone_surrogate(text) {
            let text = "half a character (a lone surrogate) cannot be kept";
            return Err(raise("ProtocolError", text));
        }
        let (module, function) = (&*call.module, &*call.function);
        let allowed = self.bridge.config.allowed.as_ref();
        if allowed.is_some_and(|allowed| !allowed.contains(module)) {
            let text =
                format!("module {module:?} is not allowed; add it to TYWRAP_ALLOWED_MODULES");
            return Err(raise("ImportNotAllowedError", text));
        }
        let arguments = Arguments::new(call.args, call.kwargs);
        let running = self.bridge.handler.call(module, function, &arguments);
        catch_panic(running).await
    }

    fn meta(&self, id: i64) -> String {
        let config = &self.bridge.config;
        let frame = config.frame.filter(|_| config.tells_transport);
        let meta = Meta {
            bridge: BridgeKind::PythonSubprocess,
            python_version: config.version.as_str().into(),
            pid: Some(std::process::id().into()),
            codec_fallback: "none".into(),
            arrow: false,
            scipy: false,
            torch: false,
            sklearn: false,
            max_frame_bytes: frame.map(|frame| frame as u64),
        };
        meta.response(id, Style::Ascii)
    }

    async fn fail(&mut self, id: i64, error: &ErrorBody<'_>) -> Result<(), End> {
        self.send(id, tywrap::error(id, error, Style::Ascii)).await
    }

    /// Writes a response, as one line or in frames; returns when all of it is in the host's pipe.
    async fn send(&mut self, id: i64, text: String) -> Result<(), End> {
        let outgoing = Outgoing::text(text).with_key(Stream::Response.key(id));
        let refused = match self.link.send(Instant::now(), outgoing) {
            Err(rejected) => Some(rejected.error),
            Ok(_) => self.transmit().await?,
        };
        let Some(error) = refused else {
            return Ok(());
        };
        let text = match error {
            SendError::CapTooSmall { cap, needed } => {
                format!("FRAME_BAD_MAX_BYTES: frames of {cap} bytes; {needed} are the least")
            }
            error => error.to_string(),
        };
        let line = tywrap::error(id, &raise("FrameError", text), Style::Ascii);
        self.write(line.into()).await
    }

    /// Writes all frames of the response; returns the reason if it cannot be sent.
    async fn transmit(&mut self) -> Result<Option<SendError>, End> {
        loop {
            let mut frame = Vec::new();
            match self.link.poll_transmit(Instant::now(), &mut frame) {
                Some(_) => self.write(frame.into()).await?,
                None => break,
            }
        }
        let mut refused = None;
        while let Some(event) = self.link.poll_event() {
            if let Event::SendFailed { id, error, .. } = event {
                self.link.replace(id, None);
                refused = Some(error);
            }
        }
        Ok(refused)
    }

    async fn write(&mut self, line: Bytes) -> Result<(), End> {
        let sent = self.sink.send(Frame::Text(line)).await;
        // The host has closed the pipe.
        sent.map_err(|_| End::Ended(Ended::Output))
    }
}

fn exact(id: i64) -> Option<i64> {
    (id.unsigned_abs() <= MAX_SAFE).then_some(id)
}

/// Runs a call; a panic becomes an exception of this call.
async fn catch_panic(running: impl Future<Output = Outcome>) -> Outcome {
    let mut running = pin!(running);
    poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(context)));
        polled.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            Poll::Ready(Err(raise("Panic", text.unwrap_or("no text"))))
        })
    })
    .await
}

/// Whether JSON holds a lone surrogate, which a Rust string cannot hold.
fn has_lone_surrogate(json: &str) -> bool {
    fn unit(text: &str) -> Option<u16> {
        u16::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok()
    }
    if !json.contains("\\ud") && !json.contains("\\uD") {
        return false;
    }
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        rest = &rest[at..];
        let len = match unit(rest) {
            Some(0xdc00..=0xdfff) => return true,
            Some(0xd800..=0xdbff) => match rest.get(6..).and_then(unit) {
                Some(0xdc00..=0xdfff) => 12,
                _ => return true,
            },
            Some(_) => 6,
            None => 2,
        };
        rest = rest.get(len..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_characters_are_found() {
        for (json, expected) in [
            (r#""""#, false),
            (r#""\ud83d\ude00""#, false),
            (r#""\uD83D\uDE00 \u00e9 \n""#, false),
            (r#""\\ud800""#, false),
            (r#""\\\ud800""#, true),
            (r#""\ud800""#, true),
            (r#""\ud800x""#, true),
            (r#""\ud800\n""#, true),
            (r#""\ud800\ud800""#, true),
            (r#""\udc00\ud800""#, true),
            (r#""\uDfff""#, true),
            (r#""é\ud83d\ude00\udc00""#, true),
        ] {
            assert_eq!(has_lone_surrogate(json), expected, "{json}");
        }
    }
}

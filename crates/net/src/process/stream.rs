//! The transport over any two directions of bytes.

use std::fmt;
use std::sync::{Arc, PoisonError};

use breakbulk_link::{Carries, Closed, Frame};
use bytes::{Buf, BufMut, Bytes};
use memchr::memchr2;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Mutex, mpsc, watch};

use super::framing::{Decoder, Framing, Unreadable};
use crate::transport::{Incoming, Lost, Sink, Source, Transport};

/// A small frame goes out in one write with what frames it.
const SMALL: usize = 16 << 10;

type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// So many reports of what was skipped may wait.
const REPORTS: usize = 16;

/// Who is told, and the members that they want to know.
type Tell = (mpsc::Sender<Unreadable>, &'static [&'static str]);

/// Where it is told what was skipped, if anybody asked.
#[derive(Clone, Debug, Default)]
struct Listener(Arc<std::sync::Mutex<Option<Tell>>>);

impl Listener {
    fn get(&self) -> Option<Tell> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set(&self, tell: Tell) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(tell);
    }
}

/// Frames over two directions of bytes.
pub struct Stream<R> {
    source: StreamSource<R>,
    sink: StreamSink,
}

/// The half that frames come in by.
pub struct StreamSource<R> {
    reader: R,
    decoder: Decoder,
    /// The other end broke a rule: there is nothing more to read.
    broken: bool,
    ended: Arc<watch::Sender<bool>>,
    /// Whether the end of the input is told by [`Ends`] alone.
    half: bool,
    closed: watch::Receiver<bool>,
    listener: Listener,
    /// What was skipped and is not told yet.
    untold: Option<Unreadable>,
}

/// The half that frames go out by.
pub struct StreamSink {
    writer: Arc<Mutex<Option<Writer>>>,
    framing: Framing,
    /// Small frames that go out with the next one.
    held: Vec<u8>,
    closed: watch::Sender<bool>,
}

/// The two ends of a stream, each of which may come before the other.
#[derive(Clone)]
pub struct Ends {
    ended: watch::Receiver<bool>,
    writer: Arc<Mutex<Option<Writer>>>,
    listener: Listener,
}

impl<R: AsyncRead + Send + Unpin + 'static> Stream<R> {
    /// Frames of at most `limit` bytes come in by `reader`; what goes out goes to `writer`.
    pub fn new(
        reader: R,
        writer: impl AsyncWrite + Send + Unpin + 'static,
        framing: Framing,
        limit: usize,
    ) -> Self {
        let (closed, closing) = watch::channel(false);
        Self {
            source: StreamSource {
                reader,
                decoder: Decoder::new(framing, limit),
                broken: false,
                ended: Arc::new(watch::Sender::new(false)),
                half: false,
                closed: closing,
                listener: Listener::default(),
                untold: None,
            },
            sink: StreamSink {
                writer: Arc::new(Mutex::new(Some(Box::new(writer)))),
                framing,
                held: Vec::new(),
                closed,
            },
        }
    }

    /// From now on the end of the input is no end of the connection: the handle tells it.
    pub fn ends(&mut self) -> Ends {
        self.source.half = true;
        Ends {
            ended: self.source.ended.subscribe(),
            writer: self.sink.writer.clone(),
            listener: self.source.listener.clone(),
        }
    }

    /// The two halves, for a transport around this one.
    pub(super) fn halves(self) -> (StreamSource<R>, StreamSink) {
        (self.source, self.sink)
    }
}

impl Ends {
    /// Waits until all input was read. What it said is on its way up by then.
    pub async fn input_ended(&mut self) {
        // Without a sender the connection is gone, and with it the input.
        let _ = self.ended.wait_for(|ended| *ended).await;
    }

    /// From now on a message over the limit is skipped and told here as [`Unreadable::Oversized`], with
    /// the members of these names, rather than being the end. Ask before anything is read. What is told must be heard: reading waits for
    /// it.
    pub fn skipped(&self, members: &'static [&'static str]) -> mpsc::Receiver<Unreadable> {
        let (tell, skipped) = mpsc::channel(REPORTS);
        self.listener.set((tell, members));
        skipped
    }

    /// Closes the way out; what comes in is read on. Wait for
    /// [`Connection::drained`](crate::Connection::drained) before.
    pub async fn end_output(&self) {
        close(&self.writer).await;
    }
}

impl<R: AsyncRead + Send + Unpin + 'static> Transport for Stream<R> {
    type Source = StreamSource<R>;
    type Sink = StreamSink;

    fn carries(&self, carries: Carries) -> bool {
        carries == Carries::Text
    }

    fn split(self) -> (StreamSource<R>, StreamSink) {
        self.halves()
    }
}

impl<R: AsyncRead + Send + Unpin + 'static> StreamSource<R> {
    /// The next frame, or why there is none: without regard to whether this side has closed.
    pub(super) async fn read(&mut self) -> Incoming {
        if self.broken {
            return Incoming::Closed(end("what cannot be read is not read on", 1006));
        }
        loop {
            let listener = self.listener.get();
            if let Err(closed) = self.tell(listener.as_ref()).await {
                self.broken = true;
                return Incoming::Broken(closed);
            }
            let wanted = listener.as_ref().map(|(_, members)| *members);
            self.decoder.skip_oversized(wanted);
            match self.decoder.next() {
                Some(Ok(frame)) => return Incoming::Frame(Frame::Text(frame)),
                Some(Err(error @ Unreadable::Oversized { .. })) => {
                    self.untold = Some(error);
                    continue;
                }
                Some(Err(error)) => {
                    self.broken = true;
                    return Incoming::Broken(error.closed());
                }
                None => {}
            }
            let (buffer, most) = self.decoder.space();
            match self.reader.read_buf(&mut buffer.limit(most)).await {
                Ok(0) => match self.decoder.finish() {
                    Some(Ok(frame)) => return Incoming::Frame(Frame::Text(frame)),
                    Some(Err(error @ Unreadable::Oversized { .. })) => self.untold = Some(error),
                    Some(Err(error)) => return Incoming::Closed(error.closed()),
                    None => return Incoming::Closed(end("end of input", 1000)),
                },
                Ok(_) => {}
                Err(error) => {
                    return Incoming::Closed(end(&format!("reading failed: {error}"), 1006));
                }
            }
        }
    }

    /// Tells what was skipped, or that there is nobody to tell. Dropped, it has told nothing yet.
    async fn tell(&mut self, listener: Option<&Tell>) -> Result<(), Closed> {
        let Some(oversized) = &self.untold else {
            return Ok(());
        };
        let (tell, _) = listener.ok_or_else(|| oversized.closed())?;
        let permit = tell.reserve().await.map_err(|_| oversized.closed())?;
        if let Some(oversized) = self.untold.take() {
            permit.send(oversized);
        }
        Ok(())
    }
}

impl<R: AsyncRead + Send + Unpin + 'static> Source for StreamSource<R> {
    async fn next(&mut self) -> Incoming {
        let mut closed = self.closed.clone();
        let incoming = tokio::select! {
            biased;
            // Who writes on the other end of a pipe does not answer a close.
            _ = closed.wait_for(|closed| *closed) => {
                return Incoming::Closed(end("closed", 1000));
            }
            incoming = self.read() => incoming,
        };
        match incoming {
            Incoming::Closed(end) if end.code == 1000 && self.half => {
                self.ended.send_replace(true);
                let _ = closed.wait_for(|closed| *closed).await;
                Incoming::Closed(end)
            }
            incoming => incoming,
        }
    }
}

impl StreamSink {
    /// The text of a frame that can go out.
    fn text(&self, frame: Frame) -> Result<Bytes, Lost> {
        let Frame::Text(bytes) = frame else {
            return Err(Lost("a stream carries text, and this is binary".to_owned()));
        };
        if self.framing == Framing::Lines && memchr2(b'\n', b'\r', &bytes).is_some() {
            return Err(Lost(
                "a frame with a raw line break cannot go out as a line".to_owned(),
            ));
        }
        Ok(bytes)
    }

    /// Writes what is held, and a large frame behind it.
    async fn write(&mut self, large: Option<Bytes>) -> Result<(), Lost> {
        let mut writer = self.writer.lock().await;
        let Some(writer) = writer.as_mut() else {
            return Err(Lost("the way out is closed".to_owned()));
        };
        let written = write(writer, self.framing, &self.held, large).await;
        self.held.clear();
        written.map_err(|error| Lost(format!("writing failed: {error}")))
    }

    fn add(&mut self, bytes: &[u8]) {
        let (before, after) = self.framing.around(bytes.len());
        self.held.extend_from_slice(before.as_bytes());
        self.held.extend_from_slice(bytes);
        self.held.extend_from_slice(after.as_bytes());
    }
}

impl Sink for StreamSink {
    async fn send(&mut self, frame: Frame) -> Result<(), Lost> {
        let bytes = self.text(frame)?;
        if bytes.len() > SMALL {
            return self.write(Some(bytes)).await;
        }
        self.add(&bytes);
        self.write(None).await
    }

    fn hold(&mut self, frame: Frame) -> Option<Frame> {
        if self.held.len() + frame.bytes().len() > SMALL {
            return Some(frame);
        }
        // What cannot go out fails when it is sent.
        match self.text(frame.clone()) {
            Ok(bytes) => {
                self.add(&bytes);
                None
            }
            Err(_) => Some(frame),
        }
    }

    async fn flush(&mut self) -> Result<(), Lost> {
        self.write(None).await
    }

    async fn close(&mut self, _code: u16, _reason: &str) {
        if !self.held.is_empty() {
            // Whoever has left already cannot be told.
            let _ = self.write(None).await;
        }
        close(&self.writer).await;
        self.closed.send_replace(true);
    }
}

async fn write(
    writer: &mut Writer,
    framing: Framing,
    held: &[u8],
    large: Option<Bytes>,
) -> std::io::Result<()> {
    match large {
        None => writer.write_all(held).await?,
        Some(bytes) => {
            let (before, after) = framing.around(bytes.len());
            let whole = Buf::chain(held, before.as_bytes());
            let mut whole = whole.chain(bytes).chain(after.as_bytes());
            writer.write_all_buf(&mut whole).await?;
        }
    }
    writer.flush().await
}

async fn close(writer: &Mutex<Option<Writer>>) {
    if let Some(mut writer) = writer.lock().await.take() {
        // Whoever has left already cannot be told.
        let _ = writer.shutdown().await;
    }
}

fn end(reason: &str, code: u16) -> Closed {
    Closed {
        code,
        reason: reason.to_owned(),
    }
}

impl<R> fmt::Debug for Stream<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let framing = self.sink.framing;
        f.debug_struct("Stream").field("framing", &framing).finish()
    }
}

impl fmt::Debug for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ended = *self.ended.borrow();
        f.debug_struct("Ends").field("input_ended", &ended).finish()
    }
}

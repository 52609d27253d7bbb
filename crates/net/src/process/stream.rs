//! The transport over a pair of byte streams, one for each direction.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use breakbulk_link::lock;
use breakbulk_link::{Budget, Carries, Closed, Frame};
use bytes::{Buf, BufMut, Bytes};
use memchr::memchr2;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Mutex, mpsc, watch};
use tokio::time::{Instant, sleep};

use super::framing::{Decoder, Framing, Unreadable};
use crate::message_timer::MessageTimer;
use crate::transport::{Incoming, Lost, Sink, Source, Transport};
use crate::unfinished::{NO_MEMORY, Unfinished};

/// A frame up to this size is copied, so that it is written together with its framing.
const SMALL: usize = 16 << 10;

type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// How long a stream other than a socket may wait for memory that others hold.
const MEMORY_WAIT: Duration = Duration::from_secs(30);

/// The first and the longest pause before trying to get memory again. The pause doubles, since a thousand
/// streams that try often leave no time for the tasks that would release memory.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
const LOOK_SELDOM: Duration = Duration::from_millis(640);

/// How many reports of skipped messages are queued.
const REPORTS: usize = 16;

/// Where skipped messages are reported to, and the JSON members to report.
type SkipReports = (mpsc::Sender<Unreadable>, &'static [&'static str]);

/// The listener for skipped messages, if the application has set one.
#[derive(Clone, Debug, Default)]
struct SkipListener(Arc<std::sync::Mutex<Option<SkipReports>>>);

impl SkipListener {
    fn get(&self) -> Option<SkipReports> {
        lock(&self.0).clone()
    }

    fn set(&self, reports: SkipReports) {
        *lock(&self.0) = Some(reports);
    }
}

/// Frames over a pair of byte streams.
pub struct Stream<R> {
    source: StreamSource<R>,
    sink: StreamSink,
}

/// The receiving half.
pub struct StreamSource<R> {
    reader: R,
    decoder: Decoder,
    /// The input could not be decoded: nothing more is read.
    broken: bool,
    ended: Arc<watch::Sender<bool>>,
    /// Whether the end of the input is reported only by [`Ends`], and does not close the connection.
    half_close: bool,
    closed: watch::Receiver<bool>,
    listener: SkipListener,
    /// A skipped message that is not reported yet.
    unreported: Option<Unreadable>,
    /// How many bytes were read and belong to no frame yet, for [`Ends`].
    unframed: Arc<AtomicU64>,
    /// What an unfinished message is charged to.
    unfinished: Unfinished,
    /// Whether the other end is not trusted: its messages do not wait for memory.
    is_socket: bool,
    /// Since when there is no memory for an unfinished message, and the pause until the next attempt.
    short: Option<(Instant, Duration)>,
}

/// The sending half.
pub struct StreamSink {
    writer: Arc<Mutex<Option<Writer>>>,
    framing: Framing,
    /// Small frames that are written together with the next one.
    held: Vec<u8>,
    closed: watch::Sender<bool>,
}

/// Reports the end of a stream's input and closes its output, independently of each other.
#[derive(Clone)]
pub struct Ends {
    ended: watch::Receiver<bool>,
    writer: Arc<Mutex<Option<Writer>>>,
    listener: SkipListener,
    unframed: Arc<AtomicU64>,
}

impl<R: AsyncRead + Send + Unpin + 'static> Stream<R> {
    /// Reads frames of at most `limit` bytes from `reader`, and writes frames to `writer`.
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
                half_close: false,
                closed: closing,
                listener: SkipListener::default(),
                unreported: None,
                unframed: Arc::default(),
                unfinished: Unfinished::default(),
                is_socket: false,
                short: None,
            },
            sink: StreamSink {
                writer: Arc::new(Mutex::new(Some(Box::new(writer)))),
                framing,
                held: Vec::new(),
                closed,
            },
        }
    }

    /// From now on the end of the input does not close the connection; the returned handle reports it.
    pub fn ends(&mut self) -> Ends {
        self.source.half_close = true;
        Ends {
            ended: self.source.ended.subscribe(),
            writer: self.sink.writer.clone(),
            listener: self.source.listener.clone(),
            unframed: self.source.unframed.clone(),
        }
    }

    /// For a socket, whose other end is not trusted: an unfinished message has a time limit and must get
    /// memory at once, a stream that begins like HTTP is refused, and when this side has closed, the rest of
    /// the input is read and dropped, since closing a socket with unread bytes resets it, and the other end
    /// could lose the last frames.
    #[cfg(feature = "ws")]
    pub(super) fn watched(mut self) -> Self {
        self.source.decoder.refuse_http();
        self.source.is_socket = true;
        self
    }

    /// Bytes that are written together with the first frame, before it.
    pub(super) fn write_first(&mut self, bytes: &[u8]) {
        self.sink.held.extend_from_slice(bytes);
    }

    /// The two halves, for a transport that wraps this one.
    pub(super) fn halves(self) -> (StreamSource<R>, StreamSink) {
        (self.source, self.sink)
    }
}

impl Ends {
    /// Waits until all input was read. Its frames were passed to the link by then.
    pub async fn input_ended(&mut self) {
        // An error means that the connection was dropped, and with it the input.
        let _ = self.ended.wait_for(|ended| *ended).await;
    }

    /// The bytes that were read and are part of no frame yet: the beginning of a message, and what came
    /// behind the last frame that was taken. They are lost if the connection is closed now.
    pub fn unframed(&self) -> u64 {
        self.unframed.load(Ordering::Relaxed)
    }

    /// From now on a message over the limit does not end the connection, but is skipped and
    /// reported in the returned channel as [`Unreadable::Oversized`], with the members of these
    /// names. Call this before anything is read, and drain the channel: reading waits while it is
    /// full.
    pub fn skipped(&self, members: &'static [&'static str]) -> mpsc::Receiver<Unreadable> {
        let (sender, skipped) = mpsc::channel(REPORTS);
        self.listener.set((sender, members));
        skipped
    }

    /// Closes the output; the input is still read. Wait for
    /// [`Connection::drained`](crate::Connection::drained) before, or queued messages are lost.
    pub async fn end_output(&self) {
        close(&self.writer).await;
    }
}

impl<R: AsyncRead + Send + Unpin + 'static> Transport for Stream<R> {
    type Source = StreamSource<R>;
    type Sink = StreamSink;

    fn carries(&self, carries: Carries) -> bool {
        carries == self.sink.framing.carries()
    }

    fn charge_to(&mut self, budget: &Budget) {
        self.source.unfinished.charge_to(budget);
    }

    fn split(self) -> (StreamSource<R>, StreamSink) {
        self.halves()
    }
}

impl<R: AsyncRead + Send + Unpin + 'static> StreamSource<R> {
    /// Reads the next frame, even if this side has closed.
    pub(super) async fn read(&mut self) -> Incoming {
        if self.broken {
            return Incoming::Closed(end("the input could not be decoded", 1006));
        }
        let mut timer = None;
        loop {
            let listener = self.listener.get();
            if let Err(closed) = self.report_skipped(listener.as_ref()).await {
                return self.broken(closed);
            }
            let wanted = listener.as_ref().map(|(_, members)| *members);
            self.decoder.skip_oversized(wanted);
            let next = self.decoder.next();
            let unframed = self.decoder.unframed();
            self.unframed.store(unframed, Ordering::Relaxed);
            match next {
                Some(Ok(frame)) => return self.frame(frame),
                Some(Err(error @ Unreadable::Oversized { .. })) => {
                    self.unreported = Some(error);
                    timer = None;
                    continue;
                }
                Some(Err(error)) => return self.broken(error.closed()),
                None => {}
            }
            let read = match self.fill(&mut timer, unframed).await {
                Ok(read) => read,
                Err(closed) => return self.broken(closed),
            };
            match read {
                Ok(0) => match self.decoder.finish() {
                    Some(Ok(frame)) => {
                        self.unframed.store(0, Ordering::Relaxed);
                        return self.frame(frame);
                    }
                    Some(Err(error @ Unreadable::Oversized { .. })) => {
                        self.unreported = Some(error)
                    }
                    Some(Err(error)) => return self.ended(error.closed()),
                    None => return self.ended(end("end of input", 1000)),
                },
                Ok(_) => {}
                Err(error) => {
                    return self.ended(end(&format!("reading failed: {error}"), 1006));
                }
            }
        }
    }

    /// Reads more bytes; an error if the unfinished message of a socket takes too long, or there is no
    /// memory for it.
    async fn fill(
        &mut self,
        timer: &mut Option<MessageTimer>,
        unframed: u64,
    ) -> Result<std::io::Result<usize>, Closed> {
        self.find_memory().await?;
        let (buffer, most) = self.decoder.space();
        let mut buffer = buffer.limit(most);
        let read = self.reader.read_buf(&mut buffer);
        let read = if unframed == 0 || !self.is_socket {
            read.await
        } else {
            let bytes = usize::try_from(unframed).unwrap_or(usize::MAX);
            let timer = timer.get_or_insert_with(|| MessageTimer::new(bytes));
            tokio::select! {
                biased;
                read = read => read,
                closed = timer.expired(bytes) => return Err(closed),
            }
        };
        if read.as_ref().is_ok_and(|read| *read == most) {
            self.decoder.read_was_full();
        }
        Ok(read)
    }

    /// Charges the buffer for the next read, before it is allocated. Only streams other than sockets wait for
    /// memory: untrusted peers could make each other wait. Cancel-safe.
    async fn find_memory(&mut self) -> Result<(), Closed> {
        while !self.unfinished.charge(self.decoder.needed()) {
            if self.decoder.read_less() {
                continue;
            }
            let now = Instant::now();
            let (since, pause) = self.short.get_or_insert((now, LOOK_AGAIN));
            if self.is_socket || since.elapsed() >= MEMORY_WAIT {
                return Err(end(NO_MEMORY, 1013));
            }
            sleep(*pause).await;
            *pause = (*pause * 2).min(LOOK_SELDOM);
        }
        self.short = None;
        Ok(())
    }

    /// Returns a frame. The buffer stays charged, since other frames may wait in it.
    fn frame(&mut self, bytes: Bytes) -> Incoming {
        self.decoder.release_empty();
        self.unfinished.shrink(self.decoder.capacity());
        Incoming::Frame(match self.decoder.carries() {
            Carries::Text => Frame::Text(bytes),
            Carries::Binary => Frame::Binary(bytes),
        })
    }

    /// Nothing more is decoded.
    fn broken(&mut self, closed: Closed) -> Incoming {
        self.broken = true;
        self.give_up_message();
        Incoming::Broken(closed)
    }

    /// Nothing more comes.
    fn ended(&mut self, closed: Closed) -> Incoming {
        self.give_up_message();
        Incoming::Closed(closed)
    }

    /// What was read of a message is given up with its charge: this side may still be written to.
    fn give_up_message(&mut self) {
        self.decoder.forget();
        self.unfinished.release();
    }

    /// Reads and drops the rest of a socket's input.
    async fn drain(&mut self) {
        let mut room = [0; 4096];
        while let Ok(1..) = self.reader.read(&mut room).await {}
    }

    /// Reports a skipped message; an error if there is no listener. Cancel-safe.
    async fn report_skipped(&mut self, listener: Option<&SkipReports>) -> Result<(), Closed> {
        let Some(oversized) = &self.unreported else {
            return Ok(());
        };
        let (sender, _) = listener.ok_or_else(|| oversized.closed())?;
        let permit = sender.reserve().await.map_err(|_| oversized.closed())?;
        if let Some(oversized) = self.unreported.take() {
            permit.send(oversized);
        }
        Ok(())
    }
}

impl<R: AsyncRead + Send + Unpin + 'static> Source for StreamSource<R> {
    async fn next(&mut self) -> Incoming {
        let mut closed = self.closed.clone();
        let is_socket = self.is_socket;
        let incoming = tokio::select! {
            biased;
            // The other end of a pipe does not answer a close: reading ends when this side closes.
            _ = closed.wait_for(|closed| *closed) => None,
            incoming = self.read(), if !(self.broken && is_socket) => Some(incoming),
        };
        let Some(incoming) = incoming else {
            if is_socket {
                self.drain().await;
            }
            return Incoming::Closed(end("closed", 1000));
        };
        match incoming {
            Incoming::Closed(end) if end.code == 1000 && self.half_close => {
                self.ended.send_replace(true);
                let _ = closed.wait_for(|closed| *closed).await;
                Incoming::Closed(end)
            }
            incoming => incoming,
        }
    }
}

impl StreamSink {
    /// The bytes of a frame, if this framing can carry it.
    fn payload(&self, frame: Frame) -> Result<Bytes, Lost> {
        let (carries, bytes) = match frame {
            Frame::Text(bytes) => (Carries::Text, bytes),
            Frame::Binary(bytes) => (Carries::Binary, bytes),
        };
        if carries != self.framing.carries() {
            let framing = self.framing;
            return Err(Lost(format!(
                "a stream with framing={framing} does not carry frames of this kind, {carries:?}"
            )));
        }
        if let Framing::LengthField(field) = self.framing
            && !field.is_frame(&bytes)
        {
            let (size, name) = (bytes.len(), field.name);
            return Err(Lost(format!(
                "a message of {size} bytes is not one frame of {name}: its header says another length"
            )));
        }
        if self.framing == Framing::Lines && memchr2(b'\n', b'\r', &bytes).is_some() {
            return Err(Lost(
                "a frame that contains a line break cannot be sent as a line".to_owned(),
            ));
        }
        Ok(bytes)
    }

    /// Writes the held frames, and a large frame after them.
    async fn write(&mut self, large: Option<Bytes>) -> Result<(), Lost> {
        let mut writer = self.writer.lock().await;
        let Some(writer) = writer.as_mut() else {
            return Err(Lost("the output is closed".to_owned()));
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
        let bytes = self.payload(frame)?;
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
        // A frame that cannot be carried fails when it is sent.
        match self.payload(frame.clone()) {
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
            // An error means that the other end has closed already.
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
        // An error means that the other end has closed already.
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_unfinished_message_is_charged_until_it_is_whole() {
        let (mut far, near) = tokio::io::duplex(1 << 20);
        let (reader, writer) = tokio::io::split(near);
        let mut stream = Stream::new(reader, writer, Framing::Lines, 1 << 20);
        let budget = Budget::new(200_000);
        stream.charge_to(&budget);
        stream.source.is_socket = true;
        let (mut source, _sink) = stream.split();
        let line = format!("{}\n", "x".repeat(150_000));
        for _ in 0..3 {
            far.write_all(&line.as_bytes()[..100_000]).await.unwrap();
            tokio::select! {
                biased;
                incoming = source.next() => panic!("{incoming:?}"),
                () = std::future::ready(()) => {}
            }
            let held = budget.used();
            assert!((100_000..200_000).contains(&held), "{held}");
            far.write_all(&line.as_bytes()[100_000..]).await.unwrap();
            let Incoming::Frame(frame) = source.next().await else {
                panic!("no frame");
            };
            assert_eq!(frame.bytes().len(), 150_000);
            assert_eq!(budget.used(), 0);
        }
        far.write_all(&vec![b'x'; 250_000]).await.unwrap();
        let incoming = source.next().await;
        assert!(
            matches!(&incoming, Incoming::Broken(closed) if closed.code == 1013),
            "{incoming:?}"
        );
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_program_without_memory_waits_before_its_output_is_read() {
        let (mut far, near) = tokio::io::duplex(1 << 20);
        let (reader, writer) = tokio::io::split(near);
        let mut stream = Stream::new(reader, writer, Framing::Lines, 1 << 20);
        let budget = Budget::new(100_000);
        stream.charge_to(&budget);
        let others = budget.charge(90_000).unwrap();
        let (mut source, _sink) = stream.split();
        far.write_all(&[b'x'; 60_000]).await.unwrap();
        let waiting = tokio::time::timeout(Duration::from_secs(5), source.next()).await;
        assert!(waiting.is_err(), "{waiting:?}");
        assert_eq!(
            (source.decoder.capacity(), budget.used()),
            (16 << 10, 90_000)
        );
        drop(others);
        far.write_all(b"\n").await.unwrap();
        let Incoming::Frame(frame) = source.next().await else {
            panic!("no frame");
        };
        assert_eq!((frame.bytes().len(), budget.used()), (60_000, 0));
    }

    #[tokio::test]
    async fn messages_that_wait_in_the_buffer_are_charged_and_an_empty_one_is_freed() {
        let (mut far, near) = tokio::io::duplex(1 << 20);
        let (reader, writer) = tokio::io::split(near);
        let mut stream = Stream::new(reader, writer, Framing::Lines, 1 << 20);
        let budget = Budget::new(1 << 20);
        stream.charge_to(&budget);
        let (mut source, _sink) = stream.split();
        let line = format!("{}\n", "x".repeat(19_999));
        far.write_all(line.repeat(3).as_bytes()).await.unwrap();
        for left in [2, 1, 0] {
            assert!(matches!(source.next().await, Incoming::Frame(_)));
            let held = source.decoder.capacity();
            assert_eq!(budget.used(), held, "{left} wait");
            assert_eq!(held > 0, left > 0, "{held} bytes while {left} wait");
        }
    }
}

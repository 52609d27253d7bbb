//! The words that travel beside messages on a WebSocket: `ready`, `ping`, `pong`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use breakbulk_link::{Carries, Frame};
use breakbulk_net::{Incoming, Lost, Sink, Source, Transport};
use bytes::Bytes;
use tokio::sync::Mutex;

const READY: &[u8] = b"ready";
const PING: &[u8] = b"ping";
const PONG: &[u8] = b"pong";

/// Which of the words this side says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Words {
    /// None: a data channel, where strings are ignored, and HTTP.
    None,
    /// `pong` to every `ping`.
    Answers,
    /// `ping` where other connections have pings of their own.
    Asks,
}

/// A transport whose words are kept from the link.
pub(super) struct Talking<T: Transport> {
    source: T::Source,
    sink: T::Sink,
    words: Words,
    /// Whether text is a message.
    text: bool,
}

impl<T: Transport> Talking<T> {
    /// `largest`: no larger frame is taken. `text`: messages are text, and there are no words.
    pub(super) fn new(mut transport: T, words: Words, text: bool, largest: usize) -> Self {
        transport.expect(largest.saturating_add(largest / 8));
        let (source, sink) = transport.split();
        Self {
            source,
            sink,
            words,
            text,
        }
    }

    /// Says that messages may come.
    pub(super) async fn say_ready(&mut self) -> Result<(), Lost> {
        self.sink.send(word(READY)).await
    }

    /// Waits until messages may go.
    pub(super) async fn hear_ready(&mut self) -> Result<(), Lost> {
        loop {
            match self.source.next().await {
                Incoming::Frame(Frame::Text(text)) if text == READY => return Ok(()),
                Incoming::Closed(closed) | Incoming::Broken(closed) => {
                    return Err(Lost(format!("closed with {closed} before it was ready")));
                }
                _ => {}
            }
        }
    }
}

fn word(word: &'static [u8]) -> Frame {
    Frame::Text(Bytes::from_static(word))
}

impl<T: Transport> Transport for Talking<T> {
    type Source = Listening<T::Source, T::Sink>;
    type Sink = Saying<T::Sink>;

    fn carries(&self, _carries: Carries) -> bool {
        true
    }

    fn split(self) -> (Self::Source, Self::Sink) {
        let shared = Arc::new(Shared {
            sink: Mutex::new(self.sink),
            owed: AtomicBool::new(false),
        });
        let source = Listening {
            source: self.source,
            shared: shared.clone(),
            words: self.words,
            text: self.text,
        };
        let sink = Saying {
            shared,
            words: self.words,
        };
        (source, sink)
    }
}

struct Shared<K> {
    sink: Mutex<K>,
    /// A `pong` is owed.
    owed: AtomicBool,
}

impl<K: Sink> Shared<K> {
    /// Says what is owed, unless somebody is sending, who does it then.
    async fn pay(&self) -> Result<(), Lost> {
        while self.owed.load(Ordering::Acquire)
            && let Ok(mut sink) = self.sink.try_lock()
        {
            if self.owed.swap(false, Ordering::AcqRel) {
                sink.send(word(PONG)).await?;
            }
        }
        Ok(())
    }
}

/// The half that frames come in by.
pub(super) struct Listening<S, K> {
    source: S,
    shared: Arc<Shared<K>>,
    words: Words,
    text: bool,
}

impl<S: Source, K: Sink> Source for Listening<S, K> {
    async fn next(&mut self) -> Incoming {
        match self.source.next().await {
            Incoming::Frame(Frame::Text(text)) if !self.text => {
                if text == PING && self.words == Words::Answers {
                    self.shared.owed.store(true, Ordering::Release);
                    // A transport that fails here fails under the next frame too.
                    let _ = self.shared.pay().await;
                }
                Incoming::Life
            }
            other => other,
        }
    }
}

/// The half that frames go out by.
pub(super) struct Saying<K> {
    shared: Arc<Shared<K>>,
    words: Words,
}

impl<K: Sink> Sink for Saying<K> {
    async fn send(&mut self, frame: Frame) -> Result<(), Lost> {
        self.shared.sink.lock().await.send(frame).await?;
        self.shared.pay().await
    }

    async fn ping(&mut self) -> Result<(), Lost> {
        let mut sink = self.shared.sink.lock().await;
        match self.words {
            Words::Asks => sink.send(word(PING)).await,
            Words::None | Words::Answers => sink.ping().await,
        }
    }

    async fn close(&mut self, code: u16, reason: &str) {
        self.shared.sink.lock().await.close(code, reason).await;
    }
}

//! A line between two members over NATS: frames in sealed pieces, of which each fits in a message.

use breakbulk_link::{Budget, Carries, Closed, Frame, Held};
use breakbulk_net::nats::{NatsSink, NatsSource, NatsTransport};
use breakbulk_net::{Incoming, Lost, Sink, Source, Transport};
use bytes::Bytes;

use super::seal::{Opener, SEAL, Sealer, Secret};

/// The largest piece: with a small one, what one line holds at a time is small as well.
pub(super) const PIECE_MAX: usize = 64 << 10;

/// How many bytes a piece has beside its content: the seal and its kind.
const AROUND: usize = SEAL + 1;

/// The longest reason of a close.
const REASON_MAX: usize = 1024;

/// The first byte of a piece.
const TEXT: u8 = b't';
const BINARY: u8 = b'b';
/// A piece of a frame of which more follows.
const MORE: u8 = b'+';
/// The close of the line: a code and a reason.
const CLOSE: u8 = b'c';

/// One end of a line between two members.
pub(super) struct MemberLine {
    pub(super) source: MemberSource,
    pub(super) sink: MemberSink,
}

impl MemberLine {
    /// A line over a session at NATS. `opened`: this side opened it. `None` if the keys cannot be made.
    pub(super) fn new(transport: NatsTransport, secret: &Secret, opened: bool) -> Option<Self> {
        let (own, other) = transport.subjects();
        let subjects = if opened { (own, other) } else { (other, own) };
        let (sealer, opener) = secret.keys(subjects, opened)?;
        let piece = transport.max_frame().saturating_sub(AROUND);
        let (source, sink) = transport.split();
        Some(Self {
            source: MemberSource {
                inner: source,
                opener,
                partial: Vec::new(),
                charge: None,
                budget: None,
                largest: PIECE_MAX,
            },
            sink: MemberSink {
                inner: sink,
                sealer,
                piece: piece.clamp(1, PIECE_MAX),
            },
        })
    }
}

impl Transport for MemberLine {
    type Source = MemberSource;
    type Sink = MemberSink;

    fn carries(&self, _carries: Carries) -> bool {
        true
    }

    fn limit_frames(&mut self, largest: usize) {
        self.source.largest = largest;
    }

    fn charge_to(&mut self, budget: &Budget) {
        Source::charge_to(&mut self.source, budget);
    }

    fn split(self) -> (MemberSource, MemberSink) {
        (self.source, self.sink)
    }
}

/// The receiving half.
pub(super) struct MemberSource {
    inner: NatsSource,
    opener: Opener,
    /// The frame whose pieces are arriving, and its memory.
    partial: Vec<u8>,
    charge: Option<Held>,
    budget: Option<Budget>,
    largest: usize,
}

impl Source for MemberSource {
    async fn next(&mut self) -> Incoming {
        loop {
            let sealed = match self.inner.next().await {
                Incoming::Frame(Frame::Binary(sealed)) => sealed,
                Incoming::Frame(_) | Incoming::Posted(..) => return broken(1002, MALFORMED),
                Incoming::Alive => return Incoming::Alive,
                // NATS's own close is not sealed, so its code is not believed.
                Incoming::Closed(closed) | Incoming::Broken(closed) => {
                    return Incoming::Closed(Closed {
                        code: 1006,
                        reason: closed.reason,
                    });
                }
            };
            let Some(content) = self.opener.open(sealed.into()) else {
                return broken(1008, WRONG_SECRET);
            };
            if let Some(incoming) = self.piece(content) {
                return incoming;
            }
        }
    }

    fn charge_to(&mut self, budget: &Budget) {
        if let Some(charge) = &mut self.charge {
            *charge = budget.charge_allocated(self.partial.capacity());
        }
        self.budget = Some(budget.clone());
    }
}

const MALFORMED: &str = "a piece of another member of the fleet is malformed";
const WRONG_SECRET: &str =
    "a frame of another member of the fleet cannot be decrypted; give all members the same secret";

fn broken(code: u16, reason: &str) -> Incoming {
    Incoming::Broken(Closed {
        code,
        reason: reason.to_owned(),
    })
}

impl MemberSource {
    /// Adds a piece; returns what it completes.
    fn piece(&mut self, content: Vec<u8>) -> Option<Incoming> {
        let Some(&kind) = content.first() else {
            return Some(broken(1002, MALFORMED));
        };
        if kind == CLOSE {
            return Some(last_word(&content[1..]));
        }
        if self.partial.len() + content.len() - 1 > self.largest {
            let reason = format!("a frame of another member is over {} bytes", self.largest);
            return Some(broken(1009, &reason));
        }
        let bytes = match (kind, self.partial.is_empty()) {
            (MORE, _) => {
                self.partial.extend_from_slice(&content[1..]);
                return self.pay();
            }
            (TEXT | BINARY, true) => Bytes::from(content).slice(1..),
            (TEXT | BINARY, false) => {
                self.partial.extend_from_slice(&content[1..]);
                Bytes::from(std::mem::take(&mut self.partial))
            }
            _ => return Some(broken(1002, MALFORMED)),
        };
        self.charge = None;
        Some(Incoming::Frame(match kind {
            TEXT => Frame::Text(bytes),
            _ => Frame::Binary(bytes),
        }))
    }

    /// Charges the frame whose pieces are arriving.
    fn pay(&mut self) -> Option<Incoming> {
        let budget = self.budget.as_ref()?;
        self.charge = None;
        self.charge = budget.charge(self.partial.capacity());
        match self.charge {
            Some(_) => None,
            None => Some(broken(
                1013,
                "no memory for a frame of another member at the moment: try again later",
            )),
        }
    }
}

fn last_word(content: &[u8]) -> Incoming {
    let (code, reason) = match content {
        [high, low, reason @ ..] => (u16::from_be_bytes([*high, *low]), reason),
        _ => return broken(1002, MALFORMED),
    };
    Incoming::Closed(Closed {
        code,
        reason: String::from_utf8_lossy(reason).into_owned(),
    })
}

/// The sending half.
pub(super) struct MemberSink {
    inner: NatsSink,
    sealer: Sealer,
    piece: usize,
}

impl MemberSink {
    async fn piece(&mut self, kind: u8, bytes: &[u8]) -> Result<(), Lost> {
        let mut content = Vec::with_capacity(bytes.len() + AROUND);
        content.push(kind);
        content.extend_from_slice(bytes);
        let sealed = self.sealer.seal(content);
        let sealed = sealed.ok_or_else(|| {
            Lost("a frame for another member of the fleet cannot be encrypted".to_owned())
        })?;
        self.inner.send(Frame::Binary(sealed.into())).await
    }
}

impl Sink for MemberSink {
    async fn send(&mut self, frame: Frame) -> Result<(), Lost> {
        let kind = match &frame {
            Frame::Text(_) => TEXT,
            Frame::Binary(_) => BINARY,
        };
        let bytes = frame.bytes();
        let mut at = 0;
        while bytes.len() - at > self.piece {
            self.piece(MORE, &bytes[at..at + self.piece]).await?;
            at += self.piece;
        }
        self.piece(kind, &bytes[at..]).await
    }

    async fn ping(&mut self) -> Result<(), Lost> {
        self.inner.ping().await
    }

    async fn close(&mut self, code: u16, reason: &str) {
        let reason = &reason.as_bytes()[..reason.floor_char_boundary(REASON_MAX.min(self.piece))];
        let mut word = code.to_be_bytes().to_vec();
        word.extend_from_slice(reason);
        let _ = self.piece(CLOSE, &word).await;
        self.inner.close(1000, "").await;
    }
}

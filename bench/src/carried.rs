//! Measures this project's code: sends messages from one link to another.

use std::sync::Arc;
use std::time::Instant;

use breakbulk::link::{
    Budget, Cap, Config, Count, Event, FrameKind, Key, Limits, Link, Outgoing, PeerLimits,
    PeerSupport, Rules, Wire,
};
use breakbulk::message::vscode;
use breakbulk::net::memory::carry;
use breakbulk::wire::{Ahp, Cep22, Loro, Stream, Tywrap, nostr_cap};
use bytes::Bytes;

use crate::payload::Content;
use crate::{Work, kernels, time};

/// The kernels of a wire, for a message and the size of a piece.
type Kernels = for<'a> fn(&'a [u8], usize) -> Vec<Work<'a>>;

/// A wire with its usual cap, and the kernels that are its limit.
pub struct Setting {
    /// The name of the wire, or of the protocol.
    pub name: &'static str,
    /// The work that the wire demands, as the fastest libraries do it.
    pub kernels: Kernels,
    wire: Arc<dyn Wire>,
    rules: Rules,
    cap: Cap,
    key: Option<Key>,
    contents: &'static [Content],
}

const TEXTS: &[Content] = &[Content::Ascii, Content::Cjk, Content::Quotes];

/// All wires.
pub fn settings() -> Vec<Setting> {
    vec![
        Setting {
            name: "ahp",
            kernels: kernels::ahp,
            wire: Arc::new(Ahp),
            rules: Ahp::rules(),
            cap: Cap::frame(900_000),
            key: None,
            contents: TEXTS,
        },
        Setting {
            name: "tywrap",
            kernels: kernels::tywrap,
            wire: Arc::new(Tywrap::default()),
            rules: Tywrap::rules(),
            cap: Cap::piece(1 << 20),
            key: Some(Stream::Request.key(7)),
            contents: TEXTS,
        },
        Setting {
            name: "cep22",
            kernels: kernels::cep22,
            wire: Arc::new(Cep22::default()),
            rules: Cep22::rules(),
            cap: nostr_cap(65_536, 48_000, false),
            key: Some(Key::new(b"d0c5a7f3b1e94c62")),
            contents: TEXTS,
        },
        Setting {
            name: "loro",
            kernels: kernels::copies,
            wire: Arc::new(Loro),
            rules: Loro::rules(),
            cap: Cap::piece(102_400),
            key: None,
            contents: &[Content::Binary],
        },
        Setting {
            name: "vscode",
            kernels: kernels::copies,
            wire: Arc::new(Loro),
            rules: Loro::rules(),
            cap: Cap::piece(0),
            key: None,
            contents: &[Content::Binary],
        },
    ]
}

impl Setting {
    /// The contents of its messages.
    pub fn contents(&self) -> &'static [Content] {
        self.contents
    }

    /// The bytes in a piece of text without escapes: the kernels work on the same number at a time.
    pub fn piece_bytes(&self, message: usize) -> usize {
        match self.cap.count {
            Count::Piece if self.cap.max == 0 => message,
            Count::Piece => self.cap.max,
            Count::Frame => self.cap.max / 4 * 3,
            Count::Wrapped(_) => self.cap.cut_room(),
        }
    }

    /// Cuts a message and assembles it on the other side, on links that are used again each time.
    pub fn carry<'a>(&'a self, message: &'a Bytes) -> Work<'a> {
        if self.name == "vscode" {
            return rpc(message);
        }
        self.link(message)
    }

    /// Sends a message from one link to another.
    fn link<'a>(&'a self, message: &'a Bytes) -> Work<'a> {
        let (mut sender, mut receiver) = self.pair();
        let now = Instant::now();
        Box::new(move || {
            let _ = sender.send(now, self.outgoing(message));
            carry(&mut sender, &mut receiver, now, |_, _| {});
            take(&mut receiver, message.len());
            while sender.poll_event().is_some() {}
        })
    }

    /// The seconds from sending a message to its first frame; `None` if the message takes only one frame, or
    /// more than the format has numbers for.
    pub fn first_frame(&self, message: &Bytes) -> Option<f64> {
        let (mut sender, _) = self.pair();
        let (now, mut frame) = (Instant::now(), Vec::new());
        let mut kind = None;
        let seconds = time(|| {
            let _ = sender.send(now, self.outgoing(message));
            kind = sender.poll_transmit(now, &mut frame).map(|it| it.kind);
        });
        (kind? != FrameKind::Whole).then_some(seconds)
    }

    fn outgoing(&self, message: &Bytes) -> Outgoing {
        let mut outgoing = Outgoing::new(message.clone());
        outgoing.key = self.key.clone();
        outgoing
    }

    fn pair(&self) -> (Link, Link) {
        let mut config = Config::new(self.rules.clone());
        config.limits = Limits::default().with(|limits| {
            limits.frame = usize::MAX;
            limits.message = 256 << 20;
            limits.pieces = 1 << 20;
            limits.memory = 1 << 30;
        });
        let new = || {
            Link::new(
                self.wire.clone(),
                self.wire.clone(),
                config.clone(),
                Budget::unlimited(),
                [1; 32],
            )
        };
        let (mut sender, receiver) = (new(), new());
        sender.set_cap(self.cap);
        sender.set_peer(PeerSupport::Yes(PeerLimits::NONE));
        (sender, receiver)
    }
}

/// Takes the message that arrived; panics if there is none, since the figures would mean nothing.
fn take(receiver: &mut Link, size: usize) -> Bytes {
    while let Some(event) = receiver.poll_event() {
        if let Event::Message(message) = event {
            assert_eq!(message.bytes.len(), size, "the message arrived whole");
            return message.into_parts().0;
        }
    }
    panic!("no message arrived");
}

/// A call with a buffer argument, encoded and decoded.
fn rpc(buffer: &Bytes) -> Work<'_> {
    let request = vscode::Request {
        rpc_id: vscode::RpcId::new(2).expect("a small number"),
        method: "$write".into(),
        args: vscode::Args::Mixed(vec![vscode::Arg::Buffer(buffer.clone())]),
        cancellation: false,
    };
    let message = vscode::RpcMessage {
        req: 1,
        body: vscode::Body::Request(request),
    };
    let limits = vscode::Limits::default().with(|limits| limits.message = usize::MAX);
    // The frame buffer is reused; one message is one frame here.
    let mut frame = Vec::new();
    Box::new(move || {
        frame.clear();
        vscode::encode(&message, &mut frame).expect("a small method");
        // As with a transport, the bytes arrive in the receiver's own memory.
        let arrived = Bytes::copy_from_slice(&frame);
        std::hint::black_box(vscode::decode(arrived, &limits).expect("it was just encoded"));
    })
}

/// How many messages of 256 bytes are sent and received per second, one frame each.
pub fn whole_messages_per_second(setting: &Setting) -> f64 {
    const MESSAGES: usize = 20_000;
    let message = setting.contents[0].message(256);
    let mut work = setting.link(&message);
    let best = (0..25)
        .map(|_| time(|| (0..MESSAGES).for_each(|_| work())))
        .fold(f64::MAX, f64::min);
    MESSAGES as f64 / best
}

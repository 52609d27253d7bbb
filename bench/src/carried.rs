//! Measures our own code: sends messages from one link to another.

use std::sync::Arc;
use std::time::Instant;

use breakbulk::link::{
    Budget, Cap, Config, Count, Event, Key, Limits, Link, Outgoing, PeerLimits, PeerSupport, Rules,
    Wire,
};
use breakbulk::message::vscode;
use breakbulk::net::memory::carry;
use breakbulk::wire::{Ahp, Cep22, Loro, Stream, Tywrap, nostr_cap};
use bytes::Bytes;

use crate::payload::Content;
use crate::{kernels, time};

/// A wire with its usual cap, and the function that measures its limit.
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) limit: fn(&[u8], usize) -> f64,
    wire: Arc<dyn Wire>,
    rules: Rules,
    cap: Cap,
    key: Option<Key>,
    contents: &'static [Content],
}

const TEXTS: &[Content] = &[Content::Ascii, Content::Cjk, Content::Quotes];

pub(crate) fn settings() -> Vec<Setting> {
    vec![
        Setting {
            name: "ahp",
            limit: kernels::ahp,
            wire: Arc::new(Ahp),
            rules: Ahp::rules(),
            cap: Cap::frame(900_000),
            key: None,
            contents: TEXTS,
        },
        Setting {
            name: "tywrap",
            limit: kernels::tywrap,
            wire: Arc::new(Tywrap::default()),
            rules: Tywrap::rules(),
            cap: Cap::piece(1 << 20),
            key: Some(Stream::Request.key(7)),
            contents: TEXTS,
        },
        Setting {
            name: "cep22",
            limit: kernels::cep22,
            wire: Arc::new(Cep22::default()),
            rules: Cep22::rules(),
            cap: nostr_cap(65_536, 48_000, false),
            key: Some(Key::new(b"d0c5a7f3b1e94c62")),
            contents: TEXTS,
        },
        Setting {
            name: "loro",
            limit: kernels::copies,
            wire: Arc::new(Loro),
            rules: Loro::rules(),
            cap: Cap::piece(102_400),
            key: None,
            contents: &[Content::Binary],
        },
        Setting {
            name: "vscode",
            limit: kernels::copies,
            wire: Arc::new(Loro),
            rules: Loro::rules(),
            cap: Cap::piece(0),
            key: None,
            contents: &[Content::Binary],
        },
    ]
}

impl Setting {
    pub(crate) fn contents(&self) -> &'static [Content] {
        self.contents
    }

    pub(crate) fn message(&self, content: Content, size: usize) -> Bytes {
        content.message(size)
    }

    /// The size of a piece of text without escapes: the kernels work on as much at a time.
    pub(crate) fn piece_bytes(&self, message: usize) -> usize {
        match self.cap.count {
            Count::Piece if self.cap.max == 0 => message,
            Count::Piece => self.cap.max,
            Count::Frame => self.cap.max / 4 * 3,
            Count::Wrapped(_) => self.cap.cut_room(),
        }
    }

    /// The seconds that it takes to cut a message and assemble it on the other side.
    pub(crate) fn carry(&self, message: &Bytes) -> f64 {
        if self.name == "vscode" {
            return rpc(message);
        }
        let (mut sender, mut receiver) = self.pair();
        let now = Instant::now();
        time(|| {
            let _ = sender.send(now, self.outgoing(message));
            carry(&mut sender, &mut receiver, now, |_, _| {});
            take(&mut receiver, message.len())
        })
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
fn rpc(buffer: &Bytes) -> f64 {
    let request = |buffer: Bytes| vscode::Request {
        rpc_id: vscode::RpcId::new(2).expect("a small number"),
        method: "$write".into(),
        args: vscode::Args::Mixed(vec![vscode::Arg::Buffer(buffer)]),
        cancellation: false,
    };
    let message = vscode::RpcMessage {
        req: 1,
        body: vscode::Body::Request(request(buffer.clone())),
    };
    let limits = vscode::Limits::default().with(|limits| limits.message = usize::MAX);
    FRAME.with_borrow_mut(|frame| {
        time(|| {
            frame.clear();
            vscode::encode(&message, frame).expect("a small method");
            // As with a transport, the bytes arrive in the receiver's own memory.
            let arrived = Bytes::copy_from_slice(frame);
            vscode::decode(arrived, &limits).expect("it was just encoded")
        })
    })
}

thread_local! {
    /// The frame buffer, which is reused; one message is one frame here.
    static FRAME: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// How many messages of 256 bytes are sent and received per second, one frame each.
pub(crate) fn whole_messages_per_second(setting: &Setting) -> f64 {
    const MESSAGES: usize = 20_000;
    let content = setting.contents[0];
    let message = content.message(256);
    let (mut sender, mut receiver) = setting.pair();
    let now = Instant::now();
    let run = |sender: &mut Link, receiver: &mut Link| {
        time(|| {
            for _ in 0..MESSAGES {
                let _ = sender.send(now, setting.outgoing(&message));
                carry(sender, receiver, now, |_, _| {});
                take(receiver, message.len());
                while sender.poll_event().is_some() {}
            }
        })
    };
    let best = (0..5)
        .map(|_| run(&mut sender, &mut receiver))
        .fold(f64::MAX, f64::min);
    MESSAGES as f64 / best
}

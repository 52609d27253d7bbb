//! A peer that sends what it likes and reads when it likes.

use breakbulk::link::Frame;
use breakbulk::message::loro::{
    ChannelMsg, PeerIdentity, PeerType, VersionVector, decode_frame, encode_frame,
};
use breakbulk::net::ws::{self, ConnectOptions, WsSink, WsSource};
use breakbulk::net::{Incoming, Sink, Source, Transport};

pub(crate) struct Raw {
    source: WsSource,
    sink: WsSink,
    whole: Vec<u8>,
    left: u32,
}

impl Raw {
    /// Connects, and says who it is.
    pub(crate) async fn connect(url: &str) -> Self {
        let socket = ws::connect(url, &ConnectOptions::default()).await.unwrap();
        let (source, sink) = socket.split();
        let mut raw = Self {
            source,
            sink,
            whole: Vec::new(),
            left: 0,
        };
        let ready = raw.source.next().await;
        assert!(matches!(ready, Incoming::Frame(Frame::Text(_))));
        let identity = PeerIdentity {
            peer_id: "7".into(),
            name: None,
            kind: PeerType::User,
        };
        raw.say(&ChannelMsg::EstablishRequest { identity }).await;
        raw
    }

    pub(crate) async fn say(&mut self, message: &ChannelMsg) -> bool {
        let frame = encode_frame(message).unwrap();
        // In pieces, as every client does with what is large.
        const PIECE: usize = 100 << 10;
        if frame.len() <= PIECE {
            return self.send([&[0], &frame[..]].concat()).await;
        }
        let count = frame.len().div_ceil(PIECE) as u32;
        let key = [7; 8];
        let len = (frame.len() as u32).to_be_bytes();
        if !self
            .send([&[1], &key[..], &count.to_be_bytes(), &len].concat())
            .await
        {
            return false;
        }
        for (number, piece) in frame.chunks(PIECE).enumerate() {
            let number = (number as u32).to_be_bytes();
            if !self.send([&[2], &key[..], &number, piece].concat()).await {
                return false;
            }
        }
        true
    }

    async fn send(&mut self, bytes: Vec<u8>) -> bool {
        self.sink.send(Frame::Binary(bytes.into())).await.is_ok()
    }

    /// The next message; `Err`: why the server closed.
    pub(crate) async fn hear(&mut self) -> Result<ChannelMsg, (u16, String)> {
        loop {
            match self.source.next().await {
                Incoming::Frame(Frame::Binary(frame)) => match frame[0] {
                    1 => {
                        self.left = u32::from_be_bytes(frame[9..13].try_into().unwrap());
                        self.whole.clear();
                    }
                    kind => {
                        if kind == 0 {
                            return Ok(decode(&frame[1..]));
                        }
                        self.whole.extend_from_slice(&frame[13..]);
                        self.left -= 1;
                        if self.left == 0 {
                            return Ok(decode(&self.whole));
                        }
                    }
                },
                Incoming::Closed(closed) | Incoming::Broken(closed) => {
                    return Err((closed.code, closed.reason));
                }
                _ => {}
            }
        }
    }
}

fn decode(bytes: &[u8]) -> ChannelMsg {
    let mut messages = decode_frame(bytes.to_vec().into()).unwrap();
    messages.remove(0)
}

pub(crate) fn sync_request(doc: &str) -> ChannelMsg {
    ChannelMsg::SyncRequest {
        doc_id: doc.into(),
        requester_doc_version: VersionVector::new(),
        bidirectional: Some(false),
        ephemeral: None,
    }
}

//! Frames of every wire, made by hand: what an honest or a hostile peer would send.

#![allow(dead_code, reason = "each test file takes what it needs")]

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use breakbulk_link::{Frame, Key, Rules, Wire};
use breakbulk_wire::{Ahp, Cep22, Loro, Stream, Tywrap, Whole};
use sha2::Digest;

/// A wire together with the side that receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kit {
    Ahp,
    /// A host: responses come in.
    Tywrap,
    /// A bridge: requests come in, one burst after the other.
    Bridge,
    /// A server, which answers an opening frame with an accept.
    Cep22,
    Loro,
    Whole,
}

/// What a field of a frame is for, whatever the wire calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Key,
    Index,
    Count,
    Bytes,
    Data,
}

impl Kit {
    pub(crate) const ALL: [Self; 6] = [
        Self::Ahp,
        Self::Tywrap,
        Self::Bridge,
        Self::Cep22,
        Self::Loro,
        Self::Whole,
    ];
    /// The wires with pieces, each format once.
    pub(crate) const CUTTING: [Self; 4] = [Self::Ahp, Self::Tywrap, Self::Cep22, Self::Loro];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ahp => "ahp",
            Self::Tywrap => "tywrap",
            Self::Bridge => "bridge",
            Self::Cep22 => "cep22",
            Self::Loro => "loro",
            Self::Whole => "whole",
        }
    }

    pub(crate) fn wire(self) -> Arc<dyn Wire> {
        match self {
            Self::Ahp => Arc::new(Ahp),
            Self::Tywrap => Arc::new(Tywrap {
                expects: Some(Stream::Response),
                ..Tywrap::default()
            }),
            Self::Bridge => Arc::new(Tywrap {
                expects: Some(Stream::Request),
                ..Tywrap::default()
            }),
            Self::Cep22 => Arc::new(Cep22::default()),
            Self::Loro => Arc::new(Loro),
            Self::Whole => Arc::new(Whole::TEXT),
        }
    }

    pub(crate) fn rules(self) -> Rules {
        match self {
            Self::Ahp => Ahp::rules(),
            Self::Tywrap => Tywrap::rules(),
            Self::Bridge => Tywrap::bridge_rules(),
            Self::Cep22 => Cep22::server_rules(),
            Self::Loro => Loro::rules(),
            Self::Whole => Whole::rules(),
        }
    }

    pub(crate) fn is_tywrap(self) -> bool {
        matches!(self, Self::Tywrap | Self::Bridge)
    }

    fn stream(self) -> Stream {
        if self == Self::Tywrap {
            Stream::Response
        } else {
            Stream::Request
        }
    }

    /// The key of transfer `number`.
    pub(crate) fn key(self, number: u64) -> Key {
        match self {
            Self::Ahp => Key::new(format!("g{number}").as_bytes()),
            Self::Tywrap | Self::Bridge => self.stream().key(number as i64),
            Self::Cep22 => Key::new(format!("t{number}").as_bytes()),
            Self::Loro | Self::Whole => Key::new(&number.to_be_bytes()),
        }
    }

    /// The frame that announces a transfer, where the wire has one.
    pub(crate) fn open(
        self,
        number: u64,
        count: u64,
        bytes: u64,
        digest: &[u8; 32],
    ) -> Option<Frame> {
        match self {
            Self::Cep22 => Some(self.open_fields(number, count, bytes, digest).frame()),
            Self::Loro => {
                let mut frame = vec![1];
                frame.extend_from_slice(&number.to_be_bytes());
                frame.extend_from_slice(&(count as u32).to_be_bytes());
                frame.extend_from_slice(&(bytes as u32).to_be_bytes());
                Some(Frame::Binary(frame.into()))
            }
            _ => None,
        }
    }

    /// A piece; the data of text wires must be UTF-8.
    pub(crate) fn piece(
        self,
        number: u64,
        index: u64,
        count: u64,
        bytes: u64,
        data: &[u8],
    ) -> Frame {
        if self == Self::Loro {
            let mut frame = vec![2];
            frame.extend_from_slice(&number.to_be_bytes());
            frame.extend_from_slice(&(index as u32).to_be_bytes());
            frame.extend_from_slice(data);
            return Frame::Binary(frame.into());
        }
        self.piece_fields(number, index, count, bytes, data).frame()
    }

    /// The frame after the last piece, where the wire has one.
    pub(crate) fn close(self, number: u64, count: u64) -> Option<Frame> {
        (self == Self::Cep22).then(|| self.end(number, count + 2))
    }

    /// A CEP-22 `end` frame with this progress.
    pub(crate) fn end(self, number: u64, progress: u64) -> Frame {
        self.special(number, progress, "end").frame()
    }

    /// A CEP-22 frame with a token, a progress number and a frame type, but without content.
    pub(crate) fn special(self, number: u64, progress: u64, frame_type: &str) -> Fields {
        Fields(self, vec![])
            .set("progressToken", &format!("\"t{number}\""))
            .set("progress", &progress.to_string())
            .set("type", "\"oversized-transfer\"")
            .set("frameType", &format!("\"{frame_type}\""))
    }

    /// All frames of a message in pieces of `size` bytes.
    pub(crate) fn transfer(self, number: u64, message: &[u8], size: usize) -> Vec<Frame> {
        let pieces: Vec<&[u8]> = message.chunks(size).collect();
        let (count, bytes) = (pieces.len() as u64, message.len() as u64);
        let digest = sha2::Sha256::digest(message).into();
        let mut frames: Vec<Frame> = self
            .open(number, count, bytes, &digest)
            .into_iter()
            .collect();
        for (index, data) in pieces.into_iter().enumerate() {
            frames.push(self.piece(number, index as u64, count, bytes, data));
        }
        frames.extend(self.close(number, count));
        frames
    }

    /// An honest message in one frame.
    pub(crate) fn whole(self, message: &[u8]) -> Frame {
        match self {
            Self::Loro => Frame::Binary([b"\0", message].concat().into()),
            _ => Frame::Text(message.to_vec().into()),
        }
    }

    /// The fields of a piece's JSON, to be tampered with.
    pub(crate) fn piece_fields(
        self,
        number: u64,
        index: u64,
        count: u64,
        bytes: u64,
        data: &[u8],
    ) -> Fields {
        let text = || serde_json::to_string(&String::from_utf8_lossy(data)).expect("a string");
        match self {
            Self::Ahp => Fields(self, vec![])
                .set("groupId", &format!("\"g{number}\""))
                .set("index", &index.to_string())
                .set("total", &count.to_string())
                .set("data", &format!("\"{}\"", STANDARD.encode(data))),
            Self::Cep22 => self
                .special(number, index + 2, "chunk")
                .set("data", &text()),
            _ => Fields(self, vec![])
                .set("__tywrap_frame__", "\"chunk\"")
                .set("frameProtocol", "\"tywrap-frame/1\"")
                .set("stream", &format!("\"{}\"", self.stream().name()))
                .set("id", &number.to_string())
                .set("seq", &index.to_string())
                .set("total", &count.to_string())
                .set("totalBytes", &bytes.to_string())
                .set("encoding", "\"utf8-slice\"")
                .set("data", &text()),
        }
    }

    /// The fields of a CEP-22 start frame.
    pub(crate) fn open_fields(
        self,
        number: u64,
        count: u64,
        bytes: u64,
        digest: &[u8; 32],
    ) -> Fields {
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        self.special(number, 1, "start")
            .set("completionMode", "\"render\"")
            .set("digest", &format!("\"sha256:{hex}\""))
            .set("totalBytes", &bytes.to_string())
            .set("totalChunks", &count.to_string())
    }

    /// What the wire calls a field, and whether it is in the opening frame.
    pub(crate) fn field(self, role: Role) -> Option<(&'static str, bool)> {
        match (self, role) {
            (Self::Whole | Self::Loro, _) | (Self::Ahp, Role::Bytes) => None,
            (Self::Ahp, Role::Key) => Some(("groupId", false)),
            (Self::Ahp, Role::Index) => Some(("index", false)),
            (Self::Tywrap | Self::Bridge, Role::Key) => Some(("id", false)),
            (Self::Tywrap | Self::Bridge, Role::Index) => Some(("seq", false)),
            (Self::Ahp | Self::Tywrap | Self::Bridge, Role::Count) => Some(("total", false)),
            (Self::Tywrap | Self::Bridge, Role::Bytes) => Some(("totalBytes", false)),
            (Self::Cep22, Role::Key) => Some(("progressToken", false)),
            (Self::Cep22, Role::Index) => Some(("progress", false)),
            (Self::Cep22, Role::Count) => Some(("totalChunks", true)),
            (Self::Cep22, Role::Bytes) => Some(("totalBytes", true)),
            (_, Role::Data) => Some(("data", false)),
        }
    }
}

/// A JSON frame as a list of names and raw values.
#[derive(Clone, Debug)]
pub(crate) struct Fields(pub(crate) Kit, pub(crate) Vec<(String, String)>);

impl Fields {
    /// Sets a field to raw JSON, in its place or at the end.
    pub(crate) fn set(mut self, name: &str, raw: &str) -> Self {
        match self.1.iter_mut().find(|(known, _)| known == name) {
            Some(field) => field.1 = raw.to_owned(),
            None => self.1.push((name.to_owned(), raw.to_owned())),
        }
        self
    }

    /// Adds a field at the end, whether or not there is one of that name.
    pub(crate) fn add(mut self, name: &str, raw: &str) -> Self {
        self.1.push((name.to_owned(), raw.to_owned()));
        self
    }

    /// Takes a field away.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.1.retain(|(known, _)| known != name);
        self
    }

    pub(crate) fn text(&self) -> String {
        let outer = |name: &str| matches!(name, "progressToken" | "progress" | "message");
        let join = |fields: Vec<&(String, String)>| {
            fields
                .iter()
                .map(|(name, raw)| format!("\"{name}\":{raw}"))
                .collect::<Vec<_>>()
                .join(",")
        };
        match self.0 {
            Kit::Ahp => {
                let fields = join(self.1.iter().collect());
                format!(
                    r#"{{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{{{fields}}}}}"#
                )
            }
            Kit::Cep22 => {
                let (out, inner): (Vec<_>, Vec<_>) =
                    self.1.iter().partition(|(name, _)| outer(name));
                let comma = if out.is_empty() { "" } else { "," };
                format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{{}{comma}"cvm":{{{}}}}}}}"#,
                    join(out),
                    join(inner)
                )
            }
            _ => format!("{{{}}}", join(self.1.iter().collect())),
        }
    }

    pub(crate) fn frame(&self) -> Frame {
        Frame::Text(self.text().into())
    }
}

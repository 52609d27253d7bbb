//! Finds what identifies a frame, without its content: its kind, its transfer and its place in it, and the
//! method and id of the message. However large the frame is, only a bounded part of it is read.

use base64_head::decoded_start;
use breakbulk_link::{Frame, Wire};
use breakbulk_message::tunnel::{Control, Gone, part_bytes};
use breakbulk_wire::{Ahp, Tywrap};
use serde::{Deserialize, Serialize};

mod base64_head;
mod method;

/// How much is looked at from the beginning of a message.
const START: usize = 1024;

/// How much is looked at from its end.
const END: usize = 256;

/// The longest key, method, id or reason that is kept, in characters.
const TEXT_MAX: usize = 120;

/// How many transfers of a binary wire are remembered: a piece is recognised by nothing but the id of its
/// transfer.
const BATCHES: usize = 8;

/// What a frame is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FrameKind {
    /// A message in one frame.
    #[default]
    Whole,
    /// The frame that announces pieces.
    Open,
    /// A piece of a message.
    Piece,
    /// A frame of a tunnel's line.
    Tunnel,
    /// Another text that is no message.
    Word,
}

/// What identifies a frame.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// What it is for.
    pub kind: FrameKind,
    /// The format of its pieces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire: Option<String>,
    /// The transfer that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Its place among the pieces, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// How many pieces there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// How many bytes of the message it carries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<u64>,
    /// The size of the whole message, where the format tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// The method of its message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The id of its message, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The code of its error, if it is an answer with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<i64>,
    /// What a gateway says to the other one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<Says>,
}

/// A frame of a tunnel's line. The secret name of the session is not in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "says", rename_all = "lowercase")]
pub enum Says {
    /// The limits of a side.
    Hello {
        /// The largest frame that it takes.
        frame: u64,
        /// The largest message that it takes.
        message: u64,
        /// How long the session outlives its line, in milliseconds.
        resume_ms: u64,
        /// What that side calls the session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        label: Option<String>,
    },
    /// The session is to go on.
    Resume {
        /// How many frames had arrived there.
        received: u64,
    },
    /// The session goes on.
    Resumed {
        /// How many frames had arrived there.
        received: u64,
    },
    /// The session does not go on.
    Gone {
        /// Why.
        why: String,
    },
    /// So many frames were taken.
    Ack {
        /// How many since the beginning.
        taken: u64,
    },
    /// A part of a frame.
    Part {
        /// Whether the frame ends with it.
        last: bool,
        /// How many bytes of it.
        bytes: u64,
    },
    /// The session ends.
    Close {
        /// The close code.
        code: u16,
        /// The reason.
        reason: String,
    },
    /// A frame that cannot be read.
    Other,
}

/// Finds what identifies the frames of one direction of a connection.
#[derive(Debug, Default)]
pub struct Namer {
    /// The last transfers that were announced on a binary wire, and their numbers of pieces.
    batches: Vec<([u8; 8], u32)>,
}

impl Namer {
    /// What identifies this frame.
    pub fn head(&mut self, frame: &Frame) -> Head {
        match frame {
            Frame::Text(text) => text_head(frame, text),
            Frame::Binary(bytes) => self.binary_head(bytes),
        }
    }

    fn binary_head(&mut self, bytes: &[u8]) -> Head {
        let number = |at: usize| -> Option<u32> {
            Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
        };
        let batch: Option<[u8; 8]> = bytes.get(1..9).and_then(|it| it.try_into().ok());
        let (Some(&kind), Some(batch)) = (bytes.first(), batch) else {
            return Head::default();
        };
        let loro = |kind| Head {
            kind,
            wire: Some("loro".to_owned()),
            key: Some(batch.iter().map(|byte| format!("{byte:02x}")).collect()),
            ..Head::default()
        };
        let known = self.batches.iter().find(|(known, _)| *known == batch);
        match (kind, known, number(9)) {
            (1, _, Some(count)) if bytes.len() == 17 => {
                self.batches.retain(|(known, _)| *known != batch);
                if self.batches.len() == BATCHES {
                    self.batches.remove(0);
                }
                self.batches.push((batch, count));
                Head {
                    count: Some(u64::from(count)),
                    total: number(13).map(u64::from),
                    ..loro(FrameKind::Open)
                }
            }
            (2, Some((_, count)), Some(seq)) => Head {
                seq: Some(u64::from(seq)),
                count: Some(u64::from(*count)),
                data: Some(bytes.len() as u64 - 13),
                ..loro(FrameKind::Piece)
            },
            _ => Head::default(),
        }
    }
}

fn text_head(frame: &Frame, text: &[u8]) -> Head {
    if Control::is_control(text) {
        return Head {
            kind: FrameKind::Tunnel,
            tunnel: Some(says(text)),
            ..Head::default()
        };
    }
    if let Some(piece) = Ahp.read_canonical(frame) {
        let is_last = piece.count == piece.seq.checked_add(1);
        let data = base64_head::decoded_len(piece.data);
        let (mut method, mut id) = (None, None);
        if piece.seq == 0 {
            (method, id) = method::at_start(&decoded_start(piece.data, START));
        }
        if id.is_none() && is_last {
            id = method::at_end(&base64_head::decoded_end(piece.data, END));
        }
        return Head {
            kind: FrameKind::Piece,
            wire: Some("ahp".to_owned()),
            key: Some(short(&Ahp.key_text(&piece.key))),
            seq: Some(piece.seq),
            count: piece.count,
            data: Some(data),
            method: method.map(|it| short(&it)),
            id: id.map(|it| short(&it)),
            ..Head::default()
        };
    }
    if let Some(piece) = Tywrap::default().read_canonical(frame) {
        return Head {
            kind: FrameKind::Piece,
            wire: Some("tywrap".to_owned()),
            key: Some(short(&Tywrap::default().key_text(&piece.key))),
            seq: Some(piece.seq),
            count: piece.count,
            ..Head::default()
        };
    }
    let start = &text[..text.len().min(START)];
    if text.len() <= 8 && text.iter().all(u8::is_ascii_alphabetic) {
        return Head {
            kind: FrameKind::Word,
            method: Some(String::from_utf8_lossy(text).into_owned()),
            ..Head::default()
        };
    }
    let (method, id) = method::at_start(start);
    let id = id.or_else(|| method::at_end(&text[text.len().saturating_sub(END)..]));
    Head {
        error: method::error_code(start),
        method: method.map(|it| short(&it)),
        id: id.map(|it| short(&it)),
        ..Head::default()
    }
}

fn says(text: &[u8]) -> Says {
    // The bytes of a part are not decoded: only their number counts.
    if let Some((last, bytes)) = part_bytes(text) {
        let bytes = bytes as u64;
        return Says::Part { last, bytes };
    }
    match Control::read(text) {
        Ok(Control::Hello(hello)) => Says::Hello {
            frame: hello.frame,
            message: hello.message,
            resume_ms: hello.resume_ms,
            label: hello.label.map(|label| label.to_string()),
        },
        Ok(Control::Resume { received, .. }) => Says::Resume {
            received: received.frames,
        },
        Ok(Control::Resumed { received, .. }) => Says::Resumed {
            received: received.frames,
        },
        Ok(Control::Gone(gone)) => Says::Gone {
            why: match gone {
                Gone::Restarted => "restarted",
                Gone::Member => "member",
                Gone::Expired => "expired",
                Gone::Numbers => "numbers",
            }
            .to_owned(),
        },
        Ok(Control::Ack { taken }) => Says::Ack { taken },
        Ok(Control::Close { code, reason }) => Says::Close {
            code,
            reason: short(&reason),
        },
        Ok(Control::Part { last, data, .. }) => Says::Part {
            last,
            bytes: data.len() as u64,
        },
        Err(_) => Says::Other,
    }
}

/// A text that came from a peer, shortened.
pub(crate) fn short(text: &str) -> String {
    match text.char_indices().nth(TEXT_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use bytes::Bytes;

    use super::*;

    // REC-1
    #[test]
    fn frames_are_named_by_their_kind_transfer_and_message() {
        let segment = |rest: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{{"groupId":"g1",{rest}}}}}"#
            )
        };
        let control = |rest: &str| format!(r#"{{"jsonrpc":"2.0","method":"breakbulk/{rest}"#);
        let mut namer = Namer::default();
        for (text, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":"a","method":"m","params":{"secret":1}}"#.to_owned(),
                r#"{"kind":"whole","method":"m","id":"\"a\""}"#,
            ),
            (
                r#"{"result":{"secret":1},"jsonrpc":"2.0","id":5}"#.to_owned(),
                r#"{"kind":"whole","id":"5"}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":5,"error":{"code":-32011,"message":"secret"}}"#.to_owned(),
                r#"{"kind":"whole","id":"5","error":-32011}"#,
            ),
            ("no JSON at all".to_owned(), r#"{"kind":"whole"}"#),
            ("ping".to_owned(), r#"{"kind":"word","method":"ping"}"#),
            (
                // {"method":"m","params":
                segment(r#""index":0,"total":2,"data":"eyJtZXRob2QiOiJtIiwicGFyYW1zIjo=""#),
                r#"{"kind":"piece","wire":"ahp","key":"g1","seq":0,"count":2,"data":23,"method":"m"}"#,
            ),
            (
                // 1,"id":7}
                segment(r#""index":1,"total":2,"data":"MSwiaWQiOjd9""#),
                r#"{"kind":"piece","wire":"ahp","key":"g1","seq":1,"count":2,"data":9,"id":"7"}"#,
            ),
            (
                control(r#"ack","params":{"taken":12}}"#),
                r#"{"kind":"tunnel","tunnel":{"says":"ack","taken":12}}"#,
            ),
            (
                control(r#"part","params":{"last":true,"data":"//79"}}"#),
                r#"{"kind":"tunnel","tunnel":{"says":"part","last":true,"bytes":3}}"#,
            ),
            (
                control(r#"close","params":{"code":1001,"reason":"x"}}"#),
                r#"{"kind":"tunnel","tunnel":{"says":"close","code":1001,"reason":"x"}}"#,
            ),
            (
                control(r#"later","params":{}}"#),
                r#"{"kind":"tunnel","tunnel":{"says":"other"}}"#,
            ),
        ] {
            let head = namer.head(&Frame::Text(Bytes::from(text.clone())));
            assert_eq!(serde_json::to_string(&head).unwrap(), expected, "{text}");
        }
        for (bytes, expected) in [
            (
                // A fragment of a batch that was not announced may be anything.
                &b"\x02batch001\0\0\0\0data"[..],
                r#"{"kind":"whole"}"#,
            ),
            (
                b"\x01batch001\0\0\0\x02\0\0\0\x08",
                r#"{"kind":"open","wire":"loro","key":"6261746368303031","count":2,"total":8}"#,
            ),
            (
                b"\x02batch001\0\0\0\x01data",
                r#"{"kind":"piece","wire":"loro","key":"6261746368303031","seq":1,"count":2,"data":4}"#,
            ),
            (b"\x00anything", r#"{"kind":"whole"}"#),
            (b"", r#"{"kind":"whole"}"#),
        ] {
            let head = namer.head(&Frame::Binary(Bytes::from_static(bytes)));
            assert_eq!(serde_json::to_string(&head).unwrap(), expected, "{bytes:?}");
        }
    }
}

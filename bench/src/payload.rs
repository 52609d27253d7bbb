//! Makes the messages for the benchmarks: JSON-RPC messages of an exact size.

use bytes::Bytes;

/// The content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Plain letters: nothing to escape.
    Ascii,
    /// Characters of three bytes.
    Cjk,
    /// Source code inside JSON: a quote or a backslash every few bytes.
    Quotes,
    /// Bytes of any value.
    Binary,
}

impl Content {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ascii => "ASCII",
            Self::Cjk => "CJK",
            Self::Quotes => "quotes",
            Self::Binary => "binary",
        }
    }

    /// A JSON-RPC message of exactly `size` bytes (white space at its end makes up the difference).
    pub fn message(self, size: usize) -> Bytes {
        let unit: &[u8] = match self {
            Self::Ascii => b"the quick brown fox jumps over the lazy dog and runs away again ",
            Self::Cjk => "大きな知らせを小さな荷に分けて運ぶ、港の仕事は今日も続く。".as_bytes(),
            Self::Quotes => br#"print(\"a\\b\", '\"c\"'); x[\"k\"] = \"\\\\srv\\q\";"#,
            Self::Binary => {
                return (0..size)
                    .map(|i| (i * 7 + i / 251) as u8)
                    .collect::<Vec<_>>()
                    .into();
            }
        };
        let (head, tail): (&[u8], &[u8]) =
            (br#"{"jsonrpc":"2.0","id":1,"result":{"text":""#, br#""}}"#);
        let mut message = Vec::with_capacity(size);
        message.extend_from_slice(head);
        while message.len() + unit.len() + tail.len() <= size {
            message.extend_from_slice(unit);
        }
        message.extend_from_slice(tail);
        message.resize(size, b' ');
        message.into()
    }
}

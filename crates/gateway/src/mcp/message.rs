//! What a body says: which kind of message it is, of which era, and what belongs to it. Does no IO.

use std::borrow::Cow;
use std::collections::BTreeMap;

use breakbulk_message::jsonrpc::{self, Envelope, Kind, member, shortest_id, string};
use breakbulk_message::mcp;
use serde_json::value::RawValue;

/// The request that begins a session.
pub(super) const INITIALIZE: &str = "initialize";

/// The notification after which a server may send messages of its own.
pub(super) const INITIALIZED: &str = "notifications/initialized";

/// The request whose stream carries notifications for as long as it is open (stateless era).
pub(super) const LISTEN: &str = "subscriptions/listen";

/// The request that tells which arguments a tool wants in headers.
pub(super) const LIST_TOOLS: &str = "tools/list";

/// The call of a tool.
pub(super) const CALL_TOOL: &str = "tools/call";

/// The names in `_meta` of what each request of the stateless era says.
pub(super) const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// The most messages of a batch that are looked at.
const BATCH: usize = 1024;

/// The longest id, method, progress token and version, in bytes of JSON. Copies of them are kept beside the
/// message, and only the message is charged.
const WORD: usize = 4 << 10;

/// So much is kept of the name of a tool, or the address of a resource. No header is as long, so that it differs
/// from all of them.
const NAME: usize = 64 << 10;

/// A message, read from its bytes. Ids and tokens are JSON in its shortest form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// A request.
    Request(Request),
    /// A notification.
    Notification {
        /// Its method.
        method: String,
        /// The request that it cancels.
        cancels: Option<String>,
        /// The progress token that it is about.
        progress: Option<String>,
        /// The version that it says.
        version: Option<String>,
    },
    /// An answer to the request with this id.
    Answer {
        /// The id; empty if it is too long for that of a request that is remembered.
        id: String,
        /// The code, if it is an error.
        error: Option<i64>,
    },
    /// Several messages (2025-03-26).
    Batch(Vec<Message>),
}

/// A request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Request {
    /// As it was written, to be answered.
    pub(super) id: String,
    /// In its shortest form, to be compared.
    pub(super) key: String,
    pub(super) method: String,
    pub(super) progress: Option<String>,
    /// What its `_meta` says of its version.
    pub(super) claim: Claim,
    /// What `Mcp-Name` repeats: the name of a tool or prompt, the address of a resource.
    pub(super) name: Option<String>,
}

/// What the `_meta` of a request says of its version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Claim {
    /// Nothing: a request of the session era.
    #[default]
    None,
    /// A version, and all that belongs to it.
    Version(String),
    /// A version, but what is named here is missing or of the wrong type.
    Incomplete(&'static str),
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// No JSON.
    NoJson,
    /// JSON, but no JSON-RPC 2.0.
    NoMessage,
    /// An id, a method, a progress token or a version is longer than this many bytes.
    TooLong(usize),
    /// A batch has more than this many messages.
    TooMany(usize),
}

impl Unreadable {
    /// In words for whoever sent it.
    pub(super) fn words(self) -> String {
        match self {
            Self::NoJson => "the body is no JSON".to_owned(),
            Self::NoMessage => "the body is no JSON-RPC 2.0 message".to_owned(),
            Self::TooLong(most) => format!(
                "an id, method, progress token or version is longer than {most} bytes, which is the limit"
            ),
            Self::TooMany(most) => {
                format!("a batch has more than {most} messages, which is the limit")
            }
        }
    }
}

/// What is found in bytes that are not read as a [`Message`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Unread<'a> {
    /// The ids of requests as they are written, of at most so many as a batch may have.
    pub(super) requests: Vec<&'a str>,
    /// How many other messages there are.
    pub(super) others: usize,
}

impl<'a> Unread<'a> {
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        let mut found = Self::default();
        each(bytes, |envelope| match (envelope.kind(), envelope.id) {
            (Some(Kind::Request), Some(id)) if found.requests.len() < BATCH => {
                found.requests.push(id.get());
            }
            _ => found.others += 1,
        });
        found
    }
}

/// Shows the message in these bytes, or each of a batch.
fn each<'a>(bytes: &'a [u8], show: impl FnMut(Envelope<'a>)) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match jsonrpc::is_batch(bytes) {
        true => jsonrpc::batch(text).into_iter().flatten().for_each(show),
        false => Envelope::parse(text).into_iter().for_each(show),
    }
}

impl Message {
    /// Reads a message. Numbers, escapes and white space may be written in any way.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Unreadable> {
        let text = std::str::from_utf8(bytes).map_err(|_| Unreadable::NoJson)?;
        if jsonrpc::is_batch(bytes) {
            let batch = jsonrpc::batch(text).ok_or(Unreadable::NoJson)?;
            let mut messages = Vec::new();
            for envelope in batch {
                if messages.len() == BATCH {
                    return Err(Unreadable::TooMany(BATCH));
                }
                messages.push(Self::of(&envelope)?);
            }
            return match messages.is_empty() {
                true => Err(Unreadable::NoMessage),
                false => Ok(Self::Batch(messages)),
            };
        }
        match Envelope::parse(text) {
            Some(envelope) => Self::of(&envelope),
            None => match serde_json::from_str::<&RawValue>(text) {
                Ok(_) => Err(Unreadable::NoMessage),
                Err(_) => Err(Unreadable::NoJson),
            },
        }
    }

    /// What the other side says. Where it is not read as a whole, those of its answers are found all the same that
    /// `is_open` knows: else their requests would wait for ever.
    pub(super) fn heard(bytes: &[u8], is_open: impl Fn(&str) -> bool) -> Option<Self> {
        if let Ok(message) = Self::read(bytes) {
            return Some(message);
        }
        let mut found = BTreeMap::new();
        each(bytes, |envelope| {
            if matches!(envelope.kind(), Some(Kind::Result | Kind::Error))
                && let Ok(Self::Answer { id, error }) = Self::of(&envelope)
                && is_open(&id)
            {
                found.insert(id, error);
            }
        });
        let answers = found.into_iter();
        let answers = answers.map(|(id, error)| Self::Answer { id, error });
        (answers.len() > 0).then(|| Self::Batch(answers.collect()))
    }

    fn of(envelope: &Envelope<'_>) -> Result<Self, Unreadable> {
        if matches!(envelope.kind(), Some(Kind::Result | Kind::Error)) {
            return Self::answer(envelope).ok_or(Unreadable::NoMessage);
        }
        let params = envelope.params.map(RawValue::get);
        let meta = meta(params);
        let in_meta = |name| meta.and_then(|meta| member(meta, name)).map(RawValue::get);
        let words = [
            envelope.id.map(RawValue::get),
            envelope.method.map(RawValue::get),
            in_meta("progressToken"),
            in_meta(VERSION),
        ];
        if words.into_iter().flatten().any(|word| word.len() > WORD) {
            return Err(Unreadable::TooLong(WORD));
        }
        Self::with_short_words(envelope, params, meta).ok_or(Unreadable::NoMessage)
    }

    fn with_short_words(
        envelope: &Envelope<'_>,
        params: Option<&str>,
        meta: Option<&str>,
    ) -> Option<Self> {
        let method = || envelope.method().map(Cow::into_owned);
        let id = || envelope.id.map(RawValue::get);
        Some(match envelope.kind()? {
            Kind::Request => Self::Request(Request::of(id()?, method()?, params, meta)),
            Kind::Notification => {
                let method = method()?;
                let id_of = |name: &str| {
                    let value = params.and_then(|params| member(params, name))?.get();
                    (value.len() <= WORD).then(|| shortest_id(value).into_owned())
                };
                Self::Notification {
                    cancels: (method == mcp::CANCELLED)
                        .then(|| id_of("requestId"))
                        .flatten(),
                    progress: (method == mcp::PROGRESS)
                        .then(|| id_of("progressToken"))
                        .flatten(),
                    version: meta
                        .and_then(|meta| string(member(meta, VERSION)?))
                        .map(Cow::into_owned),
                    method,
                }
            }
            Kind::Result | Kind::Error => Self::answer(envelope)?,
        })
    }

    fn answer(envelope: &Envelope<'_>) -> Option<Self> {
        let id = envelope.id?.get();
        Some(Self::Answer {
            // Nothing is remembered of a request with a longer id, so that nothing is compared with it.
            id: match id.len() {
                ..=WORD => shortest_id(id).into_owned(),
                _ => String::new(),
            },
            error: envelope.error.map(error_code),
        })
    }

    /// The requests in it.
    pub(super) fn requests(&self) -> Vec<&Request> {
        match self {
            Self::Request(request) => vec![request],
            Self::Batch(messages) => messages.iter().flat_map(Self::requests).collect(),
            _ => Vec::new(),
        }
    }

    /// The ids of the requests that it answers.
    pub(super) fn answers(&self) -> Vec<&str> {
        match self {
            Self::Answer { id, .. } => vec![id],
            Self::Batch(messages) => messages.iter().flat_map(Self::answers).collect(),
            _ => Vec::new(),
        }
    }

    /// Whether it begins a session.
    pub(super) fn is_initialize(&self) -> bool {
        matches!(self, Self::Request(request) if request.method == INITIALIZE && request.claim == Claim::None)
    }
}

impl Request {
    fn of(id: &str, method: String, params: Option<&str>, meta: Option<&str>) -> Self {
        let token = meta.and_then(|meta| member(meta, "progressToken"));
        let name = name_member(&method)
            .and_then(|name| string(member(params?, name)?))
            .map(|name| name[..name.floor_char_boundary(NAME)].to_owned());
        Self {
            id: id.to_owned(),
            key: shortest_id(id).into_owned(),
            progress: token.map(|token| shortest_id(token.get()).into_owned()),
            claim: meta.map(Claim::of).unwrap_or_default(),
            name,
            method,
        }
    }

    /// Its version, if it is of the stateless era.
    pub(super) fn version(&self) -> Option<&str> {
        match &self.claim {
            Claim::Version(version) => Some(version),
            _ => None,
        }
    }
}

impl Claim {
    fn of(meta: &str) -> Self {
        let Some(version) = member(meta, VERSION) else {
            return Self::None;
        };
        let is_object = |name| {
            let value: Option<&RawValue> = member(meta, name);
            value.map(|value| value.get().starts_with('{'))
        };
        match string(version) {
            None => Self::Incomplete(VERSION),
            Some(_) if is_object(CLIENT_INFO) == Some(false) => Self::Incomplete(CLIENT_INFO),
            Some(_) if is_object(CAPABILITIES) != Some(true) => Self::Incomplete(CAPABILITIES),
            Some(version) => Self::Version(version.into_owned()),
        }
    }
}

/// The member of `params` that `Mcp-Name` repeats, for a method that has one.
pub(super) fn name_member(method: &str) -> Option<&'static str> {
    Some(match method {
        CALL_TOOL | "prompts/get" => "name",
        "resources/read" => "uri",
        "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
        _ => return None,
    })
}

/// The version that a server chose in its answer to `initialize`.
pub(super) fn chosen_version(answer: &[u8]) -> Option<String> {
    let envelope = Envelope::parse(std::str::from_utf8(answer).ok()?)?;
    let version = member(envelope.result?.get(), "protocolVersion")?;
    string(version).map(Cow::into_owned)
}

fn meta(params: Option<&str>) -> Option<&str> {
    let meta = member(params?, "_meta")?.get();
    meta.starts_with('{').then_some(meta)
}

fn error_code(error: &RawValue) -> i64 {
    let code = member(error.get(), "code");
    let code = code.and_then(jsonrpc::integer);
    code.and_then(|code| code.try_into().ok()).unwrap_or(0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    // MCPH-1
    #[test]
    fn a_body_says_its_kind_and_its_era() {
        let meta = |more: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"a\u0062","_meta":{{"progressToken":7{more}}}}}}}"#
            )
        };
        let request = |claim| {
            Ok(Message::Request(Request {
                id: "1".to_owned(),
                key: "1".to_owned(),
                method: CALL_TOOL.to_owned(),
                progress: Some("7".to_owned()),
                claim,
                name: Some("ab".to_owned()),
            }))
        };
        let whole = r#","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{},"io.modelcontextprotocol/clientCapabilities":{}"#;
        for (text, expected) in [
            (meta(""), request(Claim::None)),
            (meta(whole), request(Claim::Version("2026-07-28".to_owned()))),
            (
                meta(r#","io.modelcontextprotocol/protocolVersion":7"#),
                request(Claim::Incomplete(VERSION)),
            ),
            (
                meta(&whole.replace("clientInfo\":{}", "clientInfo\":1")),
                request(Claim::Incomplete(CLIENT_INFO)),
            ),
            (
                meta(&whole.replace("clientCapabilities", "x")),
                request(Claim::Incomplete(CAPABILITIES)),
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1.0}}"#
                    .to_owned(),
                Ok(Message::Notification {
                    method: mcp::CANCELLED.to_owned(),
                    cancels: Some("1".to_owned()),
                    progress: None,
                    version: None,
                }),
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":1}}"#
                    .to_owned(),
                Ok(Message::Notification {
                    method: mcp::PROGRESS.to_owned(),
                    cancels: None,
                    progress: Some("\"t\"".to_owned()),
                    version: None,
                }),
            ),
            (
                r#"{"jsonrpc":"2.0","id":"\u0061","result":{}}"#.to_owned(),
                Ok(Message::Answer {
                    id: "\"a\"".to_owned(),
                    error: None,
                }),
            ),
            (
                r#"[{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":""}}]"#.to_owned(),
                Ok(Message::Batch(vec![Message::Answer {
                    id: "2".to_owned(),
                    error: Some(-32601),
                }])),
            ),
            ("{".to_owned(), Err(Unreadable::NoJson)),
            ("[".to_owned(), Err(Unreadable::NoJson)),
            ("[]".to_owned(), Err(Unreadable::NoMessage)),
            ("[7]".to_owned(), Err(Unreadable::NoMessage)),
            ("7".to_owned(), Err(Unreadable::NoMessage)),
            (r#"{"id":1,"method":"m"}"#.to_owned(), Err(Unreadable::NoMessage)),
        ] {
            assert_eq!(Message::read(text.as_bytes()), expected, "{text}");
        }
        assert_eq!(Message::read(b"\xff"), Err(Unreadable::NoJson));
        // What is kept beside a message is short, however long the message is.
        let long = "x".repeat(WORD);
        let params = r#""method":"resources/read","params":{"uri":""#;
        for (text, is_read) in [
            (
                format!(r#"{{"jsonrpc":"2.0","id":"{long}","method":"m"}}"#),
                false,
            ),
            (
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{long}"}}"#),
                false,
            ),
            (format!(r#"{{"jsonrpc":"2.0","method":"{long}"}}"#), false),
            (
                format!(
                    r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"_meta":{{"progressToken":"{long}"}}}}}}"#
                ),
                false,
            ),
            (
                format!(
                    r#"[{{"jsonrpc":"2.0","id":1,"method":"m"}},{{"jsonrpc":"2.0","id":"{long}","method":"m"}}]"#
                ),
                false,
            ),
            (
                format!(
                    r#"{{"jsonrpc":"2.0","id":1,{params}{}"}}}}"#,
                    long.repeat(40)
                ),
                true,
            ),
        ] {
            match Message::read(text.as_bytes()) {
                Ok(Message::Request(request)) if is_read => {
                    assert_eq!(request.name.map(|name| name.len()), Some(NAME));
                }
                other => assert_eq!(other, Err(Unreadable::TooLong(WORD)), "{}", text.len()),
            }
        }
    }

    /// A batch with one long word was no batch: its answers reached nobody, and its requests were left without one.
    #[test]
    fn what_is_not_read_as_a_whole_has_requests_and_answers_all_the_same() {
        let long = format!(r#""{}""#, "x".repeat(WORD));
        let request = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#);
        let answer = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
        let noise = format!(r#"{{"jsonrpc":"2.0","method":{long}}}"#);
        let answered = |id: &str| Message::Answer {
            id: id.to_owned(),
            error: None,
        };
        // An answer may have any id: nothing of it is kept.
        let read = Message::read(answer(&long).as_bytes());
        assert_eq!(read, Ok(answered("")));
        let batch = format!(
            "[{noise},{},{},{}]",
            answer("1"),
            answer("2"),
            answer(&long)
        );
        let heard = |bytes: &str| Message::heard(bytes.as_bytes(), |id| id == "2");
        assert_eq!(heard(&batch), Some(Message::Batch(vec![answered("2")])));
        assert_eq!(heard(&noise), None);
        assert_eq!(heard(&answer("1")), Some(answered("1")));
        let many = vec![answer("1"); BATCH].join(",");
        let many = format!("[{many},{}]", answer("2"));
        let read = Message::read(many.as_bytes());
        assert_eq!(read, Err(Unreadable::TooMany(BATCH)));
        assert_eq!(heard(&many), Some(Message::Batch(vec![answered("2")])));
        for (text, requests, others) in [
            (request(&long), vec![&*long], 0),
            (
                format!("[{},{noise},{}]", request("7"), answer("8")),
                vec!["7"],
                2,
            ),
            (noise.clone(), vec![], 1),
            ("{".to_owned(), vec![], 0),
            (
                format!("[{}]", vec![request("7"); BATCH + 3].join(",")),
                vec!["7"; BATCH],
                3,
            ),
        ] {
            let expected = Unread { requests, others };
            assert_eq!(Unread::of(text.as_bytes()), expected, "{}", text.len());
        }
    }
}

//! The control frames of a tunnel's connection: they open or resume a session, acknowledge its frames, and
//! end it.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::value::RawValue;

use crate::ahp::{Chunking, TimeoutFrom};
use crate::jsonrpc::{Envelope, Kind, unsigned};

/// How every control frame begins. A frame of the session that begins like this travels in [`Control::Part`],
/// so that it is not mistaken for a control frame.
pub const CONTROL: &str = r#"{"jsonrpc":"2.0","method":"breakbulk/"#;

/// The version of the tunnel.
const VERSION: u64 = 2;

/// The length of a session's name in bytes: 8 for the process that created it, 16 that nobody can guess.
pub const SESSION_BYTES: usize = 24;

/// The longest reason that is read; the rest of a longer one is dropped.
const REASON_MAX: usize = 1024;

/// How many bytes a [`Control::Part`] frame has around the base64 text of the part.
const PART_AROUND: usize = part_before(false).len() + PART_AT.len() + PART_AFTER.len();
const PART_AFTER: &str = r#""}}"#;

/// The longest position of a part in its frame: frames are smaller than 10 GB.
const PART_AT: &str = r#","at":1234567890"#;

/// The name of a session. Anybody who knows it can resume the session, so it is never logged.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId(pub [u8; SESSION_BYTES]);

impl std::fmt::Debug for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionId")
    }
}

/// The longest [`Label`], in bytes.
const LABEL_MAX: usize = 24;

/// The name of a session in the log and the records of one side. It does not allow anybody to resume the
/// session, so each side tells it to the other one: the logs and records of both sides can then be matched.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Label {
    bytes: [u8; LABEL_MAX],
    len: u8,
}

impl Label {
    /// A label of 1 to 24 ASCII letters, digits and `-`; `None` if the text is anything else, since it is
    /// shown to people.
    pub fn new(text: &str) -> Option<Self> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if text.is_empty() || text.len() > LABEL_MAX || !text.bytes().all(is_plain) {
            return None;
        }
        let mut bytes = [0; LABEL_MAX];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        let len = text.len() as u8;
        Some(Self { bytes, len })
    }
}

impl std::fmt::Display for Label {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = std::str::from_utf8(&self.bytes[..usize::from(self.len)]);
        f.write_str(text.unwrap_or_default())
    }
}

impl std::fmt::Debug for Label {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Label({self})")
    }
}

/// The first frame of each side of a new session: what it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The session's name, which the side that accepted the connection chooses.
    pub session: Option<SessionId>,
    /// Whether the frames of the session are binary instead of text.
    pub binary: bool,
    /// For how long the session can be resumed after its connection was lost, in milliseconds.
    pub resume_ms: u64,
    /// How many bytes of frames may be on their way to this side unacknowledged.
    pub window: u64,
    /// The largest frame that this side takes.
    pub frame: u64,
    /// The largest message that this side takes.
    pub message: u64,
    /// This side's label for the session.
    pub label: Option<Label>,
}

impl Hello {
    /// Its limits in the form of AHP's segments. A message has no time limit: a slow reader may delay it
    /// for any time.
    pub fn chunking(&self) -> Chunking {
        Chunking {
            max_frame_bytes: self.frame,
            max_message_bytes: self.message,
            max_groups: Some(1),
            group_timeout_ms: None,
            timeout_from: TimeoutFrom::Last,
        }
    }
}

/// Why a session cannot be resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// Another process created the session: the gateway was restarted, or another one answers here.
    Restarted,
    /// The gateway is one of several that find each other's sessions, and the one that created this session
    /// is gone.
    Member,
    /// The session has ended, or was not resumed in time.
    Expired,
    /// The session cannot continue from the frame that the other side names.
    Numbers,
}

impl Gone {
    const ALL: [(&'static str, Self); 4] = [
        ("restarted", Self::Restarted),
        ("member", Self::Member),
        ("expired", Self::Expired),
        ("numbers", Self::Numbers),
    ];
}

/// How much of the other side's frames has arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// How many whole frames.
    pub frames: u64,
    /// How many bytes of the next frame, if it came in parts: the next connection continues within
    /// that frame.
    pub bytes: u64,
}

impl Received {
    /// This many whole frames.
    pub fn frames(frames: u64) -> Self {
        Self { frames, bytes: 0 }
    }

    /// The JSON members. `bytes` is left out while it is 0, because older gateways do not know it.
    fn members(self) -> String {
        match self {
            Self { frames, bytes: 0 } => format!(r#""received":{frames}"#),
            Self { frames, bytes } => format!(r#""received":{frames},"bytes":{bytes}"#),
        }
    }
}

/// A control frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// A new session begins. The side that opened the connection sends this first.
    Hello(Hello),
    /// The side that opened the connection wants to resume a session.
    Resume {
        /// Its name.
        session: SessionId,
        /// How much of the session has arrived at that side.
        received: Received,
    },
    /// The session is resumed.
    Resumed {
        /// How much of the session has arrived at this side.
        received: Received,
        /// The largest frame that this side sends, if it has found out that the path lets no larger one
        /// through; else 0. The other side can report this number when it connects by the same path again.
        cap: u64,
    },
    /// The session cannot be resumed.
    Gone(Gone),
    /// The application of this side has taken frames of the session.
    Ack {
        /// How many since its beginning.
        taken: u64,
    },
    /// A frame of the session, or the next part of one.
    Part {
        /// The position of the part in its frame, if it is the first part on its connection; else 0.
        at: u64,
        /// Whether the frame ends with it.
        last: bool,
        /// Its bytes.
        data: Vec<u8>,
    },
    /// The session ends here: no frame of this side follows.
    Close {
        /// The close code.
        code: u16,
        /// The reason.
        reason: String,
    },
}

/// Why a control frame cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// It is another message.
    #[error("the first frame is no breakbulk/hello; is the other end a breakbulk gateway?")]
    Other,
    /// It has another version.
    #[error(
        "the other gateway speaks version {0} of the tunnel, this one speaks {VERSION}; update {older}",
        older = if *.0 > VERSION { "this one" } else { "the other one" }
    )]
    Version(u64),
    /// A member is missing or invalid.
    #[error("the breakbulk/{0} of the other gateway has no valid {1}")]
    Member(&'static str, &'static str),
    /// Its method is unknown.
    #[error("the other gateway sent an unknown control frame")]
    Unknown,
}

impl Control {
    /// Its JSON text.
    pub fn to_json(&self) -> String {
        match self {
            Self::Hello(hello) => hello_json(hello),
            Self::Resume { session, received } => {
                let session = URL_SAFE_NO_PAD.encode(session.0);
                let received = received.members();
                format!(
                    r#"{CONTROL}resume","params":{{"version":{VERSION},"session":"{session}",{received}}}}}"#
                )
            }
            Self::Resumed { received, cap } => {
                let received = received.members();
                let cap = match cap {
                    0 => String::new(),
                    cap => format!(r#","cap":{cap}"#),
                };
                format!(r#"{CONTROL}resumed","params":{{{received}{cap}}}}}"#)
            }
            Self::Gone(gone) => {
                let named = Gone::ALL.iter().find(|(_, it)| it == gone);
                let name = named.map_or("expired", |(name, _)| name);
                format!(r#"{CONTROL}gone","params":{{"why":"{name}"}}}}"#)
            }
            Self::Ack { taken } => format!(r#"{CONTROL}ack","params":{{"taken":{taken}}}}}"#),
            Self::Part { at, last, data } => {
                let mut out = String::with_capacity(PART_AROUND + data.len().div_ceil(3) * 4);
                out.push_str(part_before(*last));
                STANDARD.encode_string(data, &mut out);
                match at {
                    0 => out.push_str(PART_AFTER),
                    at => out.push_str(&format!(r#"","at":{at}}}}}"#)),
                }
                out
            }
            Self::Close { code, reason } => {
                let reason = serde_json::Value::from(reason.as_str());
                format!(r#"{CONTROL}close","params":{{"code":{code},"reason":{reason}}}}}"#)
            }
        }
    }

    /// Whether a text frame is a control frame.
    pub fn is_control(text: &[u8]) -> bool {
        text.starts_with(CONTROL.as_bytes())
    }

    /// Reads a control frame.
    pub fn read(text: &[u8]) -> Result<Self, ControlError> {
        let text = simdutf8::basic::from_utf8(text).map_err(|_| ControlError::Other)?;
        let envelope = Envelope::parse(text).ok_or(ControlError::Other)?;
        let method = envelope.method().ok_or(ControlError::Other)?;
        if envelope.kind() != Some(Kind::Notification) {
            return Err(ControlError::Other);
        }
        let method = method
            .strip_prefix("breakbulk/")
            .ok_or(ControlError::Other)?;
        let params = envelope.params.map_or("{}", RawValue::get);
        match method {
            "hello" => read_hello(members("hello", params)?),
            "resume" => read_resume(members("resume", params)?),
            "resumed" => {
                let members = members("resumed", params)?;
                Ok(Self::Resumed {
                    received: received("resumed", &members)?,
                    cap: optional("resumed", "cap", members.cap)?,
                })
            }
            "gone" => {
                let why = text_of(members("gone", params)?.why).unwrap_or_default();
                let found = Gone::ALL.iter().find(|(name, _)| *name == why);
                Ok(Self::Gone(found.map_or(Gone::Expired, |(_, gone)| *gone)))
            }
            "ack" => Ok(Self::Ack {
                taken: number("ack", "taken", members("ack", params)?.taken)?,
            }),
            "part" => read_part(members("part", params)?),
            "close" => read_close(members("close", params)?),
            _ => Err(ControlError::Unknown),
        }
    }
}

/// How many bytes of a frame fit in a part whose control frame has at most `room` bytes; at least 1.
pub fn part_room(room: usize) -> usize {
    (room.saturating_sub(PART_AROUND) / 4 * 3).max(1)
}

/// Whether a control frame, as a gateway writes it, is the last part of a frame, and how many bytes of the
/// frame are in it; `None` if it is no part. The bytes are not decoded.
pub fn part_bytes(text: &[u8]) -> Option<(bool, usize)> {
    let (last, data) = [true, false]
        .into_iter()
        .find_map(|last| Some((last, text.strip_prefix(part_before(last).as_bytes())?)))?;
    // Base64 has no quotes: what follows the data's closing quote is the part's position.
    let data = match data.strip_suffix(PART_AFTER.as_bytes()) {
        Some(data) => data,
        None => {
            let end = data.iter().rposition(|&it| it == b',')?.checked_sub(1)?;
            data[end..]
                .starts_with(br#"","at":"#)
                .then_some(&data[..end])?
        }
    };
    let padding = data.iter().rev().take(2).filter(|&&it| it == b'=').count();
    Some((last, (data.len() / 4 * 3).saturating_sub(padding)))
}

const fn part_before(last: bool) -> &'static str {
    match last {
        true => r#"{"jsonrpc":"2.0","method":"breakbulk/part","params":{"last":true,"data":""#,
        false => r#"{"jsonrpc":"2.0","method":"breakbulk/part","params":{"last":false,"data":""#,
    }
}

fn hello_json(hello: &Hello) -> String {
    let Hello {
        session,
        binary,
        resume_ms,
        window,
        frame,
        message,
        label,
    } = hello;
    let label = label.map_or(String::new(), |label| format!(r#","label":"{label}""#));
    let session = session.map_or(String::new(), |session| {
        format!(r#","session":"{}""#, URL_SAFE_NO_PAD.encode(session.0))
    });
    let carries = if *binary { "binary" } else { "text" };
    format!(
        r#"{CONTROL}hello","params":{{"version":{VERSION}{session},"carries":"{carries}","resumeMs":{resume_ms},"window":{window},"frame":{frame},"message":{message}{label}}}}}"#
    )
}

crate::raw_members! {
    struct Members {
        version: "version",
        session: "session",
        carries: "carries",
        resume_ms: "resumeMs",
        window: "window",
        frame: "frame",
        message: "message",
        received: "received",
        bytes: "bytes",
        at: "at",
        cap: "cap",
        taken: "taken",
        why: "why",
        last: "last",
        data: "data",
        code: "code",
        reason: "reason",
        label: "label",
    }
}

fn members<'a>(frame: &'static str, params: &'a str) -> Result<Members<'a>, ControlError> {
    serde_json::from_str(params).map_err(|_| ControlError::Member(frame, "params"))
}

fn number(
    frame: &'static str,
    name: &'static str,
    raw: Option<&RawValue>,
) -> Result<u64, ControlError> {
    raw.and_then(unsigned)
        .ok_or(ControlError::Member(frame, name))
}

fn text_of(raw: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(raw?.get()).ok()
}

fn check_version(frame: &'static str, members: &Members<'_>) -> Result<(), ControlError> {
    match number(frame, "version", members.version)? {
        VERSION => Ok(()),
        other => Err(ControlError::Version(other)),
    }
}

fn session(raw: Option<&RawValue>) -> Option<SessionId> {
    let bytes = URL_SAFE_NO_PAD.decode(text_of(raw)?).ok()?;
    Some(SessionId(bytes.try_into().ok()?))
}

fn read_hello(members: Members<'_>) -> Result<Control, ControlError> {
    check_version("hello", &members)?;
    let number = |name, raw| number("hello", name, raw);
    let hello = Hello {
        session: match members.session {
            None => None,
            raw => Some(session(raw).ok_or(ControlError::Member("hello", "session"))?),
        },
        binary: match text_of(members.carries).as_deref() {
            Some("text") => false,
            Some("binary") => true,
            _ => return Err(ControlError::Member("hello", "carries")),
        },
        resume_ms: number("resumeMs", members.resume_ms)?,
        window: number("window", members.window)?,
        frame: number("frame", members.frame)?,
        message: number("message", members.message)?,
        // The label is only for people: an invalid one is no reason to end the session.
        label: text_of(members.label).and_then(|label| Label::new(&label)),
    };
    match hello.chunking().is_sound() {
        true => Ok(Control::Hello(hello)),
        false => Err(ControlError::Member("hello", "frame")),
    }
}

fn read_resume(members: Members<'_>) -> Result<Control, ControlError> {
    check_version("resume", &members)?;
    Ok(Control::Resume {
        session: session(members.session).ok_or(ControlError::Member("resume", "session"))?,
        received: received("resume", &members)?,
    })
}

fn received(frame: &'static str, members: &Members<'_>) -> Result<Received, ControlError> {
    Ok(Received {
        frames: number(frame, "received", members.received)?,
        bytes: optional(frame, "bytes", members.bytes)?,
    })
}

/// A number that older gateways leave out.
fn optional(
    frame: &'static str,
    name: &'static str,
    raw: Option<&RawValue>,
) -> Result<u64, ControlError> {
    match raw {
        None => Ok(0),
        raw => number(frame, name, raw),
    }
}

fn read_part(members: Members<'_>) -> Result<Control, ControlError> {
    let last = members.last.and_then(|raw| raw.get().parse().ok());
    // Base64 may be written with escaped slashes, as any JSON string.
    let data: Option<std::borrow::Cow<'_, str>> = members.data.and_then(|raw| {
        let inner = raw.get().strip_prefix('"')?.strip_suffix('"')?;
        match memchr::memchr(b'\\', inner.as_bytes()) {
            None => Some(inner.into()),
            Some(_) => serde_json::from_str::<String>(raw.get())
                .ok()
                .map(Into::into),
        }
    });
    let data = data.and_then(|data| STANDARD.decode(data.as_bytes()).ok());
    Ok(Control::Part {
        at: optional("part", "at", members.at)?,
        last: last.ok_or(ControlError::Member("part", "last"))?,
        data: data.ok_or(ControlError::Member("part", "data"))?,
    })
}

fn read_close(members: Members<'_>) -> Result<Control, ControlError> {
    let code = number("close", "code", members.code)?;
    let mut reason = text_of(members.reason).unwrap_or_default();
    reason.truncate(reason.floor_char_boundary(REASON_MAX));
    Ok(Control::Close {
        code: u16::try_from(code).map_err(|_| ControlError::Member("close", "code"))?,
        reason,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

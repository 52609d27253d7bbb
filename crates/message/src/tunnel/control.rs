//! The control frames of a tunnel's line: who speaks, what arrived, and how the session ends.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::value::RawValue;

use crate::ahp::{Chunking, TimeoutFrom};
use crate::jsonrpc::{Envelope, Kind, unsigned};

/// How every control frame begins. A frame of the session that begins like this travels in
/// [`Control::Part`], so that it is not mistaken for one.
pub const CONTROL: &str = r#"{"jsonrpc":"2.0","method":"breakbulk/"#;

/// The version of the tunnel.
const VERSION: u64 = 2;

/// The bytes of a session's name: 8 for the process that made it, 16 that nobody can guess.
pub const SESSION_BYTES: usize = 24;

/// The longest reason that is read; the rest of a longer one is dropped.
const REASON_MAX: usize = 1024;

/// What a control frame with a part of a frame has around the base64 text of the part.
const PART_AROUND: usize = part_before(false).len() + PART_AFTER.len();
const PART_AFTER: &str = r#""}}"#;

/// The name of a session. Whoever knows it may go on with the session, so it is never logged.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId(pub [u8; SESSION_BYTES]);

impl std::fmt::Debug for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionId")
    }
}

/// The first frame of each side of a new session: what it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The session's name, which the side that accepted the line gives.
    pub session: Option<SessionId>,
    /// Whether the frames of the session are binary instead of text.
    pub binary: bool,
    /// For how long the session can be resumed after its line was lost, in milliseconds.
    pub resume_ms: u64,
    /// How many bytes of frames may be on their way to this side unacknowledged.
    pub window: u64,
    /// The largest frame that this side takes.
    pub frame: u64,
    /// The largest message that this side takes.
    pub message: u64,
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
    /// Another process made it: the gateway was restarted, or another one answers here.
    Restarted,
    /// The gateway is one of several that find each other's sessions, and the one that made it is gone.
    Member,
    /// It has ended, or nobody came back in time.
    Expired,
    /// It cannot go on from the given frame.
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

/// A control frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// A new session begins. The side that opened the line speaks first.
    Hello(Hello),
    /// The side that opened the line wants to go on with a session.
    Resume {
        /// Its name.
        session: SessionId,
        /// How many frames of it arrived on that side.
        received: u64,
    },
    /// The session goes on.
    Resumed {
        /// How many frames of it arrived on this side.
        received: u64,
    },
    /// The session does not go on.
    Gone(Gone),
    /// The application of this side took so many frames of the session.
    Ack {
        /// How many since its beginning.
        taken: u64,
    },
    /// A frame of the session, or the next part of one.
    Part {
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
                format!(
                    r#"{CONTROL}resume","params":{{"version":{VERSION},"session":"{session}","received":{received}}}}}"#
                )
            }
            Self::Resumed { received } => {
                format!(r#"{CONTROL}resumed","params":{{"received":{received}}}}}"#)
            }
            Self::Gone(gone) => {
                let named = Gone::ALL.iter().find(|(_, it)| it == gone);
                let name = named.map_or("expired", |(name, _)| name);
                format!(r#"{CONTROL}gone","params":{{"why":"{name}"}}}}"#)
            }
            Self::Ack { taken } => format!(r#"{CONTROL}ack","params":{{"taken":{taken}}}}}"#),
            Self::Part { last, data } => {
                let before = part_before(*last);
                let mut out = String::with_capacity(PART_AROUND + 1 + data.len().div_ceil(3) * 4);
                out.push_str(before);
                STANDARD.encode_string(data, &mut out);
                out.push_str(PART_AFTER);
                out
            }
            Self::Close { code, reason } => {
                let reason = serde_json::Value::from(reason.as_str());
                format!(r#"{CONTROL}close","params":{{"code":{code},"reason":{reason}}}}}"#)
            }
        }
    }

    /// Whether a text frame is one of the line's own.
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
            "resumed" => Ok(Self::Resumed {
                received: number("resumed", "received", members("resumed", params)?.received)?,
            }),
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
    } = hello;
    let session = session.map_or(String::new(), |session| {
        format!(r#","session":"{}""#, URL_SAFE_NO_PAD.encode(session.0))
    });
    let carries = if *binary { "binary" } else { "text" };
    format!(
        r#"{CONTROL}hello","params":{{"version":{VERSION}{session},"carries":"{carries}","resumeMs":{resume_ms},"window":{window},"frame":{frame},"message":{message}}}}}"#
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
        taken: "taken",
        why: "why",
        last: "last",
        data: "data",
        code: "code",
        reason: "reason",
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
        received: number("resume", "received", members.received)?,
    })
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
mod tests {
    use super::*;

    const SESSION: SessionId = SessionId([0xfb; SESSION_BYTES]);

    fn hello(session: Option<SessionId>) -> Hello {
        Hello {
            session,
            binary: false,
            resume_ms: 60_000,
            window: 8 << 20,
            frame: 900_000,
            message: 32 << 20,
        }
    }

    #[test]
    fn written_as_read() {
        let id = "-_v7-_v7-_v7-_v7-_v7-_v7-_v7-_v7";
        for (control, params) in [
            (
                Control::Hello(hello(None)),
                r#"hello","params":{"version":2,"carries":"text","resumeMs":60000,"window":8388608,"frame":900000,"message":33554432}}"#.to_owned(),
            ),
            (
                Control::Hello(Hello { binary: true, ..hello(Some(SESSION)) }),
                format!(r#"hello","params":{{"version":2,"session":"{id}","carries":"binary","resumeMs":60000,"window":8388608,"frame":900000,"message":33554432}}}}"#),
            ),
            (
                Control::Resume { session: SESSION, received: 7 },
                format!(r#"resume","params":{{"version":2,"session":"{id}","received":7}}}}"#),
            ),
            (Control::Resumed { received: 0 }, r#"resumed","params":{"received":0}}"#.to_owned()),
            (Control::Gone(Gone::Restarted), r#"gone","params":{"why":"restarted"}}"#.to_owned()),
            (Control::Gone(Gone::Member), r#"gone","params":{"why":"member"}}"#.to_owned()),
            (Control::Gone(Gone::Expired), r#"gone","params":{"why":"expired"}}"#.to_owned()),
            (Control::Gone(Gone::Numbers), r#"gone","params":{"why":"numbers"}}"#.to_owned()),
            (Control::Ack { taken: 12 }, r#"ack","params":{"taken":12}}"#.to_owned()),
            (
                Control::Part { last: true, data: b"\xff\xfe\xfd".to_vec() },
                r#"part","params":{"last":true,"data":"//79"}}"#.to_owned(),
            ),
            (
                Control::Part { last: false, data: Vec::new() },
                r#"part","params":{"last":false,"data":""}}"#.to_owned(),
            ),
            (
                Control::Close { code: 1001, reason: "say \"no\"".to_owned() },
                r#"close","params":{"code":1001,"reason":"say \"no\""}}"#.to_owned(),
            ),
        ] {
            let text = format!(r#"{{"jsonrpc":"2.0","method":"breakbulk/{params}"#);
            assert_eq!(control.to_json(), text);
            assert!(Control::is_control(text.as_bytes()));
            assert_eq!(Control::read(text.as_bytes()), Ok(control), "{text}");
        }
        // The smallest cap that a gateway can have.
        assert!(Control::Hello(hello(Some(SESSION))).to_json().len() <= 256);
    }

    #[test]
    fn what_is_no_control_frame() {
        let frame = |method: &str, params: &str| {
            format!(r#"{{"jsonrpc":"2.0","method":"breakbulk/{method}","params":{params}}}"#)
        };
        let good = r#""carries":"text","resumeMs":0,"window":1,"frame":1,"message":1"#;
        for (text, error) in [
            (String::new(), ControlError::Other),
            ("[]".to_owned(), ControlError::Other),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#.to_owned(),
                ControlError::Other,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"breakbulk/ack"}"#.to_owned(),
                ControlError::Other,
            ),
            (frame("later", "{}"), ControlError::Unknown),
            (
                frame("hello", "[]"),
                ControlError::Member("hello", "params"),
            ),
            (
                frame("hello", "{}"),
                ControlError::Member("hello", "version"),
            ),
            (frame("hello", r#"{"version":1}"#), ControlError::Version(1)),
            (frame("hello", r#"{"version":9}"#), ControlError::Version(9)),
            (
                frame("hello", r#"{"version":2}"#),
                ControlError::Member("hello", "carries"),
            ),
            (
                frame(
                    "hello",
                    &format!(r#"{{"version":2,"session":"short",{good}}}"#),
                ),
                ControlError::Member("hello", "session"),
            ),
            (
                frame(
                    "hello",
                    r#"{"version":2,"carries":"text","resumeMs":0,"window":1,"frame":2,"message":1}"#,
                ),
                ControlError::Member("hello", "frame"),
            ),
            (
                frame("resume", r#"{"version":2,"received":1}"#),
                ControlError::Member("resume", "session"),
            ),
            (
                frame("ack", r#"{"taken":-1}"#),
                ControlError::Member("ack", "taken"),
            ),
            (
                frame("part", r#"{"last":1,"data":""}"#),
                ControlError::Member("part", "last"),
            ),
            (
                frame("part", r#"{"last":true,"data":"a"}"#),
                ControlError::Member("part", "data"),
            ),
            (
                frame("close", r#"{"code":99999}"#),
                ControlError::Member("close", "code"),
            ),
        ] {
            assert_eq!(Control::read(text.as_bytes()), Err(error), "{text}");
        }
        for (version, words) in [(1, "update the other one"), (3, "update this one")] {
            let error = ControlError::Version(version).to_string();
            assert!(error.ends_with(words), "{error}");
        }
        // What a later version adds is passed over.
        let later = frame("hello", &format!(r#"{{"later":[],"version":2,{good}}}"#));
        assert!(Control::read(later.as_bytes()).is_ok());
        let escaped = frame("part", r#"{"last":true,"data":"\/\/79"}"#);
        let part = Control::Part {
            last: true,
            data: b"\xff\xfe\xfd".to_vec(),
        };
        assert_eq!(Control::read(escaped.as_bytes()), Ok(part));
    }

    #[test]
    fn a_part_fills_its_room_and_no_more() {
        for room in [200, 256, 257, 258, 259, 4096, 100_003] {
            for last in [true, false] {
                let data = vec![7; part_room(room)];
                let size = Control::Part { last, data }.to_json().len();
                assert!(size <= room && size + 5 > room, "{size} of {room}");
            }
        }
        assert_eq!(part_room(0), 1);
    }

    #[test]
    fn nobody_sees_a_sessions_name() {
        let shown = format!(
            "{:?}",
            Control::Resume {
                session: SESSION,
                received: 1
            }
        );
        assert_eq!(shown, "Resume { session: SessionId, received: 1 }");
    }
}

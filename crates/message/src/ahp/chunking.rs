//! The advertisement `capabilities.chunking`: the limits within which a side accepts segments.

use serde_json::value::RawValue;

use crate::jsonrpc::{member, string, unsigned};

/// A side's limits for incoming messages, which its peer must keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunking {
    /// The largest frame, in bytes of UTF-8.
    pub max_frame_bytes: u64,
    /// The largest assembled message, in bytes of UTF-8.
    pub max_message_bytes: u64,
    /// How many groups may be open at a time.
    pub max_groups: Option<u64>,
    /// How long an unfinished group is kept.
    pub group_timeout_ms: Option<u64>,
    /// When that time starts.
    pub timeout_from: TimeoutFrom,
}

/// When a group's timeout starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeoutFrom {
    /// With its first segment; assumed of a peer that does not say.
    #[default]
    First,
    /// With the last segment received.
    Last,
}

impl Chunking {
    /// The limit on groups that a receiver enforces if it advertised none.
    pub const DEFAULT_GROUPS: u64 = 8;

    /// Reads `capabilities.chunking`; `None` if it is invalid, since then none of its limits can be
    /// trusted.
    pub fn read(chunking: &RawValue) -> Option<Self> {
        let members: Members<'_> = serde_json::from_str(chunking.get()).ok()?;
        let read = Self {
            max_frame_bytes: unsigned(members.frame?)?,
            max_message_bytes: unsigned(members.message?)?,
            max_groups: optional(members.groups)?,
            group_timeout_ms: optional(members.timeout)?,
            timeout_from: match members.from.and_then(string).as_deref() {
                Some("last") => TimeoutFrom::Last,
                _ => TimeoutFrom::First,
            },
        };
        read.is_sound().then_some(read)
    }

    /// Reads `chunking` from the `capabilities` object.
    pub fn in_capabilities(capabilities: &RawValue) -> Option<Self> {
        Self::read(member(capabilities.get(), "chunking")?)
    }

    /// Whether the limits are valid: none is zero, and a message is at least as large as a frame.
    pub fn is_sound(&self) -> bool {
        self.max_frame_bytes > 0
            && self.max_message_bytes >= self.max_frame_bytes
            && self.max_groups != Some(0)
            && self.group_timeout_ms != Some(0)
    }

    /// How many groups a sender to this side may have open: one if this side advertised no number.
    pub fn groups_to_open(&self) -> u64 {
        self.max_groups.unwrap_or(1)
    }

    /// The JSON object, with its members in the order of the proposal.
    pub fn to_json(&self) -> String {
        let mut out = format!(
            r#"{{"maxIncomingFrameBytes":{},"maxIncomingMessageBytes":{}"#,
            self.max_frame_bytes, self.max_message_bytes
        );
        if let Some(groups) = self.max_groups {
            out.push_str(&format!(r#","maxIncomingGroups":{groups}"#));
        }
        if let Some(ms) = self.group_timeout_ms {
            out.push_str(&format!(r#","groupTimeoutMs":{ms}"#));
        }
        if self.timeout_from == TimeoutFrom::Last {
            out.push_str(r#","groupTimeoutFrom":"last""#);
        }
        out.push('}');
        out
    }
}

/// The proposal's limits for a relay, with the timeout counted from the last segment.
impl Default for Chunking {
    fn default() -> Self {
        Self {
            max_frame_bytes: 900_000,
            max_message_bytes: 32 << 20,
            max_groups: Some(Self::DEFAULT_GROUPS),
            group_timeout_ms: Some(30_000),
            timeout_from: TimeoutFrom::Last,
        }
    }
}

crate::raw_members! {
    struct Members {
        frame: "maxIncomingFrameBytes",
        message: "maxIncomingMessageBytes",
        groups: "maxIncomingGroups",
        timeout: "groupTimeoutMs",
        from: "groupTimeoutFrom",
    }
}

/// An optional limit: the outer `None` is for an invalid value, the inner one for a missing or null
/// one.
fn optional(raw: Option<&RawValue>) -> Option<Option<u64>> {
    match raw {
        Some(raw) if raw.get() != "null" => unsigned(raw).map(Some),
        _ => Some(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Chunking> {
        Chunking::read(serde_json::from_str(text).unwrap())
    }

    #[test]
    fn written_as_read() {
        let small = Chunking {
            max_frame_bytes: 5,
            max_message_bytes: 5,
            max_groups: None,
            group_timeout_ms: None,
            timeout_from: TimeoutFrom::First,
        };
        for (chunking, text) in [
            (
                Chunking::default(),
                r#"{"maxIncomingFrameBytes":900000,"maxIncomingMessageBytes":33554432,"maxIncomingGroups":8,"groupTimeoutMs":30000,"groupTimeoutFrom":"last"}"#,
            ),
            (
                small,
                r#"{"maxIncomingFrameBytes":5,"maxIncomingMessageBytes":5}"#,
            ),
        ] {
            assert_eq!(chunking.to_json(), text);
            assert_eq!(read(text), Some(chunking));
        }
        assert_eq!(
            (small.groups_to_open(), Chunking::default().groups_to_open()),
            (1, 8)
        );
    }

    #[test]
    fn a_bad_one_counts_as_none() {
        for bad in [
            r#"{}"#,
            r#"[]"#,
            r#"null"#,
            r#"true"#,
            r#"{"maxIncomingFrameBytes":1}"#,
            r#"{"maxIncomingMessageBytes":1}"#,
            r#"{"maxIncomingFrameBytes":0,"maxIncomingMessageBytes":1}"#,
            r#"{"maxIncomingFrameBytes":2,"maxIncomingMessageBytes":1}"#,
            r#"{"maxIncomingFrameBytes":-1,"maxIncomingMessageBytes":1}"#,
            r#"{"maxIncomingFrameBytes":1.0,"maxIncomingMessageBytes":1}"#,
            r#"{"maxIncomingFrameBytes":"1","maxIncomingMessageBytes":1}"#,
            r#"{"maxIncomingFrameBytes":1,"maxIncomingMessageBytes":1e9}"#,
            r#"{"maxIncomingFrameBytes":1,"maxIncomingMessageBytes":18446744073709551616}"#,
            r#"{"maxIncomingFrameBytes":1,"maxIncomingMessageBytes":1,"maxIncomingGroups":0}"#,
            r#"{"maxIncomingFrameBytes":1,"maxIncomingMessageBytes":1,"maxIncomingGroups":{}}"#,
            r#"{"maxIncomingFrameBytes":1,"maxIncomingMessageBytes":1,"groupTimeoutMs":0}"#,
            r#"{"maxIncomingFrameBytes":1,"maxIncomingMessageBytes":1,"groupTimeoutMs":"x"}"#,
            r#"{"maxIncomingFrameBytes":1,"maxIncomingMessageBytes":1,"maxIncomingFrameBytes":0}"#,
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_unknown_is_ignored() {
        for (extra, from) in [
            (r#""x":[{}]"#, TimeoutFrom::First),
            (
                r#""groupTimeoutMs":null,"maxIncomingGroups":null"#,
                TimeoutFrom::First,
            ),
            (r#""groupTimeoutFrom":"first""#, TimeoutFrom::First),
            (r#""groupTimeoutFrom":7"#, TimeoutFrom::First),
            (r#""groupTimeoutFrom":"\u006cast""#, TimeoutFrom::Last),
        ] {
            let text =
                format!(r#"{{"maxIncomingFrameBytes":1,"maxIncomingMessageBytes":2,{extra}}}"#);
            let read = read(&text).unwrap();
            assert_eq!(
                (read.max_groups, read.group_timeout_ms),
                (None, None),
                "{extra}"
            );
            assert_eq!(read.timeout_from, from, "{extra}");
        }
    }

    #[test]
    fn found_among_capabilities() {
        let good =
            r#"{"mcpApps":{},"chunking":{"maxIncomingFrameBytes":1,"maxIncomingMessageBytes":2}}"#;
        let raw = serde_json::from_str(good).unwrap();
        assert_eq!(Chunking::in_capabilities(raw).unwrap().max_message_bytes, 2);
        for none in [
            "{}",
            "[]",
            "null",
            r#"{"chunking":null}"#,
            r#"{"chunking":true}"#,
            r#"{"chunking":{}}"#,
        ] {
            assert_eq!(
                Chunking::in_capabilities(serde_json::from_str(none).unwrap()),
                None,
                "{none}"
            );
        }
    }
}

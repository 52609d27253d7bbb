//! What the head of a request must say, and of which era it is. Does no IO.

use breakbulk_message::jsonrpc::{self, INVALID_REQUEST};

use super::message::{Claim, Message, Request, name_member};
use super::mirror;

/// Names of headers.
pub(super) const SESSION: &str = "mcp-session-id";
pub(super) const PROTOCOL: &str = "mcp-protocol-version";
pub(super) const METHOD: &str = "mcp-method";
pub(super) const NAME: &str = "mcp-name";
pub(super) const LAST_EVENT: &str = "last-event-id";

/// The types of bodies.
pub(super) const JSON: &str = "application/json";
pub(super) const EVENTS: &str = "text/event-stream";

/// The versions of the session era. Another one that is written as a date is of the stateless era.
const SESSION_VERSIONS: [&str; 5] = [
    "2024-10-07",
    "2024-11-05",
    "2025-03-26",
    "2025-06-18",
    "2025-11-25",
];

/// The first version whose clients take an event without data for what it is.
const PRIMED: &str = "2025-11-25";

/// Codes of JSON-RPC errors.
pub(super) const PARSE_ERROR: i32 = -32700;
pub(super) const INVALID_PARAMS: i32 = -32602;
pub(super) const HEADER_MISMATCH: i32 = -32020;
pub(super) const SESSION_NOT_FOUND: i32 = -32001;
pub(super) const SERVER_ERROR: i32 = -32000;

/// A request that is refused: the status and the JSON-RPC error of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) status: u16,
    pub(super) code: i32,
    pub(super) words: String,
    /// The id of the request, as JSON.
    pub(super) id: Option<String>,
}

impl Refused {
    pub(super) fn new(status: u16, code: i32, words: impl Into<String>) -> Self {
        Self {
            status,
            code,
            words: words.into(),
            id: None,
        }
    }

    /// With the id of the request that is refused, if the message is one.
    pub(super) fn to(self, message: &Message) -> Self {
        let id = match message {
            Message::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        Self { id, ..self }
    }

    /// The body of the answer.
    pub(super) fn body(&self) -> String {
        jsonrpc::error(self.id.as_deref(), self.code, &self.words, None)
    }
}

/// Which era a POST is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Era {
    /// It begins a session.
    Begins,
    /// It belongs to the session that its head names.
    Session,
    /// It stands alone.
    Stateless,
}

/// The header of this name, if it is there once.
pub(super) trait Headers {
    /// All values of a header; one that is no text is empty.
    fn all(&self, name: &str) -> Vec<String>;

    /// The only value of a header, without spaces around it.
    fn only(&self, name: &str) -> Result<Option<String>, Refused> {
        let mut all = self.all(name);
        match all.len() {
            0 => Ok(None),
            1 => Ok(all.pop().map(|value| value.trim().to_owned())),
            _ => {
                let words = format!("the header {name} is there twice");
                Err(Refused::new(400, HEADER_MISMATCH, words))
            }
        }
    }
}

/// Checks what a POST sends and accepts.
pub(super) fn check_post(headers: &impl Headers) -> Result<(), Refused> {
    let kind = headers.all("content-type").join(",");
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case(JSON) {
        let words = "the body of a POST is JSON: send Content-Type: application/json";
        return Err(Refused::new(415, SERVER_ERROR, words));
    }
    if !(accepts(headers, JSON) && accepts(headers, EVENTS)) {
        let words = "an answer may be JSON or an event stream: send Accept: application/json, text/event-stream";
        return Err(Refused::new(406, SERVER_ERROR, words));
    }
    Ok(())
}

/// Checks what a GET accepts.
pub(super) fn check_get(headers: &impl Headers) -> Result<(), Refused> {
    match accepts(headers, EVENTS) {
        true => Ok(()),
        false => Err(Refused::new(
            406,
            SERVER_ERROR,
            "the answer is an event stream: send Accept: text/event-stream",
        )),
    }
}

/// Whether a client takes answers of this type.
fn accepts(headers: &impl Headers, kind: &str) -> bool {
    let group = kind.split('/').next().unwrap_or_default();
    let any_of_group = format!("{group}/*");
    headers.all("accept").iter().any(|value| {
        value.split(',').any(|range| {
            let range = range.split(';').next().unwrap_or_default().trim();
            range == "*/*"
                || range.eq_ignore_ascii_case(kind)
                || range.eq_ignore_ascii_case(&any_of_group)
        })
    })
}

/// Checks the version of a request in a session; `chosen` is the one that its server chose.
pub(super) fn check_version(headers: &impl Headers, chosen: Option<&str>) -> Result<(), Refused> {
    match headers.only(PROTOCOL)? {
        // Clients of 2025-03-26 do not say it.
        None => Ok(()),
        Some(version) if SESSION_VERSIONS.contains(&&*version) || chosen == Some(&*version) => {
            Ok(())
        }
        Some(version) => {
            let shown: String = version.chars().take(32).collect();
            let words = format!(
                "the session does not speak the version {shown:?} of MCP; it is one of {}",
                SESSION_VERSIONS.join(", ")
            );
            Err(Refused::new(400, SERVER_ERROR, words))
        }
    }
}

/// Whether the clients of a version take an event without data for the begin of a stream.
pub(super) fn takes_primer(version: Option<&str>) -> bool {
    version.is_some_and(|version| version >= PRIMED)
}

/// Which era a POST is of, by what its body and its head say. They must say the same.
pub(super) fn era(headers: &impl Headers, message: &Message) -> Result<Era, Refused> {
    let version = headers.only(PROTOCOL)?;
    let is_modern = version.as_deref().is_some_and(is_stateless_version);
    let session = || match headers.all(SESSION).is_empty() {
        true => Err(Refused::new(
            400,
            SERVER_ERROR,
            "a session is needed: begin one by initialize, and send its Mcp-Session-Id",
        )),
        false => Ok(Era::Session),
    };
    match message {
        Message::Request(request) => match &request.claim {
            Claim::Version(claimed) => {
                check_mirrored(headers, version.as_deref(), claimed, request)?;
                Ok(Era::Stateless)
            }
            Claim::Incomplete(name) => {
                let words = format!("{name} in _meta is missing or of the wrong type");
                Err(Refused::new(400, INVALID_PARAMS, words))
            }
            Claim::None if message.is_initialize() && !is_modern => {
                match headers.all(SESSION).is_empty() {
                    true => Ok(Era::Begins),
                    false => Ok(Era::Session),
                }
            }
            Claim::None if is_modern => {
                let words = "a request of this version of MCP must name the version in _meta, too (io.modelcontextprotocol/protocolVersion)";
                Err(Refused::new(400, INVALID_PARAMS, words))
            }
            Claim::None => session(),
        },
        Message::Notification {
            version: claimed,
            method,
            ..
        } => {
            let Some(said) = claimed
                .as_deref()
                .or(version.as_deref())
                .filter(|_| is_modern || claimed.as_deref().is_some_and(is_stateless_version))
            else {
                return session();
            };
            if version.as_deref().is_some_and(|version| version != said) {
                return Err(mismatch(PROTOCOL));
            }
            match headers.only(METHOD)? {
                Some(given) if given != *method => Err(mismatch(METHOD)),
                _ => Ok(Era::Stateless),
            }
        }
        Message::Answer { .. } | Message::Batch(_) if is_modern => Err(Refused::new(
            400,
            INVALID_REQUEST,
            "a POST of this version is one request or one notification",
        )),
        Message::Answer { .. } | Message::Batch(_) => session(),
    }
}

/// Whether a version is written as a date and is none of the session era.
fn is_stateless_version(version: &str) -> bool {
    let newest = SESSION_VERSIONS.last().copied().unwrap_or_default();
    version.len() == newest.len() && version > newest
}

/// Checks that the head of a request repeats what its body says.
fn check_mirrored(
    headers: &impl Headers,
    version: Option<&str>,
    claimed: &str,
    request: &Request,
) -> Result<(), Refused> {
    if version != Some(claimed) {
        return Err(mismatch(PROTOCOL));
    }
    if headers.only(METHOD)?.as_deref() != Some(&*request.method) {
        return Err(mismatch(METHOD));
    }
    if name_member(&request.method).is_none() {
        return Ok(());
    }
    let given = match headers.only(NAME)? {
        None => None,
        Some(given) => Some(mirror::decode(&given).ok_or_else(|| mismatch(NAME))?),
    };
    // A body without a name is the server's to refuse.
    match (&request.name, given) {
        (None, _) => Ok(()),
        (Some(name), Some(given)) if *name == given => Ok(()),
        _ => Err(mismatch(NAME)),
    }
}

fn mismatch(header: &str) -> Refused {
    let words = format!("the header {header} is missing or differs from the body");
    Refused::new(400, HEADER_MISMATCH, words)
}

/// The status of an answer in the stateless era, by the code of its error. Errors of the server's own
/// making travel with 200.
pub(super) fn status(error: Option<i64>) -> u16 {
    match error {
        Some(-32601) => 404,
        Some(-32022..=-32020) => 400,
        _ => 200,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    struct Head(Vec<(&'static str, String)>);

    impl Headers for Head {
        fn all(&self, name: &str) -> Vec<String> {
            let found = self.0.iter().filter(|(known, _)| *known == name);
            found.map(|(_, value)| value.clone()).collect()
        }
    }

    /// `name: value` lines.
    fn head(lines: &'static str) -> Head {
        let lines = lines.lines().map(|line| line.split_once(": ").unwrap());
        Head(
            lines
                .map(|(name, value)| (name, value.to_owned()))
                .collect(),
        )
    }

    const MODERN: &str = r#"{"jsonrpc":"2.0","id":1,"method":"METHOD","params":{"name":"n","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
    const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    const NOTIFICATION: &str = r#"{"jsonrpc":"2.0","method":"notifications/x"}"#;
    const ANSWER: &str = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;

    // MCPH-1
    #[test]
    fn the_era_is_told_by_body_and_head_together() {
        let call = MODERN.replace("METHOD", "tools/call");
        let discover = MODERN.replace("METHOD", "server/discover");
        let modern_initialize = MODERN.replace("METHOD", "initialize");
        let incomplete = call.replace("clientCapabilities", "x");
        let refused = |status, code| Err((status, code));
        for (lines, body, expected) in [
            ("", INITIALIZE, Ok(Era::Begins)),
            ("mcp-session-id: s", INITIALIZE, Ok(Era::Session)),
            (
                "mcp-protocol-version: 2025-06-18",
                INITIALIZE,
                Ok(Era::Begins),
            ),
            (
                "mcp-protocol-version: 2026-07-28",
                INITIALIZE,
                refused(400, -32602),
            ),
            ("", LIST, refused(400, -32000)),
            ("mcp-session-id: s", LIST, Ok(Era::Session)),
            ("mcp-session-id: s", NOTIFICATION, Ok(Era::Session)),
            ("mcp-session-id: s", ANSWER, Ok(Era::Session)),
            ("", ANSWER, refused(400, -32000)),
            (
                "mcp-protocol-version: 2026-07-28",
                ANSWER,
                refused(400, -32600),
            ),
            (
                "mcp-protocol-version: 2026-07-28",
                LIST,
                refused(400, -32602),
            ),
            (
                "mcp-protocol-version: 2026-07-28",
                NOTIFICATION,
                Ok(Era::Stateless),
            ),
            (
                "mcp-protocol-version: 2026-07-28\nmcp-method: y",
                NOTIFICATION,
                refused(400, -32020),
            ),
            (
                "mcp-protocol-version: 2026-07-28\nmcp-method: server/discover",
                &discover,
                Ok(Era::Stateless),
            ),
            (
                // A session means nothing to it.
                "mcp-protocol-version: 2026-07-28\nmcp-method: server/discover\nmcp-session-id: s",
                &discover,
                Ok(Era::Stateless),
            ),
            (
                "mcp-protocol-version: 2026-07-28\nmcp-method: initialize",
                &modern_initialize,
                Ok(Era::Stateless),
            ),
            (
                "mcp-method: server/discover",
                &discover,
                refused(400, -32020),
            ),
            (
                "mcp-protocol-version: 2026-07-28",
                &discover,
                refused(400, -32020),
            ),
            (
                "mcp-protocol-version: 2026-07-29\nmcp-method: server/discover",
                &discover,
                refused(400, -32020),
            ),
            (
                "mcp-protocol-version: 2026-07-28\nmcp-method: tools/list",
                &discover,
                refused(400, -32020),
            ),
            (
                "mcp-protocol-version: 2026-07-28\nmcp-protocol-version: 2026-07-28\nmcp-method: server/discover",
                &discover,
                refused(400, -32020),
            ),
            (
                "mcp-protocol-version: 2026-07-28\nmcp-method: tools/call\nmcp-name: n",
                &call,
                Ok(Era::Stateless),
            ),
            (
                "mcp-protocol-version: 2026-07-28\nmcp-method: tools/call\nmcp-name: =?base64?bg==?=",
                &call,
                Ok(Era::Stateless),
            ),
            (
                "mcp-protocol-version: 2026-07-28\nmcp-method: tools/call\nmcp-name: m",
                &call,
                refused(400, -32020),
            ),
            (
                "mcp-protocol-version: 2026-07-28\nmcp-method: tools/call",
                &call,
                refused(400, -32020),
            ),
            (
                "mcp-protocol-version: 2026-07-28\nmcp-method: tools/call\nmcp-name: =?base64?*?=",
                &call,
                refused(400, -32020),
            ),
            (
                "mcp-protocol-version: 2026-07-28\nmcp-method: tools/call\nmcp-name: n",
                &incomplete,
                refused(400, -32602),
            ),
        ] {
            let message = Message::read(body.as_bytes()).unwrap();
            let found = era(&head(lines), &message);
            let found = found.map_err(|refused| (refused.status, refused.code));
            assert_eq!(found, expected, "{lines} {body}");
        }
    }

    // MCPH-2
    #[test]
    fn a_post_is_json_and_takes_both_kinds_of_answers() {
        for (lines, expected) in [
            (
                "content-type: application/json\naccept: application/json, text/event-stream",
                0,
            ),
            (
                "content-type: Application/JSON; charset=utf-8\naccept: */*",
                0,
            ),
            (
                "content-type: application/json\naccept: application/*;q=1\naccept: text/*",
                0,
            ),
            (
                "content-type: application/json\naccept: application/json",
                406,
            ),
            (
                "content-type: application/json\naccept: text/event-stream",
                406,
            ),
            ("content-type: application/json", 406),
            ("content-type: text/plain\naccept: */*", 415),
            ("accept: */*", 415),
        ] {
            let found = check_post(&head(lines));
            assert_eq!(
                found.map_or_else(|it| it.status, |()| 0),
                expected,
                "{lines}"
            );
        }
        for (lines, chosen, expected) in [
            ("", None, 0),
            ("mcp-protocol-version: 2025-11-25", Some("2025-06-18"), 0),
            ("mcp-protocol-version: 2030-01-01", Some("2030-01-01"), 0),
            ("mcp-protocol-version: 2030-01-01", Some("2025-11-25"), 400),
            ("mcp-protocol-version: x", None, 400),
        ] {
            let found = check_version(&head(lines), chosen);
            assert_eq!(
                found.map_or_else(|it| it.status, |()| 0),
                expected,
                "{lines}"
            );
        }
    }
}

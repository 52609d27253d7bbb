//! The first frame of a line between two members: what it is for, in JSON. Pure.

use std::net::{IpAddr, SocketAddr};

use serde_json::{Map, Value};

use crate::tunnel::Caller;

/// What a line between two members is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// A line of a tunnel: its frames follow.
    Line(LineHead),
    /// A request over HTTP: its body follows, and the answer comes back.
    #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "read, and refused"))]
    Request(RequestHead),
}

/// Who opened the line that is forwarded, and what it carries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LineHead {
    pub(super) caller: Caller,
    /// The largest frame that the line carries, if its carrier knows it.
    pub(super) cap: Option<usize>,
    /// Whether its carrier has pings.
    pub(super) pings: bool,
}

/// The head of a request over HTTP. A header's value has a character for each of its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestHead {
    pub(super) method: String,
    pub(super) uri: String,
    pub(super) headers: Vec<(String, String)>,
    /// The client's address.
    pub(super) client: Option<SocketAddr>,
    /// The address that the client connected to.
    pub(super) local: Option<SocketAddr>,
}

/// The head of an answer.
#[cfg_attr(not(feature = "http"), expect(dead_code, reason = "of requests alone"))]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AnswerHead {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
}

impl Head {
    pub(super) fn to_json(&self) -> String {
        let mut members = Map::new();
        let (name, mut inner) = (
            match self {
                Self::Line(_) => "line",
                Self::Request(_) => "request",
            },
            Map::new(),
        );
        match self {
            Self::Line(LineHead { caller, cap, pings }) => {
                put(&mut inner, "holder", caller.holder.as_deref());
                put(
                    &mut inner,
                    "address",
                    caller.address.map(|it| it.to_string()),
                );
                put(&mut inner, "cap", *cap);
                put(&mut inner, "pings", Some(*pings));
            }
            Self::Request(head) => {
                put(&mut inner, "method", Some(head.method.as_str()));
                put(&mut inner, "uri", Some(head.uri.as_str()));
                put(&mut inner, "headers", Some(headers(&head.headers)));
                put(&mut inner, "client", head.client.map(|it| it.to_string()));
                put(&mut inner, "local", head.local.map(|it| it.to_string()));
            }
        }
        members.insert(name.to_owned(), inner.into());
        Value::from(members).to_string()
    }

    /// `None` if it is no head.
    pub(super) fn read(text: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(text).ok()?;
        if let Some(line) = value.get("line") {
            let holder = match line.get("holder") {
                None => None,
                Some(holder) => Some(holder.as_str()?.to_owned()),
            };
            let cap = match line.get("cap") {
                None => None,
                Some(cap) => Some(usize::try_from(cap.as_u64()?).ok()?),
            };
            let address: Option<IpAddr> = parsed(line, "address")?;
            return Some(Self::Line(LineHead {
                caller: Caller { holder, address },
                cap,
                pings: line.get("pings")?.as_bool()?,
            }));
        }
        let request = value.get("request")?;
        Some(Self::Request(RequestHead {
            method: request.get("method")?.as_str()?.to_owned(),
            uri: request.get("uri")?.as_str()?.to_owned(),
            headers: read_headers(request)?,
            client: parsed(request, "client")?,
            local: parsed(request, "local")?,
        }))
    }
}

#[cfg_attr(not(feature = "http"), expect(dead_code, reason = "of requests alone"))]
impl AnswerHead {
    pub(super) fn to_json(&self) -> String {
        let mut members = Map::new();
        put(&mut members, "status", Some(self.status));
        put(&mut members, "headers", Some(headers(&self.headers)));
        Value::from(members).to_string()
    }

    /// `None` if it is no head of an answer.
    pub(super) fn read(text: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(text).ok()?;
        Some(Self {
            status: u16::try_from(value.get("status")?.as_u64()?).ok()?,
            headers: read_headers(&value)?,
        })
    }
}

fn put(members: &mut Map<String, Value>, name: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        members.insert(name.to_owned(), value.into());
    }
}

fn headers(headers: &[(String, String)]) -> Value {
    let pair = |(name, value): &(String, String)| Value::from(vec![name.as_str(), value.as_str()]);
    headers.iter().map(pair).collect()
}

fn read_headers(value: &Value) -> Option<Vec<(String, String)>> {
    let read = |pair: &Value| {
        let [name, value] = pair.as_array()?.as_slice() else {
            return None;
        };
        Some((name.as_str()?.to_owned(), value.as_str()?.to_owned()))
    };
    value.get("headers")?.as_array()?.iter().map(read).collect()
}

/// A member that is an address, or is not there; `None` if it is something else.
fn parsed<T: std::str::FromStr>(value: &Value, name: &str) -> Option<Option<T>> {
    match value.get(name) {
        None => Some(None),
        Some(text) => Some(Some(text.as_str()?.parse().ok()?)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_written_and_read_back() {
        let line = LineHead {
            caller: Caller {
                holder: Some("anna".to_owned()),
                address: Some("::1".parse().unwrap()),
            },
            cap: Some(65_000),
            pings: false,
        };
        let plain = LineHead {
            pings: true,
            ..LineHead::default()
        };
        let request = RequestHead {
            method: "POST".to_owned(),
            uri: "/mcp?a=b".to_owned(),
            headers: vec![("x".to_owned(), "\u{e4}\"".to_owned())],
            client: Some("10.0.0.1:5".parse().unwrap()),
            local: None,
        };
        for (head, expected) in [
            (
                Head::Line(line),
                r#"{"line":{"address":"::1","cap":65000,"holder":"anna","pings":false}}"#,
            ),
            (Head::Line(plain), r#"{"line":{"pings":true}}"#),
            (
                Head::Request(request),
                r#"{"request":{"client":"10.0.0.1:5","headers":[["x","ä\""]],"method":"POST","uri":"/mcp?a=b"}}"#,
            ),
        ] {
            assert_eq!(head.to_json(), expected);
            assert_eq!(Head::read(expected.as_bytes()), Some(head));
        }
        let answer = AnswerHead {
            status: 200,
            headers: vec![("a".to_owned(), "b".to_owned())],
        };
        let expected = r#"{"headers":[["a","b"]],"status":200}"#;
        assert_eq!(answer.to_json(), expected);
        assert_eq!(AnswerHead::read(expected.as_bytes()), Some(answer));
    }

    /// A holder that cannot be read must not become "nobody in particular".
    #[test]
    fn what_is_no_head_is_none() {
        for text in [
            "",
            "{}",
            "[]",
            r#"{"line":{}}"#,
            r#"{"line":{"pings":1}}"#,
            r#"{"line":{"pings":true,"holder":7}}"#,
            r#"{"line":{"pings":true,"holder":null}}"#,
            r#"{"line":{"pings":true,"address":"here"}}"#,
            r#"{"line":{"pings":true,"cap":-1}}"#,
            r#"{"request":{"method":"GET","uri":"/"}}"#,
            r#"{"request":{"method":"GET","uri":"/","headers":[["a"]]}}"#,
            r#"{"request":{"method":"GET","uri":"/","headers":[["a",1]]}}"#,
        ] {
            assert_eq!(Head::read(text.as_bytes()), None, "{text}");
        }
    }
}

//! The options of a journal: its servers, its stream and how much it keeps; and the address that names them.

use std::time::Duration;

use super::JournalError;
use crate::nats::{Credentials, NatsOptions};

/// The port of NATS servers.
const PORT: u16 = 4222;

/// What becomes of a stream that is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// Its oldest messages are deleted.
    DropOldest,
    /// New ones are refused.
    RefuseNew,
}

/// Where a journal is, and how much it keeps.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JournalOptions {
    /// The NATS servers.
    pub nats: NatsOptions,
    /// The name of the stream, which is also the first part of its subjects.
    pub stream: String,
    /// On how many servers a stream that does not exist yet is kept; by default 1. With 3 one of them may
    /// fail.
    pub replicas: usize,
    /// How many bytes a stream that does not exist yet keeps; `None` is as many as the servers allow.
    pub max_bytes: Option<u64>,
    /// What becomes of it when it is full.
    pub when_full: WhenFull,
    /// The largest record; by default 256 MiB. A reader keeps one of that size in memory for each topic.
    pub max_record: usize,
    /// How long appending waits for servers that are away; by default 5 minutes.
    pub outage: Duration,
}

impl JournalOptions {
    /// The default options for a stream.
    pub fn new(servers: impl Into<String>, stream: impl Into<String>) -> Self {
        let stream = stream.into();
        Self {
            nats: NatsOptions::new(servers, stream.clone()),
            stream,
            replicas: 1,
            max_bytes: None,
            when_full: WhenFull::RefuseNew,
            max_record: 256 << 20,
            outage: Duration::from_secs(300),
        }
    }

    /// Whether this text is the address of a journal, and not, say, a path.
    pub fn is_address(text: &str) -> bool {
        text.starts_with("nats://") || text.starts_with("tls://")
    }

    /// Reads `nats://[USER:PASSWORD@|TOKEN@]HOST[:PORT][,HOST[:PORT]…]/STREAM[?replicas=N][&creds=FILE]`, or
    /// the same with `tls`.
    pub fn parse(text: &str) -> Result<Self, JournalError> {
        let wrong = |what: &str| JournalError::Address(what.to_owned());
        let (secure, rest) = match (text.strip_prefix("nats://"), text.strip_prefix("tls://")) {
            (Some(rest), _) => (false, rest),
            (None, Some(rest)) => (true, rest),
            (None, None) => return Err(wrong("this is no address of a journal")),
        };
        let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, stream) = address.split_once('/').unwrap_or((address, ""));
        let (credentials, servers) = match authority.rsplit_once('@') {
            Some((credentials, servers)) => (Some(read_credentials(credentials)?), servers),
            None => (None, authority),
        };
        let servers = servers.split(',').map(read_server);
        let servers = servers.collect::<Option<Vec<_>>>();
        let servers = servers.ok_or_else(|| wrong("there is no NATS server in it"))?;
        let mut options = Self::new(servers.join(","), stream);
        options.nats.secure = secure;
        options.nats.credentials = credentials;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("replicas", number)) => {
                    let number = number
                        .parse()
                        .ok()
                        .filter(|number| (1..=5).contains(number));
                    options.replicas =
                        number.ok_or_else(|| wrong("replicas is a number from 1 to 5"))?;
                }
                Some(("creds", file)) if !file.is_empty() => {
                    options.nats.credentials = Some(Credentials::File(decoded(file)?.into()));
                }
                _ => return Err(wrong("its options are replicas=NUMBER and creds=FILE")),
            }
        }
        options.check()?;
        Ok(options)
    }

    /// Servers and stream, without credentials.
    pub fn name(&self) -> String {
        let scheme = if self.nats.secure { "tls" } else { "nats" };
        format!("{scheme}://{}/{}", self.nats.server, self.stream)
    }

    pub(super) fn check(&self) -> Result<(), JournalError> {
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let fine = (1..=64).contains(&self.stream.len()) && self.stream.bytes().all(letter);
        if !fine {
            let text = "the name of a stream has 1 to 64 ASCII letters, digits, - and _";
            return Err(JournalError::Address(text.to_owned()));
        }
        Ok(())
    }
}

/// Host and port.
fn read_server(text: &str) -> Option<String> {
    let host = match text.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => {
            return (!host.is_empty()).then(|| text.to_owned());
        }
        Some((_, port)) if !port.ends_with(']') => return None,
        _ => text,
    };
    (!host.is_empty()).then(|| format!("{host}:{PORT}"))
}

/// A user and password with a colon between them, or a token. No error repeats them.
fn read_credentials(text: &str) -> Result<Credentials, JournalError> {
    match text.split_once(':') {
        Some((user, password)) => Ok(Credentials::User(decoded(user)?, decoded(password)?)),
        None if text.is_empty() => Err(JournalError::Address(
            "there is nothing before its @".to_owned(),
        )),
        None => Ok(Credentials::Token(decoded(text)?)),
    }
}

/// Without percent-encoding.
fn decoded(text: &str) -> Result<String, JournalError> {
    let wrong = || JournalError::Address("a % in it is not followed by two hex digits".to_owned());
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split('%');
    bytes.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
    for part in parts {
        let code = part
            .get(..2)
            .filter(|code| code.bytes().all(|b| b.is_ascii_hexdigit()));
        let code = code.ok_or_else(wrong)?;
        bytes.push(u8::from_str_radix(code, 16).map_err(|_| wrong())?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may")]
mod tests {
    use super::*;

    #[test]
    fn addresses_as_they_are_written() {
        let user = Credentials::User("anna".into(), "p@:ss".into());
        for (text, server, stream, secure, credentials, replicas) in [
            ("nats://host/LOG", "host:4222", "LOG", false, None, 1),
            (
                "tls://host:1/a-b_c?replicas=3",
                "host:1",
                "a-b_c",
                true,
                None,
                3,
            ),
            ("nats://[::1],b:2/L", "[::1]:4222,b:2", "L", false, None, 1),
            (
                "nats://anna:p%40:ss@h/L",
                "h:4222",
                "L",
                false,
                Some(user),
                1,
            ),
            (
                "nats://t0ken@h,i:5/L",
                "h:4222,i:5",
                "L",
                false,
                Some(Credentials::Token("t0ken".into())),
                1,
            ),
            (
                "nats://h/L?creds=a%20b&replicas=5",
                "h:4222",
                "L",
                false,
                Some(Credentials::File("a b".into())),
                5,
            ),
        ] {
            let options = JournalOptions::parse(text).unwrap();
            assert!(JournalOptions::is_address(text));
            assert_eq!(options.nats.server, server, "{text}");
            assert_eq!(options.stream, stream, "{text}");
            assert_eq!(options.nats.secure, secure, "{text}");
            assert_eq!(options.nats.credentials, credentials, "{text}");
            assert_eq!(options.replicas, replicas, "{text}");
        }
    }

    #[test]
    fn wrong_addresses_are_refused_without_repeating_them() {
        for (text, reason) in [
            ("documents.redb", "this is no address of a journal"),
            ("nats://", "there is no NATS server in it"),
            ("nats:///L", "there is no NATS server in it"),
            ("nats://h:x/L", "there is no NATS server in it"),
            ("nats://h,/L", "there is no NATS server in it"),
            ("nats://h", "the name of a stream has 1 to 64"),
            ("nats://h/a.b", "the name of a stream has 1 to 64"),
            ("nats://h/a/b", "the name of a stream has 1 to 64"),
            ("nats://@h/L", "there is nothing before its @"),
            ("nats://s3cret%@h/L", "a % in it is not followed"),
            ("nats://h/L?replicas=0", "replicas is a number from 1 to 5"),
            ("nats://h/L?tokens=s3cret", "its options are"),
        ] {
            let error = JournalOptions::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(reason), "{text}: {error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}

//! `nats://[USER:PASSWORD@|TOKEN@]HOST[:PORT]/SUBJECT[?options]`: a tunnel over NATS.

use breakbulk_net::nats::Credentials;

use super::options::{EndpointOptions, decoded, only_options};
use super::{EndpointError, at_question_mark};

/// The port of NATS servers.
const PORT: u16 = 4222;

/// The options of an end at NATS.
const NAMES: &[&str] = &[
    "token-file",
    "creds",
    "queue",
    "inbox",
    "cert",
    "key",
    "ca",
    "max-frame",
    "max-message",
];

/// A subject of a NATS server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NatsAddress {
    /// `tls`.
    pub(crate) secure: bool,
    /// Host and port.
    pub(crate) server: String,
    /// The credentials in the address.
    pub(crate) credentials: Option<Credentials>,
    /// The subject at which sessions are opened.
    pub(crate) subject: String,
}

impl NatsAddress {
    /// The URL, without credentials.
    pub(crate) fn name(&self) -> String {
        let scheme = if self.secure { "tls" } else { "nats" };
        format!("{scheme}://{}/{}", self.server, self.subject)
    }
}

/// The options of NATS alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NatsNames {
    /// A file with a JWT and the seed of its key.
    pub(crate) creds: Option<std::path::PathBuf>,
    /// The queue group of the listeners.
    pub(crate) queue: Option<String>,
    /// What the subjects of sessions begin with.
    pub(crate) inbox: Option<String>,
}

/// What follows `nats:` or `tls:`.
pub(super) fn endpoint(
    secure: bool,
    rest: &str,
) -> Result<(NatsAddress, EndpointOptions), EndpointError> {
    let scheme = if secure { "tls" } else { "nats" };
    let rest = rest
        .strip_prefix("//")
        .ok_or(EndpointError::Slashes(scheme))?;
    let (address, query) = at_question_mark(rest);
    let (authority, subject) = address.split_once('/').unwrap_or((address, ""));
    let (credentials, server) = servers(scheme, authority)?;
    if subject.is_empty() || subject.contains('/') {
        return Err(EndpointError::NatsSubject(scheme));
    }
    let address = NatsAddress {
        secure,
        server,
        credentials,
        subject: subject.to_owned(),
    };
    Ok((address, only_options(query, NAMES)?))
}

/// The credentials and the servers, each with its port, of `[USER:PASSWORD@|TOKEN@]HOST[:PORT][,HOST…]`.
pub(crate) fn servers(
    scheme: &'static str,
    authority: &str,
) -> Result<(Option<Credentials>, String), EndpointError> {
    let (credentials, servers) = match authority.rsplit_once('@') {
        Some((credentials, servers)) => (Some(read_credentials(credentials)?), servers),
        None => (None, authority),
    };
    let with_port = |server: &str| match server.rsplit_once(':') {
        _ if server.is_empty() => Err(EndpointError::NatsServer(scheme)),
        Some((_, port)) if port.parse::<u16>().is_ok() => Ok(server.to_owned()),
        Some((_, port)) if !port.ends_with(']') => Err(EndpointError::NatsServer(scheme)),
        _ => Ok(format!("{server}:{PORT}")),
    };
    let servers: Result<Vec<_>, _> = servers.split(',').map(with_port).collect();
    Ok((credentials, servers?.join(",")))
}

/// A user and password with a colon between them, or a token. No error repeats them.
fn read_credentials(text: &str) -> Result<Credentials, EndpointError> {
    let read = |text: &str| decoded(text).map_err(|_| EndpointError::NatsCredentials);
    match text.split_once(':') {
        Some((user, password)) => Ok(Credentials::User(read(user)?, read(password)?)),
        None if text.is_empty() => Err(EndpointError::NatsCredentials),
        None => Ok(Credentials::Token(read(text)?)),
    }
}

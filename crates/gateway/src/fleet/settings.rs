//! How a fleet is written, `nats://…?name=…&secret-file=…`, and what is checked before it is joined.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use breakbulk_net::nats::{Credentials, NatsOptions};
use breakbulk_net::ws::{Identity, Roots};

use super::seal::Secret;
use super::{LINE_WINDOW, member::Member};
use crate::endpoint::{
    At, EndpointError, EndpointOptions, nats_servers, query_options, unescaped, unknown_option,
};
use crate::token::{self, TokenError};

/// The name of a fleet that is given none.
const NAME: &str = "gateway";

/// The options that ends at NATS have too.
const OF_NATS: &[&str] = &["token-file", "creds", "inbox", "cert", "key", "ca"];

/// All options of a fleet.
const NAMES: &[&str] = &[
    "name",
    "secret-file",
    "token-file",
    "creds",
    "inbox",
    "cert",
    "key",
    "ca",
];

/// Where the members of a fleet meet, as text: `nats://[USER:PASSWORD@|TOKEN@]HOST[:PORT][,HOST…][?OPTIONS]`,
/// or `tls://…`.
#[derive(Clone, PartialEq, Eq)]
pub struct FleetAddress {
    secure: bool,
    servers: String,
    credentials: Option<Credentials>,
    name: String,
    secret_file: Option<PathBuf>,
    options: EndpointOptions,
}

impl fmt::Debug for FleetAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("FleetAddress");
        shown
            .field("servers", &self.servers)
            .field("name", &self.name);
        shown.finish_non_exhaustive()
    }
}

impl FleetAddress {
    /// The files that are read once, when a gateway joins.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let options = &self.options;
        let named = [
            &self.secret_file,
            &options.token_file,
            &options.nats.creds,
            &options.cert,
            &options.key,
            &options.ca,
        ];
        named.into_iter().flatten().cloned().collect()
    }
}

/// Why a gateway cannot be a member of a fleet.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FleetError {
    /// The text is not one of a fleet.
    #[error(transparent)]
    Address(#[from] EndpointError),
    /// The name cannot be a part of a subject.
    #[error("{0:?} is no name of a fleet: use letters, digits, - and _")]
    Name(String),
    /// There is no secret.
    #[error(
        "the members of a fleet know each other by a secret: give secret-file=FILE, the same text for all members"
    )]
    NoSecret,
    /// The secret is too short.
    #[error("the secret of a fleet must have at least {least} characters, and this one has {has}")]
    ShortSecret {
        /// How many it must have.
        least: usize,
        /// How many it has.
        has: usize,
    },
    /// The file with the secret cannot be used.
    #[error("secret-file {}: {reason}", file.display())]
    SecretFile {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The file with what NATS wants cannot be used.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// A certificate without its key, or a key without its certificate.
    #[error("cert and key belong together: give both or none")]
    CertOrKey,
    /// The listener has no sessions that another member could be asked for.
    #[error(
        "a fleet is for listeners whose clients come back to their sessions: ws://, wss://, ahp+http://, nats:// and http://"
    )]
    Listener,
}

impl FromStr for FleetAddress {
    type Err = FleetError;

    fn from_str(text: &str) -> Result<Self, FleetError> {
        let (secure, rest) = match text.split_once("://") {
            Some(("nats", rest)) => (false, rest),
            Some(("tls", rest)) => (true, rest),
            _ => return Err(EndpointError::Slashes("nats").into()),
        };
        let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
        let scheme = if secure { "tls" } else { "nats" };
        let (credentials, servers) = nats_servers(scheme, address.trim_end_matches('/'))?;
        let (options, others) = query_options(query, OF_NATS)?;
        let (mut name, mut secret_file) = (NAME.to_owned(), None);
        for pair in others {
            let wrong = |error| EndpointError::Option {
                name: pair.split('=').next().unwrap_or_default().to_owned(),
                error,
            };
            match pair.split_once('=') {
                Some(("name", value)) => name = unescaped(value).map_err(wrong)?,
                Some(("secret-file", value)) => {
                    secret_file = Some(unescaped(value).map_err(wrong)?.into());
                }
                _ => return Err(unknown_option(pair, NAMES).into()),
            }
        }
        let fine = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if name.is_empty() || name.len() > 64 || !name.bytes().all(fine) {
            return Err(FleetError::Name(name));
        }
        Ok(Self {
            secure,
            servers,
            credentials,
            name,
            secret_file,
            options,
        })
    }
}

/// What a member needs to join.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(super) nats: NatsOptions,
    pub(super) secret: Secret,
    name: String,
}

impl Settings {
    /// Reads the files; `secret` is that of the environment.
    pub(crate) fn new(
        address: FleetAddress,
        secret: Option<&str>,
        listener: &At,
    ) -> Result<Self, FleetError> {
        if !listener.is_resumable() {
            return Err(FleetError::Listener);
        }
        let text = match (&address.secret_file, secret) {
            (Some(file), _) => {
                token::read(file)
                    .map_err(|error| secret_file(file, error))?
                    .0
            }
            (None, Some(secret)) => secret.to_owned(),
            (None, None) => return Err(FleetError::NoSecret),
        };
        let secret = Secret::new(&text);
        let secret = secret.ok_or(FleetError::ShortSecret {
            least: Secret::LEAST,
            has: text.trim().len(),
        })?;
        let options = address.options;
        let mut nats = NatsOptions::new(address.servers, "unused");
        nats.name = "breakbulk gateway".to_owned();
        nats.secure = address.secure;
        nats.window = LINE_WINDOW as u64;
        nats.credentials = match (options.nats.creds, &options.token_file) {
            (Some(file), _) => Some(Credentials::File(file)),
            (None, Some(file)) => Some(token::nats_credentials(file)?),
            (None, None) => address.credentials,
        };
        if let Some(inbox) = options.nats.inbox {
            nats.inbox = inbox;
        }
        nats.roots = options.ca.map_or(Roots::Native, Roots::File);
        nats.identity = match (options.cert, options.key) {
            (Some(chain), Some(key)) => Some(Identity { chain, key }),
            (None, None) => None,
            _ => return Err(FleetError::CertOrKey),
        };
        Ok(Self {
            nats,
            secret,
            name: address.name,
        })
    }

    /// The subject that a member hears.
    pub(super) fn subject(&self, member: Member) -> String {
        format!("breakbulk.fleet.{}.{member}", self.name)
    }

    /// The servers, for the log.
    pub(super) fn servers(&self) -> &str {
        &self.nats.server
    }
}

/// Why the file with the secret cannot be used.
fn secret_file(file: &Path, error: TokenError) -> FleetError {
    FleetError::SecretFile {
        file: file.to_owned(),
        reason: match error {
            TokenError::Read { error, .. } => error.to_string(),
            TokenError::OpenToOthers { mode, .. } => {
                format!(
                    "is open to others (mode {mode:04o}); do: chmod 600 {}",
                    file.display()
                )
            }
            error @ TokenError::Bad { .. } => error.to_string(),
        },
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn listener() -> At {
        "ws://0".parse::<crate::Endpoint>().unwrap().at
    }

    #[test]
    fn a_fleet_is_named_by_its_servers() {
        for (text, servers, subject) in [
            (
                "nats://a",
                "a:4222",
                "breakbulk.fleet.gateway.0000000000000000",
            ),
            (
                "nats://a:1,b,c:3/?name=east-1",
                "a:1,b:4222,c:3",
                "breakbulk.fleet.east-1.0000000000000000",
            ),
            (
                "tls://u:p@a?name=x_y&inbox=I",
                "a:4222",
                "breakbulk.fleet.x_y.0000000000000000",
            ),
        ] {
            let address: FleetAddress = text.parse().unwrap();
            assert!(!format!("{address:?}").contains('p'), "{address:?}");
            let settings = Settings::new(address, Some("0123456789abcdef"), &listener()).unwrap();
            assert_eq!(settings.servers(), servers);
            assert_eq!(settings.subject(Member([0; 8])), subject);
        }
    }

    #[test]
    fn what_is_no_fleet_is_refused_with_a_remedy() {
        let secret = Some("0123456789abcdef");
        let stdio = "stdio:".parse::<crate::Endpoint>().unwrap().at;
        let listener = listener();
        for (text, secret, listener, expected) in [
            (
                "ws://a",
                secret,
                &listener,
                "write nats:// with its slashes",
            ),
            ("nats://", secret, &listener, "there is no NATS server"),
            ("nats://a,,b", secret, &listener, "there is no NATS server"),
            (
                "nats://a?name=a.b",
                secret,
                &listener,
                "\"a.b\" is no name of a fleet",
            ),
            (
                "nats://a?name=*",
                secret,
                &listener,
                "is no name of a fleet",
            ),
            ("nats://a?nam=b", secret, &listener, "\"nam\" is no option"),
            (
                "nats://a?cert=b",
                secret,
                &listener,
                "cert and key belong together",
            ),
            ("nats://a", None, &listener, "give secret-file=FILE"),
            (
                "nats://a",
                Some("short"),
                &listener,
                "at least 16 characters, and this one has 5",
            ),
            (
                "nats://a?secret-file=/no/such",
                None,
                &listener,
                "secret-file /no/such: No such file",
            ),
            ("nats://a", secret, &stdio, "a fleet is for listeners"),
        ] {
            let settings = text
                .parse()
                .and_then(|address| Settings::new(address, secret, listener));
            let error = settings.unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}

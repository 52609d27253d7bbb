//! The errors of parsing an endpoint.

#[cfg(feature = "nostr")]
use breakbulk_contextvm::KeyError;
#[cfg(feature = "process")]
use breakbulk_net::process::SplitError;

use super::WireKind;
use super::spelling::{forms, meant};
use crate::caps::{ClientMismatch, NameError};
use crate::nearest::{nearest, suggestion};
use crate::size::SizeError;

/// Why a text is no endpoint. No error repeats a text that may hold a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// There is no colon between transport and address.
    #[error("there is no colon; {}", meant_or_forms(*.0))]
    NoColon(
        /// The form that was probably meant.
        Option<&'static str>,
    ),
    /// A transport that does not exist.
    #[error("{name:?} is no transport; {}", meant_or_forms(*.meant))]
    Transport {
        /// What stands in its place.
        name: String,
        /// The form that was probably meant.
        meant: Option<&'static str>,
    },
    /// A transport that this build does not have.
    #[error("{transport}: is not built in; build with the feature `{feature}`")]
    NotBuilt {
        /// The transport.
        transport: String,
        /// The feature of this crate that adds it.
        feature: &'static str,
    },
    /// A wire that does not exist.
    #[error("{name:?} is no wire; use ahp, loro, whole or cep22{}", suggestion(*.meant))]
    Wire {
        /// What stands in its place.
        name: String,
        /// The form that was probably meant.
        meant: Option<&'static str>,
    },
    /// The standard streams with an address.
    #[error("stdio: has no address, and {0:?} is one; leave it out")]
    StdioAddress(String),
    /// A command line that cannot be split into words.
    #[cfg(feature = "process")]
    #[error("{}", command(.0))]
    Command(SplitError),
    /// `ws:` without its slashes.
    #[error("write {0}:// with its slashes")]
    Slashes(&'static str),
    /// A Unix socket without its path.
    #[error("there is no socket; write {0}/PATH")]
    NoSocket(&'static str),
    /// `unix:` with the slashes of a URL.
    #[error("a Unix socket has no host; did you mean unix:/{0}?")]
    UnixSlashes(String),
    /// A TCP socket without a host.
    #[error("there is no host; write tcp://HOST:PORT, or tcp://PORT to listen")]
    NoTcpHost,
    /// A path behind a TCP socket.
    #[error("tcp:// has no path; write tcp://HOST:PORT, or ws://HOST:PORT/PATH for a WebSocket")]
    TcpPath,
    /// A user's name in the address of a TCP socket.
    #[error("no names or passwords in an address; a stream has neither, use ws:// with a token")]
    TcpCredentials,
    /// A WebSocket without a host.
    #[error("there is no host; write {0}://HOST:PORT/PATH, or {0}://PORT to listen")]
    Host(&'static str),
    /// A user's name in the address of a server.
    #[error("no names or passwords in an address; use ?token-file=FILE")]
    Credentials,
    /// A user's name in the address of a relay.
    #[error(
        "no names or passwords in an address; at relays a program is known by its key (?key=FILE)"
    )]
    RelayCredentials,
    /// A part after a `#`.
    #[error("an address has no part after a #")]
    Fragment,
    /// A NATS server that cannot be one.
    #[error(
        "there is no NATS server; write {0}://HOST:PORT/SUBJECT, as in {0}://127.0.0.1:4222/tools"
    )]
    NatsServer(&'static str),
    /// An address at NATS without a subject.
    #[error("there is no subject; write {0}://HOST:PORT/SUBJECT, with dots within it")]
    NatsSubject(&'static str),
    /// Credentials in an address that cannot be read.
    #[error(
        "before the @ stand USER:PASSWORD or a token, with % and two digits for special characters"
    )]
    NatsCredentials,
    /// A wire that NATS does not carry.
    #[error("NATS carries tunnels between two gateways alone: write nats:// without {0}+")]
    NatsWire(WireKind),
    /// What is no address of a relay.
    #[error("a relay is written as wss://HOST or ws://HOST:PORT, several with commas between them")]
    Relay,
    /// More relays than one end may have.
    #[error("{count} relays are too many; {most} are the most")]
    TooManyRelays {
        /// Those that were given.
        count: usize,
        /// The most.
        most: usize,
    },
    /// A wire that relays do not carry.
    #[error("relays carry ContextVM's messages alone: write cep22+nostr: for {0}+nostr:")]
    RelayWire(WireKind),
    /// The wire of relays on another transport.
    #[error("cep22 is for relays; write cep22+nostr:wss://RELAY")]
    OnlyRelays,
    /// A wire that streams do not carry.
    #[error(
        "streams carry whole messages: write stdio:, exec:, tcp:// or unix: without {0}+, and put it on the ws:// end"
    )]
    StreamWire(WireKind),
    /// A wire that HTTP does not carry.
    #[error("http://, https:// and http+unix: carry MCP's whole messages: write them without {0}+")]
    HttpWire(WireKind),
    /// An option of another transport.
    #[error("{option} is for {only}")]
    OnlyFor {
        /// The option.
        option: &'static str,
        /// Where it belongs.
        only: &'static str,
    },
    /// A receiver that gets its messages by another transport.
    #[error(transparent)]
    Client(#[from] ClientMismatch),
    /// An option that does not exist.
    #[error("{name:?} is no option; use {}{}", known.join(", "), suggestion(nearest(.name, .known)))]
    UnknownOption {
        /// Its name.
        name: String,
        /// Those that this endpoint has.
        known: &'static [&'static str],
    },
    /// An option whose value is wrong.
    #[error("{name}: {error}")]
    Option {
        /// Its name.
        name: String,
        /// What is wrong with its value.
        error: OptionError,
    },
    /// A token in the text, where others can see it.
    #[error("a token on the command line is seen by every program; use ?token-file=FILE")]
    TokenInText,
    /// A secret key in the text, where others can see it.
    #[error(
        "key is a file's name: a key on the command line is seen by every program; use ?key=FILE"
    )]
    KeyInText,
}

/// What is wrong with the value of an option.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// The value is empty.
    #[error("there is no value; write OPTION=VALUE")]
    Empty,
    /// The option was given before.
    #[error("the option is given twice")]
    Twice,
    /// None of the allowed words.
    #[error("{value:?} is none of {expected}{}", suggestion(nearest(.value, &.expected.split(", ").collect::<Vec<_>>())))]
    Word {
        /// What was given.
        value: String,
        /// What may be given.
        expected: &'static str,
    },
    /// No size.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// No duration.
    #[error("{0:?} is no number of seconds, at least 1")]
    Seconds(String),
    /// No path or receiver that is known.
    #[error(transparent)]
    Name(#[from] NameError),
    /// No public key.
    #[cfg(feature = "nostr")]
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A `%` that begins no escape.
    #[error("{0:?}: write a % itself as %25")]
    Escape(String),
    /// Escapes of bytes that are no text.
    #[error("{0:?} is not UTF-8")]
    NotUtf8(String),
}

impl EndpointError {
    /// The error for a text without a colon.
    pub(super) fn no_colon(text: &str) -> Self {
        // A text with spaces is probably a command; it is not repeated, since it may hold a secret.
        let command = || text.contains(' ').then_some("exec:COMMAND");
        Self::NoColon(meant(text, "").or_else(command))
    }

    /// The error for a wire that does not exist, before a transport.
    pub(super) fn wire(name: &str, scheme: &str, rest: &str) -> Self {
        Self::Wire {
            name: name.to_owned(),
            meant: meant(scheme, rest),
        }
    }

    /// The error for a transport that does not exist.
    pub(super) fn transport(name: &str, rest: &str) -> Self {
        Self::Transport {
            name: name.to_owned(),
            meant: meant(name, rest),
        }
    }
}

fn meant_or_forms(meant: Option<&str>) -> String {
    match meant {
        Some(meant) => format!("did you mean {meant}?"),
        None => forms(),
    }
}

#[cfg(feature = "process")]
fn command(error: &SplitError) -> String {
    match error {
        SplitError::Shell { word } => format!(
            "{word:?} means something to a shell, and exec: starts none; write exec:sh -c '…' around the whole, or quote it if it is an argument"
        ),
        error => format!("{error}; write exec:COMMAND ARGUMENTS"),
    }
}

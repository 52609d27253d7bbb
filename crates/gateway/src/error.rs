//! The errors of planning and running a gateway.
//!
//! An error names the end that it is about ([`Side`]), the limit and the size. A program that sets limits
//! by its own options adds their names.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

#[cfg(feature = "nostr")]
use breakbulk_contextvm as contextvm;
use breakbulk_link::Closed;
use breakbulk_message::tunnel::TUNNEL;
#[cfg(feature = "nats")]
use breakbulk_net::nats::NatsError;
#[cfg(feature = "process")]
use breakbulk_net::process::ExecError;
use breakbulk_net::ws::{ConnectError, ListenError};
use breakbulk_net::{Mismatch, plain_text};

use crate::endpoint::EndpointError;
#[cfg(feature = "nats")]
use crate::fleet::FleetError;
#[cfg(feature = "http")]
use crate::mcp::HeadersError;
use crate::pump::{Ended, Side, unanswered_words};
#[cfg(feature = "nostr")]
use crate::relays::{IntroduceError, KeyFileError};
use crate::token::TokenError;
use crate::tunnel::NoTunnel;

/// Why two endpoints make no gateway.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// One end cannot be used as it was written.
    #[error("{side}: {error}")]
    End {
        /// Which one.
        side: Side,
        /// What is wrong with it.
        error: EndError,
    },
    /// Both ends are the standard streams of this process.
    #[error("both ends are stdio:, and a process has only one; use another target")]
    BothStdio,
    /// There is no kind of message that both ends carry.
    #[error("{words}")]
    NothingInCommon {
        /// What each of them carries, and an end for each that works.
        words: String,
    },
    /// Sessions of tunnels need names that nobody can guess.
    #[error("the system has no random numbers: {0}")]
    Random(io::Error),
    /// The fleet cannot be joined as it was written.
    #[cfg(feature = "nats")]
    #[error("fleet: {0}")]
    Fleet(#[from] FleetError),
    /// No session may begin.
    #[error("a gateway of 0 sessions accepts no client; give at least 1")]
    NoSessions,
    /// One session may need more memory than there is for all.
    #[error(
        "the memory of {memory} bytes is less than one session may need, {needed} bytes; raise --memory or lower --max-message"
    )]
    Memory {
        /// What there is.
        memory: usize,
        /// What one session may need.
        needed: usize,
    },
}

/// Why an end cannot be used as it was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndError {
    /// Its text says something that this end cannot have.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// A command as the end that listens.
    #[error("exec: cannot listen: clients cannot connect to a command; use it as the target")]
    ListenExec,
    /// The standard streams as the target of a listener.
    #[error(
        "stdio: cannot be the target of a listener: many clients may connect, and there is one standard output; use stdio: as the listener"
    )]
    TargetStdio,
    /// An end that answers no probes.
    #[error("probes are answered at ws://, wss://, ws+unix:, nats:// and http://")]
    NoProbe,
    /// A target without a host.
    #[error(
        "{scheme}://{authority} names no host; {}",
        meant.as_ref().map_or(format!("write {scheme}://HOST:PORT/PATH"), |url| format!("did you mean {url}?"))
    )]
    NoHost {
        /// `ws`, `wss`, `http` or `https`.
        scheme: &'static str,
        /// What stands in the place of host and port.
        authority: String,
        /// What was probably meant.
        meant: Option<String>,
    },
    /// An address that nobody can listen at.
    #[error(
        "{authority:?} is no address to listen at; write HOST:PORT, as in {scheme}://127.0.0.1:8080, or the port alone"
    )]
    ListenAddress {
        /// `ws` or `wss`.
        scheme: &'static str,
        /// What stands in the place of host and port.
        authority: String,
    },
    /// A listener whose name has no address.
    #[error("{host} has no address: {error}; check the name")]
    NoAddress {
        /// The name.
        host: String,
        /// What the system said.
        error: io::Error,
    },
    /// A listener without a token that other machines can reach.
    #[error(
        "{address} is open to others than this machine; use ?token-file=FILE, or listen at 127.0.0.1"
    )]
    OpenToOthers {
        /// The address.
        address: IpAddr,
    },
    /// A stream that other machines can reach: it has no token.
    #[error(
        "{address} is open to others than this machine, and a stream has no token; listen at 127.0.0.1, at unix:PATH, or at ws:// with ?token-file=FILE"
    )]
    StreamOpenToOthers {
        /// The address.
        address: IpAddr,
    },
    /// A target at a port that cannot be.
    #[error("{port:?} is no port; ports are 1 to 65535")]
    WrongPort {
        /// What stands behind the colon.
        port: String,
    },
    /// A target without a port.
    #[error("tcp://{authority} names no port; write tcp://HOST:PORT")]
    NoPort {
        /// What stands in the place of host and port.
        authority: String,
    },
    /// A listener whose clients a proxy should name, where there are no headers.
    #[error(
        "a stream has no headers in which a proxy could name its client; listen at ws:// behind a proxy"
    )]
    NoProxyHeader,
    /// The option `transport` at a listener, which takes clients by all transports.
    #[error(
        "transport is for targets: a listener takes clients by WebSocket, sse, poll and webrtc"
    )]
    LoroTransport,
    /// A path that carries no binary messages.
    #[error("{preset} lets no binary messages through")]
    NoBinary {
        /// The path's name.
        preset: &'static str,
    },
    /// Frames that are too small to hold anything.
    #[error(
        "a frame of {max_frame} bytes has no room for a piece; max-frame must be at least {least} bytes"
    )]
    FrameTooSmall {
        /// The largest frame.
        max_frame: usize,
        /// What it must be at least.
        least: usize,
    },
    /// WebSocket fragments that are too small.
    #[error("a fragment of {fragment} bytes is too small; fragment must be at least {least} bytes")]
    FragmentTooSmall {
        /// The largest fragment.
        fragment: usize,
        /// What it must be at least.
        least: usize,
    },
    /// Messages that are too small.
    #[error("max-message is {max_message} bytes; it must be at least {least} bytes")]
    MessageTooSmall {
        /// The largest message.
        max_message: usize,
        /// What it must be at least.
        least: usize,
    },
    /// No token in its file.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// No headers in their file.
    #[cfg(feature = "http")]
    #[error(transparent)]
    Headers(#[from] HeadersError),
    /// A certificate without its key, or a key without its certificate.
    #[error("cert and key go together; give both")]
    CertOrKey,
    /// A listener at `wss://` without a certificate.
    #[error(
        "wss:// and https:// need a certificate: add ?cert=FILE&key=FILE, or listen without TLS"
    )]
    NoCertificate,
    /// An option of the other end.
    #[error("{option} is for the other end ({})", side)]
    OnlyFor {
        /// The option.
        option: &'static str,
        /// The end that has it.
        side: Side,
    },
    /// No key in its file.
    #[cfg(feature = "nostr")]
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// A server at relays without a key.
    #[error("a server needs a key by which others find it; add ?key=FILE")]
    NoKey,
    /// A client at relays without a server.
    #[error(
        "there is no server; add ?server=PUBKEY, which the gateway at the server prints when it listens"
    )]
    NoServer,
    /// One key for several clients at relays: their answers would be mixed up.
    #[error(
        "a key stands for one client at the relays, and many may connect to the listener; leave out key, so that each gets a key of its own"
    )]
    SharedKey,
}

/// Why an end is not connected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// It cannot be used as it was written.
    #[error(transparent)]
    End(#[from] EndError),
    /// The standard streams cannot be read.
    #[error("the standard streams: {0}")]
    Stdio(io::Error),
    /// The command cannot be started.
    #[cfg(feature = "process")]
    #[error("exec: {0}")]
    Exec(#[from] ExecError),
    /// Nobody answers at the target.
    #[error("{}", with_expected(error, expected))]
    Nobody {
        /// How the attempt failed.
        error: Box<OpenError>,
        /// Which kind of server the target must be, and how to start one.
        expected: &'static str,
    },
    /// There is no WebSocket.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The HTTP server of the target cannot be asked.
    #[cfg(any(feature = "http", feature = "loro"))]
    #[error(transparent)]
    Http(#[from] breakbulk_net::http::ConnectError),
    /// The server of loro-extended closed before it was ready.
    #[error("before it was ready, the server {}", plain_text(.0))]
    LoroClosed(Closed),
    /// The server of loro-extended is not ready.
    #[error(
        "the server did not say \"ready\" within {} s; is it a server of loro-extended?", .0.as_secs()
    )]
    LoroSilent(Duration),
    /// A message came before the server was ready.
    #[error("the server sent a message before \"ready\"; is it a server of loro-extended?")]
    LoroEarly,
    /// There is no session over NATS.
    #[cfg(feature = "nats")]
    #[error(transparent)]
    Nats(#[from] NatsError),
    /// The target does not accept connections.
    #[error("{address} cannot be reached: {error}")]
    Unreachable {
        /// Host and port.
        address: String,
        /// Why.
        error: Unreachable,
    },
    /// None of the relays accepts connections.
    #[error("{}; is the relay running, and is this its address?", each(.0))]
    NoRelay(Vec<(String, Unreachable)>),
    /// The relays answer, but refuse this gateway.
    #[cfg(feature = "nostr")]
    #[error(transparent)]
    Relays(#[from] contextvm::OpenError),
    /// The other end must be a gateway and is none.
    #[error(
        "{authority} is no breakbulk gateway (it does not speak {TUNNEL}), and tunnel=always or framing=ipc needs one; start one there"
    )]
    NotGateway {
        /// Host and port.
        authority: String,
    },
    /// The tunnel with the other gateway could not be set up.
    #[error(transparent)]
    Tunnel(#[from] NoTunnel),
    /// The transport does not carry the frames of the wire.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// An MCP server did not accept `initialize`.
    #[cfg(feature = "nostr")]
    #[error(transparent)]
    Introduce(#[from] IntroduceError),
    /// The gateway was stopped before the end was connected.
    #[error("the gateway is stopping")]
    Stopped,
}

fn each(relays: &[(String, Unreachable)]) -> String {
    let each = relays
        .iter()
        .map(|(relay, error)| format!("{relay} cannot be reached: {error}"));
    each.collect::<Vec<_>>().join("; ")
}

/// Why a connection was not accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unreachable {
    /// What the system said.
    #[error("{}", plain(.0))]
    Io(#[from] io::Error),
    /// The connection was not accepted in time.
    #[error("no answer within {} s", .0.as_secs())]
    Silent(Duration),
}

/// The error of a target that nothing answers at, followed by what was expected there.
fn with_expected(error: &OpenError, expected: &str) -> String {
    let error = error.to_string();
    match error.ends_with('?') {
        true => format!("{error} Expected there: {expected}"),
        false => format!("{error}; expected there: {expected}"),
    }
}

/// What the system said, or plainer words for the most frequent errors.
fn plain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused: nothing listens there".to_owned(),
        io::ErrorKind::NotFound => "there is no such socket".to_owned(),
        io::ErrorKind::ConnectionReset => "it ended the connection at once".to_owned(),
        _ => error.to_string(),
    }
}

/// Why a gateway ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The target cannot be reached: found by the check before listening that
    /// [`Config::check`](crate::Config::check) asks for.
    #[error("to: {0}; start it first, or check the address")]
    Check(OpenError),
    /// The gateway cannot listen.
    #[error("listen: {0}")]
    Listen(ListenError),
    /// An end is not connected.
    #[error("{side}: {error}")]
    Open {
        /// Which one.
        side: Side,
        /// Why.
        error: OpenError,
    },
    /// The listener failed while it listened.
    #[error(transparent)]
    Accept(#[from] ListenError),
    /// The gateway cannot listen at NATS.
    #[cfg(feature = "nats")]
    #[error("listen: {0}")]
    ListenNats(NatsError),
    /// The fleet cannot be joined.
    #[cfg(feature = "nats")]
    #[error("fleet: {0}")]
    Fleet(NatsError),
    /// The listener at NATS failed while it listened.
    #[cfg(feature = "nats")]
    #[error(transparent)]
    Nats(NatsError),
    /// The server at the relays ended by itself.
    #[error("the server at the relays has ended")]
    RelaysEnded,
    /// The one session of the standard streams failed.
    #[error(transparent)]
    Session(#[from] SessionEnd),
}

impl RunError {
    /// Whether the gateway could not start: the setup must be corrected first.
    pub fn is_setup(&self) -> bool {
        #[cfg(feature = "nats")]
        if matches!(self, Self::ListenNats(_) | Self::Fleet(_)) {
            return true;
        }
        matches!(self, Self::Check(_) | Self::Listen(_) | Self::Open { .. })
    }
}

/// The program at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Party {
    /// The program at the standard streams of this process.
    StandardStreams,
    /// The command that the gateway started.
    Command,
    /// A client of the listener.
    Client,
    /// The server that the gateway connected to.
    Target,
    /// The server at the relays.
    Server,
}

impl OpenError {
    /// Whether nobody answers there: the target may not be running, or a proxy has nothing behind it.
    fn is_unanswered(&self) -> bool {
        match self {
            Self::Connect(error) => error.is_unanswered(),
            #[cfg(any(feature = "http", feature = "loro"))]
            Self::Http(error) => error.is_unanswered(),
            Self::Unreachable { .. } => true,
            _ => false,
        }
    }

    /// Adds what was expected at the target to an error that says that nothing answers there.
    pub(crate) fn expecting(self, expected: Option<&'static str>) -> Self {
        match expected {
            Some(expected) if self.is_unanswered() => Self::Nobody {
                error: Box::new(self),
                expected,
            },
            _ => self,
        }
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StandardStreams => "the program at the standard streams",
            Self::Command => "the command",
            Self::Client => "the client",
            Self::Target => "the target",
            Self::Server => "the server",
        })
    }
}

/// How a session ended. An error if [`Ended::is_clean`] does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionEnd {
    /// The program at the end that was closed first.
    pub party: Party,
    /// How that end was closed, and what was lost.
    pub ended: Ended,
}

impl fmt::Display for SessionEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (party, closed) = (self.party, &self.ended.closed);
        let (code, reason) = (closed.code, plain_text(&closed.reason));
        let why = match reason.is_empty() {
            true => String::new(),
            false => format!(": {reason}"),
        };
        match (self.ended.by_peer, party) {
            // A command exits: it sends no close, and the code says only whether all went well.
            (true, Party::Command) if !reason.is_empty() => {
                write!(f, "session ended: {reason} (closed with {code})")?;
            }
            (true, _) => write!(f, "{party} closed with {code}{why}")?,
            (false, _) => write!(
                f,
                "this gateway closed its connection to {party} with {code}{why}"
            )?,
        }
        let ended = &self.ended;
        match &ended.refused {
            Some(refused) => write!(f, "; {refused}")?,
            None if closed.code == 1009 && !ended.by_peer => f.write_str(
                "; start this gateway with a larger --max-message (where it cuts: --max-frame), or send less",
            )?,
            None => {}
        }
        match ended.lost {
            0 => {}
            1 => f.write_str("; 1 message was not sent")?,
            lost => write!(f, "; {lost} messages were not sent")?,
        }
        match ended.incomplete {
            0 => {}
            1 => f.write_str("; 1 message did not arrive whole")?,
            incomplete => write!(f, "; {incomplete} messages did not arrive whole")?,
        }
        if ended.unframed > 0 {
            let bytes = ended.unframed;
            write!(
                f,
                "; {bytes} bytes that were read make no whole message and are dropped"
            )?;
        }
        match ended.unanswered {
            0 => Ok(()),
            requests => write!(f, "; {}", unanswered_words(requests)),
        }
    }
}

impl std::error::Error for SessionEnd {}

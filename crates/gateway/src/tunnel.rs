//! The tunnel between two gateways. It carries any JSON-RPC program in the segments of AHP's wire (or
//! binary messages in loro's fragments), and outlives the line below it.
//!
//! A tunnel is a **session** on a **line**. The line is one connection of some carrier (a WebSocket, for
//! example); the session is a transport for a link, which goes on when the line is lost: each end keeps
//! the frames that the other has not acknowledged, the end that opened the line opens another one, and
//! the session goes on with the first frame that did not arrive.
//!
//! `machine.rs` decides, without sockets and clocks; `session.rs` carries that out; `transport.rs` is
//! what the link sees; `client.rs` opens lines, `lobby.rs` accepts them; `lines.rs` is the seam for
//! carriers.

mod client;
mod learned_caps;
mod lines;
mod lobby;
mod machine;
mod session;
mod transport;

use std::sync::Arc;
use std::time::Duration;

use breakbulk_link::{Budget, Cap, Carries, Closed, Link, PeerSupport};
use breakbulk_message::tunnel::{ControlError, Hello, SessionId, tunnel_end};
use breakbulk_net::{Connection, Mismatch, Options, fresh_seed, now};
use breakbulk_wire::{Ahp, Loro, TextSegments};

use client::Halves;
pub use client::connect;
pub use learned_caps::{BrokenFile, LearnedCaps};
pub use lines::{Boxed, Caller, Dial, Line};
#[cfg(feature = "nats")]
pub(crate) use lines::{LineSink, LineSource};
pub use lobby::{Greeted, Lobby, Newcomer, Stray};
use machine::{LEAST_CAP, Machine, Settings};
use session::{Found, KeepCap, Lines, Session};
use transport::Resuming;

use crate::pump::{Port, limits, session_memory};
use crate::watch::SideWatch;

/// How long the other gateway's hello may take: it connects to its own target before.
const HELLO_TIME: Duration = Duration::from_secs(30);

/// How much may be on its way unacknowledged, if there is memory for it.
pub const WINDOW: usize = 8 << 20;

/// The control word between two gateways that carry binary messages: no more messages follow it, while
/// others may still go the other way.
const END: &str = "end";

/// Why a tunnel could not be set up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoTunnel {
    /// The other end sent something else first.
    #[error(transparent)]
    Hello(#[from] ControlError),
    /// The other end sent nothing.
    #[error("the other gateway sent no breakbulk/hello within {} s", .0.as_secs())]
    Silent(Duration),
    /// The other end closed.
    #[error("the other gateway {}", breakbulk_net::plain_text(.0))]
    Closed(Closed),
    /// One end carries text, the other one binary messages.
    #[error(
        "one gateway carries text and the other one binary messages; their other ends must be of one kind"
    )]
    Carries,
    /// A session needs a name that nobody can guess.
    #[error("the system has no random numbers: {0}")]
    Random(String),
    /// The transport does not carry the frames of the wire.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
}

/// The limits of one side of a tunnel.
#[derive(Clone, Debug)]
pub struct TunnelConfig {
    /// The largest frame that is sent.
    pub cap: Cap,
    /// The largest frame that is received.
    pub max_frame: usize,
    /// The largest message that is received.
    pub max_message: usize,
    /// The memory that all connections share.
    pub budget: Budget,
    /// Whether the messages are text or binary.
    pub carries: Carries,
    /// How long the session is kept after its line was lost; zero ends it with its line. The smaller one
    /// of both ends applies.
    pub resume_for: Duration,
    /// How many bytes of frames may be on their way unacknowledged.
    pub window: usize,
    /// What is known about the caps of paths.
    pub caps: KnownCaps,
    /// Counts what passes at this end, for whoever looks.
    pub watched: SideWatch,
}

/// What is known about the caps of paths, and whether a session begins with it.
#[derive(Clone, Debug, Default)]
pub struct KnownCaps {
    /// What was learned.
    pub learned: Arc<LearnedCaps>,
    /// Whether `cap` was asked for, so that what was learned before does not apply.
    pub is_asked_for: bool,
}

impl KnownCaps {
    /// The cap that was learned for a path, if it applies.
    fn of(&self, path: &str) -> Option<usize> {
        self.learned.of(path).filter(|_| !self.is_asked_for)
    }

    /// The largest frame that comes by a path, if it was learned and applies.
    fn of_incoming(&self, path: &str) -> Option<usize> {
        self.learned
            .of_incoming(path)
            .filter(|_| !self.is_asked_for)
    }

    /// Remembers what is learned about a path.
    fn keeper(&self, path: String) -> KeepCap {
        let learned = self.learned.clone();
        Box::new(move |found| {
            let (learned, path) = (learned.clone(), path.clone());
            tokio::task::spawn_blocking(move || {
                let kept = match found {
                    Found::Out(cap) => learned.learn(&path, cap),
                    Found::In(cap) => learned.learn_incoming(&path, cap),
                };
                if let Err(error) = kept {
                    tracing::warn!(%error, "the learned max-frame could not be written to the state file");
                }
            });
        })
    }
}

/// A tunnel that is open.
pub struct Tunnelled {
    /// Its connection.
    pub connection: Connection,
    /// The same connection as a port of the pump.
    pub port: Port,
}

impl TunnelConfig {
    /// The hello that contains these limits.
    pub fn hello(&self, session: Option<SessionId>) -> Hello {
        Hello {
            session,
            binary: self.is_binary(),
            resume_ms: u64::try_from(self.resume_for.as_millis()).unwrap_or(u64::MAX),
            window: self.window as u64,
            frame: self.max_frame.min(self.max_message).max(1) as u64,
            message: self.max_message.max(1) as u64,
            label: self.watched.label(),
        }
    }

    fn is_binary(&self) -> bool {
        self.carries == Carries::Binary
    }

    /// The largest frame that a line takes. One that is slightly too large still reaches the link, whose
    /// error is more precise.
    fn largest_frame(&self) -> usize {
        self.max_frame.saturating_add(self.max_frame / 8).max(1024)
    }

    /// A link with these limits to a gateway that said this hello; the names of its transfers come from
    /// the seed.
    pub fn link(&self, hello: &Hello, seed: [u8; 32]) -> Link {
        match self.carries {
            Carries::Text => self.text_link(hello, seed),
            Carries::Binary => self.binary_link(hello, seed),
        }
    }

    fn text_link(&self, hello: &Hello, seed: [u8; 32]) -> Link {
        let mut config = Ahp::config();
        config.report_opened = true;
        config.progress = 0;
        config.rules.timeouts.idle = None;
        config.rules.timeouts.age = None;
        config.limits = limits(self.max_message).with(|it| {
            it.frame = self.max_frame;
            it.transfers = 1;
            it.pieces = config.limits.pieces;
        });
        let wire = Arc::new(TextSegments);
        let budget = self.budget.clone();
        let mut link = Link::new(wire.clone(), wire, config, budget, seed);
        link.set_cap(self.cap);
        link.set_peer(PeerSupport::Yes(Ahp::peer_limits(&hello.chunking())));
        link
    }

    fn binary_link(&self, hello: &Hello, seed: [u8; 32]) -> Link {
        let mut config = Loro::config();
        config.progress = 0;
        config.rules.timeouts.idle = None;
        config.rules.timeouts.age = None;
        let limits = &mut config.limits;
        limits.frame = self.max_frame;
        limits.message = self.max_message;
        limits.pending_bytes = self.max_message;
        limits.memory = session_memory(self.max_message);
        limits.queued_bytes = self.max_message;
        let wire = Arc::new(Loro);
        let mut link = Link::new(wire.clone(), wire, config, self.budget.clone(), seed);
        let peer = usize::try_from(hello.frame).unwrap_or(usize::MAX);
        link.set_cap(Cap {
            max: self.cap.max.min(peer),
            ..self.cap
        });
        link
    }

    /// Begins a session on its first line, with a gateway that said this hello. What is learned about
    /// the path is kept under its name; an end that accepts lines has none, since its clients may come by
    /// different paths.
    fn begin(
        &self,
        hello: &Hello,
        (source, sink, cap, pings): Halves,
        lines: Lines,
        path: Option<String>,
    ) -> Result<Tunnelled, NoTunnel> {
        let seed = fresh_seed();
        let peer_frame = usize::try_from(hello.frame).unwrap_or(usize::MAX);
        let learned = path.as_deref().and_then(|path| self.caps.of(path));
        let learned = learned.unwrap_or(usize::MAX);
        let settings = Settings {
            resume_for: self.resume_for.min(Duration::from_millis(hello.resume_ms)),
            window: self.window,
            peer_window: usize::try_from(hello.window).unwrap_or(usize::MAX),
            frame_limit: self.largest_frame(),
            cap: self.cap.max.min(peer_frame).min(learned),
            binary: self.is_binary(),
            budget: self.budget.clone(),
            seed: u64::from_be_bytes(std::array::from_fn(|at| seed[at])),
        };
        let machine = Machine::new(now(), settings, cap, pings);
        let cap = machine.cap();
        let keep = path.map(|path| self.caps.keeper(path));
        let watched = self.watched.clone();
        let session = Session::start(machine, (source, sink), lines, keep, watched);
        let mut link = self.link(hello, seed);
        link.set_cap(Cap {
            max: self.cap.max.min(cap),
            ..self.cap
        });
        // The session notices a dead line itself, and goes on with another one.
        let options = Options {
            keepalive: None,
            silence: None,
            write_time: None,
            ..Options::default()
        };
        let transport = Resuming::new(session.clone(), self.is_binary());
        let connection = Connection::open(link, transport, options)?;
        session.follow(connection.downgrade());
        let undelivered = move || session.look(Machine::undelivered);
        let port = Port::new(connection.clone()).with_undelivered(undelivered);
        let port = match self.carries {
            Carries::Text => port.ending_with(tunnel_end()),
            Carries::Binary => port.ending_with_word(END, &connection),
        };
        Ok(Tunnelled { connection, port })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

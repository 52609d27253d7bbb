//! The plain or the persistent framing, with small limits.

use std::time::{Duration, Instant};

use breakbulk_vscode::machine::ipc::{
    PersistentConfig, PersistentEvent, PersistentProtocol, Protocol, Received,
};
use breakbulk_vscode::machine::rpc::Packet;
use bytes::Bytes;

/// The largest payload that is accepted, above the limit of the RPC.
const PAYLOAD: usize = 8192;

fn config() -> PersistentConfig {
    PersistentConfig::default().with(|config| {
        config.payload = PAYLOAD;
        config.replay_bytes = 4096;
        config.replay_messages = 8;
        config.ack_after = Duration::from_secs(2);
        config.ack_bytes = 1024;
        config.ack_messages = 4;
        config.keep_alive = Some(Duration::from_secs(5));
        config.timeout = Duration::from_secs(20);
        config.replay_request_every = Duration::from_secs(10);
    })
}

/// The bytes of a frame's header, and the most that a kept message is charged.
const HEADER: usize = 13;
const CHARGE: usize = 256;

/// The most calls of `handle_timeout` that one step may need.
const LOOKS: usize = 200;

pub(super) enum Framing {
    Plain(Protocol),
    /// With the number of header-only frames that it may have queued.
    Persistent(Box<PersistentProtocol>, usize),
}

impl Framing {
    pub(super) fn new(persistent: bool) -> Self {
        match persistent {
            false => Self::Plain(Protocol::new(PAYLOAD)),
            true => Self::Persistent(Box::new(PersistentProtocol::new(start(), config())), 0),
        }
    }

    pub(super) fn read(&mut self, now: Instant, input: &mut Bytes) -> Result<Option<Received>, ()> {
        let received = match self {
            Self::Plain(protocol) => {
                let message = protocol.handle_bytes(input);
                message.map(|message| message.map(Received::Message))
            }
            Self::Persistent(protocol, bare) => {
                *bare += 1;
                protocol.handle_bytes(now, input)
            }
        };
        received.map_err(drop)
    }

    pub(super) fn has_room(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Persistent(protocol, _) => protocol.has_room(),
        }
    }

    pub(super) fn send(&mut self, now: Instant, packet: &Packet) {
        match self {
            Self::Plain(protocol) => protocol.send(packet).expect("it is short"),
            Self::Persistent(protocol, _) => protocol.send(now, packet).expect("there was room"),
        }
    }

    /// Writes at most `max` bytes of the queued ones.
    pub(super) fn write(&mut self, now: Instant, mut max: usize, written: &mut Vec<u8>) {
        let out = match self {
            Self::Plain(protocol) => Some(protocol.outgoing()),
            Self::Persistent(protocol, _) => protocol.outgoing(now),
        };
        let Some(out) = out else { return };
        while max > 0
            && let Some(bytes) = out.pop(max)
        {
            max -= bytes.len();
            written.extend_from_slice(&bytes);
        }
        if let Self::Persistent(_, bare) = self
            && max > 0
        {
            *bare = 0;
        }
    }

    /// The stream is lost, and perhaps replaced. False if the session ends with it.
    pub(super) fn lost(&mut self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Persistent(protocol, _) => {
                protocol.stream_lost();
                true
            }
        }
    }

    pub(super) fn resume(&mut self, now: Instant) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Persistent(protocol, bare) => {
                protocol.resume(now);
                *bare = 1;
                true
            }
        }
    }

    /// Does what is due, and returns the events.
    pub(super) fn timeout(&mut self, now: Instant) -> Vec<PersistentEvent> {
        let Self::Persistent(protocol, bare) = self else {
            return Vec::new();
        };
        let mut looks = 0;
        while protocol.poll_timeout().is_some_and(|(at, _)| now >= at) {
            protocol.handle_timeout(now);
            *bare += 2;
            looks += 1;
            assert!(
                looks < LOOKS,
                "due again and again: {:?}",
                protocol.poll_timeout()
            );
        }
        std::iter::from_fn(|| protocol.poll_event()).collect()
    }

    /// Checks the bound on what is kept, whatever the peer does.
    pub(super) fn check(&self, largest: usize) {
        if let Self::Persistent(protocol, bare) = self {
            let most = config().replay_bytes + largest + CHARGE;
            assert!(protocol.unacknowledged() <= config().replay_messages);
            assert!(
                protocol.replay_bytes() <= most,
                "{}",
                protocol.replay_bytes()
            );
            // Frames that wait to be written, and one replay of the kept messages.
            let queued = protocol.queued_bytes();
            assert!(queued <= 2 * most + bare * HEADER * 2, "{queued}");
        }
    }
}

/// The clock of every session begins here.
pub(super) fn start() -> Instant {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *START.get_or_init(Instant::now)
}

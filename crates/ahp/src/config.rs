//! The configuration of one side of a connection, and the links made from it.

mod slow;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use breakbulk_link::{self as link, Budget, Cap, Lane, Link, PeerSupport, SendError};
use breakbulk_message::ahp::{self, Chunking, MESSAGE_TOO_LARGE, MessageTooLarge, TimeoutFrom};
use breakbulk_message::jsonrpc::Kind;
#[cfg(feature = "net")]
use breakbulk_net::{Options, fresh_seed};
use breakbulk_wire::Ahp;

pub(crate) use slow::{SLOW_FOR, Slow};

/// The lane of messages that carry no state.
const FREE: Lane = Lane(1);

/// The lane of the next message when every message gets a lane of its own.
static NEXT: AtomicU32 = AtomicU32::new(2);

/// The longest time, in group timeouts, that a group may take while its segments keep coming.
const AGE: u32 = 20;

/// What one side of a connection does, host or client.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// What this side advertises, and enforces.
    pub chunking: Chunking,
    /// What the path lets through. The smaller of this and what the peer accepts applies.
    pub cap: Cap,
    /// The memory that all connections share.
    pub budget: Budget,
    /// The numbers that bound what waits to be sent.
    pub limits: Limits,
    /// The error code for a message that is too large; the proposal's own is taken by another error.
    pub too_large_code: i32,
    /// How the connection is kept alive.
    #[cfg(feature = "net")]
    pub options: Options,
    /// The randomness of group ids; `None`: each connection gets fresh randomness.
    pub seed: Option<[u8; 32]>,
    /// Safeguards that tests switch off to show what goes wrong without them.
    pub(crate) switches: Switches,
}

/// The limits of one side of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Messages that may wait to be sent.
    pub queued: usize,
    /// Bytes of these messages.
    pub queued_bytes: usize,
}

/// Safeguards that tests switch off to show what goes wrong without them; see [`testing`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Switches {
    pub(crate) lanes: Lanes,
    /// Whether this side defends against messages that overtake others.
    pub(crate) defends: bool,
}

/// Which messages may overtake others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(not(feature = "testing"), expect(dead_code, unreachable_pub))]
pub enum Lanes {
    /// Messages that carry no state may overtake.
    #[default]
    ByMeaning,
    /// None may: a ping waits behind a large action.
    One,
    /// All may, as in the proposal: an action that overtakes another hides it.
    Each,
}

/// Switches off what keeps actions from being lost, for tests and benchmarks that show why it is there.
#[cfg(feature = "testing")]
pub mod testing {
    pub use super::Lanes;
    use super::{Config, Switches};

    /// This configuration with these lanes, and with or without the defence against overtaking.
    pub fn switched(config: Config, lanes: Lanes, defends: bool) -> Config {
        let switches = Switches { lanes, defends };
        config.with(|it| it.switches = switches)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            chunking: Chunking::default(),
            cap: Cap::frame(usize::MAX),
            budget: Budget::new(1 << 30),
            limits: Limits::default(),
            too_large_code: MESSAGE_TOO_LARGE,
            #[cfg(feature = "net")]
            options: Options::default(),
            seed: None,
            switches: Switches {
                lanes: Lanes::ByMeaning,
                defends: true,
            },
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            queued: 16_384,
            queued_bytes: 128 << 20,
        }
    }
}

breakbulk_link::with!(Config, Limits);

/// Why the advertised limits are invalid. A peer would treat them as if none were advertised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsound {
    /// A limit is 0.
    #[error("chunking.{limit} is 0, so that nothing could be received; raise it")]
    Zero {
        /// The name of the limit.
        limit: &'static str,
    },
    /// The largest message is smaller than the largest frame.
    #[error(
        "chunking.max_message_bytes is {message}, less than max_frame_bytes, which is {frame}; raise the one or lower the other"
    )]
    MessageBelowFrame {
        /// The bytes of a message.
        message: u64,
        /// The bytes of a frame.
        frame: u64,
    },
}

impl Config {
    /// Whether the limits that this side advertises are valid.
    ///
    /// # Errors
    /// The first limit that is not.
    pub fn check(&self) -> Result<(), Unsound> {
        let it = &self.chunking;
        for (limit, is_zero) in [
            ("max_frame_bytes", it.max_frame_bytes == 0),
            ("max_groups", it.max_groups == Some(0)),
            ("group_timeout_ms", it.group_timeout_ms == Some(0)),
        ] {
            if is_zero {
                return Err(Unsound::Zero { limit });
            }
        }
        if it.is_sound() {
            return Ok(());
        }
        Err(Unsound::MessageBelowFrame {
            message: it.max_message_bytes,
            frame: it.max_frame_bytes,
        })
    }

    /// A link for one connection, with the configured [`seed`](Self::seed) or fresh randomness; see
    /// [`link`](Self::link).
    #[cfg(feature = "net")]
    pub fn fresh_link(&self) -> Link {
        self.link(self.seed.unwrap_or_else(fresh_seed))
    }

    /// A link before its handshake: it sends and accepts no segments yet. All its randomness comes from
    /// the seed.
    pub fn link(&self, seed: [u8; 32]) -> Link {
        let chunking = &self.chunking;
        let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let mut config = Ahp::config();
        let groups = chunking.max_groups.unwrap_or(Chunking::DEFAULT_GROUPS);
        let message = size(chunking.max_message_bytes);
        config.receives_pieces = false;
        // The defence against overtaking needs to know which groups are incomplete.
        config.report_opened = true;
        config.small_first = self.switches.lanes != Lanes::Each;
        config.limits = link::Limits::default().with(|it| {
            it.frame = size(chunking.max_frame_bytes);
            it.message = message;
            it.transfers = size(groups);
            // All groups that the peer may open, each with a quarter of spare room.
            it.memory = size(groups)
                .saturating_mul(message.saturating_add(message / 4))
                .saturating_add(8 << 20);
            it.queued = self.limits.queued;
            it.queued_bytes = self.limits.queued_bytes;
            it.pieces = config.limits.pieces;
        });
        if let Some(ms) = chunking.group_timeout_ms {
            let time = Duration::from_millis(ms);
            let timeouts = &mut config.rules.timeouts;
            (timeouts.idle, timeouts.age) = match chunking.timeout_from {
                TimeoutFrom::Last => (Some(time), Some(time.saturating_mul(AGE))),
                TimeoutFrom::First => (None, Some(time)),
            };
        }
        let wire = Arc::new(Ahp);
        let mut link = Link::new(wire.clone(), wire, config, self.budget.clone(), seed);
        link.set_cap(self.cap);
        link
    }

    /// Configures a link after the handshake, with the limits that the peer advertised.
    pub fn apply_peer(&self, link: &mut Link, peer: Option<&Chunking>) {
        link.set_peer(peer.map_or(PeerSupport::No, |it| PeerSupport::Yes(Ahp::peer_limits(it))));
        link.set_receives_pieces(true);
    }

    /// The lane of a message; a response has the method of what it answers.
    pub fn lane(&self, kind: Kind, method: Option<&str>) -> Lane {
        match (self.switches.lanes, ahp::lane_of(kind, method)) {
            (Lanes::Each, _) => Lane(NEXT.fetch_add(1, Ordering::Relaxed)),
            (Lanes::ByMeaning, ahp::Lane::Free) => FREE,
            _ => Lane::ORDERED,
        }
    }

    /// What this side advertises, if it is valid.
    pub(crate) fn advertised(&self) -> Option<&Chunking> {
        Some(&self.chunking).filter(|chunking| chunking.is_sound())
    }

    /// Whether a message of this size can be sent to this peer, checked before it is queued.
    pub(crate) fn fits(
        &self,
        size: usize,
        may_cut: bool,
        peer: Option<&Chunking>,
    ) -> Result<(), SendError> {
        Ahp::fits(
            size,
            may_cut,
            peer.map(Ahp::peer_limits).as_ref(),
            &self.cap,
        )
    }

    /// The error for a message that is too large for this peer.
    pub fn too_large(&self, size: usize, peer: Option<&Chunking>) -> MessageTooLarge {
        let cap = u64::try_from(self.cap.max).unwrap_or(u64::MAX);
        let frame = peer.map_or(cap, |peer| peer.max_frame_bytes.min(cap));
        MessageTooLarge {
            message_bytes: size as u64,
            max_frame_bytes: frame,
            max_message_bytes: peer.map_or(frame, |peer| peer.max_message_bytes),
            chunking: peer.is_some(),
        }
    }
}

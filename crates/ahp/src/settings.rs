//! The configuration of one side of a connection, and the links made from it.

mod slow;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use breakbulk_link::{Budget, Cap, Lane, Limits, Link, PeerSupport, SendError};
use breakbulk_message::ahp::{self, Chunking, MESSAGE_TOO_LARGE, MessageTooLarge, TimeoutFrom};
use breakbulk_message::jsonrpc::Kind;
#[cfg(feature = "net")]
use breakbulk_net::{Options, fresh_seed};
use breakbulk_wire::Ahp;

pub(crate) use slow::{SLOW_FOR, Slow};

/// The lane of what carries no state.
const FREE: Lane = Lane(1);

/// The next lane where every message has its own.
static NEXT: AtomicU32 = AtomicU32::new(2);

/// How old a group may grow whose segments keep coming, in group timeouts.
const AGE: u32 = 20;

/// The settings of one side, whichever it is.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What this side advertises, and enforces.
    pub chunking: Chunking,
    /// What the transport lets through: the smaller of this and what the peer takes counts.
    pub cap: Cap,
    /// The memory that all connections share.
    pub budget: Budget,
    /// Messages that may wait to go out.
    pub queued: usize,
    /// Bytes of messages that may wait to go out.
    pub queued_bytes: usize,
    /// The code for a message that is too large; the proposal's is taken by another error.
    pub too_large_code: i32,
    /// How the connection is kept alive.
    #[cfg(feature = "net")]
    pub options: Options,
    /// Where the randomness of group ids comes from; absent, each connection gets a fresh one.
    pub seed: Option<[u8; 32]>,
    /// What may overtake what. Anything but the default is for tests that show why.
    #[doc(hidden)]
    pub lanes: Lanes,
    /// Whether foreign clients are defended against overtaking. Off for tests that show why.
    #[doc(hidden)]
    pub defends: bool,
}

/// What may overtake what.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lanes {
    /// What carries no state may overtake.
    #[default]
    ByMeaning,
    /// Nothing overtakes: a ping waits behind a large action.
    One,
    /// Everything overtakes, as the proposal has it: an action that overtakes another hides it.
    Each,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            chunking: Chunking::default(),
            cap: Cap::frame(usize::MAX),
            budget: Budget::new(1 << 30),
            queued: 16_384,
            queued_bytes: 128 << 20,
            too_large_code: MESSAGE_TOO_LARGE,
            #[cfg(feature = "net")]
            options: Options::default(),
            seed: None,
            lanes: Lanes::ByMeaning,
            defends: true,
        }
    }
}

/// Why the advertised limits are invalid. A peer would treat them as if none were advertised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsound {
    /// A limit is 0.
    #[error("chunking.{limit} is 0, so that nothing could be received; raise it")]
    Zero {
        /// Which.
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

impl Settings {
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

    /// A link for one connection, with [`seed`](Self::seed) or a fresh one; see
    /// [`seeded_link`](Self::seeded_link).
    #[cfg(feature = "net")]
    pub fn link(&self) -> Link {
        self.seeded_link(self.seed.unwrap_or_else(fresh_seed))
    }

    /// A link before its handshake: it sends and accepts no segments yet. All its randomness comes from
    /// the seed.
    pub fn seeded_link(&self, seed: [u8; 32]) -> Link {
        let chunking = &self.chunking;
        let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let mut config = Ahp::config();
        let groups = chunking.max_groups.unwrap_or(Chunking::DEFAULT_GROUPS);
        let message = size(chunking.max_message_bytes);
        config.receives_pieces = false;
        // The defence against overtaking needs to know which groups are incomplete.
        config.report_opened = true;
        config.small_first = self.lanes != Lanes::Each;
        config.limits = Limits {
            frame: size(chunking.max_frame_bytes),
            message,
            transfers: size(groups),
            // All groups that the peer may open, each with a quarter of spare room.
            memory: size(groups)
                .saturating_mul(message.saturating_add(message / 4))
                .saturating_add(8 << 20),
            queued: self.queued,
            queued_bytes: self.queued_bytes,
            pieces: config.limits.pieces,
            ..Limits::default()
        };
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
    pub fn shake(&self, link: &mut Link, peer: Option<&Chunking>) {
        link.set_peer(peer.map_or(PeerSupport::No, |it| PeerSupport::Yes(Ahp::peer_limits(it))));
        link.set_receives_pieces(true);
    }

    /// The lane of a message; a response has the method of what it answers.
    pub fn lane(&self, kind: Kind, method: Option<&str>) -> Lane {
        match (self.lanes, ahp::lane_of(kind, method)) {
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

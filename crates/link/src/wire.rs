//! What a format for frames must be able to do. A wire has settings and no state.

use std::fmt::Debug;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;

use crate::{Cap, Carries, Fault, FaultKind, Frame, Key, Random, SendError};

/// A format for frames: a stateless codec. All state is in [`Link`](crate::Link).
pub trait Wire: Debug + Send + Sync {
    /// Its name in endpoints, tables and logs.
    fn name(&self) -> &'static str;

    /// What its frames are.
    fn carries(&self) -> Carries;

    /// A fresh key for a transfer of ours; `None` where the caller must name it.
    fn mint(&self, random: &mut Random) -> Option<Key>;

    /// Decides how a message goes out: in one frame or in pieces, and how many.
    fn plan(&self, message: &[u8], options: &PlanOptions<'_>) -> Result<Plan, SendError>;

    /// Where the piece that begins at `from` ends.
    fn cut(&self, pieces: &Pieces, message: &[u8], from: usize) -> usize;

    /// Appends one frame to `out`.
    fn write(&self, part: Part<'_>, out: &mut Vec<u8>);

    /// Reads a piece in the form that this wire writes itself, without a general parse.
    ///
    /// It may be wrong about a frame of another form: the link believes no fault that follows from
    /// it before [`read`](Self::read) says the same.
    fn read_canonical<'a>(&self, _frame: &'a Frame) -> Option<Piece<'a>> {
        None
    }

    /// Reads any frame. Borrows, and decodes no data.
    fn read<'a>(&self, frame: &'a Frame) -> Result<Inbound<'a>, Fault>;

    /// At most so many bytes come out of a piece.
    fn decoded_max(&self, piece: &Piece<'_>) -> usize;

    /// Appends a piece's data to a transfer's buffer.
    fn decode(&self, piece: &Piece<'_>, into: &mut Vec<u8>) -> Result<(), FaultKind>;

    /// The checks of a message that came in pieces, once it is whole.
    fn finish(&self, whole: &Assembled<'_>) -> Result<Shape, FaultKind>;

    /// The format's own word for a fault, where it has one.
    fn code(&self, fault: &FaultKind) -> &'static str {
        fault.name()
    }

    /// A key as people write it.
    fn key_text(&self, key: &Key) -> String {
        key.to_string()
    }
}

/// What a plan depends on beside the message.
#[derive(Clone, Copy, Debug)]
pub struct PlanOptions<'a> {
    /// The caller's key.
    pub key: Option<&'a Key>,
    /// Whether the message may be cut at all.
    pub may_cut: bool,
    /// Whether the message is known to be UTF-8.
    pub known_text: bool,
    /// What the peer said it can take.
    pub peer: &'a PeerSupport,
    /// What the transport lets through.
    pub cap: &'a Cap,
}

/// What is known of the peer's ability to put pieces together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PeerSupport {
    /// Nothing yet.
    #[default]
    Unknown,
    /// It cannot.
    No,
    /// It can, within these limits.
    Yes(PeerLimits),
}

impl PeerSupport {
    /// The limits of a peer that can.
    pub fn limits(&self) -> Option<&PeerLimits> {
        match self {
            Self::Yes(limits) => Some(limits),
            Self::Unknown | Self::No => None,
        }
    }
}

/// What a peer takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerLimits {
    /// Bytes of one frame.
    pub frame: usize,
    /// Bytes of one message.
    pub message: usize,
    /// Transfers at once.
    pub transfers: usize,
    /// How long it holds an unfinished transfer.
    pub timeout: Option<Duration>,
    /// Whether that time begins anew with each piece.
    pub timeout_from_last: bool,
}

impl PeerLimits {
    /// A peer that names no limits.
    pub const NONE: Self = Self {
        frame: usize::MAX,
        message: usize::MAX,
        transfers: usize::MAX,
        timeout: None,
        timeout_from_last: true,
    };
}

/// How a message goes out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// In one frame.
    Whole,
    /// Cut.
    Pieces(Pieces),
}

/// The plan of a message that is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// The transfer's name; the link sets it where the wire mints keys.
    pub key: Key,
    /// How many pieces.
    pub count: u64,
    /// Bytes of the message.
    pub bytes: usize,
    /// What one piece may hold, in the wire's own unit.
    pub room: usize,
    /// The cap it was planned for.
    pub cap: Cap,
    /// The number of the first piece on the wire.
    pub first: u64,
    /// The digest of the message, where the wire announces one.
    pub digest: Option<[u8; 32]>,
    /// Whether a frame announces the pieces, and whether the peer must accept before they follow.
    pub opening: Announce,
    /// Whether a frame follows the last piece.
    pub closing: bool,
}

impl Pieces {
    /// A plan of nothing but pieces, numbered from 0.
    pub fn new(bytes: usize, room: usize, count: u64, cap: Cap) -> Self {
        let key = Key::new(&[]);
        Self {
            key,
            count,
            bytes,
            room,
            cap,
            first: 0,
            digest: None,
            opening: Announce::Not,
            closing: false,
        }
    }
}

/// How a transfer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announce {
    /// With its first piece.
    Not,
    /// With an opening frame, and the pieces after it.
    Proceed,
    /// With an opening frame; the pieces wait for the peer's leave.
    Wait,
}

/// A frame to be written.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// A message in one frame.
    Whole(&'a [u8]),
    /// The opening frame.
    Open(&'a Pieces),
    /// Piece `index`, counted from 0.
    Piece {
        /// The plan it belongs to.
        pieces: &'a Pieces,
        /// Its index.
        index: u64,
        /// Its slice of the message.
        data: &'a [u8],
    },
    /// The closing frame.
    Close(&'a Pieces),
    /// Leave for the peer's transfer, in the slot after its opening.
    Accept {
        /// The peer's transfer.
        key: &'a Key,
        /// The number that the frame takes.
        seq: u64,
    },
    /// The end of a failed transfer.
    Abort {
        /// The transfer.
        key: &'a Key,
        /// A number above all that were used.
        seq: u64,
        /// Why, for people.
        reason: &'a str,
    },
}

/// A frame that was read.
#[derive(Clone, Debug)]
pub enum Inbound<'a> {
    /// A message in one frame.
    Whole(Bytes, Shape),
    /// The announcement of pieces.
    Open(Opening),
    /// A piece.
    Piece(Piece<'a>),
    /// The frame after the last piece.
    Close {
        /// The transfer.
        key: Key,
        /// Its number.
        seq: u64,
    },
    /// The peer's leave for a transfer of ours.
    Accept {
        /// The transfer.
        key: Key,
    },
    /// The end of a failed transfer, the peer's or ours.
    Abort {
        /// The transfer.
        key: Key,
        /// What the peer said.
        reason: String,
    },
    /// A word of the transport's own: it goes to the peer and touches no transfer.
    Control(Bytes),
}

/// What an opening frame says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The transfer.
    pub key: Key,
    /// The number of the frame, where pieces count on from it.
    pub seq: u64,
    /// How many pieces follow.
    pub count: u64,
    /// How many bytes they hold.
    pub bytes: u64,
    /// The digest of the whole.
    pub digest: Option<[u8; 32]>,
}

/// What a frame with a piece says.
#[derive(Clone, Debug)]
pub struct Piece<'a> {
    /// The transfer.
    pub key: Key,
    /// Its number on the wire.
    pub seq: u64,
    /// How many pieces there are, where each says so.
    pub count: Option<u64>,
    /// How many bytes the message has, where each says so.
    pub bytes: Option<u64>,
    /// Its data, still coded.
    pub data: &'a [u8],
}

/// A message that came in pieces, with all of them in their places.
#[derive(Clone, Copy, Debug)]
pub struct Assembled<'a> {
    /// What announced it.
    pub opening: Option<&'a Opening>,
    /// The message.
    pub bytes: &'a [u8],
    /// Whether it is known to be ASCII: each piece was looked at as it came, while the processor still
    /// had it.
    pub ascii: bool,
}

/// What was found in a message on the way, as byte ranges, so that JSON is parsed once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// What kind of message it is.
    pub kind: MessageKind,
    /// The id, as JSON text.
    pub id: Option<Range<usize>>,
    /// The method, without its quotes; escapes are still in it.
    pub method: Option<Range<usize>>,
    /// The params, result or error, as JSON text.
    pub body: Option<Range<usize>>,
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MessageKind {
    /// Not looked at, or of no kind that the wire knows. A message that came in pieces is looked
    /// into only where the format demands it.
    #[default]
    Opaque,
    /// A JSON-RPC request.
    Request,
    /// A JSON-RPC notification.
    Notification,
    /// A JSON-RPC response with a result.
    Result,
    /// A JSON-RPC response with an error.
    Error,
}

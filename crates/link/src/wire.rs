//! The [`Wire`] trait, which a format for frames implements, and the types that it uses.

use std::fmt::Debug;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;

use crate::{Cap, Carries, Fault, FaultKind, Frame, Key, Random, SendError};

/// A format for frames: a codec with settings but no state. All state is in [`Link`](crate::Link).
pub trait Wire: Debug + Send + Sync {
    /// The name of the format, for endpoints, tables and logs.
    fn name(&self) -> &'static str;

    /// Whether its frames are text or binary.
    fn carries(&self) -> Carries;

    /// A new key for an outgoing transfer; `None` if the format requires the caller's key.
    fn mint(&self, random: &mut Random) -> Option<Key>;

    /// Decides whether to send a message in one frame or in pieces, and in how many.
    fn plan(&self, message: &[u8], options: &PlanOptions<'_>) -> Result<Plan, SendError>;

    /// The end of the piece that begins at `from`.
    fn cut(&self, pieces: &Pieces, message: &[u8], from: usize) -> usize;

    /// Appends one frame to `out`.
    fn write(&self, part: Part<'_>, out: &mut Vec<u8>);

    /// Reads a piece in exactly the form that this wire writes, without a general parse.
    ///
    /// It may misread a frame of another form: the link reports no fault that follows from it unless
    /// [`read`](Self::read) confirms it.
    fn read_canonical<'a>(&self, _frame: &'a Frame) -> Option<Piece<'a>> {
        None
    }

    /// Reads any frame. Borrows from it, and decodes no data.
    fn read<'a>(&self, frame: &'a Frame) -> Result<Inbound<'a>, Fault>;

    /// An upper bound on the decoded size of a piece.
    fn decoded_max(&self, piece: &Piece<'_>) -> usize;

    /// Appends a piece's data to a transfer's buffer.
    fn decode(&self, piece: &Piece<'_>, into: &mut Vec<u8>) -> Result<(), FaultKind>;

    /// What digests a message while its pieces come, if the wire announces a digest.
    fn digest(&self) -> Option<Box<dyn RunningDigest>> {
        None
    }

    /// Checks a message that came in pieces, once it is complete.
    fn finish(&self, whole: &Assembled<'_>) -> Result<Shape, FaultKind>;

    /// The format's own name for a fault, if it has one.
    fn code(&self, fault: &FaultKind) -> &'static str {
        fault.name()
    }

    /// A key as text, for people.
    fn key_text(&self, key: &Key) -> String {
        key.to_string()
    }
}

/// A digest of bytes that come one piece after the other: each is digested while it is in the processor's
/// cache.
pub trait RunningDigest: Debug + Send + Sync {
    /// Adds the next bytes.
    fn update(&mut self, bytes: &[u8]);

    /// The digest of all bytes so far.
    fn value(&self) -> [u8; 32];
}

/// What a plan depends on, besides the message.
#[derive(Clone, Copy, Debug)]
pub struct PlanOptions<'a> {
    /// The caller's key.
    pub key: Option<&'a Key>,
    /// Whether the message may be cut.
    pub may_cut: bool,
    /// Whether the message is known to be UTF-8.
    pub known_text: bool,
    /// What the peer supports.
    pub peer: &'a PeerSupport,
    /// The cap of the transport.
    pub cap: &'a Cap,
}

/// Whether the peer can assemble pieces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PeerSupport {
    /// Not known yet.
    #[default]
    Unknown,
    /// The peer cannot.
    No,
    /// The peer can, within these limits.
    Yes(PeerLimits),
}

impl PeerSupport {
    /// The limits of a peer that can assemble pieces.
    pub fn limits(&self) -> Option<&PeerLimits> {
        match self {
            Self::Yes(limits) => Some(limits),
            Self::Unknown | Self::No => None,
        }
    }
}

/// What a peer accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerLimits {
    /// The largest frame, in bytes.
    pub frame: usize,
    /// The largest message, in bytes.
    pub message: usize,
    /// How many transfers may be open at once.
    pub transfers: usize,
    /// How long it keeps an unfinished transfer.
    pub timeout: Option<Duration>,
    /// Whether that time starts again with each piece.
    pub timeout_from_last: bool,
}

impl PeerLimits {
    /// A peer without limits.
    pub const NONE: Self = Self {
        frame: usize::MAX,
        message: usize::MAX,
        transfers: usize::MAX,
        timeout: None,
        timeout_from_last: true,
    };
}

/// How a message is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// In one frame.
    Whole,
    /// In pieces. Boxed, so that the plan of a message in one frame is small.
    Pieces(Box<Pieces>),
}

/// The plan of a message that is sent in pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// The key of the transfer; the link sets it if the wire makes keys.
    pub key: Key,
    /// How many pieces.
    pub count: u64,
    /// Bytes of the message.
    pub bytes: usize,
    /// The capacity of one piece, in the wire's own unit.
    pub room: usize,
    /// The cap that it was planned for.
    pub cap: Cap,
    /// The number of the first piece on the wire.
    pub first: u64,
    /// The digest of the message, if the wire sends one.
    pub digest: Option<[u8; 32]>,
    /// Whether a frame announces the pieces, and whether the peer must accept before they follow.
    pub opening: Announce,
    /// Whether a frame follows the last piece.
    pub closing: bool,
}

impl Pieces {
    /// A plan without opening and closing frames, whose pieces are numbered from 0.
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
    /// With its first piece, without an opening frame.
    Not,
    /// With an opening frame, directly followed by the pieces.
    Proceed,
    /// With an opening frame; the pieces wait for the peer's accept.
    Wait,
}

/// A frame to write.
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
    /// The accept of a transfer of the peer.
    Accept {
        /// The transfer.
        key: &'a Key,
        /// The frame's sequence number.
        seq: u64,
    },
    /// The abort of a failed transfer.
    Abort {
        /// The transfer.
        key: &'a Key,
        /// The frame's sequence number, above all that were used.
        seq: u64,
        /// Why, for a person.
        reason: &'a str,
    },
}

/// A frame that was read.
#[derive(Clone, Debug)]
pub enum Inbound<'a> {
    /// A message in one frame. The slice must reach up to the end of the frame.
    Whole(&'a [u8], Shape),
    /// The opening frame of a transfer.
    Open(Opening),
    /// A piece.
    Piece(Piece<'a>),
    /// The closing frame of a transfer.
    Close {
        /// The transfer.
        key: Key,
        /// Its number.
        seq: u64,
    },
    /// The peer's accept of a transfer of this side.
    Accept {
        /// The transfer.
        key: Key,
    },
    /// The peer's abort of a transfer, its own or one of this side.
    Abort {
        /// The transfer.
        key: Key,
        /// The peer's reason.
        reason: String,
    },
    /// A control message: it belongs to no transfer and is passed to the layer above.
    Control(Bytes),
}

/// The content of an opening frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The transfer.
    pub key: Key,
    /// The frame's sequence number, from which the pieces are numbered.
    pub seq: u64,
    /// How many pieces follow.
    pub count: u64,
    /// How many bytes they hold.
    pub bytes: u64,
    /// The digest of the message.
    pub digest: Option<[u8; 32]>,
}

/// The content of a frame with a piece.
#[derive(Clone, Debug)]
pub struct Piece<'a> {
    /// The transfer.
    pub key: Key,
    /// Its number on the wire.
    pub seq: u64,
    /// How many pieces there are, if each piece says so.
    pub count: Option<u64>,
    /// How many bytes the message has, if each piece says so.
    pub bytes: Option<u64>,
    /// Its data, still coded.
    pub data: &'a [u8],
}

/// A complete message that came in pieces.
#[derive(Clone, Copy, Debug)]
pub struct Assembled<'a> {
    /// Its opening frame, if there was one.
    pub opening: Option<&'a Opening>,
    /// The message.
    pub bytes: &'a [u8],
    /// Whether it is known to be ASCII: each piece was checked as it came in, while it was in the
    /// processor's cache.
    pub ascii: bool,
    /// Its digest by [`Wire::digest`], if its opening frame announced one.
    pub digest: Option<[u8; 32]>,
}

/// What parsing found in a message, as byte ranges, so that its JSON is parsed only once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// The kind of message.
    pub kind: MessageKind,
    /// The id, as JSON text.
    pub id: Option<Range<usize>>,
    /// The method, without its quotes and with its escapes.
    pub method: Option<Range<usize>>,
    /// The params, result or error, as JSON text.
    pub body: Option<Range<usize>>,
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MessageKind {
    /// Not parsed, or of no kind that the wire knows. A message that came in pieces is parsed only
    /// if the format requires it.
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

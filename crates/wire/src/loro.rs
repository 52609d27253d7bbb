//! The transport payloads of loro-extended: `00` complete message, `01` fragment header, `02`
//! fragment data; all numbers are big-endian.

use std::time::Duration;

use breakbulk_link::{
    Announce, Assembled, Carries, Config, Count, Duplicate, Fault, FaultKind, Frame, Full, Inbound,
    Key, Limits, Numbering, OnCancel, Opening, Order, Part, PeerSupport, Piece, Pieces, Plan,
    PlanOptions, Random, Rules, Scope, Scopes, SendError, Shape, Timeouts, Uncut, Unknown, Wire,
};

use crate::whole::uncut;

const COMPLETE: u8 = 0;
const HEADER: u8 = 1;
const DATA: u8 = 2;

/// The length of prefix, batchId, count and totalSize.
const HEADER_LEN: usize = 17;

/// The length of prefix, batchId and index.
const DATA_PREFIX: usize = 13;

/// The loro wire, the only binary one with pieces: raw slices of any bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loro;

impl Loro {
    /// The rules, with the limits of the original implementation and our own limit on a message.
    pub fn config() -> Config {
        let mut config = Config::new(Self::rules());
        config.limits = Limits::default().with(|limits| {
            limits.message = 50 << 20;
            limits.pieces = u64::from(u32::MAX);
            limits.transfers = 32;
            limits.pending_bytes = 50 << 20;
        });
        config
    }

    /// Pieces may come in any order after the header; when the table is full the oldest transfer is
    /// evicted; a duplicate piece is reported, and its transfer goes on.
    pub fn rules() -> Rules {
        Rules {
            unknown: Unknown::Ignored,
            numbering: Numbering::FromZero,
            order: Order::Any,
            duplicate: Duplicate::Fault,
            full: Full::EvictOldest,
            closing: false,
            // The original gives up 10 s after the header, however the transfer progresses: 2 MB over
            // 1.5 Mbit/s would never arrive.
            timeouts: Timeouts {
                idle: Some(Duration::from_secs(30)),
                age: Some(Duration::from_secs(60)),
                age_rate: Some(1 << 10),
                accept: Duration::from_secs(30),
            },
            interleave: true,
            cancel: OnCancel::Stop,
            accept: false,
            abort: false,
            contiguous: false,
            scopes: Scopes {
                frame: Scope::Report,
                piece: Scope::Report,
                reopened: Scope::Silent,
                transfer: Scope::Transfer,
                busy: Scope::Transfer,
                timeout: Scope::Transfer,
            },
            close: (1008, "refused"),
        }
    }

    /// The rules for HTTP, where retries cause identical duplicates, which are ignored.
    pub fn http_rules() -> Rules {
        Rules {
            duplicate: Duplicate::IgnoreIfEqual,
            ..Self::rules()
        }
    }
}

impl Wire for Loro {
    fn name(&self) -> &'static str {
        "loro"
    }

    fn carries(&self) -> Carries {
        Carries::Binary
    }

    fn mint(&self, random: &mut Random) -> Option<Key> {
        Some(Key::new(&random.next().to_be_bytes()))
    }

    fn plan(&self, message: &[u8], options: &PlanOptions<'_>) -> Result<Plan, SendError> {
        let size = message.len();
        let cap = options.cap;
        // The original's threshold does not count the prefixes, and 0 means never to cut.
        let native = cap.count == Count::Piece;
        let peer = options.peer.limits();
        let peer_frame = peer.map_or(usize::MAX, |peer| peer.frame);
        let (whole, limit, most) = if native {
            (size, cap.whole_limit(), cap.max)
        } else {
            let room = |room: usize| room.min(peer_frame);
            (size + 1, room(cap.cut_room()), room(cap.room()))
        };
        if whole <= limit || native && cap.max == 0 {
            return Ok(Plan::Whole);
        }
        if !options.may_cut {
            return uncut(whole, most, false, Uncut::NotAllowed);
        }
        if *options.peer == PeerSupport::No {
            return uncut(whole, most, false, Uncut::NotNegotiated);
        }
        if let Some(peer) = peer
            && size > peer.message
        {
            return Err(SendError::MessageTooLarge {
                size,
                limit: peer.message,
            });
        }
        if u32::try_from(size).is_err() {
            return Err(SendError::FormatLimit {
                size,
                limit: u32::MAX as usize,
            });
        }
        if options.key.is_some_and(|key| key.as_bytes().len() != 8) {
            return Err(SendError::BadKey {
                expected: "8 bytes (16 hex digits)",
            });
        }
        if !native && limit < HEADER_LEN {
            return Err(SendError::CapTooSmall {
                cap: cap.whole_limit(),
                needed: cap.whole_limit() + HEADER_LEN - limit,
            });
        }
        let room = if native { limit } else { limit - DATA_PREFIX };
        let pieces = Pieces::new(size, room, size.div_ceil(room) as u64, *cap);
        Ok(Plan::Pieces(Box::new(Pieces {
            opening: Announce::Proceed,
            ..pieces
        })))
    }

    fn cut(&self, pieces: &Pieces, message: &[u8], from: usize) -> usize {
        message.len().min(from + pieces.room)
    }

    fn write(&self, part: Part<'_>, out: &mut Vec<u8>) {
        match part {
            Part::Whole(message) => {
                out.reserve(1 + message.len());
                out.push(COMPLETE);
                out.extend_from_slice(message);
            }
            Part::Open(pieces) => {
                out.push(HEADER);
                out.extend_from_slice(pieces.key.as_bytes());
                out.extend_from_slice(&(pieces.count as u32).to_be_bytes());
                out.extend_from_slice(&(pieces.bytes as u32).to_be_bytes());
            }
            Part::Piece {
                pieces,
                index,
                data,
            } => {
                out.reserve(DATA_PREFIX + data.len());
                out.push(DATA);
                out.extend_from_slice(pieces.key.as_bytes());
                out.extend_from_slice(&(index as u32).to_be_bytes());
                out.extend_from_slice(data);
            }
            // The format has no such frames, and its rules never request one.
            Part::Close(_) | Part::Accept { .. } | Part::Abort { .. } => {}
        }
    }

    fn read<'a>(&self, frame: &'a Frame) -> Result<Inbound<'a>, Fault> {
        let bytes = match frame {
            Frame::Binary(bytes) => bytes,
            Frame::Text(text) => return Ok(Inbound::Control(text.clone())),
        };
        match bytes.first() {
            Some(&COMPLETE) => Ok(Inbound::Whole(&bytes[1..], Shape::default())),
            Some(&HEADER) => {
                let Some((key, [count, total_size])) = fields(&bytes[1..]) else {
                    return Err(FaultKind::malformed("header", "17 bytes long").into());
                };
                if count == 0 {
                    return Err(FaultKind::malformed("count", "at least 1").of(&key));
                }
                let (count, bytes) = (count.into(), total_size.into());
                Ok(Inbound::Open(Opening {
                    key,
                    seq: 0,
                    count,
                    bytes,
                    digest: None,
                }))
            }
            Some(&DATA) => match fields(&bytes[1..]) {
                Some((key, [index])) if bytes.len() > DATA_PREFIX => {
                    let data = &bytes[DATA_PREFIX..];
                    Ok(Inbound::Piece(Piece {
                        key,
                        seq: index.into(),
                        count: None,
                        bytes: None,
                        data,
                    }))
                }
                _ => Err(FaultKind::malformed("data", "at least 14 bytes long").into()),
            },
            Some(_) => Err(FaultKind::UnknownKind.into()),
            None => Err(FaultKind::malformed("header", "present").into()),
        }
    }

    fn decoded_max(&self, piece: &Piece<'_>) -> usize {
        piece.data.len()
    }

    fn decode(&self, piece: &Piece<'_>, into: &mut Vec<u8>) -> Result<(), FaultKind> {
        into.extend_from_slice(piece.data);
        Ok(())
    }

    fn finish(&self, _whole: &Assembled<'_>) -> Result<Shape, FaultKind> {
        Ok(Shape::default())
    }

    fn code(&self, fault: &FaultKind) -> &'static str {
        match fault {
            FaultKind::Malformed {
                field: "header", ..
            } => "truncated_header",
            FaultKind::Malformed { field: "count", .. } => "invalid_count",
            FaultKind::Malformed { field: "data", .. } => "truncated_data",
            FaultKind::UnknownKind => "unknown_prefix",
            FaultKind::Duplicate { .. } => "duplicate_fragment",
            FaultKind::BadIndex { .. } => "invalid_index",
            FaultKind::SizeMismatch { .. } | FaultKind::Overrun { .. } => "size_mismatch",
            FaultKind::Evicted => "evicted",
            FaultKind::TimedOut { .. } => "timeout",
            other => other.name(),
        }
    }

    fn key_text(&self, key: &Key) -> String {
        key.as_bytes()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

/// Reads the batchId and `N` numbers.
fn fields<const N: usize>(bytes: &[u8]) -> Option<(Key, [u32; N])> {
    let (key, rest) = bytes.split_at_checked(8)?;
    let mut numbers = [0; N];
    for (number, bytes) in numbers.iter_mut().zip(rest.get(..4 * N)?.chunks_exact(4)) {
        *number = u32::from_be_bytes(bytes.try_into().ok()?);
    }
    Some((Key::new(key), numbers))
}

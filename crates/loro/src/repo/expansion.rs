//! How large a peer's changes become when `loro` decodes them, found out without the memory for it.
//!
//! A snapshot holds up to three tables of blocks, each block compressed on its own with LZ4, which can
//! express 255 bytes by one. `loro` decompresses whole blocks and has no limit, so a message of 50 MiB may
//! ask for 12 GiB. The changes inside, those of updates, and the states of containers are columns whose
//! runs are numbers ([`changes`], [`states`]). What is not in the form that `loro` writes is refused.

mod changes;
mod columns;
mod states;
mod values;

use std::io::{Read, Write};

use lz4_flex::frame::FrameDecoder;

/// The magic bytes and the checksum before the mode.
pub(super) const HEAD: usize = 20;
/// The modes, big-endian.
const SNAPSHOT: [u8; 2] = [0, 3];
pub(super) const UPDATES: [u8; 2] = [0, 4];
/// The byte that stands for a state that is left out.
const NO_STATE: &[u8] = b"E";
const TABLE_MAGIC: &[u8] = b"LORO";
/// The magic bytes and the version before the blocks of a table.
const TABLE_HEAD: usize = 5;
/// The checksum behind each block.
const CHECKSUM: usize = 4;
const LZ4: u8 = 1;
const LARGE: u8 = 0x80;
/// The most bytes of a block of small values: their offsets are 16-bit numbers, and so is their count.
const SMALL_BLOCK: u64 = 3 << 16;
/// The length of the keys of changes: a peer and a counter.
const CHANGES_KEY: usize = 12;
/// The key of a version among states; no container is called so.
const VERSION_KEY: &[u8] = b"fr";
/// The most work that the texts of a snapshot may take, in bytes that `loro` looks at: about ten seconds.
const WORK: u64 = 1 << 37;

/// Why changes are not imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Oversized {
    /// They would take more bytes than this.
    Expands(u64),
    /// They are not what `loro` writes.
    Malformed,
    /// Reading their texts would take `loro` too long.
    Slow,
}

/// Checks that changes, decoded, take no more than about `limit` bytes. At most one block of them is
/// decompressed at a time.
pub(super) fn check(data: &[u8], limit: u64) -> Result<(), Oversized> {
    let Some((mode, body)) = data.get(HEAD..).and_then(<[u8]>::split_first_chunk) else {
        return Err(Oversized::Malformed);
    };
    let mut left = Left::new(limit);
    match *mode {
        SNAPSHOT => check_snapshot(body, &mut left),
        UPDATES => {
            let mut rest = body;
            while !rest.is_empty() {
                changes::check(take_bytes(&mut rest)?, &mut left)?;
            }
            Ok(())
        }
        // Modes that this version of `loro` refuses.
        _ => Ok(()),
    }
}

/// Whether an update has two changes of one peer and not all between them, or one twice. `loro` writes no such
/// update, and takes it. The data is of the form that [`check`] lets through.
pub(super) fn has_holes(update: &[u8]) -> bool {
    spans(update).is_none_or(|mut spans| {
        spans.sort_unstable();
        let mut pairs = spans.array_windows();
        pairs.any(|[(peer, _, end), (next, start, _)]| peer == next && end != start)
    })
}

/// The peer of each block of an update, and from where to where its changes go.
fn spans(update: &[u8]) -> Option<Vec<(u64, u64, u64)>> {
    let mut rest = update.get(HEAD + UPDATES.len()..)?;
    let mut spans = Vec::new();
    while !rest.is_empty() {
        spans.push(changes::span(take_bytes(&mut rest).ok()?).ok()?);
    }
    Some(spans)
}

/// The bytes that may still be taken, and the work that may still be done.
struct Left {
    limit: u64,
    left: u64,
    work: u64,
}

impl Left {
    fn new(limit: u64) -> Self {
        Self {
            limit,
            left: limit,
            work: WORK,
        }
    }

    fn work(&mut self, bytes: u64) -> Result<(), Oversized> {
        let left = self.work.checked_sub(bytes);
        self.work = left.ok_or(Oversized::Slow)?;
        Ok(())
    }

    fn take(&mut self, count: u64, each: u64) -> Result<(), Oversized> {
        let bytes = count.saturating_mul(each);
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or(Oversized::Expands(self.limit))?;
        Ok(())
    }
}

fn check_snapshot(body: &[u8], left: &mut Left) -> Result<(), Oversized> {
    let mut rest = body;
    for content in [Content::Changes, Content::States, Content::States] {
        let len = take_u32(&mut rest)? as usize;
        let bytes = take(&mut rest, len)?;
        if !bytes.is_empty() && bytes != NO_STATE {
            check_table(bytes, content, left)?;
        }
    }
    Ok(())
}

/// The kind of values in a table.
#[derive(Clone, Copy)]
enum Content {
    Changes,
    States,
}

/// A block of a table: where it begins, its first key, and whether it is one large value or compressed.
struct Block<'a> {
    start: usize,
    first_key: &'a [u8],
    large: bool,
    compressed: bool,
}

fn check_table(table: &[u8], content: Content, left: &mut Left) -> Result<(), Oversized> {
    let malformed = Oversized::Malformed;
    if !table.starts_with(TABLE_MAGIC) {
        return Err(malformed);
    }
    let (before, end) = table.split_last_chunk::<4>().ok_or(malformed)?;
    let end = u32::from_le_bytes(*end) as usize;
    let mut metas = before.get(end..).ok_or(malformed)?;
    let blocks = before.get(..end).ok_or(malformed)?;
    let count = take_u32(&mut metas)?;
    let mut open: Option<Block<'_>> = None;
    for _ in 0..count {
        let start = take_u32(&mut metas)? as usize;
        let first_key = take_key(&mut metas)?;
        let kind = take(&mut metas, 1)?[0];
        let large = kind & LARGE != 0;
        if !large {
            take_key(&mut metas)?;
        }
        if start < TABLE_HEAD {
            return Err(malformed);
        }
        if let Some(block) = open {
            let bytes = blocks.get(block.start..start).ok_or(malformed)?;
            check_block(&block, bytes, content, left)?;
        }
        open = Some(Block {
            start,
            first_key,
            large,
            compressed: kind & !LARGE == LZ4,
        });
    }
    if let Some(block) = open {
        let bytes = blocks.get(block.start..).ok_or(malformed)?;
        check_block(&block, bytes, content, left)?;
    }
    Ok(())
}

fn check_block(
    block: &Block<'_>,
    bytes: &[u8],
    content: Content,
    left: &mut Left,
) -> Result<(), Oversized> {
    let len = bytes.len().checked_sub(CHECKSUM);
    let bytes = &bytes[..len.ok_or(Oversized::Malformed)?];
    let decompressed;
    let values = if block.compressed {
        decompressed = decompress(bytes, block.large, left)?;
        &decompressed[..]
    } else {
        bytes
    };
    left.take(values.len() as u64, 1)?;
    match block.large {
        true => check_value(block.first_key, values, content, left),
        false => check_values(block.first_key, values, content, left),
    }
}

/// Decompresses a block unless it is too large, which is found out before memory is allocated for it.
fn decompress(bytes: &[u8], large: bool, left: &Left) -> Result<Vec<u8>, Oversized> {
    let most = match large {
        true => left.left,
        false => left.left.min(SMALL_BLOCK),
    };
    // `loro` uses the same decoder.
    let read = |into: &mut dyn Write| {
        let mut chunks = FrameDecoder::new(bytes).take(most.saturating_add(1));
        std::io::copy(&mut chunks, into).map_err(|_| Oversized::Malformed)
    };
    let len = read(&mut std::io::sink())?;
    if len > left.left {
        return Err(Oversized::Expands(left.limit));
    }
    if len > most {
        return Err(Oversized::Malformed);
    }
    let mut values = Vec::with_capacity(usize::try_from(len).map_err(|_| Oversized::Malformed)?);
    read(&mut values)?;
    Ok(values)
}

/// Checks the values of a block of small ones, which ends with their offsets and their number.
fn check_values(
    first_key: &[u8],
    block: &[u8],
    content: Content,
    left: &mut Left,
) -> Result<(), Oversized> {
    let malformed = Oversized::Malformed;
    let (before, count) = block.split_last_chunk::<2>().ok_or(malformed)?;
    let count = usize::from(u16::from_le_bytes(*count));
    let data_len = before.len().checked_sub(count * 2).ok_or(malformed)?;
    let (data, offsets) = before.split_at(data_len);
    let offset = |number: usize| match offsets.get(number * 2..number * 2 + 2) {
        Some(offset) => usize::from(u16::from_le_bytes([offset[0], offset[1]])),
        None => data_len,
    };
    let mut key = first_key.to_vec();
    for number in 0..count {
        let entry = data.get(offset(number)..offset(number + 1));
        let mut entry = entry.ok_or(malformed)?;
        if number > 0 {
            // How many bytes the key shares with the first one, then the rest of the key.
            let shared = usize::from(take(&mut entry, 1)?[0]);
            key.clear();
            key.extend(first_key.get(..shared).ok_or(malformed)?);
            key.extend(take_key(&mut entry)?);
        }
        check_value(&key, entry, content, left)?;
    }
    Ok(())
}

fn check_value(
    key: &[u8],
    value: &[u8],
    content: Content,
    left: &mut Left,
) -> Result<(), Oversized> {
    match content {
        Content::Changes if key.len() == CHANGES_KEY => changes::check(value, left),
        Content::States if key != VERSION_KEY => states::check(value, left),
        _ => Ok(()),
    }
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Result<&'a [u8], Oversized> {
    let (taken, after) = rest.split_at_checked(len).ok_or(Oversized::Malformed)?;
    *rest = after;
    Ok(taken)
}

fn take_u32(rest: &mut &[u8]) -> Result<u32, Oversized> {
    let mut word = [0; 4];
    word.copy_from_slice(take(rest, 4)?);
    Ok(u32::from_le_bytes(word))
}

/// A key and the 16-bit length before it.
fn take_key<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], Oversized> {
    let mut len = [0; 2];
    len.copy_from_slice(take(rest, 2)?);
    take(rest, usize::from(u16::from_le_bytes(len)))
}

/// A number of up to 64 bits, seven in each byte; higher bits are dropped.
fn take_number(rest: &mut &[u8]) -> Result<u64, Oversized> {
    let (mut number, mut shift) = (0, 0);
    loop {
        let byte = take(rest, 1)?[0];
        if shift < 64 {
            number |= u64::from(byte & 0x7f) << shift;
        }
        shift += 7;
        if byte < 0x80 {
            return Ok(number);
        }
    }
}

/// Bytes and the number of them before.
fn take_bytes<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], Oversized> {
    let len = take_number(rest)?;
    take(
        rest,
        usize::try_from(len).map_err(|_| Oversized::Malformed)?,
    )
}

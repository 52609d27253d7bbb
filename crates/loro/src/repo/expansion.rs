//! How large a peer's snapshot becomes when `loro` decompresses it, found out without the memory for it.
//!
//! A snapshot holds up to three tables of blocks, each block compressed on its own with LZ4, which can
//! express 255 bytes by one. `loro` decompresses whole blocks and has no limit, so a message of 50 MiB may
//! ask for 12 GiB. Updates are not compressed.

use std::io::{self, Read};

use lz4_flex::frame::FrameDecoder;

/// The magic bytes and the checksum before the mode.
const HEAD: usize = 20;
/// The mode of a snapshot, big-endian.
const SNAPSHOT: [u8; 2] = [0, 3];
/// What stands for a state that is left out.
const NO_STATE: &[u8] = b"E";
const TABLE_MAGIC: &[u8] = b"LORO";
/// The magic bytes and the version before the blocks of a table.
const TABLE_HEAD: usize = 5;
/// The checksum behind each block.
const CHECKSUM: usize = 4;
const LZ4: u8 = 1;
const LARGE: u8 = 0x80;

/// Why a snapshot is not imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Oversized {
    /// It would have more bytes than this.
    Expands(u64),
    /// It is not what `loro` writes.
    Malformed,
}

/// Decompresses the blocks of a snapshot, keeping none, until they have more than `limit` bytes. Data that
/// is no snapshot is not looked at.
pub(super) fn check(data: &[u8], limit: u64) -> Result<(), Oversized> {
    let Some(body) = data
        .get(HEAD..)
        .and_then(|rest| rest.strip_prefix(&SNAPSHOT))
    else {
        return Ok(());
    };
    let mut rest = body;
    let mut left = limit;
    for _ in 0..3 {
        let len = take_u32(&mut rest)? as usize;
        let table = take(&mut rest, len)?;
        if !table.is_empty() && table != NO_STATE {
            check_table(table, limit, &mut left)?;
        }
    }
    Ok(())
}

fn check_table(table: &[u8], limit: u64, left: &mut u64) -> Result<(), Oversized> {
    let malformed = Oversized::Malformed;
    if !table.starts_with(TABLE_MAGIC) {
        return Err(malformed);
    }
    let (before, end) = table.split_last_chunk::<4>().ok_or(malformed)?;
    let end = u32::from_le_bytes(*end) as usize;
    let mut metas = before.get(end..).ok_or(malformed)?;
    let blocks = before.get(..end).ok_or(malformed)?;
    let count = take_u32(&mut metas)?;
    let mut block: Option<(usize, bool)> = None;
    for _ in 0..count {
        let offset = take_u32(&mut metas)? as usize;
        take_key(&mut metas)?;
        let kind = take(&mut metas, 1)?[0];
        if kind & LARGE == 0 {
            take_key(&mut metas)?;
        }
        if let Some((start, compressed)) = block {
            let bytes = blocks.get(start..offset).ok_or(malformed)?;
            check_block(bytes, compressed, limit, left)?;
        }
        if offset < TABLE_HEAD {
            return Err(malformed);
        }
        block = Some((offset, kind & !LARGE == LZ4));
    }
    if let Some((start, compressed)) = block {
        let bytes = blocks.get(start..).ok_or(malformed)?;
        check_block(bytes, compressed, limit, left)?;
    }
    Ok(())
}

fn check_block(
    block: &[u8],
    compressed: bool,
    limit: u64,
    left: &mut u64,
) -> Result<(), Oversized> {
    let len = block.len().checked_sub(CHECKSUM);
    let block = &block[..len.ok_or(Oversized::Malformed)?];
    let size = if compressed {
        // The same decoder as `loro` uses, one chunk at a time.
        let mut chunks = FrameDecoder::new(block).take(left.saturating_add(1));
        io::copy(&mut chunks, &mut io::sink()).map_err(|_| Oversized::Malformed)?
    } else {
        block.len() as u64
    };
    *left = left.checked_sub(size).ok_or(Oversized::Expands(limit))?;
    Ok(())
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
fn take_key(rest: &mut &[u8]) -> Result<(), Oversized> {
    let mut len = [0; 2];
    len.copy_from_slice(take(rest, 2)?);
    take(rest, usize::from(u16::from_le_bytes(len)))?;
    Ok(())
}

//! The functions of this crate with AVX2 instructions, 32 bytes at a time.
//!
//! A block with escapes is handled in four groups of 8 bytes: a table says for each of the 256 ways
//! that escapes may lie in a group how its bytes are moved apart (escaping) or together (unescaping).
//! Rare cases (`\u`, faults) are left to the portable code, which handles the bytes in their order.

use std::arch::x86_64::*;

use crate::portable::Found;
use crate::tables::{ESCAPE, UNESCAPED};
use crate::{Escapes, Invalid, portable};

/// The size of a block.
const BLOCK: usize = 32;

/// After a block with escapes, this many blocks are shuffled without testing whether they have any. Such a
/// run begins where [`sparse`] stops.
const DENSE: u32 = 8;

/// The most bytes that writing one block touches: six for each byte of the block, and the excess of the
/// last store.
const WORST: usize = 6 * BLOCK + 16;

/// By the mask of escapes in a group of 8 bytes: where each byte of the escaped group comes from. 0 to 7 are
/// bytes of the group, 8 is a backslash.
static APART: [[u8; 16]; 256] = {
    let mut table = [[0; 16]; 256];
    let mut mask = 0;
    while mask < 256 {
        let (mut from, mut to) = (0, 0);
        while from < 8 {
            if mask >> from & 1 == 1 {
                table[mask][to] = 8;
                to += 1;
            }
            table[mask][to] = from as u8;
            to += 1;
            from += 1;
        }
        mask += 1;
    }
    table
};

/// By the mask of backslashes that begin escapes in a group: where the bytes of the unescaped group come
/// from, which are the bytes that are not in the mask.
static TOGETHER: [[u8; 8]; 256] = {
    let mut table = [[0; 8]; 256];
    let mut mask = 0;
    while mask < 256 {
        let (mut from, mut to) = (0, 0);
        while from < 8 {
            if mask >> from & 1 == 0 {
                table[mask][to] = from as u8;
                to += 1;
            }
            from += 1;
        }
        mask += 1;
    }
    table
};

/// The letters of the control characters below 16; 0 for those without.
const LETTERS: [u8; 16] = {
    let mut table = [0; 16];
    let mut byte = 0;
    while byte < 16 {
        if ESCAPE[byte] != b'u' {
            table[byte] = ESCAPE[byte];
        }
        byte += 1;
    }
    table
};

/// The letters of escapes, and the characters that they mean, indexed by bits 1 to 4 of the letter: no two
/// letters share an index.
const LETTER_AT: ([u8; 16], [u8; 16]) = {
    let (mut letters, mut meanings) = ([0; 16], [0; 16]);
    let all = *b"bfnrt";
    let mut index = 0;
    while index < all.len() {
        let place = (all[index] >> 1 & 15) as usize;
        assert!(letters[place] == 0);
        letters[place] = all[index];
        meanings[place] = UNESCAPED[1][all[index] as usize];
        index += 1;
    }
    (letters, meanings)
};

/// Whether the processor has what the functions here need.
pub(crate) fn available() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt")
}

/// Which bytes of a block need which kind of escape, one bit for each byte.
struct Masks {
    /// Quotes and backslashes.
    itself: u32,
    /// Control characters.
    control: u32,
    /// Control characters that have no letter.
    unicode: u32,
    /// The block, with letters instead of control characters that have one.
    lettered: __m256i,
}

#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn twice(table: [u8; 16]) -> __m256i {
    // SAFETY: the array has 16 bytes, and the load needs no alignment.
    _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(table.as_ptr().cast()) })
}

#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn bits(bytes: __m256i) -> u32 {
    _mm256_movemask_epi8(bytes) as u32
}

#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn is(block: __m256i, byte: u8) -> __m256i {
    _mm256_cmpeq_epi8(block, _mm256_set1_epi8(byte as i8))
}

#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn is_control(block: __m256i) -> __m256i {
    _mm256_cmpeq_epi8(_mm256_min_epu8(block, _mm256_set1_epi8(0x1f)), block)
}

/// The bytes that cannot be copied as they are.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn special(block: __m256i) -> __m256i {
    let itself = _mm256_or_si256(is(block, b'"'), is(block, b'\\'));
    _mm256_or_si256(itself, is_control(block))
}

#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn masks(block: __m256i) -> Masks {
    let itself = _mm256_or_si256(is(block, b'"'), is(block, b'\\'));
    let control = is_control(block);
    // Bytes from 16 upwards get a number from 128 upwards, for which a shuffle gives 0.
    let place = _mm256_adds_epu8(block, _mm256_set1_epi8(0x70));
    let letters = _mm256_shuffle_epi8(twice(LETTERS), place);
    let without = _mm256_and_si256(control, is(letters, 0));
    Masks {
        itself: bits(itself),
        control: bits(control),
        unicode: bits(without),
        lettered: _mm256_or_si256(_mm256_andnot_si256(control, block), letters),
    }
}

/// The block at the start of `text`, which must have at least 32 bytes.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn load(text: &[u8]) -> __m256i {
    let block: &[u8; BLOCK] = text.first_chunk().unwrap_or(&[0; BLOCK]);
    // SAFETY: the array has 32 bytes, and the load needs no alignment.
    unsafe { _mm256_loadu_si256(block.as_ptr().cast()) }
}

const PAIR: usize = 2 * BLOCK;
const GROUP: usize = 4 * BLOCK;

/// How far [`sparse`] reads and writes in one step, at most.
const REACH: usize = 2 * PAIR + 2;

/// Appends the first bytes that need no escapes, in groups of 128 and as far as there is room; returns how
/// many.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn copy_clean(text: &[u8], out: &mut Vec<u8>) -> usize {
    let room = out.spare_capacity_mut();
    let mut clean = 0;
    for (from, to) in text.chunks_exact(GROUP).zip(room.chunks_exact_mut(GROUP)) {
        let blocks = [0, 1, 2, 3].map(|index| load(&from[index * BLOCK..]));
        let found = blocks.map(|block| special(block));
        let low = _mm256_or_si256(found[0], found[1]);
        if bits(_mm256_or_si256(low, _mm256_or_si256(found[2], found[3]))) != 0 {
            break;
        }
        for (block, to) in blocks.iter().zip(to.chunks_exact_mut(BLOCK)) {
            // SAFETY: `to` has 32 bytes, and the store needs no alignment.
            unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), *block) };
        }
        clean += GROUP;
    }
    let len = out.len() + clean;
    // SAFETY: all bytes up to the new length were just written, within the capacity.
    unsafe { out.set_len(len) };
    clean
}

/// What replaces a single escape, or a single byte that must be escaped.
struct One {
    /// Bytes of the input.
    read: usize,
    /// The output; only its first `written` bytes count.
    text: [u8; 2],
    written: usize,
}

/// Copies text that has at most one escape in 64 bytes; `one` makes its replacement from its byte and the
/// next one. The position of the next 64 bytes does not depend on where the escape is, so the processor need
/// not wait for the search. Returns how many bytes were read, and whether this stopped at escapes that it
/// cannot handle.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn sparse(text: &[u8], out: &mut Vec<u8>, one: impl Fn([u8; 2]) -> Option<One>) -> (usize, bool) {
    let start = out.len();
    let room = out.spare_capacity_mut();
    let (mut read, mut written, mut stopped) = (0, 0, false);
    while text.len() - read >= REACH && room.len() - written >= REACH {
        let (from, to) = (&text[read..], &mut room[written..]);
        copy_pair(from, to);
        let mut made = PAIR;
        let found = [special(load(from)), special(load(&from[BLOCK..]))];
        if bits(_mm256_or_si256(found[0], found[1])) != 0 {
            let escapes = u64::from(bits(found[0])) | u64::from(bits(found[1])) << BLOCK;
            let at = escapes.trailing_zeros() as usize;
            let one = one([from[at], from[at + 1]]);
            let Some(one) = one.filter(|one| escapes.is_power_of_two() && at + one.read <= PAIR)
            else {
                stopped = true;
                break;
            };
            to[at].write(one.text[0]);
            to[at + 1].write(one.text[1]);
            copy_pair(&from[at + one.read..], &mut to[at + one.written..]);
            made = PAIR + one.written - one.read;
        }
        (read, written) = (read + PAIR, written + made);
    }
    // SAFETY: all bytes up to the new length were just written, within the capacity.
    unsafe { out.set_len(start + written) };
    (read, stopped)
}

/// Copies 64 bytes.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn copy_pair(from: &[u8], to: &mut [std::mem::MaybeUninit<u8>]) {
    let (from, to) = (&from[..PAIR], &mut to[..PAIR]);
    for (from, to) in from.chunks_exact(BLOCK).zip(to.chunks_exact_mut(BLOCK)) {
        // SAFETY: `to` has 32 bytes, and the store needs no alignment.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), load(from)) };
    }
}

/// How many of the next blocks to shuffle without testing them for escapes, after a block with or
/// without any.
#[inline]
fn next_dense(dense: u32, escapes: bool) -> u32 {
    if escapes {
        DENSE
    } else {
        dense.saturating_sub(1)
    }
}

/// The last bytes of a text, filled up with spaces, which need no escape.
fn filled(rest: &[u8]) -> [u8; BLOCK] {
    let mut filled = [b' '; BLOCK];
    filled[..rest.len()].copy_from_slice(rest);
    filled
}

/// As [`crate::escape`].
#[target_feature(enable = "avx2,popcnt")]
pub(crate) fn escape(text: &[u8], out: &mut Vec<u8>) {
    out.reserve(text.len() + WORST);
    let mut dense = 0;
    let mut rest = text;
    while rest.len() >= BLOCK {
        // The last few blocks are handled one by one: searching them in groups would cost more than that.
        if dense == 0 && rest.len() >= GROUP {
            rest = &rest[copy_clean(rest, out)..];
            let (read, stopped) = sparse(rest, out, escape_one);
            rest = &rest[read..];
            dense = u32::from(stopped);
        }
        if out.capacity() - out.len() < WORST {
            out.reserve(rest.len() + rest.len() / 8 + WORST);
        }
        let Some((block, after)) = rest.split_first_chunk::<BLOCK>() else {
            break;
        };
        dense = escape_block(block, dense, out);
        rest = after;
    }
    if rest.is_empty() {
        return;
    }
    out.reserve(WORST);
    if let Some(last) = text.last_chunk::<BLOCK>() {
        let again = BLOCK - rest.len();
        let found = bits(special(load(last)));
        // A last block without escapes overlaps bytes that are in the output already, and is stored
        // over them.
        if found == 0 {
            let len = out.len() + rest.len();
            // SAFETY: the first bytes of the block are the last of the output, which has as many, and there
            // is room for the others.
            unsafe {
                _mm256_storeu_si256(out.as_mut_ptr().add(len - BLOCK).cast(), load(last));
                out.set_len(len);
            }
            return;
        }
        if found.trailing_zeros() as usize >= again {
            out.truncate(out.len() - again);
            escape_block(last, DENSE, out);
            return;
        }
    }
    escape_block(&filled(rest), 0, out);
    out.truncate(out.len() - (BLOCK - rest.len()));
}

/// Escapes a byte with one that follows a backslash.
#[inline]
fn escape_one([byte, _]: [u8; 2]) -> Option<One> {
    let letter = ESCAPE[usize::from(byte)];
    (letter != b'u').then_some(One {
        read: 1,
        text: [b'\\', letter],
        written: 2,
    })
}

/// Unescapes a backslash and a letter.
#[inline]
fn unescape_one([byte, letter]: [u8; 2]) -> Option<One> {
    let meaning = UNESCAPED[1][usize::from(letter)];
    (byte == b'\\' && meaning != 0).then_some(One {
        read: 2,
        text: [meaning, 0],
        written: 1,
    })
}

/// Appends a block; there must be room for [`WORST`] bytes. `dense` is how many blocks to shuffle without
/// testing them for escapes; returns that number for the next block.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn escape_block(text: &[u8; BLOCK], dense: u32, out: &mut Vec<u8>) -> u32 {
    debug_assert!(out.capacity() - out.len() >= WORST);
    if dense == 0 && bits(special(load(text))) == 0 {
        let len = out.len();
        // SAFETY: the caller left room for more than 32 bytes after the length.
        unsafe {
            _mm256_storeu_si256(out.as_mut_ptr().add(len).cast(), load(text));
            out.set_len(len + BLOCK);
        }
        return 0;
    }
    let masks = masks(load(text));
    if masks.unicode != 0 {
        portable::escape_block(text, out);
        return next_dense(dense, true);
    }
    let escapes = masks.itself | masks.control;
    let mut len = out.len();
    let low = _mm256_castsi256_si128(masks.lettered);
    let high = _mm256_extracti128_si256::<1>(masks.lettered);
    let backslashes = _mm_set1_epi8(b'\\' as i8);
    let groups = [
        _mm_unpacklo_epi64(low, backslashes),
        _mm_unpackhi_epi64(low, backslashes),
        _mm_unpacklo_epi64(high, backslashes),
        _mm_unpackhi_epi64(high, backslashes),
    ];
    for (group, mask) in groups.into_iter().zip(escapes.to_le_bytes()) {
        let moves = &APART[usize::from(mask)];
        // SAFETY: the array has 16 bytes, and the load needs no alignment.
        let moves = unsafe { _mm_loadu_si128(moves.as_ptr().cast()) };
        let apart = _mm_shuffle_epi8(group, moves);
        // SAFETY: the four groups write at most 16 bytes each, one after the other: 64 in all, and the
        // caller left room for more.
        unsafe { _mm_storeu_si128(out.as_mut_ptr().add(len).cast(), apart) };
        len += 8 + mask.count_ones() as usize;
    }
    // SAFETY: all bytes up to `len` were just written, within the capacity.
    unsafe { out.set_len(len) };
    next_dense(dense, escapes != 0)
}

/// As [`crate::unescape`].
#[target_feature(enable = "avx2,popcnt")]
pub(crate) fn unescape(raw: &[u8], out: &mut Vec<u8>) -> Result<(), Invalid> {
    // Unescaped text is never longer than its escaped form: while a block is left to read, its text has room.
    out.reserve(raw.len());
    let mut dense = 0;
    let mut at = 0;
    while raw.len() - at >= BLOCK {
        if dense == 0 && raw.len() - at >= GROUP {
            at += copy_clean(&raw[at..], out);
            let (read, stopped) = sparse(&raw[at..], out, unescape_one);
            at += read;
            dense = u32::from(stopped);
        }
        let Some(block) = raw[at..].first_chunk() else {
            break;
        };
        debug_assert!(out.capacity() - out.len() >= BLOCK);
        let len = out.len();
        // SAFETY: the `at` bytes that were read became at most `at` bytes of text, and there was room for all
        // of `raw` at first: so there is room for the 32 bytes of this block.
        let unescaped = unsafe { unescape_block(block, dense, out.as_mut_ptr().add(len)) };
        match unescaped {
            Some(done) => {
                // SAFETY: all bytes up to the new length were just written, within the capacity.
                unsafe { out.set_len(len + done.written) };
                at += done.read;
                dense = done.dense;
            }
            None => {
                at = portable::unescape_block(raw, at, at + BLOCK, out)?;
                dense = next_dense(dense, true);
            }
        }
    }
    let rest = &raw[at..];
    if rest.is_empty() {
        return Ok(());
    }
    let mut written = [0; BLOCK];
    // SAFETY: the array has 32 bytes.
    let unescaped = unsafe { unescape_block(&filled(rest), 0, written.as_mut_ptr()) };
    match unescaped {
        Some(done) => out.extend_from_slice(&written[..done.written - (BLOCK - rest.len())]),
        None => {
            portable::unescape_block(raw, at, raw.len(), out)?;
        }
    }
    Ok(())
}

/// The result of unescaping a block.
struct Unescaped {
    /// Bytes read: 31 if the last one begins an escape.
    read: usize,
    written: usize,
    /// How many of the next blocks to shuffle without testing them for escapes.
    dense: u32,
}

/// Unescapes a block that begins outside of any escape; `None` if it has a `\u` or a fault.
///
/// # Safety
/// There must be 32 bytes at `to`.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
unsafe fn unescape_block(raw: &[u8; BLOCK], dense: u32, to: *mut u8) -> Option<Unescaped> {
    let block = load(raw);
    let (backslash, quote) = (is(block, b'\\'), is(block, b'"'));
    let (backslashes, quotes) = (bits(backslash), bits(quote));
    let control = bits(is_control(block));
    if backslashes | quotes | control == 0 && dense == 0 {
        // SAFETY: there are 32 bytes, as the caller says, and the store needs no alignment.
        unsafe { _mm256_storeu_si256(to.cast(), block) };
        return Some(Unescaped {
            read: BLOCK,
            written: BLOCK,
            dense: 0,
        });
    }
    let escaping = escaping(backslashes);
    let escaped = escaping << 1;
    let place = _mm256_and_si256(_mm256_srli_epi16::<1>(block), _mm256_set1_epi8(0x0f));
    let letter = _mm256_cmpeq_epi8(_mm256_shuffle_epi8(twice(LETTER_AT.0), place), block);
    let itself = _mm256_or_si256(_mm256_or_si256(backslash, quote), is(block, b'/'));
    let simple = bits(_mm256_or_si256(letter, itself));
    if control | quotes & !escaped | escaped & !simple != 0 {
        return None;
    }
    let meaning = _mm256_shuffle_epi8(twice(LETTER_AT.1), place);
    let replaced = _mm256_and_si256(letter, bytes(escaped));
    let block = _mm256_blendv_epi8(block, meaning, replaced);
    let low = _mm256_castsi256_si128(block);
    let high = _mm256_extracti128_si256::<1>(block);
    let groups = [
        low,
        _mm_srli_si128::<8>(low),
        high,
        _mm_srli_si128::<8>(high),
    ];
    let mut written = 0;
    for (group, mask) in groups.into_iter().zip(escaping.to_le_bytes()) {
        let moves = &TOGETHER[usize::from(mask)];
        // SAFETY: the array has 8 bytes, and the load needs no alignment.
        let moves = unsafe { _mm_loadl_epi64(moves.as_ptr().cast()) };
        let together = _mm_shuffle_epi8(group, moves);
        // SAFETY: each of the four groups writes 8 bytes, and advances by at most 8: within the 32 bytes.
        unsafe { _mm_storel_epi64(to.add(written).cast(), together) };
        written += mask.count_zeros() as usize;
    }
    let cut = escaping >> 31;
    Some(Unescaped {
        read: BLOCK - cut as usize,
        written,
        dense: next_dense(dense, backslashes != 0),
    })
}

/// Which backslashes begin an escape: in each run of backslashes the first, the third, and so on.
fn escaping(backslashes: u32) -> u32 {
    const EVEN: u64 = 0x5555_5555_5555_5555;
    let all = u64::from(backslashes);
    let first = all & !(all << 1);
    // Adding the first bit of a run clears the run, and sets the bit after it: this separates the runs that
    // begin at an even position from the others.
    let from_even = all & !(all + (first & EVEN));
    let from_odd = all & !from_even;
    (from_even & EVEN | from_odd & !EVEN) as u32
}

/// How many bytes at the start need no escapes, in groups of 128.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn clean(text: &[u8]) -> usize {
    let mut clean = 0;
    for group in text.chunks_exact(GROUP) {
        let found = [0, 1, 2, 3].map(|index| special(load(&group[index * BLOCK..])));
        let low = _mm256_or_si256(found[0], found[1]);
        if bits(_mm256_or_si256(low, _mm256_or_si256(found[2], found[3]))) != 0 {
            break;
        }
        clean += GROUP;
    }
    clean
}

/// As [`crate::string_end`].
#[target_feature(enable = "avx2,popcnt")]
pub(crate) fn string_end(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    let mut dense = false;
    while let Some(block) = text[at..].first_chunk() {
        if !dense {
            let clean = clean(&text[at..]);
            at += clean;
            if clean > 0 {
                continue;
            }
        }
        let special = bits(special(load(block)));
        if special == 0 {
            at += BLOCK;
            dense = false;
            continue;
        }
        // Most strings end without an escape in their last block.
        let first = special.trailing_zeros() as usize;
        if block[first] == b'"' {
            return Some(at + first);
        }
        dense = true;
        match string_end_block(block)? {
            Some(Found::End(end)) => return Some(at + end),
            Some(Found::GoOn(next)) => at += next,
            None => match portable::string_end_block(text, at, at + BLOCK)? {
                Found::End(end) => return Some(end),
                Found::GoOn(next) => at = next,
            },
        }
    }
    match portable::string_end_block(text, at, text.len())? {
        Found::End(end) => Some(end),
        Found::GoOn(_) => None,
    }
}

/// Looks for the end of a string in a block that begins outside of any escape. The outer `None` is a fault;
/// the inner one means that the block has a `\\u` or an unknown escape, which the portable code must check.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn string_end_block(text: &[u8; BLOCK]) -> Option<Option<Found>> {
    let block = load(text);
    let (backslash, quote) = (is(block, b'\\'), is(block, b'"'));
    let (backslashes, quotes) = (bits(backslash), bits(quote));
    let control = bits(is_control(block));
    let escaping = escaping(backslashes);
    let escaped = escaping << 1;
    let ends = quotes & !escaped | control;
    let end = ends.trailing_zeros();
    // Escapes after the end do not belong to the string.
    let inside = escaped & !ends & ends.wrapping_sub(1);
    if inside != 0 {
        let place = _mm256_and_si256(_mm256_srli_epi16::<1>(block), _mm256_set1_epi8(0x0f));
        let letter = _mm256_cmpeq_epi8(_mm256_shuffle_epi8(twice(LETTER_AT.0), place), block);
        let itself = _mm256_or_si256(_mm256_or_si256(backslash, quote), is(block, b'/'));
        if inside & !bits(_mm256_or_si256(letter, itself)) != 0 {
            return Some(None);
        }
    }
    if ends == 0 {
        return Some(Some(Found::GoOn(BLOCK - (escaping >> 31) as usize)));
    }
    (control >> end & 1 == 0).then_some(Some(Found::End(end as usize)))
}

/// A byte of ones for each bit that is set.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn bytes(mask: u32) -> __m256i {
    const SPREAD: [u8; 32] = {
        let mut spread = [0; 32];
        let mut index = 0;
        while index < 32 {
            spread[index] = (index / 8) as u8;
            index += 1;
        }
        spread
    };
    // Each half of the vector has all four bytes of the mask.
    let spread = _mm256_shuffle_epi8(_mm256_set1_epi32(mask as i32), load(&SPREAD));
    let one = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
    _mm256_cmpeq_epi8(_mm256_and_si256(spread, one), one)
}

/// As [`crate::count`].
#[target_feature(enable = "avx2,popcnt")]
pub(crate) fn count(text: &[u8]) -> Escapes {
    let mut sum = Escapes::default();
    let mut add = |block: &[u8; BLOCK]| {
        let masks = masks(load(block));
        sum.itself += masks.itself.count_ones() as usize;
        sum.letter += (masks.control & !masks.unicode).count_ones() as usize;
        sum.unicode += masks.unicode.count_ones() as usize;
    };
    let (blocks, rest) = text.as_chunks::<BLOCK>();
    for group in blocks.chunks(4) {
        let found = group.iter().map(|block| special(load(block)));
        let found = found.fold(_mm256_setzero_si256(), |all, it| _mm256_or_si256(all, it));
        if bits(found) != 0 {
            group.iter().for_each(&mut add);
        }
    }
    if !rest.is_empty() {
        add(&filled(rest));
    }
    sum
}

//! Base64 inside JSON strings, which needs no escapes: the standard alphabet, padded, without stray bits.
//!
//! The kernels are those of `base64-turbo`. They are given memory that nobody has written to: zeroing it first
//! would take half as long as they do. They only store to it, in each of their forms; as that is no promise of
//! theirs, the version is pinned, and tests give them memory with stale bytes.

use base64_turbo::STANDARD;

/// Appends `data` as base64.
pub fn encode(data: &[u8], out: &mut Vec<u8>) {
    let size = data.len().div_ceil(3) * 4;
    // The room is exactly as long as the kernels want it, so this cannot fail.
    // SAFETY: they store all bytes that they count, and read none of these.
    unsafe { append(out, size, |room| STANDARD.encode_slice(data, room).ok()) };
}

/// Appends what canonical base64 stands for, and returns whether `text` is such. If it is not, `out` stays as it
/// was. Room is made for three bytes for each four characters.
pub fn decode(text: &[u8], out: &mut Vec<u8>) -> bool {
    let size = text.len() / 4 * 3;
    // SAFETY: the kernels store all bytes that they count, and read none of these.
    unsafe { append(out, size, |room| STANDARD.decode_slice(text, room).ok()) }
}

/// Appends what `write` writes to memory of `size` bytes. It tells how many it wrote; if it tells none, nothing is
/// appended, and this is false.
///
/// # Safety
/// `write` reads nothing of this memory, which may be uninitialized, and writes all bytes that it counts.
unsafe fn append(
    out: &mut Vec<u8>,
    size: usize,
    write: impl FnOnce(&mut [u8]) -> Option<usize>,
) -> bool {
    out.reserve(size);
    let room = out.as_mut_ptr().wrapping_add(out.len());
    // SAFETY: `reserve` made room for `size` bytes behind the last one, and while `out` is borrowed nobody else
    // reaches them. They may be uninitialized, which a slice of them should not be: nobody reads them before they
    // are written, as the caller promises.
    let room = unsafe { std::slice::from_raw_parts_mut(room, size) };
    let Some(written) = write(room).filter(|&written| written <= size) else {
        return false;
    };
    // SAFETY: there is room for `size` bytes, and `write` wrote the first `written` of them.
    unsafe { out.set_len(out.len() + written) };
    true
}

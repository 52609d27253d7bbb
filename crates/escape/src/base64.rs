//! Base64 inside JSON strings, where it needs no escapes: the standard alphabet, padded, unused bits zero.
//!
//! The crate `base64-turbo` does the coding. It gets uninitialized memory, since zeroing it first would take
//! half as long as the coding. All kernels of that crate only write to this memory; it does not promise so,
//! so its version is pinned, and tests pass it memory with stale bytes.

use base64_turbo::STANDARD;

/// Appends `data` as base64.
pub fn encode(data: &[u8], out: &mut Vec<u8>) {
    let size = data.len().div_ceil(3) * 4;
    // The room is exactly as long as the kernels want it, so this cannot fail.
    // SAFETY: the kernels write all bytes that they count, and read none of this memory.
    unsafe { append(out, size, |room| STANDARD.encode_slice(data, room).ok()) };
}

/// Decodes `text` and appends the bytes. Returns false, and leaves `out` as it was, if `text` is not
/// canonical base64. Room is reserved for three bytes for each four characters.
pub fn decode(text: &[u8], out: &mut Vec<u8>) -> bool {
    let size = text.len() / 4 * 3;
    // SAFETY: the kernels write all bytes that they count, and read none of this memory.
    unsafe { append(out, size, |room| STANDARD.decode_slice(text, room).ok()) }
}

/// Appends the bytes that `write` writes to memory of `size` bytes. `write` returns how many it has written;
/// if it returns `None`, nothing is appended, and this returns false.
///
/// # Safety
/// `write` must not read this memory, which may be uninitialized, and must write all bytes that it counts.
unsafe fn append(
    out: &mut Vec<u8>,
    size: usize,
    write: impl FnOnce(&mut [u8]) -> Option<usize>,
) -> bool {
    out.reserve(size);
    let room = out.as_mut_ptr().wrapping_add(out.len());
    // SAFETY: `reserve` made room for `size` bytes behind the last one, and while `out` is borrowed nothing
    // else reaches them. They may be uninitialized, which the bytes of a slice should not be: nothing reads
    // them before they are written, as the caller promises.
    let room = unsafe { std::slice::from_raw_parts_mut(room, size) };
    let Some(written) = write(room).filter(|&written| written <= size) else {
        return false;
    };
    // SAFETY: there is room for `size` bytes, and `write` wrote the first `written` of them.
    unsafe { out.set_len(out.len() + written) };
    true
}

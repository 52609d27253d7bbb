//! Lookup tables: how each byte is escaped, what each escape means, and the values of hexadecimal digits.

/// The character after the backslash for each byte; 0 for bytes that need no escape, `u` for those that
/// need four digits.
pub(crate) const ESCAPE: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = b'u';
        byte += 1;
    }
    table[0x08] = b'b';
    table[0x09] = b't';
    table[0x0a] = b'n';
    table[0x0c] = b'f';
    table[0x0d] = b'r';
    table[b'"' as usize] = b'"';
    table[b'\\' as usize] = b'\\';
    table
};

/// The last character of each byte's escape: the byte itself, or the character after the backslash.
pub(crate) const ESCAPED: [u8; 256] = {
    let mut table = ESCAPE;
    let mut byte = 0;
    while byte < 256 {
        if table[byte] == 0 {
            table[byte] = byte as u8;
        }
        byte += 1;
    }
    table
};

/// The meaning of each byte: in the first table on its own, in the second one after a backslash; 0 if the
/// table cannot say it, as for a `\u` or a fault.
pub(crate) const UNESCAPED: [[u8; 256]; 2] = {
    let mut bare = [0; 256];
    let mut byte = 0x20;
    while byte < 256 {
        bare[byte] = byte as u8;
        byte += 1;
    }
    bare[b'"' as usize] = 0;
    bare[b'\\' as usize] = 0;
    let mut behind = [0; 256];
    behind[b'"' as usize] = b'"';
    behind[b'\\' as usize] = b'\\';
    behind[b'/' as usize] = b'/';
    behind[b'b' as usize] = 0x08;
    behind[b'f' as usize] = 0x0c;
    behind[b'n' as usize] = b'\n';
    behind[b'r' as usize] = b'\r';
    behind[b't' as usize] = b'\t';
    [bare, behind]
};

pub(crate) const HEX: &[u8; 16] = b"0123456789abcdef";

/// The value of each hexadecimal digit; 255 for other bytes.
pub(crate) const DIGIT: [u8; 256] = {
    let mut table = [255; 256];
    let mut value = 0;
    while value < 16 {
        table[HEX[value].to_ascii_lowercase() as usize] = value as u8;
        table[HEX[value].to_ascii_uppercase() as usize] = value as u8;
        value += 1;
    }
    table
};

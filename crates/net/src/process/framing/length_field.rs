//! Binary frames whose header has a fixed size and says how long the body is.

/// Where the header of a frame has the length of its body, as a big-endian `u32`. Header and body
/// together are one frame, which passes unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LengthField {
    /// The name of the format, for errors.
    pub name: &'static str,
    /// The bytes of the header.
    pub header: usize,
    /// Where in the header the four bytes of the length begin.
    pub at: usize,
}

impl LengthField {
    /// The bytes of the frame that begins here; `None` while its header is not whole.
    pub(super) fn frame_len(&self, bytes: &[u8]) -> Option<u64> {
        let header = bytes.get(..self.header)?;
        let length = header.get(self.at..self.at + 4)?;
        let length = u32::from_be_bytes(length.try_into().ok()?);
        Some(self.header as u64 + u64::from(length))
    }

    /// Whether these bytes are exactly one frame.
    pub fn is_frame(&self, bytes: &[u8]) -> bool {
        self.frame_len(bytes) == Some(bytes.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_a_header_and_the_bytes_that_it_announces() {
        let field = LengthField {
            name: "test",
            header: 6,
            at: 1,
        };
        for (bytes, is_frame) in [
            (&b""[..], false),
            (b"x\0\0\0\0", false),
            (b"x\0\0\0\0y", true),
            (b"x\0\0\0\x01y", false),
            (b"x\0\0\0\x01yz", true),
            (b"x\0\0\0\x01yzz", false),
            (b"x\xff\xff\xff\xffy", false),
        ] {
            assert_eq!(field.is_frame(bytes), is_frame, "{bytes:?}");
        }
    }
}

//! The Close frame of a path that strikes, and the parting that lets it arrive.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::weather::Direction;

/// Why a frame was not let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strike {
    Frame { size: u64, cap: u64 },
    Message { size: u64, cap: u64 },
    Binary,
}

impl fmt::Display for Strike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame { size, cap } => write!(f, "frame of {size} bytes over the cap of {cap}"),
            Self::Message { size, cap } => {
                write!(f, "message of {size} bytes over the cap of {cap}")
            }
            Self::Binary => f.write_str("binary message on a path for text"),
        }
    }
}

impl Strike {
    fn code(&self) -> u16 {
        match self {
            Self::Frame { .. } | Self::Message { .. } => 1009,
            Self::Binary => 1003,
        }
    }

    /// The Close frame that says so; clients mask, servers do not.
    pub(super) fn frame(&self, direction: Direction) -> Vec<u8> {
        let mut payload = self.code().to_be_bytes().to_vec();
        payload.extend_from_slice(self.to_string().as_bytes());
        // Two numbers of 20 digits and the words stay below the 125 bytes of a control frame.
        payload.truncate(125);
        let length = payload.len() as u8;
        match direction {
            Direction::FromTarget => [&[0x88, length][..], &payload].concat(),
            Direction::FromClient => {
                let key = (RandomState::new().build_hasher().finish() as u32).to_be_bytes();
                for (byte, key) in payload.iter_mut().zip(key.iter().cycle()) {
                    *byte ^= key;
                }
                [&[0x88, 0x80 | length][..], &key, &payload].concat()
            }
        }
    }
}

/// Writes the last words, ends the stream, and reads until the other side ends its own: closing
/// with bytes unread would be a reset, which can destroy what was written. The caller bounds it.
pub(super) async fn part(stream: &mut TcpStream, last_words: &[u8]) {
    if stream.write_all(last_words).await.is_err() || stream.shutdown().await.is_err() {
        return;
    }
    let mut unwanted = [0; 4096];
    while let Ok(1..) = stream.read(&mut unwanted).await {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_frames_are_masked_towards_the_target_only() {
        let strike = Strike::Frame { size: 9, cap: 8 };
        let plain = b"\x88\x24\x03\xf1frame of 9 bytes over the cap of 8";
        assert_eq!(strike.frame(Direction::FromTarget), plain);
        let masked = strike.frame(Direction::FromClient);
        assert_eq!(masked[..2], [0x88, 0xa4]);
        let unmasked: Vec<u8> = (masked[6..].iter())
            .zip(masked[2..6].iter().cycle())
            .map(|(byte, key)| byte ^ key)
            .collect();
        assert_eq!(unmasked, plain[2..]);
    }

    #[test]
    fn the_longest_reason_fits_a_control_frame() {
        let (size, cap) = (u64::MAX, u64::MAX);
        let frame = Strike::Message { size, cap }.frame(Direction::FromTarget);
        assert!(frame.ends_with(b"18446744073709551615"));
        assert!(frame.len() <= 127);
    }
}

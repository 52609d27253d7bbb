//! The Close frame that the proxy sends when a frame violates a rule, and closing so that it arrives.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::weather::{Direction, Refusal, Way};

/// Why a frame was not forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Violation {
    Frame { size: u64, cap: u64 },
    Message { size: u64, cap: u64 },
    Binary,
}

impl fmt::Display for Violation {
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

impl Violation {
    /// The size that is over its cap; 0 where it is not about a size.
    pub(super) fn size(&self) -> u64 {
        match self {
            Self::Frame { size, .. } | Self::Message { size, .. } => *size,
            Self::Binary => 0,
        }
    }

    /// What both sides see of it.
    pub(super) fn refusal(&self, way: &Way) -> Refusal {
        match self {
            Self::Frame { .. } | Self::Message { .. } => way.refusal,
            Self::Binary => Refusal::Close(1003),
        }
    }

    /// The Close frame with this code and reason, masked if it goes to the target.
    pub(super) fn frame(&self, code: u16, direction: Direction) -> Vec<u8> {
        let mut payload = code.to_be_bytes().to_vec();
        payload.extend_from_slice(self.to_string().as_bytes());
        // The text with two numbers of 20 digits stays below the 125 bytes of a control frame.
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

/// Writes a last frame, ends the stream, and reads until the other side ends its own: closing with
/// unread bytes would reset the connection and could destroy what was written. The caller limits
/// the time.
pub(super) async fn close_and_drain(stream: &mut TcpStream, last_frame: &[u8]) {
    if stream.write_all(last_frame).await.is_err() || stream.shutdown().await.is_err() {
        return;
    }
    let mut discarded = [0; 4096];
    while let Ok(1..) = stream.read(&mut discarded).await {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_frames_are_masked_towards_the_target_only() {
        let strike = Violation::Frame { size: 9, cap: 8 };
        let plain = b"\x88\x24\x03\xf1frame of 9 bytes over the cap of 8";
        assert_eq!(strike.frame(1009, Direction::FromTarget), plain);
        let masked = strike.frame(1009, Direction::FromClient);
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
        let frame = Violation::Message { size, cap }.frame(1009, Direction::FromTarget);
        assert!(frame.ends_with(b"18446744073709551615"));
        assert!(frame.len() <= 127);
    }
}

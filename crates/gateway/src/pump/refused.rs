//! What to say when the other end of a WebSocket, or a relay on the way, closes with 1009: a message is too
//! large for it.

use std::fmt;

use breakbulk_link::{Closed, Preset};

/// A limit below this is not taken for one of a message: a close reason may contain other numbers.
const LEAST_LIMIT: usize = 1024;

/// The most known paths that are named.
const NAMED: usize = 3;

/// The frame that seems to be too large for the path, and the limit that seems to apply.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RefusedFrame {
    /// The size of the largest frame that was sent, in bytes.
    pub size: usize,
    /// The limit that the close reason seems to name.
    pub limit: Option<usize>,
    /// How messages travel there: what helps depends on it.
    pub cutting: Cutting,
}

/// How messages travel on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cutting {
    /// In frames that both gateways make.
    BothGateways,
    /// In frames that this gateway makes, to a program that makes its own.
    ThisGateway,
    /// Each message in one frame (`whole+`): no option makes it smaller.
    Never,
}

impl RefusedFrame {
    /// What the close of a connection says about a frame of this size.
    pub fn new(size: usize, cutting: Cutting, closed: &Closed) -> Self {
        let numbers = closed.reason.split(|c: char| !c.is_ascii_digit());
        let limits = numbers.filter_map(|number| number.parse().ok());
        Self {
            size,
            limit: limits.filter(|limit| *limit >= LEAST_LIMIT).min(),
            cutting,
        }
    }

    /// Whether this side sent the frame that was too large: a path closes both connections, whoever sent it.
    fn is_ours(&self) -> bool {
        self.size > self.limit.unwrap_or(LEAST_LIMIT)
    }

    /// The known paths that do not take such a frame.
    fn paths(&self) -> Vec<String> {
        let mut paths: Vec<_> = Preset::ALL
            .iter()
            .filter(|preset| preset.is_path())
            .filter_map(|preset| Some((preset.fragment.or(preset.message)?, preset)))
            .filter(|(limit, _)| *limit < self.size)
            .collect();
        paths.sort_by_key(|(limit, _)| std::cmp::Reverse(*limit));
        let words = paths.into_iter().take(NAMED).map(|(limit, preset)| {
            let name = preset.name;
            match (preset.message, preset.fragment) {
                (Some(message), Some(fragment)) => {
                    format!("{name} takes {message} in fragments of {fragment}")
                }
                _ => format!("{name} takes {limit}"),
            }
        });
        words.collect()
    }

    /// What to do about it.
    fn remedy(&self) -> String {
        let frames = match (self.limit, self.is_ours()) {
            (None, true) => format!("--max-frame SIZE (below {} bytes)", self.size),
            (Some(limit), _) => format!("--max-frame SIZE (below {limit} bytes)"),
            (None, false) => "a smaller --max-frame SIZE".to_owned(),
        };
        match (self.cutting, self.is_ours()) {
            (Cutting::BothGateways, _) => {
                format!("start both gateways with --preset NAME (of that path) or with {frames}")
            }
            (Cutting::ThisGateway, true) => {
                format!("start this gateway with --preset NAME (of that path) or with {frames}")
            }
            (Cutting::ThisGateway, false) => {
                "the program at the other end must send smaller frames, or needs a gateway of its own beside it".to_owned()
            }
            (Cutting::Never, _) => {
                "whole+ sends each message as one frame, whatever its size: leave out whole+ at this end, and start another gateway without whole+ at the other side of the path; the two cut messages into frames that fit".to_owned()
            }
        }
    }
}

impl fmt::Display for RefusedFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.size;
        write!(f, "the largest frame that was sent has {size} bytes, ")?;
        match (self.is_ours(), self.limit, &self.paths()[..]) {
            (false, limit, _) => {
                f.write_str("so a frame of the other end was too large for the path")?;
                if let Some(limit) = limit {
                    write!(f, ", whose limit seems to be {limit}")?;
                }
            }
            (true, Some(limit), _) => write!(f, "and the limit there seems to be {limit}")?,
            (true, None, []) => f.write_str("and the path or its other end takes less")?,
            (true, None, paths) => write!(
                f,
                "and the path or its other end takes less ({})",
                paths.join(", ")
            )?,
        }
        write!(f, "; {}", self.remedy())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_the_limit_and_the_remedy_are_told() {
        use Cutting::{BothGateways, Never, ThisGateway};
        let over = "frame of 8388608 bytes over the cap of 32768";
        for (size, cutting, reason, words) in [
            (
                2_000_000,
                BothGateways,
                "",
                "the largest frame that was sent has 2000000 bytes, and the path or its other end takes less (kong takes 1048576, nats takes 1048576, azure-web-pubsub takes 1000000); start both gateways with --preset NAME (of that path) or with --max-frame SIZE (below 2000000 bytes)",
            ),
            (
                900_000,
                BothGateways,
                "over size limit (900000 > 65536 bytes), 13",
                "the largest frame that was sent has 900000 bytes, and the limit there seems to be 65536; start both gateways with --preset NAME (of that path) or with --max-frame SIZE (below 65536 bytes)",
            ),
            (
                9000,
                ThisGateway,
                "too big",
                "the largest frame that was sent has 9000 bytes, and the path or its other end takes less; start this gateway with --preset NAME (of that path) or with --max-frame SIZE (below 9000 bytes)",
            ),
            (
                162,
                BothGateways,
                over,
                "the largest frame that was sent has 162 bytes, so a frame of the other end was too large for the path, whose limit seems to be 32768; start both gateways with --preset NAME (of that path) or with --max-frame SIZE (below 32768 bytes)",
            ),
            (
                162,
                BothGateways,
                "",
                "the largest frame that was sent has 162 bytes, so a frame of the other end was too large for the path; start both gateways with --preset NAME (of that path) or with a smaller --max-frame SIZE",
            ),
            (
                162,
                ThisGateway,
                over,
                "the largest frame that was sent has 162 bytes, so a frame of the other end was too large for the path, whose limit seems to be 32768; the program at the other end must send smaller frames, or needs a gateway of its own beside it",
            ),
            (
                200_055,
                Never,
                "over the cap of 128000",
                "the largest frame that was sent has 200055 bytes, and the limit there seems to be 128000; whole+ sends each message as one frame, whatever its size: leave out whole+ at this end, and start another gateway without whole+ at the other side of the path; the two cut messages into frames that fit",
            ),
            (
                162,
                Never,
                over,
                "the largest frame that was sent has 162 bytes, so a frame of the other end was too large for the path, whose limit seems to be 32768; whole+ sends each message as one frame, whatever its size: leave out whole+ at this end, and start another gateway without whole+ at the other side of the path; the two cut messages into frames that fit",
            ),
        ] {
            let closed = Closed {
                code: 1009,
                reason: reason.to_owned(),
            };
            let refused = RefusedFrame::new(size, cutting, &closed);
            assert_eq!(refused.to_string(), words);
        }
    }
}

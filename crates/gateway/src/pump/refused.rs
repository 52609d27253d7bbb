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
}

impl RefusedFrame {
    /// What the close of a connection says about a frame of this size.
    pub fn new(size: usize, closed: &Closed) -> Self {
        let numbers = closed.reason.split(|c: char| !c.is_ascii_digit());
        let limits = numbers.filter_map(|number| number.parse().ok());
        Self {
            size,
            limit: limits.filter(|limit| *limit >= LEAST_LIMIT).min(),
        }
    }

    /// Whether the frame was one of this side: a path closes both ways, whoever sent it.
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
}

impl fmt::Display for RefusedFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.size;
        write!(f, "the largest frame that was sent has {size} bytes, ")?;
        if !self.is_ours() {
            f.write_str("so one of the other end was too large for the path")?;
            if let Some(limit) = self.limit {
                write!(f, ", whose limit seems to be {limit}")?;
            }
            return f.write_str(
                "; start both gateways with the preset of that path, or with a smaller max-frame",
            );
        }
        f.write_str("and ")?;
        match (self.limit, &self.paths()[..]) {
            (Some(limit), _) => write!(f, "the limit there seems to be {limit}")?,
            (None, []) => f.write_str("the path or its other end takes less")?,
            (None, paths) => write!(
                f,
                "the path or its other end takes less ({})",
                paths.join(", ")
            )?,
        }
        let below = self.limit.unwrap_or(size);
        write!(
            f,
            "; start both gateways with the preset of that path, or with a max-frame below {below}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_the_limit_and_the_remedy_are_told() {
        for (size, reason, words) in [
            (
                2_000_000,
                "",
                "the largest frame that was sent has 2000000 bytes, and the path or its other end takes less (kong takes 1048576, nats takes 1048576, azure-web-pubsub takes 1000000); start both gateways with the preset of that path, or with a max-frame below 2000000",
            ),
            (
                900_000,
                "over size limit (900000 > 65536 bytes), 13",
                "the largest frame that was sent has 900000 bytes, and the limit there seems to be 65536; start both gateways with the preset of that path, or with a max-frame below 65536",
            ),
            (
                9000,
                "too big",
                "the largest frame that was sent has 9000 bytes, and the path or its other end takes less; start both gateways with the preset of that path, or with a max-frame below 9000",
            ),
            (
                162,
                "frame of 8388608 bytes over the cap of 32768",
                "the largest frame that was sent has 162 bytes, so one of the other end was too large for the path, whose limit seems to be 32768; start both gateways with the preset of that path, or with a smaller max-frame",
            ),
            (
                162,
                "",
                "the largest frame that was sent has 162 bytes, so one of the other end was too large for the path; start both gateways with the preset of that path, or with a smaller max-frame",
            ),
        ] {
            let closed = Closed {
                code: 1009,
                reason: reason.to_owned(),
            };
            assert_eq!(RefusedFrame::new(size, &closed).to_string(), words);
        }
    }
}

//! What became of one message of a probe.

use std::fmt;

use breakbulk_net::plain_text;

/// What became of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It arrived whole.
    Passed,
    /// It did not.
    Refused(Refusal),
}

/// How a path refused a message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The WebSocket was closed with this code.
    Close {
        /// The code; 1009 says that the message is too big.
        code: u16,
        /// The reason, as the path gave it.
        reason: String,
    },
    /// The request was answered with this HTTP status.
    Status {
        /// The status; 413 says that the body is too large.
        code: u16,
    },
    /// Nothing came back within the time that the path usually takes, and some more; or the mark that was
    /// sent after the message was answered, and the message was not.
    Silence,
    /// A shorter message arrived.
    Truncated {
        /// Its bytes.
        arrived: usize,
    },
    /// The connection ended without a close frame, or without an answer.
    Ended,
    /// The connection was reset.
    Reset,
    /// The other end of the TLS connection ended it with this alert.
    TlsAlert(String),
    /// Something else came: what is wrong with it.
    Broken(String),
}

impl Refusal {
    /// A short name, for machines.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Close { .. } => "close",
            Self::Status { .. } => "status",
            Self::Silence => "silence",
            Self::Truncated { .. } => "truncated",
            Self::Ended => "ended",
            Self::Reset => "reset",
            Self::TlsAlert(_) => "tls-alert",
            Self::Broken(_) => "broken",
        }
    }

    /// The close code or HTTP status, if there is one.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Close { code, .. } | Self::Status { code } => Some(*code),
            _ => None,
        }
    }

    /// The numbers in what the path said, which may name its limit.
    pub(super) fn numbers(&self) -> impl Iterator<Item = usize> {
        let reason = match self {
            Self::Close { reason, .. } => reason.as_str(),
            _ => "",
        };
        let numbers = reason.split(|c: char| !c.is_ascii_digit());
        numbers.filter_map(|number| number.parse().ok()).take(4)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Close { code, reason } if reason.is_empty() => write!(f, "closed with {code}"),
            Self::Close { code, reason } => {
                write!(f, "closed with {code} ({})", plain_text(reason))
            }
            Self::Status { code } => write!(f, "answered with HTTP {code}"),
            Self::Silence => f.write_str("dropped without an answer"),
            Self::Truncated { arrived } => write!(f, "cut off: {arrived} bytes arrived"),
            Self::Ended => f.write_str("the connection was ended without a close"),
            Self::Reset => f.write_str("the connection was reset"),
            Self::TlsAlert(alert) => write!(f, "TLS alert: {}", plain_text(alert)),
            Self::Broken(reason) => write!(f, "an invalid answer: {}", plain_text(reason)),
        }
    }
}

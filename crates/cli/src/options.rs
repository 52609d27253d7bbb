//! What split, join and inspect have in common: which wire, under which cap, with which key.

use std::sync::Arc;

use breakbulk::link::{Budget, Cap, Config, Key, Limits, Link, PeerLimits, PeerSupport, Wire};
use breakbulk::message::jsonrpc::Envelope;
use breakbulk::wire::{Ahp, Cep22, Loro, Style, Tywrap, nostr_cap};
use clap::{Args, ValueEnum};

use crate::failure::Failure;
use crate::size::Size;

/// More than any one message that a person would put through a pipe.
const DEFAULT_MAX_MESSAGE: usize = 1 << 30;

/// A line may be so much longer than the data in it: six bytes for a control, and the envelope.
const NATIVE_LINE: (usize, usize) = (6, 4096);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WireName {
    /// AHP message segments
    Ahp,
    /// tywrap-frame/1
    Tywrap,
    /// ContextVM's CEP-22 oversized transfer
    Cep22,
    /// loro-extended's wire format v2
    Loro,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WrapName {
    /// The signed Nostr event around each frame
    Nostr,
    /// The NIP-59 gift wrap around that event
    Giftwrap,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StyleName {
    /// As the TypeScript host writes: no spaces, raw UTF-8
    Compact,
    /// As the Python bridge writes: spaces, ASCII alone
    Ascii,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct WireOptions {
    /// The format of the frames
    #[arg(long, value_enum)]
    pub(crate) wire: WireName,
    /// The largest message [default: 1GiB]
    #[arg(long, value_name = "SIZE")]
    max_message: Option<Size>,
    /// The transfer's name: a groupId, request:7 or response:7, a progress token, or 16 hex digits
    #[arg(long)]
    key: Option<String>,
    /// tywrap: --max-frame counts the line, not the data alone
    #[arg(long)]
    strict: bool,
    /// cep22: --max-frame counts the event around the frame
    #[arg(long, value_enum)]
    wrap: Option<WrapName>,
    /// tywrap: whose style to write
    #[arg(long, value_enum, default_value = "compact")]
    style: StyleName,
}

impl WireOptions {
    pub(crate) fn max_message(&self) -> usize {
        self.max_message.map_or(DEFAULT_MAX_MESSAGE, |size| size.0)
    }

    pub(crate) fn key_is_given(&self) -> bool {
        self.key.is_some()
    }

    pub(crate) fn is_binary(&self) -> bool {
        self.wire == WireName::Loro
    }

    pub(crate) fn wire(&self) -> Arc<dyn Wire> {
        let style = if self.style == StyleName::Ascii {
            Style::Ascii
        } else {
            Style::Compact
        };
        match self.wire {
            WireName::Ahp => Arc::new(Ahp),
            WireName::Tywrap => Arc::new(Tywrap {
                style,
                ..Tywrap::default()
            }),
            WireName::Cep22 => Arc::new(Cep22::default()),
            WireName::Loro => Arc::new(Loro),
        }
    }

    pub(crate) fn cap(&self, max_frame: usize) -> Result<Cap, Failure> {
        if self.strict && self.wire != WireName::Tywrap {
            return Err(Failure::Usage("--strict is for --wire tywrap".into()));
        }
        if self.wrap.is_some() && self.wire != WireName::Cep22 {
            return Err(Failure::Usage("--wrap is for --wire cep22".into()));
        }
        Ok(match (self.wire, self.wrap) {
            (WireName::Tywrap, _) if !self.strict => Cap::piece(max_frame).lines(),
            (WireName::Cep22, Some(wrap)) => {
                nostr_cap(max_frame, max_frame, wrap == WrapName::Giftwrap).lines()
            }
            (WireName::Loro, _) => Cap::frame(max_frame),
            _ => Cap::frame(max_frame).lines(),
        })
    }

    /// The longest frame that can come in under that cap.
    pub(crate) fn frame_limit(&self, max_frame: Option<Size>) -> Result<usize, Failure> {
        let Some(Size(max_frame)) = max_frame else {
            return Ok(self
                .max_message()
                .saturating_mul(NATIVE_LINE.0)
                .saturating_add(NATIVE_LINE.1));
        };
        let cap = self.cap(max_frame)?;
        let native = self.wire == WireName::Tywrap && !self.strict;
        let longest = if native {
            max_frame
                .saturating_mul(NATIVE_LINE.0)
                .saturating_add(NATIVE_LINE.1)
        } else {
            cap.room()
        };
        Ok(longest)
    }

    /// The key that was given, or one that the format needs.
    pub(crate) fn key(&self, seed: &[u8; 32]) -> Result<Option<Key>, Failure> {
        let given = self.key.as_deref();
        Ok(match self.wire {
            WireName::Ahp => given.map(|key| Key::new(key.as_bytes())),
            WireName::Tywrap => Some(Key::new(given.unwrap_or("request:1").as_bytes())),
            WireName::Cep22 => {
                let token = given.map(str::to_owned).unwrap_or_else(|| {
                    seed[..16]
                        .iter()
                        .map(|byte| format!("{byte:02x}"))
                        .collect()
                });
                Some(Key::new(token.as_bytes()))
            }
            WireName::Loro => given.map(batch_id).transpose()?,
        })
    }

    /// Whether this is what the format's messages are, so that a damaged line is never taken for one.
    pub(crate) fn check_message(&self, message: &[u8]) -> Result<(), &'static str> {
        let envelope = std::str::from_utf8(message).ok().and_then(Envelope::parse);
        match self.wire {
            WireName::Loro => Ok(()),
            WireName::Tywrap if envelope.is_some() => Ok(()),
            WireName::Tywrap => Err("the message is not a JSON object, as every tywrap message is"),
            _ if envelope.is_some_and(|envelope| envelope.kind().is_some()) => Ok(()),
            _ => Err("the message is not one JSON-RPC message, and a receiver would refuse it"),
        }
    }

    /// A link that sends and receives by this wire.
    pub(crate) fn link(&self, frame_limit: usize, seed: [u8; 32]) -> Link {
        let rules = match self.wire {
            WireName::Ahp => Ahp::rules(),
            WireName::Tywrap => Tywrap::rules(),
            WireName::Cep22 => Cep22::rules(),
            WireName::Loro => Loro::rules(),
        };
        let message = self.max_message();
        let mut config = Config::new(rules);
        config.limits = Limits {
            frame: frame_limit,
            message,
            pieces: u64::from(u32::MAX),
            transfers: 64,
            memory: message.saturating_mul(2).saturating_add(64 << 20),
            queued_bytes: usize::MAX,
            ..Limits::default()
        };
        let mut link = Link::new(self.wire(), self.wire(), config, Budget::unlimited(), seed);
        link.set_peer(PeerSupport::Yes(PeerLimits {
            message,
            ..PeerLimits::NONE
        }));
        link
    }
}

fn batch_id(text: &str) -> Result<Key, Failure> {
    let wrong = || Failure::Usage(format!("--key {text}: a batchId is 16 hex digits"));
    let number = u64::from_str_radix(text, 16).map_err(|_| wrong())?;
    if text.len() != 16 || text.starts_with('+') {
        return Err(wrong());
    }
    Ok(Key::new(&number.to_be_bytes()))
}

/// Randomness for keys: from the system's own hasher, which is seeded anew in every process.
pub(crate) fn seed() -> [u8; 32] {
    use std::hash::{BuildHasher, RandomState};
    let mut seed = [0; 32];
    for (number, word) in seed.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&RandomState::new().hash_one(number).to_be_bytes());
    }
    seed
}

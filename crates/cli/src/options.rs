//! Options of split and join: the wire, its cap and the transfer's key.

use std::sync::Arc;

use breakbulk::link::{Budget, Cap, Config, Key, Limits, Link, PeerLimits, PeerSupport, Wire};
use breakbulk::message::jsonrpc::{Envelope, integer};
use breakbulk::message::mcp;
use breakbulk::wire::{Ahp, Cep22, Loro, Stream, Style, Tywrap, nostr_cap};
use clap::{Args, ValueEnum};

use crate::failure::Failure;
use crate::size::Size;

/// More than any message that a person would pass through a pipe.
const DEFAULT_MAX_MESSAGE: usize = 1 << 30;

/// Larger frames need `--max-frame`.
const DEFAULT_FRAME_LIMIT: usize = 64 << 20;

/// How much longer than its data a line may be: six bytes per control character, plus the envelope.
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
    /// As the Python bridge writes: spaces, ASCII only
    Ascii,
}

/// What split and join can be told about the frames, beside their wire.
#[derive(Args, Clone, Debug)]
pub(crate) struct WireOptions {
    /// The largest message [default: 1GiB]
    #[arg(long, value_name = "SIZE")]
    max_message: Option<Size>,
    /// The transfer's name: a groupId (ahp), request:7 or response:7 (tywrap), a progress token (cep22) or
    /// 16 hex digits (loro) [default: the message's own id or token, else a random one]
    #[arg(long)]
    key: Option<String>,
    /// tywrap: --max-frame limits the whole line, not only the data
    #[arg(long)]
    strict: bool,
    /// cep22: --max-frame limits the event around the frame; the frames are written without the event
    #[arg(long, value_enum)]
    wrap: Option<WrapName>,
    /// tywrap: the style of the frames [default: compact]
    #[arg(long, value_enum)]
    style: Option<StyleName>,
}

/// A wire and its options.
#[derive(Clone, Debug)]
pub(crate) struct Wired {
    pub(crate) wire: WireName,
    options: WireOptions,
}

impl WireOptions {
    /// The options of this wire.
    ///
    /// # Errors
    /// For options of another wire, and a key of the wrong form.
    pub(crate) fn of(self, wire: WireName) -> Result<Wired, Failure> {
        let wired = Wired {
            wire,
            options: self,
        };
        wired.check()?;
        Ok(wired)
    }
}

impl WireName {
    /// The name, as `--wire` takes it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ahp => "ahp",
            Self::Tywrap => "tywrap",
            Self::Cep22 => "cep22",
            Self::Loro => "loro",
        }
    }
}

impl Wired {
    pub(crate) fn max_message(&self) -> usize {
        self.options
            .max_message
            .map_or(DEFAULT_MAX_MESSAGE, |size| size.0)
    }

    pub(crate) fn is_binary(&self) -> bool {
        self.wire == WireName::Loro
    }

    pub(crate) fn wire(&self) -> Arc<dyn Wire> {
        let style = if self.options.style == Some(StyleName::Ascii) {
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

    fn check(&self) -> Result<(), Failure> {
        let wrong = |option: &str, wire: &str| {
            Err(Failure::Usage(format!("{option} is for --wire {wire}")))
        };
        match self.wire {
            WireName::Tywrap => {}
            _ if self.options.strict => return wrong("--strict", "tywrap"),
            _ if self.options.style.is_some() => return wrong("--style", "tywrap"),
            _ => {}
        }
        if self.options.wrap.is_some() && self.wire != WireName::Cep22 {
            return wrong("--wrap", "cep22");
        }
        self.given_key().map(drop)
    }

    pub(crate) fn cap(&self, max_frame: usize) -> Result<Cap, Failure> {
        if self.is_binary() && u32::try_from(max_frame).is_err() {
            return Err(Failure::Usage(
                "--max-frame: a frame of 4 GiB or more does not fit behind its u32 length".into(),
            ));
        }
        Ok(match (self.wire, self.options.wrap) {
            (WireName::Tywrap, _) if !self.options.strict => Cap::piece(max_frame).lines(),
            (WireName::Cep22, Some(wrap)) => {
                nostr_cap(max_frame, max_frame, wrap == WrapName::Giftwrap).lines()
            }
            (WireName::Loro, _) => Cap::frame(max_frame),
            _ => Cap::frame(max_frame).lines(),
        })
    }

    /// The longest frame that can be received under that cap.
    pub(crate) fn frame_limit(&self, max_frame: Option<Size>) -> Result<usize, Failure> {
        let Some(Size(max_frame)) = max_frame else {
            return Ok(DEFAULT_FRAME_LIMIT);
        };
        let cap = self.cap(max_frame)?;
        let native = self.wire == WireName::Tywrap && !self.options.strict;
        let longest = if native {
            max_frame
                .saturating_mul(NATIVE_LINE.0)
                .saturating_add(NATIVE_LINE.1)
        } else {
            cap.room()
        };
        Ok(longest)
    }

    /// The key from `--key`.
    pub(crate) fn given_key(&self) -> Result<Option<Key>, Failure> {
        let Some(key) = self.options.key.as_deref() else {
            return Ok(None);
        };
        match self.wire {
            WireName::Loro => batch_id(key).map(Some),
            WireName::Tywrap if !Tywrap::is_key(&Key::new(key.as_bytes())) => {
                Err(Failure::Usage(format!(
                    "--key {key}: it must be request:ID or response:ID, with an integer ID within ±(2^53 − 1)"
                )))
            }
            _ => Ok(Some(Key::new(key.as_bytes()))),
        }
    }

    /// The key from `--key`, or else one that the format needs: the message's own id or token if it has one.
    pub(crate) fn key(&self, message: &[u8], seed: &[u8; 32]) -> Result<Option<Key>, Failure> {
        if let Some(key) = self.given_key()? {
            return Ok(Some(key));
        }
        let envelope = std::str::from_utf8(message).ok().and_then(Envelope::parse);
        Ok(match self.wire {
            WireName::Ahp | WireName::Loro => None,
            WireName::Tywrap => {
                let id = envelope.and_then(|envelope| integer(envelope.id?)?.try_into().ok());
                let answers = envelope
                    .is_some_and(|envelope| envelope.method.is_none() && envelope.id.is_some());
                let stream = if answers {
                    Stream::Response
                } else {
                    Stream::Request
                };
                Some(stream.key(id.unwrap_or(1)))
                    .filter(Tywrap::is_key)
                    .or_else(|| Some(stream.key(1)))
            }
            WireName::Cep22 => {
                let token = envelope
                    .as_ref()
                    .and_then(mcp::progress_token)
                    .map(|token| token.to_string());
                let random = || {
                    seed[..16]
                        .iter()
                        .map(|byte| format!("{byte:02x}"))
                        .collect()
                };
                Some(Key::new(token.unwrap_or_else(random).as_bytes()))
            }
        })
    }

    /// A link that sends and receives with this wire.
    pub(crate) fn link(&self, frame_limit: usize, seed: [u8; 32]) -> Link {
        let rules = match self.wire {
            WireName::Ahp => Ahp::rules(),
            WireName::Tywrap => Tywrap::rules(),
            WireName::Cep22 => Cep22::rules(),
            WireName::Loro => Loro::rules(),
        };
        let message = self.max_message();
        let mut config = Config::new(rules);
        config.limits = Limits::default().with(|limits| {
            limits.frame = frame_limit;
            limits.message = message;
            limits.pieces = u64::from(u32::MAX);
            limits.transfers = 64;
            limits.memory = message.saturating_mul(2).saturating_add(64 << 20);
            limits.queued_bytes = usize::MAX;
        });
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

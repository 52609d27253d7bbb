//! The configuration of a bridge, as the host passes it by arguments and environment.

use std::collections::BTreeSet;
use std::sync::Arc;

use breakbulk_link::{self as link, Budget, Cap, Link, PeerLimits, PeerSupport};
use breakbulk_message::tywrap::FRAME_PROTOCOL;
use breakbulk_net::fresh_seed;
use breakbulk_wire::{Stream, Style, Tywrap};

/// Bytes of a frame's line in addition to its data.
const ENVELOPE: usize = 1024;

/// The argument of hosts from version 0.9 on.
const ARGUMENT: &str = "--tywrap-max-frame-bytes";

/// What a bridge does.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BridgeConfig {
    /// Bytes of data in a frame; a longer response is cut. `None`: the host did not ask for frames, and
    /// gets each response as one line.
    pub frame: Option<usize>,
    /// Whether `meta` announces the frame size, which hosts of version 0.8 need.
    pub tells_transport: bool,
    /// Bytes of a request. A host that sets no limit, or one that is not positive, gets the default.
    pub request: usize,
    /// Bytes of a response; `None`: as many as the function returns.
    pub response: Option<usize>,
    /// The modules that may be called; `None`: all.
    pub allowed: Option<BTreeSet<String>>,
    /// What `meta` reports in place of Python's version.
    pub version: String,
}

/// An invalid setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} must be {expected}, not {value:?}")]
pub struct BadSetting {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// What it must be.
    pub expected: &'static str,
}

impl Default for BridgeConfig {
    fn default() -> Self {
        Self {
            frame: None,
            tells_transport: false,
            request: 1 << 30,
            response: None,
            allowed: None,
            version: concat!("breakbulk ", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}

breakbulk_link::with!(BridgeConfig);

impl BridgeConfig {
    /// Reads this process's arguments and environment.
    ///
    /// # Errors
    /// If a number in them is invalid.
    pub fn from_process() -> Result<Self, BadSetting> {
        let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
        let arguments: Vec<String> = std::env::args_os().skip(1).map(text).collect();
        Self::read(&arguments, |name| std::env::var_os(name).map(text))
    }

    /// Reads these arguments and this environment. If both set a frame size, the smaller of the two
    /// applies.
    ///
    /// # Errors
    /// If a number in them is invalid.
    pub fn read(
        arguments: &[String],
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, BadSetting> {
        let mut frames = Vec::new();
        if let Some(at) = arguments.iter().position(|word| word == ARGUMENT) {
            let value = arguments.get(at + 1).map_or("", String::as_str);
            frames.push(positive(ARGUMENT, value)?);
        }
        let tells_transport = env("TYWRAP_TRANSPORT_CHUNKING").as_deref() == Some("1")
            && env("TYWRAP_TRANSPORT_FRAME_PROTOCOL").as_deref() == Some(FRAME_PROTOCOL);
        if tells_transport {
            let name = "TYWRAP_TRANSPORT_MAX_FRAME_BYTES";
            frames.push(positive(name, &env(name).unwrap_or_default())?);
        }
        let limit = |name| match env(name).as_deref().map(str::trim) {
            None | Some("") => Ok(None),
            Some(value) => optional(name, value),
        };
        let allowed: BTreeSet<String> = env("TYWRAP_ALLOWED_MODULES")
            .unwrap_or_default()
            .split(|c: char| c == ',' || c.is_whitespace())
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
        let default = Self::default();
        Ok(Self {
            frame: frames.into_iter().min(),
            tells_transport,
            request: limit("TYWRAP_REQUEST_MAX_BYTES")?.unwrap_or(default.request),
            response: limit("TYWRAP_CODEC_MAX_BYTES")?,
            allowed: (!allowed.is_empty()).then_some(allowed),
            version: default.version,
        })
    }

    /// Bytes of the longest line that is accepted.
    pub fn line_limit(&self) -> usize {
        // A frame's line is longer than its data, since JSON escapes characters.
        let escaped = self
            .frame
            .map_or(usize::MAX, |frame| frame.saturating_mul(6));
        let frame = escaped.min(self.request.saturating_mul(3));
        frame.max(self.request).saturating_add(ENVELOPE)
    }

    /// The link to the host.
    pub(super) fn link(&self) -> Link {
        let mut link_config = link::Config::new(Tywrap::bridge_rules());
        link_config.limits = link::Limits::default().with(|limits| {
            limits.frame = self.line_limit();
            limits.message = self.request;
            limits.transfers = 1024;

            // Only one request is received at a time; its buffer has up to a quarter to spare.
            limits.memory = self.request.saturating_mul(2).saturating_add(16 << 20);
            limits.queued_bytes = usize::MAX;
        });
        link_config.progress = 0;
        // The original host decodes its input chunk by chunk, which breaks all but ASCII.
        let send = Arc::new(Tywrap {
            style: Style::Ascii,
            ..Tywrap::default()
        });
        let receive = Arc::new(Tywrap {
            expects: Some(Stream::Request),
            ..Tywrap::default()
        });
        let mut link = Link::new(
            send,
            receive,
            link_config,
            Budget::unlimited(),
            fresh_seed(),
        );
        match self.frame {
            Some(frame) => {
                link.set_peer(PeerSupport::Yes(PeerLimits::NONE));
                link.set_cap(Cap::piece(frame).lines());
            }
            None => link.set_cap(Cap::frame(usize::MAX).lines()),
        }
        link
    }
}

fn positive(name: &'static str, value: &str) -> Result<usize, BadSetting> {
    // Rust's parser would accept a plus sign.
    let number = value.bytes().all(|byte| byte.is_ascii_digit());
    match value.parse() {
        Ok(parsed) if number && parsed > 0 => Ok(parsed),
        _ => Err(bad_setting(name, value, "a positive integer")),
    }
}

/// A limit; one that is not positive means no limit, as in the original.
fn optional(name: &'static str, value: &str) -> Result<Option<usize>, BadSetting> {
    let (is_negative, digits) = match value.as_bytes().first() {
        Some(b'-') => (true, &value[1..]),
        Some(b'+') => (false, &value[1..]),
        _ => (false, value),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(bad_setting(name, value, "an integer"));
    }
    // A number too large for `usize` is as good as the largest one.
    let limit = digits.parse().unwrap_or(usize::MAX);
    Ok((!is_negative && limit > 0).then_some(limit))
}

fn bad_setting(name: &'static str, value: &str, expected: &'static str) -> BadSetting {
    BadSetting {
        name,
        value: value.chars().take(64).collect(),
        expected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &[&str], env: &[(&str, &str)]) -> Result<(Option<usize>, bool), BadSetting> {
        let arguments: Vec<_> = arguments.iter().map(|word| (*word).to_owned()).collect();
        let find = |name: &str| {
            let found = env.iter().find(|(known, _)| *known == name)?;
            Some(found.1.to_owned())
        };
        BridgeConfig::read(&arguments, find).map(|read| (read.frame, read.tells_transport))
    }

    #[test]
    fn both_handshakes_count_and_the_smaller_frame_wins() {
        const CHUNKING: (&str, &str) = ("TYWRAP_TRANSPORT_CHUNKING", "1");
        const PROTOCOL: (&str, &str) = ("TYWRAP_TRANSPORT_FRAME_PROTOCOL", "tywrap-frame/1");
        const MAX: &str = "TYWRAP_TRANSPORT_MAX_FRAME_BYTES";
        for (arguments, env, expected) in [
            (vec![], vec![], (None, false)),
            (vec![ARGUMENT, "200"], vec![], (Some(200), false)),
            (
                vec![],
                vec![CHUNKING, PROTOCOL, (MAX, "64")],
                (Some(64), true),
            ),
            (
                vec![ARGUMENT, "32"],
                vec![CHUNKING, PROTOCOL, (MAX, "64")],
                (Some(32), true),
            ),
            (
                vec![ARGUMENT, "96"],
                vec![CHUNKING, PROTOCOL, (MAX, "64")],
                (Some(64), true),
            ),
            // An incomplete offer of frames counts as none.
            (vec![], vec![CHUNKING, (MAX, "64")], (None, false)),
            (vec![], vec![PROTOCOL, (MAX, "64")], (None, false)),
        ] {
            assert_eq!(
                read(&arguments, &env),
                Ok(expected),
                "{arguments:?} {env:?}"
            );
        }
        for bad in [
            "",
            "0",
            "-1",
            "+1",
            "abc",
            " 5",
            "1e3",
            "99999999999999999999999",
        ] {
            assert!(read(&[ARGUMENT, bad], &[]).is_err(), "{bad:?}");
            assert!(
                read(&[], &[CHUNKING, PROTOCOL, (MAX, bad)]).is_err(),
                "{bad:?}"
            );
        }
        assert!(read(&[ARGUMENT], &[]).is_err());
    }

    // TYWRAP-13
    #[test]
    fn a_limit_that_is_not_positive_is_none() {
        const NAMES: [&str; 2] = ["TYWRAP_REQUEST_MAX_BYTES", "TYWRAP_CODEC_MAX_BYTES"];
        let read = |value: &str| {
            let find = |name: &str| NAMES.contains(&name).then(|| value.to_owned());
            BridgeConfig::read(&[], find).map(|config| (config.request, config.response))
        };
        let unlimited = (1 << 30, None);
        for (value, expected) in [
            ("", unlimited),
            (" 100 ", (100, Some(100))),
            ("+7", (7, Some(7))),
            ("0", unlimited),
            ("-0", unlimited),
            ("-5", unlimited),
            ("99999999999999999999", (usize::MAX, Some(usize::MAX))),
        ] {
            assert_eq!(read(value), Ok(expected), "{value:?}");
        }
        for bad in ["x", "-", "1e3", "1.5", "--1", "٣"] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_line_has_room_for_what_json_escapes() {
        let mut config = BridgeConfig::default().with(|config| config.request = 1000);
        assert_eq!(config.line_limit(), 3000 + 1024);
        config.frame = Some(100);
        assert_eq!(config.line_limit(), 1000 + 1024);
        config.frame = Some(400);
        assert_eq!(config.line_limit(), 2400 + 1024);
    }
}

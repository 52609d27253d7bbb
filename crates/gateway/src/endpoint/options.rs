//! The options behind an endpoint's question mark.

use std::path::PathBuf;

use breakbulk_net::preset::Preset;
use breakbulk_net::process::Framing;

use super::{NostrOptions, TunnelUse};
use crate::size::Size;

/// The options of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndpointOptions {
    pub(crate) framing: Option<Framing>,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) cert: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) ca: Option<PathBuf>,
    pub(crate) preset: Option<Preset>,
    pub(crate) max_frame: Option<usize>,
    pub(crate) max_message: Option<usize>,
    pub(crate) tunnel: Option<TunnelUse>,
    /// Those of relays alone.
    pub(crate) nostr: NostrOptions,
}

/// A command may have a question mark of its own: what follows the last one are options if all of it
/// looks so.
pub(super) fn command_options(text: &str) -> Result<(&str, EndpointOptions), String> {
    if let Some((command, query)) = text.rsplit_once('?')
        && !query.contains([' ', '\t', '\'', '"', '\\'])
        && query.split('&').all(|pair| {
            pair.split_once('=')
                .is_some_and(|(name, _)| is_option(name))
        })
    {
        return Ok((command, options(query)?.0));
    }
    Ok((text, EndpointOptions::default()))
}

pub(super) fn none_unknown(unknown: &[&str]) -> Result<(), String> {
    match unknown.first() {
        None => Ok(()),
        Some(pair) => Err(unknown_option(pair)),
    }
}

/// What to say of an option that nobody knows.
pub(crate) fn unknown_option(pair: &str) -> String {
    unknown_among(pair, &NAMES)
}

pub(super) fn unknown_among(pair: &str, names: &[&str]) -> String {
    let name = pair.split('=').next().unwrap_or_default();
    format!("{name:?} is no option; use {}", names.join(", "))
}

const NAMES: [&str; 9] = [
    "framing",
    "token-file",
    "cert",
    "key",
    "ca",
    "preset",
    "max-frame",
    "max-message",
    "tunnel",
];

fn is_option(name: &str) -> bool {
    NAMES.contains(&name)
}

/// Our options of a query, and what else is in it.
pub(super) fn options(query: &str) -> Result<(EndpointOptions, Vec<&str>), String> {
    options_among(query, &NAMES)
}

/// The same where only these are ours.
pub(super) fn options_among<'a>(
    query: &'a str,
    names: &[&str],
) -> Result<(EndpointOptions, Vec<&'a str>), String> {
    let mut options = EndpointOptions::default();
    let mut unknown = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if name == "token" {
            return Err(
                "a token on the command line is seen by every program; use ?token-file=FILE or BREAKBULK_TOKEN"
                    .to_owned(),
            );
        }
        if !names.contains(&name) {
            unknown.push(pair);
            continue;
        }
        let value = decoded(value)?;
        if value.is_empty() {
            return Err(format!("{name} has no value; write {name}=VALUE"));
        }
        options
            .set(name, &value)
            .map_err(|error| format!("{name}: {error}"))?;
    }
    Ok((options, unknown))
}

impl EndpointOptions {
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let once = |taken: bool| match taken {
            true => Err("it is there twice".to_owned()),
            false => Ok(()),
        };
        let size = |value: &str| value.parse().map(|Size(size)| size);
        match name {
            "framing" => once(self.framing.replace(value.parse()?).is_some()),
            "token-file" => once(self.token_file.replace(value.into()).is_some()),
            "cert" => once(self.cert.replace(value.into()).is_some()),
            "key" => once(self.key.replace(value.into()).is_some()),
            "ca" => once(self.ca.replace(value.into()).is_some()),
            "preset" => once(self.preset.replace(preset(value)?).is_some()),
            "max-frame" => once(self.max_frame.replace(size(value)?).is_some()),
            "max-message" => once(self.max_message.replace(size(value)?).is_some()),
            "tunnel" => {
                let tunnel = match value {
                    "auto" => TunnelUse::Auto,
                    "always" => TunnelUse::Always,
                    "never" => TunnelUse::Never,
                    _ => return Err(format!("{value:?} is none of auto, always, never")),
                };
                once(self.tunnel.replace(tunnel).is_some())
            }
            _ => once(self.nostr.set(name, value)?),
        }
    }
}

/// A preset by its name.
pub fn preset(name: &str) -> Result<Preset, String> {
    Preset::by_name(name).ok_or_else(|| {
        let names: Vec<_> = Preset::ALL.iter().map(|preset| preset.name).collect();
        format!("{name:?} is no preset; use {}", names.join(", "))
    })
}

/// `%26` and the like, for file names with an `&` in them.
fn decoded(value: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16));
        match (digit(), digit()) {
            (Some(high), Some(low)) => bytes.push((high * 16 + low) as u8),
            _ => return Err(format!("{value:?}: write a % itself as %25")),
        }
    }
    String::from_utf8(bytes).map_err(|_| format!("{value:?} is not UTF-8"))
}

//! The options behind an endpoint's question mark.

use std::path::PathBuf;
#[cfg(any(feature = "http", feature = "nostr"))]
use std::time::Duration;

use breakbulk_link::Preset;
#[cfg(feature = "process")]
use breakbulk_net::process::{Framing, LengthField};

#[cfg(feature = "http")]
use super::Down;
#[cfg(feature = "nats")]
use super::NatsNames;
#[cfg(feature = "nostr")]
use super::RelayOptions;
use super::{EndpointError, OptionError, TunnelUse};
use crate::caps::{self, preset};
use crate::nearest::misspelt;
use crate::size::Size;

/// A parameter of a target's address that is probably meant for the gateway.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name} is no option of the gateway, so it goes to the server as a part of the address; if {meant} is meant, write it so"
)]
pub struct Misspelt {
    /// Its name.
    pub name: String,
    /// The option that is spelled nearly so.
    pub meant: &'static str,
}

impl Misspelt {
    /// The first parameter that is spelled nearly as one of these options.
    pub(super) fn among(pairs: &[&str], options: &'static [&'static str]) -> Option<Self> {
        pairs.iter().find_map(|pair| {
            let name = pair.split('=').next().unwrap_or_default();
            let meant = misspelt(name, options)?;
            Some(Self {
                name: name.to_owned(),
                meant,
            })
        })
    }
}

/// The options of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndpointOptions {
    #[cfg(feature = "process")]
    pub(crate) framing: Option<Framing>,
    pub(crate) token_file: Option<PathBuf>,
    /// Headers that a target is sent.
    #[cfg(feature = "http")]
    pub(crate) headers_file: Option<PathBuf>,
    pub(crate) cert: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) ca: Option<PathBuf>,
    pub(crate) preset: Option<Preset>,
    /// The program that takes this end's messages, whose limits are known.
    pub(crate) client: Option<Preset>,
    /// A parameter for the server that is spelled nearly as an option.
    pub(crate) misspelt: Option<Misspelt>,
    pub(crate) max_frame: Option<usize>,
    pub(crate) fragment: Option<usize>,
    pub(crate) max_message: Option<usize>,
    pub(crate) tunnel: Option<TunnelUse>,
    /// How frames come down in a tunnel over plain HTTP.
    #[cfg(feature = "http")]
    pub(crate) down: Option<Down>,
    /// Whether the process id of an LSP client passes a tunnel.
    #[cfg(feature = "process")]
    pub(crate) keeps_process_id: Option<bool>,
    /// A session ends after this much time without a message.
    #[cfg(any(feature = "http", feature = "nostr"))]
    pub(crate) idle: Option<Duration>,
    /// Those of NATS alone.
    #[cfg(feature = "nats")]
    pub(crate) nats: NatsNames,
    /// Those of relays alone.
    #[cfg(feature = "nostr")]
    pub(crate) relay: RelayOptions,
}

/// The framing of VSCode's `ipc.net`: type, id, acknowledged id and length of the body. Header and body
/// are one message here, so plain and persistent sessions pass with their acknowledgements.
#[cfg(feature = "process")]
const IPC: Framing = Framing::LengthField(LengthField {
    name: "ipc",
    header: 13,
    at: 9,
});

/// The options of streams and WebSockets.
pub(super) const NAMES: &[&str] = &[
    #[cfg(feature = "process")]
    "framing",
    "token-file",
    "cert",
    "key",
    "ca",
    "preset",
    "client",
    "max-frame",
    "max-message",
    "tunnel",
    "fragment",
    #[cfg(feature = "http")]
    "down",
    #[cfg(feature = "process")]
    "process-id",
];

/// A command may contain question marks: what follows the last one are options only if all of it looks
/// like options.
#[cfg(feature = "process")]
pub(super) fn command_options(text: &str) -> Result<(&str, EndpointOptions), EndpointError> {
    let is_option = |pair: &str| {
        let name = pair.split_once('=').map(|(name, _)| name);
        name.is_some_and(|name| NAMES.contains(&name))
    };
    match text.rsplit_once('?') {
        Some((command, query))
            if !query.contains([' ', '\t', '\'', '"', '\\']) && query.split('&').all(is_option) =>
        {
            Ok((command, only_options(query, NAMES)?))
        }
        _ => Ok((text, EndpointOptions::default())),
    }
}

/// The error for an option that does not exist.
pub(crate) fn unknown_option(pair: &str, known: &'static [&'static str]) -> EndpointError {
    let name = pair.split('=').next().unwrap_or_default().to_owned();
    EndpointError::UnknownOption { name, known }
}

/// The options of a query; anything else in it is an error.
#[cfg(any(unix, feature = "process", feature = "nats", feature = "nostr"))]
pub(super) fn only_options(
    query: &str,
    names: &'static [&'static str],
) -> Result<EndpointOptions, EndpointError> {
    let (options, unknown) = options(query, names)?;
    match unknown.first() {
        None => Ok(options),
        Some(pair) => Err(unknown_option(pair, names)),
    }
}

/// The options of a query that have one of these names, and the rest of the query.
pub(crate) fn options<'a>(
    query: &'a str,
    names: &[&str],
) -> Result<(EndpointOptions, Vec<&'a str>), EndpointError> {
    let mut options = EndpointOptions::default();
    let mut unknown = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if name == "token" {
            return Err(EndpointError::TokenInText);
        }
        if !names.contains(&name) {
            unknown.push(pair);
            continue;
        }
        let set = match value {
            "" => Err(OptionError::Empty),
            value => decoded(value).and_then(|value| options.set(name, &value)),
        };
        set.map_err(|error| EndpointError::Option {
            name: name.to_owned(),
            error,
        })?;
    }
    Ok((options, unknown))
}

impl EndpointOptions {
    fn set(&mut self, name: &str, value: &str) -> Result<(), OptionError> {
        let size = |value: &str| value.parse().map(|Size(size)| size);
        let was_there = match name {
            #[cfg(feature = "process")]
            "framing" => {
                let framing = match value {
                    "ipc" => IPC,
                    _ => value
                        .parse()
                        .map_err(|_| none_of(value, "lines, content-length, ipc"))?,
                };
                self.framing.replace(framing).is_some()
            }
            "token-file" => self.token_file.replace(value.into()).is_some(),
            #[cfg(feature = "http")]
            "headers-file" => self.headers_file.replace(value.into()).is_some(),
            #[cfg(any(feature = "http", feature = "nostr"))]
            "idle" => self.idle.replace(seconds(value)?).is_some(),
            "cert" => self.cert.replace(value.into()).is_some(),
            "key" => self.key.replace(value.into()).is_some(),
            "ca" => self.ca.replace(value.into()).is_some(),
            "preset" => self.preset.replace(preset(value)?).is_some(),
            "client" => self.client.replace(caps::client(value)?).is_some(),
            "max-frame" => self.max_frame.replace(size(value)?).is_some(),
            "fragment" => self.fragment.replace(size(value)?).is_some(),
            #[cfg(feature = "process")]
            "process-id" => {
                let keeps = match value {
                    "keep" => true,
                    "null" => false,
                    _ => return Err(none_of(value, "keep, null")),
                };
                self.keeps_process_id.replace(keeps).is_some()
            }
            "max-message" => self.max_message.replace(size(value)?).is_some(),
            "tunnel" => {
                let tunnel = match value {
                    "auto" => TunnelUse::Auto,
                    "always" => TunnelUse::Always,
                    "never" => TunnelUse::Never,
                    _ => return Err(none_of(value, "auto, always, never")),
                };
                self.tunnel.replace(tunnel).is_some()
            }
            #[cfg(feature = "http")]
            "down" => {
                let down = match value {
                    "sse" => Down::EventStream,
                    "poll" => Down::Poll,
                    _ => return Err(none_of(value, "sse, poll")),
                };
                self.down.replace(down).is_some()
            }
            #[cfg(feature = "nats")]
            "creds" => self.nats.creds.replace(value.into()).is_some(),
            #[cfg(feature = "nats")]
            "queue" => self.nats.queue.replace(value.to_owned()).is_some(),
            #[cfg(feature = "nats")]
            "inbox" => self.nats.inbox.replace(value.to_owned()).is_some(),
            #[cfg(feature = "nostr")]
            _ => self.relay.set(name, value)?,
            // `names` contains no other option.
            #[cfg(not(feature = "nostr"))]
            _ => false,
        };
        match was_there {
            true => Err(OptionError::Twice),
            false => Ok(()),
        }
    }
}

#[cfg(any(feature = "http", feature = "nostr"))]
pub(super) fn seconds(value: &str) -> Result<Duration, OptionError> {
    match value.parse::<u32>() {
        Ok(seconds @ 1..) => Ok(Duration::from_secs(seconds.into())),
        _ => Err(OptionError::Seconds(value.to_owned())),
    }
}

/// The name of an option that only WebSockets and streams have, if this is one.
#[cfg(feature = "http")]
pub(super) fn of_others(name: &str) -> Option<&'static str> {
    NAMES.iter().find(|known| **known == name).copied()
}

pub(super) fn none_of(value: &str, expected: &'static str) -> OptionError {
    OptionError::Word {
        value: value.to_owned(),
        expected,
    }
}

/// `%26` and the like, for file names with an `&` in them.
pub(crate) fn decoded(value: &str) -> Result<String, OptionError> {
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
            _ => return Err(OptionError::Escape(value.to_owned())),
        }
    }
    String::from_utf8(bytes).map_err(|_| OptionError::NotUtf8(value.to_owned()))
}

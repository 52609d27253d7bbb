//! `cep22+nostr:RELAY[,RELAY…][?options]`: MCP over Nostr relays.

use std::collections::BTreeSet;
use std::time::Duration;

use breakbulk_contextvm::{Encryption, Keys, PublicKey, Wraps, public_key};

use super::options::{EndpointOptions, none_of, only_options, seconds};
use super::{EndpointError, OptionError, at_question_mark};

/// The most relays of one end: each is a connection, and each gets every event.
const RELAYS: usize = 16;

/// The options of an end at relays.
const NAMES: &[&str] = &[
    "key",
    "server",
    "allow",
    "encryption",
    "wraps",
    "idle",
    "timeout",
    "window",
    "max-frame",
    "max-message",
];

/// The relays of an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RelayAddress {
    /// At least one, as written.
    pub(crate) relays: Vec<String>,
}

impl RelayAddress {
    /// The endpoint by which clients reach a server that listens here.
    pub(crate) fn of_server(&self, server: &PublicKey) -> String {
        let relays = self.relays.join(",");
        format!("cep22+nostr:{relays}?server={}", server.to_hex())
    }
}

/// The options of relays alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RelayOptions {
    /// The server that a client sends to.
    pub(crate) server: Option<PublicKey>,
    /// The clients that a server takes messages from; `None`: all.
    pub(crate) allow: Option<BTreeSet<PublicKey>>,
    pub(crate) encryption: Option<Encryption>,
    pub(crate) wraps: Option<Wraps>,
    /// A request is answered with an error after this much time without a message about it.
    pub(crate) timeout: Option<Duration>,
    /// How far an event's time may be from ours.
    pub(crate) window: Option<Duration>,
}

/// What follows `nostr:`.
pub(super) fn endpoint(rest: &str) -> Result<(RelayAddress, EndpointOptions), EndpointError> {
    let (address, query) = at_question_mark(rest);
    let relays: Vec<_> = address
        .split(',')
        .map(|url| url.trim().to_owned())
        .collect();
    if relays.len() > RELAYS {
        return Err(EndpointError::TooManyRelays {
            count: relays.len(),
            most: RELAYS,
        });
    }
    for relay in &relays {
        let host = relay.strip_prefix("wss://");
        match host.or_else(|| relay.strip_prefix("ws://")) {
            None | Some("") => return Err(EndpointError::Relay),
            Some(host) if host.contains('@') => return Err(EndpointError::RelayCredentials),
            Some(_) => {}
        }
    }
    let options = only_options(query, NAMES)?;
    let key = options.key.as_ref().and_then(|file| file.to_str());
    if key.is_some_and(|text| Keys::parse(text).is_ok()) {
        return Err(EndpointError::KeyInText);
    }
    Ok((RelayAddress { relays }, options))
}

impl RelayOptions {
    /// Sets an option; true: it was there before.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<bool, OptionError> {
        Ok(match name {
            "server" => self.server.replace(public_key(value)?).is_some(),
            "allow" => {
                let allowed = value.split(',').map(public_key).collect::<Result<_, _>>()?;
                self.allow.replace(allowed).is_some()
            }
            "encryption" => {
                let encryption = match value {
                    "disabled" => Encryption::Disabled,
                    "optional" => Encryption::Optional,
                    "required" => Encryption::Required,
                    _ => return Err(none_of(value, "disabled, optional, required")),
                };
                self.encryption.replace(encryption).is_some()
            }
            "wraps" => {
                let wraps = match value {
                    "any" => Wraps::Any,
                    "persistent" => Wraps::Persistent,
                    "ephemeral" => Wraps::Ephemeral,
                    _ => return Err(none_of(value, "any, persistent, ephemeral")),
                };
                self.wraps.replace(wraps).is_some()
            }
            "window" => self.window.replace(seconds(value)?).is_some(),
            _ => self.timeout.replace(seconds(value)?).is_some(),
        })
    }
}

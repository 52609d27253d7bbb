//! `cep22+nostr:RELAY[,RELAY…][?options]`: MCP over Nostr relays.

use std::collections::BTreeSet;
use std::time::Duration;

use breakbulk_contextvm::{Encryption, Keys, PublicKey, Wraps, public_key};

use super::options::{EndpointOptions, options_among, unknown_among};
use super::{At, at_question_mark};

/// Each is a connection, and each gets every event.
const RELAYS: usize = 16;

/// What may stand behind the question mark.
const NAMES: [&str; 9] = [
    "key",
    "server",
    "allow",
    "encryption",
    "wraps",
    "idle",
    "timeout",
    "max-frame",
    "max-message",
];

/// Where events go and come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NostrAddress {
    /// At least one, as written.
    pub(crate) relays: Vec<String>,
}

impl NostrAddress {
    /// How others name a server that listens here.
    pub(crate) fn of_server(&self, server: &PublicKey) -> String {
        format!(
            "cep22+nostr:{}?server={}",
            self.relays.join(","),
            server.to_hex()
        )
    }
}

/// The options of relays alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NostrOptions {
    /// Whom to ask.
    pub(crate) server: Option<PublicKey>,
    /// Who may ask us.
    pub(crate) allow: Option<BTreeSet<PublicKey>>,
    pub(crate) encryption: Option<Encryption>,
    pub(crate) wraps: Option<Wraps>,
    /// After so long without a word a session ends.
    pub(crate) idle: Option<Duration>,
    /// After so long without a sign of life a request is answered with an error.
    pub(crate) timeout: Option<Duration>,
}

/// What follows `nostr:`.
pub(super) fn endpoint(rest: &str) -> Result<(At, EndpointOptions), String> {
    let (address, query) = at_question_mark(rest);
    let relays: Vec<String> = address
        .split(',')
        .map(|url| url.trim().to_owned())
        .collect();
    if relays.len() > RELAYS {
        return Err(format!(
            "{} relays are too many; {RELAYS} are the most",
            relays.len()
        ));
    }
    for relay in &relays {
        let host = ["wss://", "ws://"]
            .iter()
            .find_map(|scheme| relay.strip_prefix(scheme));
        match host {
            None | Some("") => {
                return Err(
                    "a relay is written as wss://HOST or ws://HOST:PORT, several with commas between them"
                        .to_owned(),
                );
            }
            Some(host) if host.contains('@') => {
                return Err("no names or passwords in an address; relays know keys".to_owned());
            }
            Some(_) => {}
        }
    }
    let (options, unknown) = options_among(query, &NAMES)?;
    if let Some(pair) = unknown.first() {
        return Err(unknown_among(pair, &NAMES));
    }
    let is_secret =
        |file: &std::path::PathBuf| file.to_str().is_some_and(|text| Keys::parse(text).is_ok());
    if options.key.as_ref().is_some_and(is_secret) {
        return Err(
            "key is a file's name: a key on the command line is seen by every program; use ?key=FILE (breakbulk keygen FILE makes one) or BREAKBULK_NOSTR_KEY"
                .to_owned(),
        );
    }
    Ok((At::Nostr(NostrAddress { relays }), options))
}

impl NostrOptions {
    /// Sets an option; true: it was there before.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let key = |text: &str| public_key(text).map_err(|error| error.to_string());
        Ok(match name {
            "server" => self.server.replace(key(value)?).is_some(),
            "allow" => {
                let allowed = value.split(',').map(key).collect::<Result<_, _>>()?;
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
            "idle" => self.idle.replace(seconds(value)?).is_some(),
            _ => self.timeout.replace(seconds(value)?).is_some(),
        })
    }
}

fn none_of(value: &str, words: &str) -> String {
    format!("{value:?} is none of {words}")
}

fn seconds(value: &str) -> Result<Duration, String> {
    match value.parse::<u32>() {
        Ok(seconds @ 1..) => Ok(Duration::from_secs(seconds.into())),
        _ => Err(format!("{value:?} is no number of seconds, at least 1")),
    }
}

//! Reads `initialize` and `reconnect` and asks the application about them, while the machine is not
//! borrowed.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use breakbulk_link::Charge;
use breakbulk_message::ahp::{
    Chunking, InitializeParams, ROOT_CHANNEL, ReadError, ReconnectParams, Strings,
};
use bytes::Bytes;
use serde_json::value::RawValue;

use super::config::HostConfig;
use super::error::RpcError;
use super::types::{Channels, Extras};
use super::{reply, version};

/// Names of channels.
pub(super) type Names = BTreeSet<Arc<str>>;

/// The message of a handshake. Its memory is charged to its client until it is dropped.
#[derive(Debug)]
pub struct Introduction {
    pub(super) first: bool,
    pub(super) bytes: Bytes,
    pub(super) params: Option<Range<usize>>,
    pub(super) _charge: Charge,
}

/// A handshake that was read, or the error to answer it with.
#[derive(Debug)]
pub struct Introduced(pub(super) Result<Greeting, RpcError>);

/// A handshake that the application has accepted.
#[derive(Debug)]
pub(super) struct Greeting {
    pub(super) client_id: Arc<str>,
    pub(super) channels: Names,
    /// The client's limits; the outer `None` if the handshake says nothing of them.
    pub(super) chunking: Option<Option<Chunking>>,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Initialize { version: String, extras: Extras },
    Reconnect { last_seen: i64 },
}

impl Introduced {
    /// The last action that a client which reconnects has seen, here or at another host.
    pub fn last_seen(&self) -> Option<i64> {
        match &self.0 {
            Ok(Greeting {
                kind: Kind::Reconnect { last_seen },
                ..
            }) => Some(*last_seen),
            _ => None,
        }
    }
}

impl Introduction {
    /// Reads it, checks it against the limits of `config`, and asks the application.
    pub fn read(&self, config: &HostConfig, app: &impl Channels) -> Introduced {
        let params = self.params.clone().and_then(|at| self.bytes.get(at));
        let params = params.and_then(|params| serde_json::from_slice(params).ok());
        let params = params.unwrap_or(RawValue::NULL);
        Introduced(if self.first {
            initialize(config, app, params)
        } else {
            reconnect(config, app, params)
        })
    }
}

fn initialize(
    config: &HostConfig,
    app: &impl Channels,
    params: &RawValue,
) -> Result<Greeting, RpcError> {
    let params = InitializeParams::read(params).map_err(invalid)?;
    let client_id = client(config, &params.channel, &params.client_id)?;
    let Some(version) = version::choose(params.protocol_versions, &config.versions) else {
        let ours = config.versions.iter().map(|version| reply::quoted(version));
        let ours = ours.collect::<Vec<_>>().join(",");
        let data = format!(r#"{{"supportedVersions":[{ours}]}}"#);
        return Err(RpcError {
            code: RpcError::UNSUPPORTED_VERSION,
            message: "the host supports none of the offered protocol versions".to_owned(),
            data: RawValue::from_string(data).ok(),
        });
    };
    let version = version.into_owned();
    let channels = channels(config, params.initial_subscriptions)?;
    Ok(Greeting {
        client_id,
        channels,
        chunking: Some(params.chunking()),
        kind: Kind::Initialize {
            version,
            extras: app.initialize(&params)?,
        },
    })
}

fn reconnect(
    config: &HostConfig,
    app: &impl Channels,
    params: &RawValue,
) -> Result<Greeting, RpcError> {
    let params = ReconnectParams::read(params).map_err(invalid)?;
    let client_id = client(config, &params.channel, &params.client_id)?;
    let channels = channels(config, params.subscriptions)?;
    app.reconnect(&params)?;
    Ok(Greeting {
        client_id,
        channels,
        chunking: params.capabilities.is_some().then(|| params.chunking()),
        kind: Kind::Reconnect {
            last_seen: params.last_seen_server_seq,
        },
    })
}

fn client(config: &HostConfig, channel: &str, client_id: &str) -> Result<Arc<str>, RpcError> {
    if channel != ROOT_CHANNEL {
        return Err(RpcError::invalid(format!(
            "`channel` must be {ROOT_CHANNEL}"
        )));
    }
    let most = config.limits.client_id_bytes;
    if client_id.is_empty() || client_id.len() > most {
        let text = format!("`clientId` must have 1 to {most} bytes");
        return Err(RpcError::invalid(text));
    }
    Ok(client_id.into())
}

fn channels(config: &HostConfig, names: Strings<'_>) -> Result<Names, RpcError> {
    let mut channels = Names::new();
    let mut bytes = 0;
    for name in names {
        if !channels.contains(&*name) {
            bytes += name.len();
            check_channels(config, channels.len() + 1, bytes)?;
            channels.insert((&*name).into());
        }
    }
    Ok(channels)
}

/// Whether a client may subscribe to this many channels with names of this many bytes.
pub(super) fn check_channels(
    config: &HostConfig,
    count: usize,
    bytes: usize,
) -> Result<(), RpcError> {
    let (most, most_bytes) = (
        config.limits.subscriptions,
        config.limits.subscription_bytes,
    );
    if count <= most && bytes <= most_bytes {
        return Ok(());
    }
    Err(RpcError::invalid(format!(
        "a client may subscribe to at most {most} channels, whose names have at most {most_bytes} bytes together; unsubscribe from some first"
    )))
}

fn invalid(error: ReadError) -> RpcError {
    RpcError::invalid(error.to_string())
}

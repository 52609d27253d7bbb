//! Reads `initialize`, `reconnect`, `action` and `dispatchAction` messages.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::chunking::Chunking;
use crate::jsonrpc::{integer, string};
use crate::list::{Elements, Strings};

/// The params of `initialize`.
#[derive(Clone, Debug)]
pub struct InitializeParams<'a> {
    /// The channel: [`ROOT_CHANNEL`](super::ROOT_CHANNEL).
    pub channel: Cow<'a, str>,
    /// The client's id, which stays the same over reconnects.
    pub client_id: Cow<'a, str>,
    /// The protocol versions it supports, the preferred one first.
    pub protocol_versions: Strings<'a>,
    /// The channels to subscribe to.
    pub initial_subscriptions: Strings<'a>,
    /// The client's capabilities.
    pub capabilities: Option<&'a RawValue>,
}

/// The result of `initialize`.
#[derive(Clone, Debug)]
pub struct InitializeResult<'a> {
    /// The version that the host chose.
    pub protocol_version: Cow<'a, str>,
    /// The number of the host's last action.
    pub server_seq: i64,
    /// The states of the initial subscriptions, each for [`Snapshot::read`].
    pub snapshots: Elements<'a>,
    /// The host's capabilities.
    pub capabilities: Option<&'a RawValue>,
}

/// The params of `reconnect`.
#[derive(Clone, Debug)]
pub struct ReconnectParams<'a> {
    /// The channel.
    pub channel: Cow<'a, str>,
    /// The client's id.
    pub client_id: Cow<'a, str>,
    /// The number of the last action it saw.
    pub last_seen_server_seq: i64,
    /// The channels it was subscribed to.
    pub subscriptions: Strings<'a>,
    /// The client's capabilities; if missing, those of its last handshake apply.
    pub capabilities: Option<&'a RawValue>,
}

/// The result of `reconnect`.
#[derive(Clone, Debug)]
pub enum ReconnectResult<'a> {
    /// The actions that the client missed.
    Replay {
        /// The actions, each for [`Action::read`].
        actions: Elements<'a>,
        /// The channels that no longer exist.
        missing: Strings<'a>,
    },
    /// The current states, because the client missed too many actions.
    Snapshot {
        /// The states, each for [`Snapshot::read`].
        snapshots: Elements<'a>,
    },
}

/// The params of `action`, which are also an element of a replay.
#[derive(Clone, Debug)]
pub struct Action<'a> {
    /// The channel whose state changes.
    pub channel: Cow<'a, str>,
    /// The action itself, for a reducer.
    pub action: &'a RawValue,
    /// Its sequence number.
    pub server_seq: i64,
    /// The client that dispatched it, if one did.
    pub origin: Option<Origin<'a>>,
    /// Why the host refused it.
    pub rejection_reason: Option<Cow<'a, str>>,
}

/// The params of `dispatchAction`.
#[derive(Clone, Debug)]
pub struct DispatchParams<'a> {
    /// The channel whose state is to change.
    pub channel: Cow<'a, str>,
    /// The client's own sequence number.
    pub client_seq: i64,
    /// The action itself.
    pub action: &'a RawValue,
}

/// The client that dispatched an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin<'a> {
    /// The client's id.
    pub client_id: Cow<'a, str>,
    /// That client's own sequence number for it.
    pub client_seq: i64,
}

/// The state of a channel.
#[derive(Clone, Debug)]
pub struct Snapshot<'a> {
    /// The channel.
    pub resource: Cow<'a, str>,
    /// Its state.
    pub state: &'a RawValue,
    /// The number of the last action that it includes.
    pub from_seq: i64,
}

/// What is wrong with params or a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// It is not an object.
    #[error("an object is expected")]
    NotObject,
    /// A member is missing.
    #[error("`{member}` is missing")]
    Missing {
        /// Its name.
        member: &'static str,
    },
    /// A member is of another type or value.
    #[error("`{member}` must be {expected}")]
    Wrong {
        /// Its name.
        member: &'static str,
        /// What it must be.
        expected: &'static str,
    },
}

impl<'a> InitializeParams<'a> {
    /// Reads the params.
    pub fn read(params: &'a RawValue) -> Result<Self, ReadError> {
        let members: Handshake<'a> = object(params)?;
        Ok(Self {
            channel: text("channel", members.channel)?,
            client_id: text("clientId", members.client_id)?,
            protocol_versions: strings("protocolVersions", members.versions)?,
            initial_subscriptions: match given(members.initial) {
                Some(list) => strings("initialSubscriptions", Some(list))?,
                None => Strings::default(),
            },
            capabilities: given(members.capabilities),
        })
    }

    /// The client's limits for segments; `None` if it advertised none, or invalid ones.
    pub fn chunking(&self) -> Option<Chunking> {
        Chunking::in_capabilities(self.capabilities?)
    }
}

impl<'a> InitializeResult<'a> {
    /// Reads the result.
    pub fn read(result: &'a RawValue) -> Result<Self, ReadError> {
        let members: InitializeResultMembers<'a> = object(result)?;
        Ok(Self {
            protocol_version: text("protocolVersion", members.version)?,
            server_seq: seq("serverSeq", members.seq)?,
            snapshots: elements("snapshots", members.snapshots)?,
            capabilities: given(members.capabilities),
        })
    }

    /// The host's limits for segments; `None` if it advertised none, or invalid ones.
    pub fn chunking(&self) -> Option<Chunking> {
        Chunking::in_capabilities(self.capabilities?)
    }
}

impl<'a> ReconnectParams<'a> {
    /// Reads the params.
    pub fn read(params: &'a RawValue) -> Result<Self, ReadError> {
        let members: Handshake<'a> = object(params)?;
        Ok(Self {
            channel: text("channel", members.channel)?,
            client_id: text("clientId", members.client_id)?,
            last_seen_server_seq: seq("lastSeenServerSeq", members.last_seen)?,
            subscriptions: strings("subscriptions", members.subscriptions)?,
            capabilities: given(members.capabilities),
        })
    }

    /// The client's limits for segments; `None` if it advertised none, or invalid ones.
    pub fn chunking(&self) -> Option<Chunking> {
        Chunking::in_capabilities(self.capabilities?)
    }
}

impl<'a> ReconnectResult<'a> {
    /// Reads the result.
    pub fn read(result: &'a RawValue) -> Result<Self, ReadError> {
        let members: ReconnectResultMembers<'a> = object(result)?;
        match &*text("type", members.kind)? {
            "replay" => Ok(Self::Replay {
                actions: elements("actions", members.actions)?,
                missing: match given(members.missing) {
                    Some(list) => strings("missing", Some(list))?,
                    None => Strings::default(),
                },
            }),
            "snapshot" => Ok(Self::Snapshot {
                snapshots: elements("snapshots", members.snapshots)?,
            }),
            _ => Err(ReadError::Wrong {
                member: "type",
                expected: r#""replay" or "snapshot""#,
            }),
        }
    }
}

impl<'a> Action<'a> {
    /// Reads the params of an `action` or an element of a replay.
    pub fn read(params: &'a RawValue) -> Result<Self, ReadError> {
        let members: ActionMembers<'a> = object(params)?;
        Ok(Self {
            channel: text("channel", members.channel)?,
            action: members
                .action
                .ok_or(ReadError::Missing { member: "action" })?,
            server_seq: seq("serverSeq", members.seq)?,
            origin: given(members.origin).map(Origin::read).transpose()?,
            rejection_reason: given(members.reason)
                .map(|reason| text("rejectionReason", Some(reason)))
                .transpose()?,
        })
    }
}

impl<'a> DispatchParams<'a> {
    /// Reads the params from JSON text.
    pub fn read(params: &'a str) -> Result<Self, ReadError> {
        let members: ActionMembers<'a> =
            serde_json::from_str(params).map_err(|_| ReadError::NotObject)?;
        Ok(Self {
            channel: text("channel", members.channel)?,
            client_seq: seq("clientSeq", members.client_seq)?,
            action: members
                .action
                .ok_or(ReadError::Missing { member: "action" })?,
        })
    }
}

impl<'a> Origin<'a> {
    fn read(origin: &'a RawValue) -> Result<Self, ReadError> {
        let wrong = ReadError::Wrong {
            member: "origin",
            expected: "an object or null",
        };
        let members: OriginMembers<'a> = object(origin).map_err(|_| wrong)?;
        Ok(Self {
            client_id: text("origin.clientId", members.client_id)?,
            client_seq: seq("origin.clientSeq", members.client_seq)?,
        })
    }
}

impl<'a> Snapshot<'a> {
    /// Reads an element of `snapshots`.
    pub fn read(snapshot: &'a RawValue) -> Result<Self, ReadError> {
        let members: SnapshotMembers<'a> = object(snapshot)?;
        Ok(Self {
            resource: text("resource", members.resource)?,
            state: members
                .state
                .ok_or(ReadError::Missing { member: "state" })?,
            from_seq: seq("fromSeq", members.from_seq)?,
        })
    }
}

crate::raw_members! {
    struct Handshake {
        channel: "channel",
        client_id: "clientId",
        versions: "protocolVersions",
        initial: "initialSubscriptions",
        last_seen: "lastSeenServerSeq",
        subscriptions: "subscriptions",
        capabilities: "capabilities",
    }
}

crate::raw_members! {
    struct InitializeResultMembers {
        version: "protocolVersion",
        seq: "serverSeq",
        snapshots: "snapshots",
        capabilities: "capabilities",
    }
}

crate::raw_members! {
    struct ReconnectResultMembers {
        kind: "type",
        actions: "actions",
        missing: "missing",
        snapshots: "snapshots",
    }
}

crate::raw_members! {
    struct ActionMembers {
        channel: "channel",
        action: "action",
        seq: "serverSeq",
        client_seq: "clientSeq",
        origin: "origin",
        reason: "rejectionReason",
    }
}

crate::raw_members! {
    struct OriginMembers {
        client_id: "clientId",
        client_seq: "clientSeq",
    }
}

crate::raw_members! {
    struct SnapshotMembers {
        resource: "resource",
        state: "state",
        from_seq: "fromSeq",
    }
}

fn object<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Result<T, ReadError> {
    serde_json::from_str(raw.get()).map_err(|_| ReadError::NotObject)
}

/// A member that is present and not null.
fn given(raw: Option<&RawValue>) -> Option<&RawValue> {
    raw.filter(|raw| raw.get() != "null")
}

fn text<'a>(member: &'static str, raw: Option<&'a RawValue>) -> Result<Cow<'a, str>, ReadError> {
    let raw = raw.ok_or(ReadError::Missing { member })?;
    string(raw).ok_or(ReadError::Wrong {
        member,
        expected: "a string",
    })
}

fn seq(member: &'static str, raw: Option<&RawValue>) -> Result<i64, ReadError> {
    let raw = raw.ok_or(ReadError::Missing { member })?;
    let number = integer(raw).and_then(|number| number.try_into().ok());
    number.ok_or(ReadError::Wrong {
        member,
        expected: "an integer of 64 bits",
    })
}

fn strings<'a>(member: &'static str, raw: Option<&'a RawValue>) -> Result<Strings<'a>, ReadError> {
    let raw = raw.ok_or(ReadError::Missing { member })?;
    Strings::of(raw).ok_or(ReadError::Wrong {
        member,
        expected: "an array of strings",
    })
}

fn elements<'a>(
    member: &'static str,
    raw: Option<&'a RawValue>,
) -> Result<Elements<'a>, ReadError> {
    let raw = raw.ok_or(ReadError::Missing { member })?;
    Elements::of(raw).ok_or(ReadError::Wrong {
        member,
        expected: "an array",
    })
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;

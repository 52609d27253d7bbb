//! How a client comes to follow channels: `initialize`, `reconnect`, `subscribe`.
//!
//! Each answer is made while the client's actions are held, is checked against what the client can
//! take before anything is promised, and goes out ahead of what was held.

use std::collections::BTreeSet;
use std::sync::Arc;

use breakbulk_link::Outgoing;
use breakbulk_message::ahp::{Chunking, InitializeParams, ROOT_CHANNEL, ReconnectParams, Strings};
use breakbulk_message::jsonrpc::{Kind, string};
use serde_json::value::RawValue;
use tokio::task::spawn_blocking;

use super::application::Application;
use super::config::close;
use super::core::{Seen, tag};
use super::error::RpcError;
use super::reply::{self, Snapshots};
use super::serve::{Peer, Who, now};
use super::sessions::Session;
use super::{fit, version};
use crate::log::{Entry, Replay};

type Channels = BTreeSet<Arc<str>>;

impl<A: Application> Peer<A> {
    pub(super) async fn initialize(&mut self, id: &RawValue, params: &str) {
        if let Err(error) = self.try_initialize(id, params) {
            self.refuse(Some(id), "initialize", &error);
            if error.code == RpcError::UNSUPPORTED_VERSION && self.who.is_none() {
                let reason = "no protocol version in common";
                self.part(close::VERSION, reason).await;
            }
        }
    }

    pub(super) async fn reconnect(&mut self, id: &RawValue, params: &str) {
        if let Err(error) = self.try_reconnect(id, params).await {
            self.refuse(Some(id), "reconnect", &error);
        }
    }

    fn try_initialize(&mut self, id: &RawValue, params: &str) -> Result<(), RpcError> {
        let params = self.first(params)?;
        let params = InitializeParams::read(params).map_err(invalid)?;
        let client_id = self.client(&params.channel, &params.client_id)?;
        let config = &self.host.inner.config;
        let Some(version) = version::choose(params.protocol_versions, &config.versions) else {
            let ours = config.versions.iter().map(|version| reply::quoted(version));
            let ours = ours.collect::<Vec<_>>().join(",");
            let data = format!(r#"{{"supportedVersions":[{ours}]}}"#);
            return Err(RpcError {
                code: RpcError::UNSUPPORTED_VERSION,
                message: "none of the offered protocol versions is spoken here".to_owned(),
                data: RawValue::from_string(data).ok(),
            });
        };
        let channels = self.channels(params.initial_subscriptions)?;
        let inner = self.host.inner.clone();
        let extras = inner.app.initialize(&params)?;
        let chunking = params.chunking();
        let (seen, known) = self.hold(&client_id, &channels);
        if !seen.missing.is_empty() {
            tracing::debug!(client = %client_id, missing = ?seen.missing, "channels that do not exist");
        }
        let ours = &config.settings.chunking;
        let states = named(&seen);
        let text = reply::initialized(id, &version, &snapshots(&seen, &states), &extras, ours);
        let session = Session {
            chunking,
            wants_snapshot: false,
            ..known
        };
        self.welcome(
            "initialize",
            &client_id,
            session,
            text.into_bytes(),
            &channels,
        )
    }

    async fn try_reconnect(&mut self, id: &RawValue, params: &str) -> Result<(), RpcError> {
        let params = self.first(params)?;
        let params = ReconnectParams::read(params).map_err(invalid)?;
        let client_id = self.client(&params.channel, &params.client_id)?;
        let channels = self.channels(params.subscriptions)?;
        let inner = self.host.inner.clone();
        inner.app.reconnect(&params)?;
        let (seen, known) = self.hold(&client_id, &channels);
        // Without a word about it, what it said before counts.
        let chunking = match params.capabilities {
            Some(_) => params.chunking(),
            None => known.chunking,
        };
        let session = Session {
            chunking,
            wants_snapshot: false,
            ..known
        };
        if !known.wants_snapshot
            && let Some(actions) = self
                .replay(params.last_seen_server_seq, &seen, chunking.as_ref())
                .await
        {
            let missing: Vec<&str> = seen.missing.iter().map(|name| &**name).collect();
            let text = reply::replayed(id, &actions, &missing);
            if self.check(&session, &text).is_ok() {
                return self.welcome("reconnect", &client_id, session, text, &channels);
            }
        }
        // As of now: what was held meanwhile is in it.
        let (seen, _) = self.hold(&client_id, &channels);
        let states = named(&seen);
        let text = reply::reset(id, &snapshots(&seen, &states)).into_bytes();
        self.welcome("reconnect", &client_id, session, text, &channels)
    }

    pub(super) fn subscribe(&mut self, id: &RawValue, params: &str) {
        if let Err(error) = self.try_subscribe(id, params) {
            self.refuse(Some(id), "subscribe", &error);
        }
    }

    fn try_subscribe(&mut self, id: &RawValue, params: &str) -> Result<(), RpcError> {
        let channel = reply::members(params).filter(|(name, _)| name == "channel");
        let channel = channel.last().and_then(|(_, value)| string(value));
        let channel = channel.ok_or_else(|| RpcError::invalid("`channel` must be a string"))?;
        let Some(who) = &self.who else { return Ok(()) };
        let client_id = who.client_id.clone();
        let (count, bytes, followed) = self.host.inner.core().follows(self.id, &channel);
        if !followed {
            self.check_channels(count + 1, bytes + channel.len())?;
        }
        let channel = Arc::<str>::from(&*channel);
        let channels = Channels::from([channel.clone()]);
        let (seen, known) = self.hold(&client_id, &channels);
        let gone = if followed { Channels::new() } else { channels };
        let Some((_, state)) = seen.states.first() else {
            let mut core = self.host.inner.core();
            core.release(self.id, None, &Channels::from([channel.clone()]));
            return Err(no_channel(&channel));
        };
        let text = reply::subscribed(id, &channel, state, seen.seq).into_bytes();
        let fits = self.check(&known, &text);
        let mut core = self.host.inner.core();
        match fits {
            Ok(()) => {
                let answer = self.stateful("subscribe", text);
                core.release(self.id, Some(answer), &Channels::new());
                Ok(())
            }
            Err(error) => {
                core.release(self.id, None, &gone);
                Err(error)
            }
        }
    }

    /// All that the client missed, or `None` if it needs a snapshot.
    async fn replay(
        &self,
        last_seen: i64,
        seen: &Seen,
        chunking: Option<&Chunking>,
    ) -> Option<Vec<Entry>> {
        if last_seen < 0 || last_seen > seen.seq {
            return None;
        }
        let inner = &self.host.inner;
        let config = &inner.config;
        let limit = fit::replay_limit(&config.settings, chunking, config.max_replay_bytes);
        let channels: Channels = seen.states.iter().map(|(name, _)| name.clone()).collect();
        let (reader, upto) = (inner.reader.clone(), seen.seq);
        let read = move || {
            let wants = |channel: &str| channels.contains(channel);
            reader.since(last_seen, upto, &wants, limit)
        };
        let replay = if inner.blocks {
            spawn_blocking(read).await.ok()?
        } else {
            read()
        };
        match replay {
            Ok(Replay::Actions(actions)) => Some(actions),
            Ok(_) => None,
            Err(error) => {
                tracing::warn!(%error, "a replay could not be read; the client gets a snapshot");
                None
            }
        }
    }

    /// The handshake is done, unless the client cannot take the answer.
    fn welcome(
        &mut self,
        method: &str,
        client_id: &Arc<str>,
        session: Session,
        text: Vec<u8>,
        channels: &Channels,
    ) -> Result<(), RpcError> {
        let fits = self.check(&session, &text);
        let inner = self.host.inner.clone();
        let mut core = inner.core();
        if let Err(error) = fits {
            core.release(self.id, None, channels);
            return Err(error);
        }
        // It may have gone while its replay was read; then it takes nothing from its successor.
        if self.connection.with(|link| link.closed().is_some()) {
            core.release(self.id, None, channels);
            return Ok(());
        }
        if core.introduce(self.id, client_id, session).is_err() {
            return Ok(());
        }
        let settings = &inner.config.settings;
        self.connection
            .with(|link| settings.shake(link, session.chunking.as_ref()));
        let answer = self.stateful(method, text);
        core.release(self.id, Some(answer), &Channels::new());
        self.who = Some(Who {
            client_id: client_id.clone(),
            chunking: session.chunking,
        });
        Ok(())
    }

    fn hold(&self, client_id: &str, channels: &Channels) -> (Seen, Session) {
        let inner = &self.host.inner;
        let mut core = inner.core();
        let seen = core.hold(&inner.app, self.id, client_id, channels);
        (seen, core.sessions.get(client_id).unwrap_or_default())
    }

    fn check(&self, session: &Session, text: &[u8]) -> Result<(), RpcError> {
        let settings = &self.host.inner.config.settings;
        let (chunking, slow) = (session.chunking.as_ref(), session.slow.as_ref());
        fit::check(settings, chunking, slow, text, now())
    }

    fn stateful(&self, method: &str, text: Vec<u8>) -> Outgoing {
        let settings = &self.host.inner.config.settings;
        let lane = settings.lane(Kind::Result, Some(method));
        Outgoing::new(text)
            .known_text()
            .in_lane(lane)
            .tagged(tag::STATE)
    }

    /// The params of a handshake on a connection that has had none.
    fn first<'a>(&self, params: &'a str) -> Result<&'a RawValue, RpcError> {
        if self.who.is_some() {
            let text = "this connection is initialized already; open another one";
            return Err(RpcError::new(RpcError::INVALID_REQUEST, text));
        }
        serde_json::from_str(params).map_err(|_| RpcError::invalid("params are missing"))
    }

    fn client(&self, channel: &str, client_id: &str) -> Result<Arc<str>, RpcError> {
        if channel != ROOT_CHANNEL {
            return Err(RpcError::invalid(format!(
                "`channel` must be {ROOT_CHANNEL}"
            )));
        }
        let most = self.host.inner.config.max_client_id_bytes;
        if client_id.is_empty() || client_id.len() > most {
            let text = format!("`clientId` must have 1 to {most} bytes");
            return Err(RpcError::invalid(text));
        }
        Ok(client_id.into())
    }

    fn channels(&self, names: Strings<'_>) -> Result<Channels, RpcError> {
        let mut channels = Channels::new();
        let mut bytes = 0;
        for name in names {
            if !channels.contains(&*name) {
                bytes += name.len();
                self.check_channels(channels.len() + 1, bytes)?;
                channels.insert((&*name).into());
            }
        }
        Ok(channels)
    }

    fn check_channels(&self, count: usize, bytes: usize) -> Result<(), RpcError> {
        let config = &self.host.inner.config;
        let (most, most_bytes) = (config.max_subscriptions, config.max_subscription_bytes);
        if count <= most && bytes <= most_bytes {
            return Ok(());
        }
        Err(RpcError::invalid(format!(
            "a client follows at most {most} channels with names of {most_bytes} bytes in all; unsubscribe from some first"
        )))
    }
}

fn named(seen: &Seen) -> Vec<(&str, super::State)> {
    let named = seen.states.iter();
    named
        .map(|(name, state)| (&**name, state.clone()))
        .collect()
}

fn snapshots<'a>(seen: &Seen, states: &'a [(&'a str, super::State)]) -> Snapshots<'a> {
    Snapshots {
        states,
        from_seq: seen.seq,
    }
}

fn invalid(error: breakbulk_message::ahp::ReadError) -> RpcError {
    RpcError::invalid(error.to_string())
}

fn no_channel(channel: &str) -> RpcError {
    let code = if channel.starts_with("ahp-session:") {
        RpcError::SESSION_NOT_FOUND
    } else {
        RpcError::NOT_FOUND
    };
    // The name is the client's own and may be long.
    let short: String = channel.chars().take(128).collect();
    RpcError::new(code, format!("no such channel: {short}"))
}

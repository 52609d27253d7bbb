//! The answers that contain states: to `initialize`, `reconnect` and `subscribe`.
//!
//! While such an answer is written, the client's actions are held back. The answer is checked against
//! the client's limits before it is sent, and goes out before the held actions.

use std::sync::Arc;
use std::time::Instant;

use breakbulk_link::Outgoing;
use breakbulk_message::jsonrpc;
use serde_json::value::RawValue;

use super::config::close;
use super::error::RpcError;
use super::introduce::{Introduced, Kind, Names, check_channels};
use super::sessions::Session;
use super::types::{Channels, ClientId, Output, When, Work};
use super::write::{Seen, What, Writing};
use super::{Host, fit, reply, tag};

/// The work in progress that a client's next message waits for.
#[derive(Debug)]
pub(super) enum Doing {
    /// A handshake is read, and the application decides on it: the id of the request, and whether it is
    /// an `initialize`.
    Introduce(Box<RawValue>, bool),
    /// An answer with states is being written.
    Write(Answering),
    /// The application decides on an action; where it came as a request, its id.
    Dispatch(Option<Box<RawValue>>),
    /// Many of its messages were handled in one call; the rest waits for the next one.
    Pause,
}

/// An answer with states that is being written.
#[derive(Debug)]
pub(super) struct Answering {
    id: Box<RawValue>,
    method: &'static str,
    client_id: Arc<str>,
    /// What to remember of the client once the answer is sent.
    session: Session,
    channels: Names,
    /// The channels to unsubscribe from again if the answer is too large for the client.
    new: Names,
    /// Whether it is a replay; where that is not possible, the states are sent instead.
    is_replay: bool,
}

impl Host {
    /// A handshake was read, and the application has decided.
    pub fn handle_introduced(
        &mut self,
        client: ClientId,
        introduced: Introduced,
        app: &impl Channels,
    ) {
        let doing = self.clients.get_mut(&client).and_then(|it| it.doing.take());
        let Some(Doing::Introduce(id, first)) = doing else {
            return;
        };
        let method = if first { "initialize" } else { "reconnect" };
        let greeting = match introduced.0 {
            Ok(greeting) => greeting,
            Err(error) => {
                self.refuse(client, Some(&id), method, &error);
                if error.code == RpcError::UNSUPPORTED_VERSION {
                    let reason = "no protocol version in common";
                    self.close(client, close::VERSION, reason, When::AfterQueue);
                }
                return self.advance(client, app);
            }
        };
        let (client_id, channels) = (greeting.client_id, greeting.channels);
        let seen = self.hold(app, client, &client_id, &channels);
        let known = self.sessions.get(&client_id).unwrap_or_default();
        if !seen.missing.is_empty() {
            tracing::debug!(client = %client_id, missing = ?seen.missing, "the client subscribed to channels that do not exist or that it may not see");
        }
        let session = Session {
            // A reconnect without capabilities keeps those of the handshake before.
            chunking: greeting.chunking.unwrap_or(known.chunking),
            wants_snapshot: false,
            ..known
        };
        let what = match greeting.kind {
            Kind::Initialize { version, extras } => What::Initialized {
                version,
                extras,
                ours: self.config.connection.chunking,
            },
            Kind::Reconnect { last_seen }
                if !known.wants_snapshot && (0..=seen.seq).contains(&last_seen) =>
            {
                let (config, chunking) = (&self.config.connection, session.chunking.as_ref());
                let limit = fit::replay_limit(config, chunking, self.config.limits.replay_bytes);
                What::Replay { last_seen, limit }
            }
            Kind::Reconnect { .. } => What::Reset,
        };
        let answering = Answering {
            id,
            method,
            client_id,
            session,
            new: channels.clone(),
            channels,
            is_replay: matches!(what, What::Replay { .. }),
        };
        self.write(client, answering, seen, what);
    }

    pub(super) fn subscribe(
        &mut self,
        client: ClientId,
        client_id: &Arc<str>,
        id: &RawValue,
        params: &str,
        app: &impl Channels,
    ) {
        if let Err(error) = self.try_subscribe(client, client_id, id, params, app) {
            self.refuse(client, Some(id), "subscribe", &error);
        }
    }

    fn try_subscribe(
        &mut self,
        id: ClientId,
        client_id: &Arc<str>,
        request: &RawValue,
        params: &str,
        app: &impl Channels,
    ) -> Result<(), RpcError> {
        let channel = reply::channel(params);
        let channel = channel.ok_or_else(|| RpcError::invalid("`channel` must be a string"))?;
        let Some(client) = self.clients.get(&id) else {
            return Ok(());
        };
        let followed = client.subscriptions.contains(&*channel);
        if !followed {
            let count = client.subscriptions.len() + 1;
            check_channels(&self.config, count, client.names + channel.len())?;
        }
        let channels = Names::from([Arc::from(&*channel)]);
        let seen = self.hold(app, id, client_id, &channels);
        if seen.states.is_empty() {
            self.release(id, None, &channels);
            return Err(no_channel(&channel));
        }
        let answering = Answering {
            id: request.to_owned(),
            method: "subscribe",
            client_id: client_id.clone(),
            session: self.sessions.get(client_id).unwrap_or_default(),
            new: if followed {
                Names::new()
            } else {
                channels.clone()
            },
            channels,
            is_replay: false,
        };
        self.write(id, answering, seen, What::Subscribed);
        Ok(())
    }

    fn write(&mut self, client: ClientId, answering: Answering, seen: Seen, what: What) {
        let id = answering.id.clone();
        self.begin(client, Doing::Write(answering));
        let writing = Writing { id, seen, what };
        self.work(client, Work::Write(Box::new(writing)));
    }

    /// An answer is written; `None` where the client needs a snapshot instead of a replay.
    pub fn handle_written(
        &mut self,
        now: Instant,
        client: ClientId,
        text: Option<Vec<u8>>,
        app: &impl Channels,
    ) {
        let doing = self.clients.get_mut(&client).and_then(|it| it.doing.take());
        let Some(Doing::Write(mut answering)) = doing else {
            return;
        };
        // A connection that is being closed must not replace a newer one.
        if self.closing.contains_key(&client) {
            return;
        }
        let (config, session) = (&self.config.connection, answering.session);
        let size = text.as_ref().map_or(0, Vec::len);
        let fits = fit::check(config, &session, size, now);
        match (text, fits) {
            (Some(text), Ok(())) => self.send_answer(client, &answering, text),
            _ if answering.is_replay => {
                answering.is_replay = false;
                // The states of now, which contain the actions that were held meanwhile.
                let seen = self.hold(app, client, &answering.client_id, &answering.channels);
                return self.write(client, answering, seen, What::Reset);
            }
            (_, refused) => {
                self.release(client, None, &answering.new);
                let failed =
                    || RpcError::new(RpcError::INTERNAL_ERROR, "the answer could not be written");
                let error = refused.err().unwrap_or_else(failed);
                self.refuse(client, Some(&answering.id), answering.method, &error);
            }
        }
        self.advance(client, app);
    }

    /// Sends the answer; if it is that of a handshake, the handshake is done.
    fn send_answer(&mut self, client: ClientId, answering: &Answering, text: Vec<u8>) {
        let session = answering.session;
        if answering.method != "subscribe" {
            if self
                .introduce(client, &answering.client_id, session)
                .is_err()
            {
                return;
            }
            let peer = session.chunking;
            self.out.push_back(Output::Negotiated { client, peer });
        }
        let config = &self.config.connection;
        let lane = config.lane(jsonrpc::Kind::Result, Some(answering.method));
        let answer = Outgoing::new(text).known_text().in_lane(lane);
        self.release(client, Some(answer.tagged(tag::STATE)), &Names::new());
    }
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

//! Before a foreign host: it says and hears whole messages, the client is behind a capped link.

use std::time::Instant;

use breakbulk_link::{Event, Link, Outgoing, SendError};
use breakbulk_message::ahp::{self, Chunking, InitializeParams, ReconnectParams};
use breakbulk_message::jsonrpc::{Envelope, Kind};
use bytes::Bytes;
use serde_json::value::RawValue;

use super::answers::Answers;
use super::client_side::read;
use super::sessions::Sessions;
use super::{Instead, TOO_LARGE};
use crate::Config;
use crate::config::{SLOW_FOR, Slow};

/// The state of one connection to a foreign host.
#[derive(Debug)]
pub struct HostSide {
    config: Config,
    sessions: Sessions,
    who: Option<String>,
    /// The handshake that waits for its answer.
    handshake: Option<Handshake>,
    /// What the client takes.
    client: Option<Chunking>,
    /// The client's requests.
    asked: Answers,
}

#[derive(Debug)]
struct Handshake {
    id: Box<str>,
    first: bool,
    who: String,
    /// What the client takes, which counts once the host has agreed.
    client: Option<Chunking>,
}

impl HostSide {
    /// For a new connection; `sessions` are those of all connections before.
    pub fn new(config: Config, sessions: Sessions) -> Self {
        Self {
            config,
            sessions,
            who: None,
            handshake: None,
            client: None,
            asked: Answers::default(),
        }
    }

    /// A message of the client's, as it goes to the host. What the client takes is for us alone: a host
    /// that knows segments would send them here.
    pub fn from_client(&mut self, bytes: Bytes) -> Bytes {
        let mut edited = None;
        if let Some((text, envelope)) = read(&bytes) {
            self.asked.asked(&self.config, &envelope);
            if self.shakes(&envelope).is_some() {
                edited = ahp::without_chunking(text);
            }
        }
        edited.map_or(bytes, Bytes::from)
    }

    /// A message of the host's, as it goes over the link.
    pub fn to_client(&mut self, now: Instant, link: &mut Link, bytes: Bytes) -> Outgoing {
        let Some((text, envelope)) = read(&bytes) else {
            return Outgoing::new(bytes);
        };
        let lane = self.asked.lane(&self.config, &envelope);
        let answers =
            |handshake: &mut Handshake| envelope.id.is_some_and(|id| *id.get() == *handshake.id);
        let mut edited = None;
        if matches!(envelope.kind(), Some(Kind::Result | Kind::Error))
            && let Some(handshake) = self.handshake.take_if(answers)
            && envelope.result.is_some()
        {
            self.came(&handshake.who);
            self.client = handshake.client;
            if let Some(who) = &self.who {
                self.sessions
                    .with(who, |session| session.peer = handshake.client);
            }
            // Before the answer is planned. Ours is in it, or was when this client first came.
            self.config.shake(link, handshake.client.as_ref());
            if handshake.first {
                edited = ahp::with_chunking_in_result(text, &self.config.chunking);
            }
        }
        if let (Some(_), Some(id)) = (envelope.result, envelope.id) {
            let size = edited.as_ref().map_or(bytes.len(), String::len);
            edited = self.refuse(now, id, size).or(edited);
        }
        let bytes = edited.map_or(bytes, Bytes::from);
        Outgoing::new(bytes).in_lane(lane)
    }

    /// What the link tells beside messages. A message that was given up since the client gives it only
    /// so much time is remembered: for a while a larger answer is refused, or a client that comes back
    /// would ask for it for ever.
    pub fn heard(&mut self, now: Instant, event: &Event) {
        let Event::GaveUp {
            error: SendError::TooSlow { sent, limit, .. },
            ..
        } = event
        else {
            return;
        };
        if let Some(who) = &self.who {
            let slow = Slow {
                sent: *sent,
                within: *limit,
                until: now + SLOW_FOR,
            };
            self.sessions.with(who, |session| session.slow = Some(slow));
        }
    }

    /// What is answered instead of a result that would be too slow again.
    fn refuse(&self, now: Instant, id: &RawValue, size: usize) -> Option<String> {
        let slow = self.sessions.with(self.who.as_deref()?, |it| it.slow)??;
        let reason = slow.refuses(self.client.as_ref(), size, now)?;
        let too_large = self.config.too_large(size, self.client.as_ref());
        Some(too_large.response_with_text(id, self.config.too_large_code, &reason))
    }

    /// A message of the host's did not go out.
    pub fn not_sent(&mut self, bytes: &Bytes, error: &SendError) -> Instead {
        let too_large = self.config.too_large(bytes.len(), self.client.as_ref());
        let code = self.config.too_large_code;
        let Some((_, envelope)) = read(bytes) else {
            return Instead::Close(TOO_LARGE, error.to_string());
        };
        match (envelope.kind(), envelope.id) {
            (Some(Kind::Request), Some(id)) => Instead::Answer(too_large.response(id, code).into()),
            (Some(Kind::Result | Kind::Error), Some(id)) => {
                Instead::Replace(Box::new(Outgoing::new(too_large.response(id, code))))
            }
            // The next action would hide the hole. When the client comes back, the replay with this
            // action in it is too large as well and is answered so; then it asks for the state.
            _ if envelope.method().as_deref() == Some("action") => {
                Instead::Close(TOO_LARGE, error.to_string())
            }
            _ => Instead::Drop(format!(
                "dropped the notification {}: {error}",
                envelope.method().as_deref().unwrap_or("without a name")
            )),
        }
    }

    /// Notes a handshake. It changes nothing yet: a second one may be refused.
    fn shakes(&mut self, envelope: &Envelope<'_>) -> Option<()> {
        if envelope.kind()? != Kind::Request {
            return None;
        }
        let (params, id) = (envelope.params?, envelope.id?);
        let (first, who, client) = match &*envelope.method()? {
            "initialize" => {
                let params = InitializeParams::read(params).ok()?;
                (params.channel == ahp::ROOT_CHANNEL).then_some(())?;
                let client = params.chunking();
                (true, params.client_id, client)
            }
            "reconnect" => {
                let params = ReconnectParams::read(params).ok()?;
                let stored = self
                    .sessions
                    .with(&params.client_id, |session| session.peer);
                let client = match params.capabilities {
                    Some(_) => params.chunking(),
                    None => stored.flatten(),
                };
                (false, params.client_id, client)
            }
            _ => return None,
        };
        self.handshake = Some(Handshake {
            id: id.get().into(),
            first,
            who: who.into_owned(),
            client,
        });
        Some(())
    }

    fn came(&mut self, who: &str) {
        self.leave();
        if self.sessions.connected(who) {
            self.who = Some(who.to_owned());
        }
    }

    fn leave(&mut self) {
        if let Some(who) = self.who.take() {
            self.sessions.left(&who);
        }
    }
}

impl Drop for HostSide {
    fn drop(&mut self) {
        self.leave();
    }
}

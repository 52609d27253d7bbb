//! The middle box of a foreign client: the client sends and receives whole messages, and the link to the
//! host is capped.

use breakbulk_link::{Event, Key, Link, Outgoing, SendError};
use breakbulk_message::ahp::{
    self, Action, Chunking, InitializeParams, InitializeResult, ReconnectParams, ReconnectResult,
    Snapshot,
};
use breakbulk_message::jsonrpc::{Envelope, Kind};
use bytes::Bytes;

use super::Instead;
use super::answers::Answers;
use super::sessions::{Session, Sessions};
use crate::Config;
use crate::machine::host::close;

/// The state of one connection of a foreign client.
#[derive(Debug)]
pub struct ClientSide {
    config: Config,
    sessions: Sessions,
    /// The clientId of the handshake.
    client: Option<String>,
    /// Whether the host has accepted a handshake.
    agreed: bool,
    /// The handshake that is not answered yet.
    handshake: Option<Handshake>,
    /// The limits that the host advertised.
    host: Option<Chunking>,
    /// The host's open requests.
    asked: Answers,
}

#[derive(Debug)]
struct Handshake {
    id: Box<str>,
    /// Its clientId.
    who: String,
    /// Of a reconnect: the `lastSeenServerSeq` that the client sent.
    own: Option<i64>,
}

impl ClientSide {
    /// For a new connection; `sessions` is shared with all earlier connections.
    pub fn new(config: Config, sessions: Sessions) -> Self {
        Self {
            config,
            sessions,
            client: None,
            agreed: false,
            handshake: None,
            host: None,
            asked: Answers::default(),
        }
    }

    /// Prepares a message of the client for the link to the host.
    pub fn to_host(&mut self, link: &mut Link, bytes: Bytes) -> Outgoing {
        let Some((text, envelope)) = read(&bytes) else {
            return Outgoing::new(bytes);
        };
        let lane = self.asked.lane(&self.config, &envelope);
        let edited = self.read_handshake(&envelope).map(|handshake| {
            // The handshake advertises segments, so its answer may arrive in some.
            link.set_receives_pieces(true);
            let text = self.advertise(text, &handshake);
            self.handshake = Some(handshake);
            text
        });
        match edited {
            // The host's support is not known yet on this connection, so the handshake must fit one frame.
            Some(text) => Outgoing::new(text).in_lane(lane).uncut(),
            None => Outgoing::new(bytes).in_lane(lane),
        }
    }

    /// Prepares a message of the host for the client. `key` is that of its group, if it came in segments.
    pub fn from_host(&mut self, link: &mut Link, bytes: Bytes, key: Option<&Key>) -> Bytes {
        let Some((text, envelope)) = read(&bytes) else {
            self.defend(|session| key.map(|key| session.defence.whole(key)));
            return bytes;
        };
        let mut edited = None;
        match envelope.kind() {
            Some(Kind::Notification) if envelope.method().as_deref() == Some("action") => {
                let action = envelope.params.and_then(|params| Action::read(params).ok());
                if let Some(action) = action {
                    let applied = self.defend(|session| session.defence.applied(action.server_seq));
                    if let Some(Err(overtaken)) = applied {
                        link.close(close::TRY_LATER, &overtaken.to_string());
                    }
                }
            }
            Some(Kind::Request) => self.asked.asked(&self.config, &envelope),
            Some(Kind::Result | Kind::Error) => {
                let answers = |handshake: &mut Handshake| {
                    envelope.id.is_some_and(|id| id.get() == &*handshake.id)
                };
                if let Some(handshake) = self.handshake.take_if(answers) {
                    edited = self.handshake_answered(link, text, &envelope, &handshake);
                }
            }
            _ => {}
        }
        self.defend(|session| key.map(|key| session.defence.whole(key)));
        edited.map_or(bytes, Bytes::from)
    }

    /// Handles the other events of the link: groups that begin or fail.
    pub fn heard(&mut self, event: &Event) {
        self.defend(|session| match event {
            Event::Opened(key) => session.defence.opened(key.clone()),
            Event::TransferFailed(fault) => {
                if let Some(key) = &fault.key {
                    session.defence.failed(key);
                }
            }
            _ => {}
        });
    }

    /// A message of the client could not be sent.
    pub fn not_sent(&mut self, bytes: &Bytes, error: &SendError) -> Instead {
        let too_large = self.config.too_large(bytes.len(), self.host.as_ref());
        let code = self.config.too_large_code;
        let Some((_, envelope)) = read(bytes) else {
            return Instead::Close(close::TOO_LARGE, error.to_string());
        };
        match (envelope.kind(), envelope.id) {
            (Some(Kind::Request), Some(id)) => {
                self.handshake
                    .take_if(|handshake| *handshake.id == *id.get());
                Instead::Answer(too_large.response(id, code).into())
            }
            (Some(Kind::Result | Kind::Error), Some(id)) => {
                Instead::Replace(Box::new(Outgoing::new(too_large.response(id, code))))
            }
            _ => Instead::Close(close::TOO_LARGE, error.to_string()),
        }
    }

    /// The limits that the host advertised, once it has.
    pub fn host_takes(&self) -> Option<&Chunking> {
        self.host.as_ref()
    }

    /// Reads a handshake; `None` for any other message.
    fn read_handshake(&mut self, envelope: &Envelope<'_>) -> Option<Handshake> {
        if envelope.kind()? != Kind::Request {
            return None;
        }
        let (params, id) = (envelope.params?, envelope.id?);
        let (client, own) = match &*envelope.method()? {
            "initialize" => {
                let params = InitializeParams::read(params).ok()?;
                (params.channel == ahp::ROOT_CHANNEL).then_some(())?;
                (params.client_id, None)
            }
            "reconnect" => {
                let params = ReconnectParams::read(params).ok()?;
                (params.client_id, Some(params.last_seen_server_seq))
            }
            _ => return None,
        };
        let who = client.into_owned();
        // The first clientId counts at once, since actions that overtake the answer must be remembered. A
        // further handshake may be refused, so its clientId counts only once the host has accepted it.
        if !self.agreed {
            self.set_client(&who);
        }
        Some(Handshake {
            id: id.get().into(),
            who,
            own,
        })
    }

    fn set_client(&mut self, who: &str) {
        if self.client.as_deref() == Some(who) {
            return;
        }
        self.leave();
        if self.sessions.connected(who) {
            self.client = Some(who.to_owned());
        }
    }

    /// Adds this side's limits to a handshake, and lowers the number that a reconnect starts from if
    /// actions were overtaken.
    fn advertise(&mut self, text: &str, handshake: &Handshake) -> String {
        let chunking = self.config.chunking;
        let text = ahp::with_chunking(text, &chunking).unwrap_or_else(|| text.to_owned());
        let Some(own) = handshake.own else {
            return text;
        };
        let from = self.sessions.with(&handshake.who, |session| {
            let from = session.defence.reconnect_from(own);
            session.defence.reconnecting(from);
            from
        });
        match from.filter(|_| self.config.switches.defends) {
            Some(from) if from < own => ahp::with_last_seen(&text, from).unwrap_or(text),
            _ => text,
        }
    }

    /// Handles the answer to a handshake: the host's limits, and the last action that the client has.
    fn handshake_answered(
        &mut self,
        link: &mut Link,
        text: &str,
        envelope: &Envelope<'_>,
        handshake: &Handshake,
    ) -> Option<String> {
        let result = envelope.result?;
        self.set_client(&handshake.who);
        self.agreed = true;
        let Some(own) = handshake.own else {
            let result = InitializeResult::read(result).ok()?;
            self.host = result.chunking();
            self.config.apply_peer(link, self.host.as_ref());
            let host = self.host;
            self.session(|session| {
                session.peer = host;
                session.defence.start(result.server_seq);
            });
            // The client's messages are cut here: a client that knows segments must not send any.
            return ahp::without_chunking_in_result(text);
        };
        // The answer to a reconnect has no limits of the host: those of `initialize` stay.
        self.host = self.session(|session| session.peer).flatten();
        self.config.apply_peer(link, self.host.as_ref());
        match ReconnectResult::read(result).ok()? {
            ReconnectResult::Replay { .. } => {
                let defends = self.config.switches.defends;
                self.session(|session| {
                    let mut last = own;
                    let edited = ahp::without_applied(text, |action| {
                        last = last.max(action.server_seq);
                        defends && session.defence.has_applied(action.server_seq, own)
                    });
                    session.defence.caught_up(last);
                    edited
                })
                .flatten()
            }
            ReconnectResult::Snapshot { snapshots } => {
                let from = |raw| Snapshot::read(raw).map_or(0, |snapshot| snapshot.from_seq);
                let last = snapshots.map(from).max().unwrap_or(own);
                self.session(|session| session.defence.start(last));
                None
            }
        }
    }

    fn session<R>(&self, work: impl FnOnce(&mut Session) -> R) -> Option<R> {
        self.sessions.with(self.client.as_deref()?, work)
    }

    fn defend<R>(&self, work: impl FnOnce(&mut Session) -> R) -> Option<R> {
        self.session(work).filter(|_| self.config.switches.defends)
    }

    fn leave(&mut self) {
        self.agreed = false;
        if let Some(client) = self.client.take() {
            self.sessions
                .with(&client, |session| session.defence.disconnected());
            self.sessions.left(&client);
        }
    }
}

/// The transport is gone: the incomplete groups are remembered.
impl Drop for ClientSide {
    fn drop(&mut self) {
        self.leave();
    }
}

pub(super) fn read(bytes: &Bytes) -> Option<(&str, Envelope<'_>)> {
    let text = std::str::from_utf8(bytes).ok()?;
    Some((text, Envelope::parse(text)?))
}

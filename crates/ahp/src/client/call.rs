//! How a call goes out and how long its answer is waited for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use breakbulk_link::{Carries, Outgoing};
use breakbulk_message::ahp::Chunking;
use breakbulk_message::jsonrpc::Kind;
use breakbulk_net::{Connection, Transport};
use tokio::sync::oneshot;

use super::handshake::Shaken;
use super::moved::{Moved, Watched, now};
use super::send::{closed, fits};
use super::state::{Pending, Session, Shared, State, Wants, request_tag};
use super::{Client, ClientError, Text};
use crate::Settings;

/// What is advertised, if anything can be.
pub(super) fn advertised(settings: &Settings) -> Option<&Chunking> {
    settings.advertised()
}

impl Client {
    pub(super) async fn shake<X>(
        &self,
        transport: impl Transport,
        method: &'static str,
        write: impl FnOnce(u64, &State) -> (String, X),
        wants: impl FnOnce(X, oneshot::Sender<Result<Shaken, ClientError>>) -> Wants,
    ) -> Result<Shaken, ClientError> {
        if !transport.carries(Carries::Text) {
            return Err(ClientError::WrongTransport);
        }
        self.end_old().await;
        let settings = &self.shared.config.settings;
        let (answer, answered) = oneshot::channel();
        let (id, connection) = {
            let mut state = self.shared.lock();
            let id = state.next_id;
            let (text, more) = write(id, &state);
            // Nothing is negotiated yet on this transport: it goes whole or not at all.
            let message = Outgoing::text(text).uncut().tagged(request_tag(id));
            fits(settings, None, &message)?;
            state.next_id += 1;
            let mut link = settings.link();
            link.set_receives_pieces(advertised(settings).is_some());
            let moved = Moved::new();
            let connection =
                Connection::open(link, Watched(transport, moved.clone()), settings.options);
            // Before the pump hears anything: it is not spawned yet.
            let sent = connection.send(message);
            sent.map_err(|rejected| closed(&connection, rejected.error))?;
            let pending = Pending {
                queued: now(),
                sent: None,
                wants: wants(more, answer),
            };
            state.session = Some(Session {
                serial: id,
                connection: connection.clone(),
                moved,
                pending: BTreeMap::from([(id, pending)]),
                unsent: BTreeSet::new(),
                held: Some(VecDeque::new()),
                open: BTreeSet::new(),
                group_ended: now(),
                broken: false,
            });
            tokio::spawn(pump(Arc::downgrade(&self.shared), connection.clone()));
            (id, connection)
        };
        let mut unfinished = CloseUnlessDone(Some(connection));
        let shaken = self.answer(method, id, answered).await;
        if let Err(error) = &shaken {
            let code = if matches!(error, ClientError::BadAnswer { .. }) {
                4400
            } else {
                1000
            };
            if let Some(connection) = &unfinished.0 {
                connection.close(code, &error.to_string());
            }
        } else {
            unfinished.0 = None;
        }
        shaken
    }

    /// Closes the connection that is there, and waits until all of it was heard.
    pub(super) async fn end_old(&self) {
        let gone = |state: &mut State| match &state.session {
            None => Some(()),
            Some(session) => {
                session
                    .connection
                    .close(1000, "a new connection takes over");
                None
            }
        };
        self.shared.until(gone).await;
    }

    pub(super) async fn call(
        &self,
        method: &str,
        write: impl FnOnce(u64) -> String,
        wants: impl FnOnce(oneshot::Sender<Result<Text, ClientError>>) -> Wants,
    ) -> Result<Text, ClientError> {
        let settings = &self.shared.config.settings;
        let (answer, answered) = oneshot::channel();
        let (id, connection, message) = {
            let mut state = self.shared.lock();
            let (id, host) = (state.next_id, state.host);
            state.session()?;
            let lane = settings.lane(Kind::Request, Some(method));
            let message = Outgoing::text(write(id))
                .in_lane(lane)
                .tagged(request_tag(id));
            fits(settings, host.as_ref(), &message)?;
            state.next_id += 1;
            let session = state.session()?;
            let pending = Pending {
                queued: now(),
                sent: None,
                wants: wants(answer),
            };
            session.pending.insert(id, pending);
            (id, session.connection.clone(), message)
        };
        let _forget = Forget(&self.shared, id);
        let sent = connection.send_when_writable(message).await;
        sent.map_err(|rejected| closed(&connection, rejected.error))?;
        self.answer(method, id, answered).await
    }

    pub(super) async fn send(&self, message: Outgoing) -> Result<(), ClientError> {
        let connection = {
            let mut state = self.shared.lock();
            let host = state.host;
            let connection = state.session()?.connection.clone();
            fits(&self.shared.config.settings, host.as_ref(), &message)?;
            connection
        };
        let sent = connection.send_when_writable(message).await;
        sent.map(drop)
            .map_err(|rejected| closed(&connection, rejected.error))
    }

    /// Waits for an answer as long as something of it moves.
    pub(super) async fn answer<R>(
        &self,
        method: &str,
        id: u64,
        mut answered: oneshot::Receiver<Result<R, ClientError>>,
    ) -> Result<R, ClientError> {
        let gone = |_| Err(ClientError::NotConnected);
        let Some(limit) = self.shared.config.request_timeout else {
            return answered.await.unwrap_or_else(gone);
        };
        loop {
            let due = self.moved(id).checked_add(limit);
            let due = due.unwrap_or_else(|| now() + Duration::from_secs(u32::MAX.into()));
            if due <= now() {
                return Err(ClientError::TimedOut {
                    method: method.to_owned(),
                    after: limit,
                });
            }
            tokio::select! {
                biased;
                answer = &mut answered => return answer.unwrap_or_else(gone),
                () = tokio::time::sleep_until(due.into()) => {}
            }
        }
    }

    /// When something of a call last moved.
    fn moved(&self, id: u64) -> Instant {
        let state = self.shared.lock();
        let Some(session) = &state.session else {
            return now();
        };
        let Some(pending) = session.pending.get(&id) else {
            return now();
        };
        let Some(sent) = pending.sent else {
            return pending.queued.max(session.moved.outgoing());
        };
        let moved = sent.max(session.group_ended);
        if session.connection.with(|link| link.open_transfers()) > 0 {
            return moved.max(session.moved.incoming());
        }
        moved
    }
}

/// Hears a connection until it ends. It holds no client: the last handle ends it.
async fn pump(shared: Weak<Shared>, connection: Connection) {
    while let Some(event) = connection.event().await {
        let Some(shared) = shared.upgrade() else {
            return;
        };
        shared.hear(event);
    }
}

/// A handshake that nobody waits for any more is no connection.
struct CloseUnlessDone(Option<Connection>);

impl Drop for CloseUnlessDone {
    fn drop(&mut self) {
        if let Some(connection) = &self.0 {
            connection.close(1000, "the handshake was given up");
        }
    }
}

/// A call that nobody waits for any more; what it does to the subscriptions counts still.
struct Forget<'a>(&'a Shared, u64);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if let Some(session) = &mut state.session
            && let Some(pending) = session.pending.get(&self.1)
            && matches!(pending.wants, Wants::Answer(_))
        {
            session.pending.remove(&self.1);
        }
    }
}

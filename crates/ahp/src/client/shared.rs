//! What the handles of a client and the task that hears its connection share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use breakbulk_link::lock;
use breakbulk_link::{Carries, Outgoing, SendError};
use breakbulk_net::{Connection, Observed, Transport, fresh_seed};
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep_until;

use super::moved::{Moved, now};
use super::{ClientConfig, ClientError, Event, Request};
use crate::machine::client::{self as machine, Answer, CallId, Direction, Output};

pub(super) struct Shared {
    state: Mutex<State>,
    /// Something came, or the connection ended.
    changed: Notify,
    /// One dispatch at a time: their numbers go out in order.
    pub(super) turn: tokio::sync::Mutex<()>,
}

pub(super) struct State {
    pub(super) machine: machine::Client,
    pub(super) connection: Option<Connection>,
    /// The handshake of the connection: what another one tells does not count.
    handshake: Option<CallId>,
    moved: Moved,
    /// Who waits for the answers to calls.
    waiting: BTreeMap<CallId, oneshot::Sender<Result<Answer, ClientError>>>,
}

/// A call whose answer is awaited; dropped, it is abandoned.
pub(super) struct Waiting<'a> {
    shared: &'a Shared,
    call: CallId,
    answer: oneshot::Receiver<Result<Answer, ClientError>>,
}

impl Shared {
    pub(super) fn new(config: ClientConfig) -> Self {
        Self {
            state: Mutex::new(State {
                machine: machine::Client::new(config),
                connection: None,
                handshake: None,
                moved: Moved::new(),
                waiting: BTreeMap::new(),
            }),
            changed: Notify::new(),
            turn: tokio::sync::Mutex::new(()),
        }
    }

    /// Locked before a connection, never within one.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Tells the machine something, and does what it says.
    pub(super) fn drive<R>(&self, tell: impl FnOnce(&mut machine::Client) -> R) -> R {
        let mut state = self.lock();
        let told = tell(&mut state.machine);
        state.carry_out();
        told
    }

    /// Waits until `look` finds something.
    pub(super) async fn until<R>(&self, mut look: impl FnMut(&mut State) -> Option<R>) -> R {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // What changes between the look and the wait counts too.
            changed.as_mut().enable();
            if let Some(found) = look(&mut self.lock()) {
                return found;
            }
            changed.await;
        }
    }

    /// Makes a handshake over a transport. A connection that is still there is closed first, and all of
    /// it is heard.
    pub(super) async fn shake(
        self: &Arc<Self>,
        transport: impl Transport,
        begin: impl FnOnce(&mut machine::Client) -> Result<(CallId, Outgoing), ClientError>,
    ) -> Result<Answer, ClientError> {
        if !transport.carries(Carries::Text) {
            return Err(ClientError::WrongTransport);
        }
        let gone = |state: &mut State| match &state.connection {
            None => Some(()),
            Some(connection) => {
                connection.close(1000, "a new connection takes over");
                None
            }
        };
        self.until(gone).await;
        let (waiting, connection, sent) = {
            let mut state = self.lock();
            let (call, message) = begin(&mut state.machine)?;
            let config = &state.machine.config().connection;
            let link = state.machine.link(config.seed.unwrap_or_else(fresh_seed));
            let (moved, options) = (Moved::new(), config.options);
            let watched = Observed(transport, moved.clone());
            let connection = Connection::open(link, watched, options)
                .map_err(|_| ClientError::WrongTransport)?;
            // Before anything is heard: the task that hears is not spawned yet.
            let sent = connection.send(message);
            (state.connection, state.moved) = (Some(connection.clone()), moved);
            state.handshake = Some(call);
            tokio::spawn(hear(Arc::downgrade(self), connection.clone(), call));
            (self.wait(&mut state, call), connection, sent)
        };
        // Not under the lock: a call that is given up takes it.
        sent.map_err(|rejected| closed(&connection, rejected.error))?;
        waiting.answer().await
    }

    /// Makes a call: its message waits for room where the queue is full.
    pub(super) async fn call(
        &self,
        write: impl FnOnce(&mut machine::Client) -> Result<(CallId, Outgoing), ClientError>,
    ) -> Result<Answer, ClientError> {
        let (waiting, connection, message) = {
            let mut state = self.lock();
            let (call, message) = write(&mut state.machine)?;
            let connection = state.connection()?;
            (self.wait(&mut state, call), connection, message)
        };
        send(&connection, message).await?;
        waiting.answer().await
    }

    fn wait(&self, state: &mut State, call: CallId) -> Waiting<'_> {
        let (sender, answer) = oneshot::channel();
        state.waiting.insert(call, sender);
        Waiting {
            shared: self,
            call,
            answer,
        }
    }
}

/// The last handle is gone: the connection goes with it.
impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(connection) = &self.lock().connection {
            connection.close(1000, "");
        }
    }
}

impl State {
    /// What comes next for the application; the outer `None` while something may still come.
    pub(super) fn next(&mut self) -> Option<Option<Event>> {
        let Some(event) = self.machine.poll_event() else {
            return (!self.machine.has_connection()).then_some(None);
        };
        Some(Some(event.map(|question| {
            let live = self.machine.can_answer(&question);
            let connection = self.connection.clone().filter(|_| live);
            Request::new(
                question,
                connection,
                self.machine.config().connection.clone(),
            )
        })))
    }

    pub(super) fn connection(&self) -> Result<Connection, ClientError> {
        self.connection.clone().ok_or(ClientError::NotConnected)
    }

    /// Does what the machine says.
    fn carry_out(&mut self) {
        while let Some(output) = self.machine.poll_output() {
            match (output, &self.connection) {
                (Output::Negotiated { peer }, Some(connection)) => {
                    let config = &self.machine.config().connection;
                    connection.with(|link| config.shake(link, peer.as_ref()));
                }
                (Output::Close { code, reason }, Some(connection)) => {
                    connection.close(code, &reason);
                }
                (Output::Answered { call, answer }, _) => {
                    if let Some(waiting) = self.waiting.remove(&call) {
                        drop(waiting.send(answer));
                    }
                }
                (_, None) => {}
            }
        }
        if !self.machine.has_connection() {
            self.connection = None;
        }
    }

    /// The time at which a call fails, by what has moved until now.
    fn deadline(&mut self, call: CallId) -> Option<std::time::Instant> {
        let (incoming, outgoing) = (self.moved.incoming(), self.moved.outgoing());
        self.machine.handle_moved(incoming, Direction::In);
        self.machine.handle_moved(outgoing, Direction::Out);
        self.machine.deadline(call)
    }
}

impl Waiting<'_> {
    /// Waits for as long as something of the call moves.
    async fn answer(mut self) -> Result<Answer, ClientError> {
        loop {
            let due = self.shared.lock().deadline(self.call);
            let late = async {
                match due {
                    Some(due) => sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                answer = &mut self.answer => {
                    return answer.unwrap_or(Err(ClientError::NotConnected));
                }
                () = late => {}
            }
            if self
                .shared
                .lock()
                .deadline(self.call)
                .is_some_and(|due| due <= now())
            {
                self.shared.drive(|machine| machine.handle_timeout(now()));
            }
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.shared.lock().waiting.remove(&self.call);
        self.shared.drive(|machine| machine.abandon(self.call));
    }
}

/// Hears a connection until it ends. It holds no client: the last handle ends it.
async fn hear(shared: Weak<Shared>, connection: Connection, handshake: CallId) {
    while let Some(event) = connection.event().await {
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let mut state = shared.lock();
        if state.handshake != Some(handshake) {
            return;
        }
        state.machine.handle_event(now(), event);
        state.carry_out();
        drop(state);
        shared.changed.notify_waiters();
    }
}

/// Queues a message, and waits for room where the queue is full.
pub(super) async fn send(connection: &Connection, message: Outgoing) -> Result<(), ClientError> {
    let sent = connection.send_when_writable(message).await;
    sent.map(drop)
        .map_err(|rejected| closed(connection, rejected.error))
}

/// Why a message was not queued.
fn closed(connection: &Connection, error: SendError) -> ClientError {
    match connection.with(|link| link.closed().cloned()) {
        Some(closed) => closed.into(),
        None => ClientError::Send(error),
    }
}

//! The state that the handles of a client share with the task that receives from its connection.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use breakbulk_link::{Carries, Outgoing, SendError, lock};
use breakbulk_net::{Connection, Observed, Transport, fresh_seed};
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep_until;

use super::moved::{Moved, now};
use super::{ClientConfig, ClientError, Event, Request};
use crate::machine::client::{self as machine, Answer, CallId, Direction, Output};

pub(super) struct Shared {
    state: Mutex<State>,
    /// Wakes waiters: there is an event, or the connection has ended.
    changed: Notify,
    /// One dispatch at a time, so that actions are queued in the order of their numbers.
    pub(super) turn: tokio::sync::Mutex<()>,
}

pub(super) struct State {
    pub(super) machine: machine::Client,
    pub(super) connection: Option<Connection>,
    /// The handshake of the current connection: events of an earlier connection are ignored.
    handshake: Option<CallId>,
    moved: Moved,
    /// The callers that wait for answers.
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

    /// Must not be called within [`Connection::with`]: the lock of a connection is taken after this one.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Calls the machine, and does what it asks for.
    pub(super) fn drive<R>(&self, tell: impl FnOnce(&mut machine::Client) -> R) -> R {
        let mut state = self.lock();
        let told = tell(&mut state.machine);
        state.carry_out();
        told
    }

    /// Waits until `look` returns something.
    pub(super) async fn until<R>(&self, mut look: impl FnMut(&mut State) -> Option<R>) -> R {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // A change between `look` and the wait must wake this task too.
            changed.as_mut().enable();
            if let Some(found) = look(&mut self.lock()) {
                return found;
            }
            changed.await;
        }
    }

    /// Makes a handshake over a transport. A previous connection is closed first, and its events are
    /// handled.
    pub(super) async fn handshake(
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
            let watched = Observed::new(transport, moved.clone());
            let connection = Connection::open(link, watched, options)
                .map_err(|_| ClientError::WrongTransport)?;
            // Queued before the task that receives is spawned, so that the handshake goes out first.
            let sent = connection.send(message);
            (state.connection, state.moved) = (Some(connection.clone()), moved);
            state.handshake = Some(call);
            tokio::spawn(receive(Arc::downgrade(self), connection.clone(), call));
            (self.wait(&mut state, call), connection, sent)
        };
        // Not under the lock: dropping `waiting` takes it.
        sent.map_err(|rejected| closed(&connection, rejected.error))?;
        waiting.answer().await
    }

    /// Makes a call; waits while the queue is full.
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

/// Dropping the last handle closes the connection.
impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(connection) = &self.lock().connection {
            connection.close(1000, "");
        }
    }
}

impl State {
    /// The next event for the application; the outer `None` if there is none yet.
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

    /// Does what the machine asks for.
    fn carry_out(&mut self) {
        while let Some(output) = self.machine.poll_output() {
            match (output, &self.connection) {
                (Output::Negotiated { peer }, Some(connection)) => {
                    let config = &self.machine.config().connection;
                    connection.with(|link| config.apply_peer(link, peer.as_ref()));
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

    /// When a call times out, given the frames received and sent until now.
    fn deadline(&mut self, call: CallId) -> Option<std::time::Instant> {
        let (incoming, outgoing) = (self.moved.incoming(), self.moved.outgoing());
        self.machine.handle_moved(incoming, Direction::In);
        self.machine.handle_moved(outgoing, Direction::Out);
        self.machine.deadline(call)
    }
}

impl Waiting<'_> {
    /// Waits for the answer, as long as the call makes progress.
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

/// Passes the events of a connection to the machine until it ends. It holds a weak reference, so that
/// dropping the last handle ends it.
async fn receive(shared: Weak<Shared>, connection: Connection, handshake: CallId) {
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

/// Queues a message; waits while the queue is full.
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

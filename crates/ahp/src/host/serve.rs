//! The task of one client: passes the events of its connection to the machine, and does what the machine
//! asks for.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use breakbulk_link::{Closed, SendError};
use breakbulk_net::{Connection, Transport, now};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::application::Application;
use super::requests::{Done, Tasks};
use super::{Host, HostConfig, Inner, lock};
use crate::machine::host::{self as machine, ClientId, Output, When, Work};

/// The most connections at a time that are sent a close frame because there are too many clients; further
/// ones are dropped.
const REFUSING: usize = 64;

/// How long a client that reconnects waits until this host has the actions that it has seen at another one.
const CATCH_UP: Duration = Duration::from_secs(10);

/// The machine, and the connections of its clients.
pub(super) struct Core {
    pub(super) machine: machine::Host,
    connections: BTreeMap<ClientId, Peer>,
}

struct Peer {
    connection: Connection,
    /// Work for the task of this client. The machine bounds how much there can be.
    work: VecDeque<Work>,
    /// Wakes that task when another task has added work.
    wake: Arc<Notify>,
}

impl Core {
    pub(super) fn new(config: HostConfig, visible: i64) -> Self {
        Self {
            machine: machine::Host::new(config, visible),
            connections: BTreeMap::new(),
        }
    }

    pub(super) fn connections(&self) -> Vec<Connection> {
        let peers = self.connections.values();
        peers.map(|peer| peer.connection.clone()).collect()
    }

    /// Moves the work of this client to its task.
    fn take_work(&mut self, client: ClientId, into: &mut VecDeque<Work>) {
        if let Some(peer) = self.connections.get_mut(&client) {
            // Moved with its memory: an idle client keeps none.
            match into.is_empty() {
                true => *into = std::mem::take(&mut peer.work),
                false => into.append(&mut peer.work),
            }
        }
    }

    /// Does what the machine asks for. Returns whether there is work for the calling task, that of the
    /// client `own`.
    fn carry_out(&mut self, config: &HostConfig, own: Option<ClientId>) -> bool {
        let mut has_work = false;
        while let Some(output) = self.machine.poll_output() {
            let (Output::Send { client, .. }
            | Output::Replace { client, .. }
            | Output::Negotiated { client, .. }
            | Output::Close { client, .. }
            | Output::Work { client, .. }) = output;
            let Some(peer) = self.connections.get_mut(&client) else {
                continue;
            };
            let connection = &peer.connection;
            match output {
                Output::Send { message, .. } => match connection.send(message) {
                    Err(rejected) if rejected.error != SendError::Closed => {
                        let (message, error) = (&rejected.message, &rejected.error);
                        self.machine.handle_rejected(client, message, error);
                    }
                    _ => {}
                },
                Output::Replace { id, with, .. } => {
                    connection.with(|link| link.replace(id, with));
                }
                Output::Negotiated { peer, .. } => {
                    connection.with(|link| config.connection.apply_peer(link, peer.as_ref()));
                }
                Output::Close {
                    code, reason, when, ..
                } => match when {
                    When::Now => connection.close(code, &reason),
                    When::AfterQueue => {
                        let grace = config.connection.options.grace;
                        tokio::spawn(close_after_queue(connection.clone(), code, reason, grace));
                    }
                },
                Output::Work { work, .. } => {
                    peer.work.push_back(work);
                    if own == Some(client) {
                        has_work = true;
                    } else {
                        peer.wake.notify_one();
                    }
                }
            }
        }
        has_work
    }
}

impl<A> Inner<A> {
    /// Waits, for at most [`CATCH_UP`], until an action that a client has seen at another host is visible
    /// here: the number comes from the client, and no host may have such an action.
    async fn catch_up(&self, last_seen: i64) {
        let mut visible = self.visible.subscribe();
        let caught_up = visible.wait_for(|state| state.seq >= last_seen || state.ended.is_some());
        let _ = timeout(CATCH_UP, caught_up).await;
    }

    /// Calls the machine, and does what it asks for.
    pub(super) fn drive<R>(&self, tell: impl FnOnce(&mut machine::Host) -> R) -> R {
        let mut core = lock(&self.core);
        let told = tell(&mut core.machine);
        core.carry_out(&self.config, None);
        told
    }
}

/// Closes once all that is queued is sent, or after `grace`.
async fn close_after_queue(connection: Connection, code: u16, reason: String, grace: Duration) {
    let _ = timeout(grace, connection.finish(code, &reason)).await;
    connection.close(code, &reason);
}

pub(super) async fn serve<A: Application>(host: Host<A>, transport: impl Transport) -> Closed {
    let inner = host.inner.clone();
    let config = &inner.config.connection;
    let opened = Connection::open(config.fresh_link(), transport, config.options);
    let connection = match opened {
        Ok(connection) => connection,
        Err(mismatch) => {
            return Closed {
                code: 1003,
                reason: mismatch.to_string(),
            };
        }
    };
    let wake = Arc::new(Notify::new());
    let admitted = {
        let mut core = lock(&inner.core);
        let admitted = core.machine.connect(now());
        if let Ok(id) = admitted {
            let peer = Peer {
                connection: connection.clone(),
                work: VecDeque::new(),
                wake: wake.clone(),
            };
            core.connections.insert(id, peer);
        }
        admitted
    };
    let id = match admitted {
        Ok(id) => id,
        Err(closed) => {
            connection.close(closed.code, &closed.reason);
            // Sending the close frame takes a while: in a flood of connections not all get one.
            let refusing = Refusing::new(&inner.refusing);
            if refusing.number < REFUSING {
                connection.ended().await;
            }
            return closed;
        }
    };
    let mut serving = Serving {
        host,
        connection,
        id,
        wake,
        todo: VecDeque::new(),
        tasks: Tasks::default(),
    };
    serving.run().await;
    // The connection counts against the limit of clients until its transport is gone.
    inner.drive(|machine| machine.handle_closed(id));
    serving.connection.ended().await;
    let closed = serving.connection.closed().await;
    tracing::debug!(client = ?id, code = closed.code, reason = %closed.reason, "the connection of a client has ended");
    closed
}

/// The task of one client.
struct Serving<A: Application> {
    host: Host<A>,
    connection: Connection,
    id: ClientId,
    wake: Arc<Notify>,
    todo: VecDeque<Work>,
    tasks: Tasks,
}

impl<A: Application> Serving<A> {
    async fn run(&mut self) {
        let (inner, wake, id) = (self.host.inner.clone(), self.wake.clone(), self.id);
        let app = &*inner;
        let handshake_due = sleep(inner.config.handshake_timeout);
        tokio::pin!(handshake_due);
        let mut awaits_handshake = true;
        loop {
            while let Some(work) = self.todo.pop_front() {
                self.work(&inner, work).await;
                awaits_handshake =
                    awaits_handshake && lock(&inner.core).machine.awaits_handshake(id);
            }
            self.todo = VecDeque::new();
            tokio::select! {
                biased;
                Some(done) = self.tasks.next() => match done {
                    Done::Answered(request, answer) => {
                        self.tell(|it| it.handle_answer(id, request, &answer, app));
                    }
                    Done::Written(text) => {
                        self.tell(|it| it.handle_written(now(), id, text, app));
                    }
                },
                event = self.connection.event() => match event {
                    Some(event) if machine::Host::wants_event(&event) => {
                        self.tell(|it| it.handle_event(now(), id, event, app));
                    }
                    Some(_) => {}
                    None => return,
                },
                () = wake.notified() => lock(&inner.core).take_work(id, &mut self.todo),
                () = &mut handshake_due, if awaits_handshake => {
                    awaits_handshake = false;
                    inner.drive(|it| it.handle_timeout(now()));
                }
            }
        }
    }

    /// Calls the machine, does what it asks for, and takes the work for this task.
    fn tell(&mut self, tell: impl FnOnce(&mut machine::Host)) {
        let inner = &self.host.inner;
        let mut core = lock(&inner.core);
        tell(&mut core.machine);
        if core.carry_out(&inner.config, Some(self.id)) {
            core.take_work(self.id, &mut self.todo);
        }
    }

    /// Does work of this client and passes the result to the machine.
    async fn work(&mut self, inner: &Arc<Inner<A>>, work: Work) {
        let (app, id) = (&**inner, self.id);
        match work {
            Work::Introduce(introduction) => {
                let introduced = introduction.read(&inner.config, app);
                if inner.shared
                    && let Some(last_seen) = introduced.last_seen()
                {
                    inner.catch_up(last_seen).await;
                }
                self.tell(|it| it.handle_introduced(id, introduced, app));
            }
            Work::Write(writing) if writing.reads_log() && inner.blocks => {
                let reader = inner.reader.clone();
                self.tasks.write(move || writing.run(&*reader));
            }
            Work::Write(writing) => {
                let text = writing.run(&*inner.reader);
                self.tell(|it| it.handle_written(now(), id, text, app));
            }
            Work::Dispatch(dispatching) => {
                let host = &self.host;
                let dispatched = dispatching.run(|dispatch| inner.app.dispatched(host, dispatch));
                self.tell(|it| it.handle_dispatched(id, &dispatched, app));
            }
            Work::Call(request, call) => {
                let host = self.host.clone();
                let answer = async move { host.inner.app.request(&host, call).await };
                if let Some(answer) = self.tasks.call(request, Box::pin(answer)).await {
                    self.tell(|it| it.handle_answer(id, request, &answer, app));
                }
            }
            Work::Continue => {
                tokio::task::yield_now().await;
                self.tell(|it| it.handle_continue(id, app));
            }
        }
    }
}

impl<A: Application> Drop for Serving<A> {
    fn drop(&mut self) {
        self.connection.close(1000, "");
        let mut core = lock(&self.host.inner.core);
        core.machine.disconnect(self.id);
        core.connections.remove(&self.id);
    }
}

/// A connection that is being refused, while it counts.
struct Refusing<'a> {
    count: &'a AtomicUsize,
    number: usize,
}

impl<'a> Refusing<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        let number = count.fetch_add(1, Ordering::Relaxed);
        Self { count, number }
    }
}

impl Drop for Refusing<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

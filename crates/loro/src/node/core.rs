//! The machine, its connections and its open documents under one lock, which is never held across an
//! await.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use breakbulk_link::lock;
use breakbulk_link::{Charge, Lane, MessageId, Outgoing, SendError};
use breakbulk_message::loro::ChannelMsg;
pub(super) use breakbulk_net::now;
use breakbulk_net::{Connection, Refusal};
use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, broadcast, watch};
use tokio::time::timeout;

use super::config::{Config, Form};
use super::doc::DocState;
use super::encoder::Encoder;
use super::readers::Reading;
use super::shares::Shares;
use crate::machine::{ChannelId, DocId, Event, Finished, Hub, Output, Refused, TaskId, control};
use crate::repo::{Job, Repo, Request};
use crate::store::StoreStatus;

/// Events that a slow receiver may be behind.
const EVENTS: usize = 1024;

/// The state shared by a node and all its handles.
pub(super) struct Core {
    pub(super) config: Config,
    pub(super) shares: Arc<Shares>,
    state: Mutex<State>,
    repo: Repo,
    /// The machine's deadline may have moved.
    pub(super) timer: Arc<Notify>,
    pub(super) events: broadcast::Sender<Event>,
    /// Counts the channels that were established.
    pub(super) established: watch::Sender<u64>,
    pub(super) store_status: watch::Sender<StoreStatus>,
}

pub(super) struct State {
    pub(super) hub: Hub,
    attached: BTreeMap<ChannelId, Attached>,
    /// Tasks that are not finished, with a flag that cancels them.
    running: BTreeMap<TaskId, Arc<AtomicBool>>,
    encoder: Encoder,
    docs: BTreeMap<DocId, watch::Sender<DocState>>,
    pub(super) ended: bool,
}

/// The code of a close for a message that is too large.
pub(super) const TOO_LARGE: u16 = 1009;

/// How long a peer may take to read why it is disconnected.
const LAST_WORD: Duration = Duration::from_secs(1);

/// The connection of a channel.
struct Attached {
    connection: Connection,
    form: Form,
    /// Whether this node dialed.
    dialed: bool,
    /// The queue length at which the machine wants to be told.
    room: watch::Sender<Option<QueueLength>>,
    reading: Reading,
    /// Unfinished messages, by token.
    inbound: BTreeMap<u64, Inbound>,
    next: u64,
}

impl Attached {
    /// Tells the peer why its message was refused, on connections that have no POST to answer.
    fn tell_refused(&self, refused: &Refused) {
        // A gap is reported by a message of its own.
        if self.form.sends_json || self.dialed || refused.status == 409 {
            return;
        }
        let text = control::Refusal {
            status: refused.status,
            doc: refused.doc.as_deref().map(str::to_owned),
            error: refused.error.clone(),
        };
        // Fails if the link is closed, or if the peer reads none of them.
        let _ = (self.connection).with(|link| link.send_control(text.to_text()));
    }

    /// Closes the connection. A data channel cannot say why, and a WebSocket only briefly: so a peer whose
    /// message was too large is told before, since it would send it again.
    fn close(self, code: u16, reason: String) {
        let tells = code == TOO_LARGE && !self.form.sends_json && !self.dialed;
        let (true, Ok(runtime)) = (tells, Handle::try_current()) else {
            return self.connection.close(code, &reason);
        };
        self.tell_refused(&Refused::new(413, reason.clone()));
        runtime.spawn(async move {
            let _ = timeout(LAST_WORD, self.connection.drained()).await;
            self.connection.close(code, &reason);
        });
    }
}

/// Messages and bytes in a send queue.
pub(super) type QueueLength = (usize, usize);

/// What is kept until a message is handled and stored.
struct Inbound {
    id: MessageId,
    /// The tasks of the message share it, so that it outlives the connection as long as they do.
    charge: Arc<Charge>,
    _permit: OwnedSemaphorePermit,
}

impl Core {
    pub(super) fn new(config: Config, repo: Repo) -> Self {
        let mut limits = config.limits.clone();
        // What waits to be sent may not take the memory for incoming messages.
        limits.outbound_bytes = limits.outbound_bytes.min(config.budget.limit() / 2);
        let encoder = Encoder::new(config.budget.part(limits.outbound_bytes));
        let hub = Hub::new(
            config.identity.clone(),
            limits,
            config.permissions.clone(),
            repo.kept(),
        );
        Self {
            shares: Shares::new(config.budget.clone(), config.reserved),
            config,
            state: Mutex::new(State {
                hub,
                attached: BTreeMap::new(),
                running: BTreeMap::new(),
                encoder,
                docs: BTreeMap::new(),
                ended: false,
            }),
            repo,
            timer: Arc::default(),
            events: broadcast::channel(EVENTS).0,
            established: watch::channel(0).0,
            store_status: watch::channel(StoreStatus::default()).0,
        }
    }

    /// Runs `work` on the machine, then everything that the machine asks for.
    pub(super) fn drive<R>(&self, work: impl FnOnce(&mut State, Instant) -> R) -> R {
        let mut state = self.lock();
        let before = state.hub.poll_timeout();
        let now = now();
        let queued = state.encoder.queued();
        state.hub.handle_outbound(queued);
        let result = work(&mut state, now);
        while let Some(output) = state.hub.poll_output() {
            self.perform(&mut state, now, output);
        }
        let sooner = match (before, state.hub.poll_timeout()) {
            (Some(before), Some(after)) => after < before,
            (None, after) => after.is_some(),
            (Some(_), None) => false,
        };
        drop(state);
        if sooner {
            self.timer.notify_one();
        }
        result
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(super) fn repo(&self) -> &Repo {
        &self.repo
    }

    /// Passes finished tasks to the machine; called by the committer thread.
    pub(super) fn done(&self, tasks: Vec<(TaskId, Finished)>) {
        self.drive(|state, now| {
            for (id, finished) in tasks {
                state.running.remove(&id);
                state.hub.handle_done(now, id, finished);
            }
        });
    }

    /// The store stopped or began to take changes; called by the committer thread.
    pub(super) fn store_changed(&self, status: StoreStatus) {
        if status == StoreStatus::Writable {
            self.drive(|state, _| {
                for seen in state.docs.values() {
                    seen.send_modify(|seen| seen.failed = None);
                }
                state.hub.handle_recovered();
            });
        }
        self.store_status.send_replace(status);
    }

    fn perform(&self, state: &mut State, now: Instant, output: Output) {
        match output {
            Output::Send { to, doc, message } => self.send(state, &to, doc.as_ref(), &message),
            Output::Task {
                id,
                doc,
                work,
                origin,
            } => {
                let cancelled = Arc::new(AtomicBool::new(false));
                state.running.insert(id, cancelled.clone());
                let charge = origin.and_then(|(channel, token)| state.charge(channel, token));
                self.repo.ask(Request::Task(Job {
                    id,
                    doc,
                    work,
                    cancelled,
                    charge,
                }));
            }
            Output::Cancel { id } => {
                if let Some(cancelled) = state.running.get(&id) {
                    cancelled.store(true, Ordering::Relaxed);
                }
            }
            Output::WaitForRoom {
                channel,
                messages,
                bytes,
            } => {
                if let Some(attached) = state.attached.get(&channel) {
                    attached.room.send_replace(Some((messages, bytes)));
                }
            }
            Output::Settle {
                channel,
                token,
                outcome,
            } => {
                let attached = state.attached.get_mut(&channel);
                if let Some(attached) = attached
                    && let Some(inbound) = attached.inbound.remove(&token)
                {
                    if let Err(refused) = &outcome {
                        attached.tell_refused(refused);
                        if refused.status == 413 {
                            let error = &refused.error;
                            tracing::warn!(channel = channel.0, error, "refused changes of a peer");
                        }
                    }
                    let outcome = outcome.map_err(|r| Refusal::new(r.status, r.error));
                    attached.connection.settle(inbound.id, outcome);
                }
            }
            Output::Close {
                channel,
                code,
                reason,
            } => {
                if let Some(attached) = state.attached.remove(&channel) {
                    tracing::info!(
                        channel = channel.0,
                        code,
                        reason,
                        "connection closed by this node"
                    );
                    attached.close(code, reason);
                }
            }
            Output::Event(event) => self.publish_event(state, now, event),
        }
    }

    /// Sends a message to many channels, encoded once per form. A channel whose queue is full is closed:
    /// its peer reconnects and syncs again.
    fn send(&self, state: &mut State, to: &[ChannelId], doc: Option<&DocId>, message: &ChannelMsg) {
        let lane = doc.map_or(Lane::ORDERED, lane);
        let mut encoded = [None, None];
        for channel in to {
            let Some(attached) = state.attached.get(channel) else {
                continue;
            };
            let text = attached.form.sends_json;
            let encoded = &mut encoded[usize::from(text)];
            let frame = match encoded {
                Some(frame) => frame,
                None => match state.encoder.encode(message, text) {
                    Ok(frame) => encoded.insert(frame),
                    Err(error) => {
                        tracing::error!(%error, "outgoing message dropped: it cannot be encoded");
                        return;
                    }
                },
            };
            let outgoing = Outgoing::new(frame.clone()).in_lane(lane);
            let outgoing = if text {
                outgoing.known_text()
            } else {
                outgoing
            };
            if let Err(rejected) = attached.connection.send(outgoing)
                && matches!(rejected.error, SendError::QueueFull { .. })
            {
                let reason = "too slow: reconnect and sync again".to_owned();
                state.hub.cut_off(*channel, 1013, reason);
            }
        }
    }

    fn publish_event(&self, state: &mut State, _now: Instant, event: Event) {
        match &event {
            Event::Established { .. } => self.established.send_modify(|count| *count += 1),
            Event::Changed { doc, version } => state.update_doc(doc, |seen| {
                seen.changes += 1;
                seen.kept = version.clone();
            }),
            Event::Answered { doc, version, .. } => state.update_doc(doc, |seen| {
                seen.answers += 1;
                seen.answer = version.clone();
            }),
            Event::Deleted { doc } => state.update_doc(doc, |seen| {
                seen.changes += 1;
                seen.kept = Default::default();
            }),
            Event::Ephemeral { doc } => state.update_doc(doc, |seen| seen.ephemeral += 1),
            Event::Failed { doc, error } => {
                tracing::warn!(doc = &**doc, %error, "changes of a document were not stored");
                state.update_doc(doc, |seen| seen.failed = Some(error.clone()));
            }
            Event::Fault { channel, reason } => {
                tracing::debug!(channel = channel.0, reason, "invalid message from a peer");
            }
            _ => {}
        }
        let _ = self.events.send(event);
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.timer.notify_one();
    }
}

impl State {
    /// Registers the connection of a channel; the receiver says when the machine wants to know the
    /// length of its queue.
    pub(super) fn attach(
        &mut self,
        now: Instant,
        channel: ChannelId,
        connection: Connection,
        (form, dialed): (Form, bool),
    ) -> watch::Receiver<Option<QueueLength>> {
        let (room, wanted) = watch::channel(None);
        let attached = Attached {
            connection,
            form,
            dialed,
            room,
            reading: Reading::new(now),
            inbound: BTreeMap::new(),
            next: 0,
        };
        self.attached.insert(channel, attached);
        wanted
    }

    /// Tells the machine how long the queue of a channel is.
    pub(super) fn report_queue(&mut self, channel: ChannelId, (messages, bytes): QueueLength) {
        if let Some(attached) = self.attached.get(&channel) {
            attached.room.send_replace(None);
        }
        self.hub.handle_queue(channel, messages, bytes);
    }

    /// Closes the connections whose peers do not read.
    pub(super) fn close_stalled(&mut self, now: Instant, deadline: Duration) {
        let starved = self.hub.is_starved();
        let mut stalled = Vec::new();
        for (channel, attached) in &mut self.attached {
            let whole = attached.form.sends_json;
            let reading = &mut attached.reading;
            if let Some(late) = reading.check(now, &attached.connection, whole, deadline, starved) {
                stalled.push((*channel, late));
            }
        }
        for (channel, reason) in stalled {
            self.hub.cut_off(channel, 1013, reason);
        }
    }

    fn charge(&self, channel: ChannelId, token: u64) -> Option<Arc<Charge>> {
        let inbound = self.attached.get(&channel)?.inbound.get(&token)?;
        Some(inbound.charge.clone())
    }

    /// Registers a message with what it holds until it is settled; returns its token.
    pub(super) fn begin(
        &mut self,
        channel: ChannelId,
        id: MessageId,
        charge: Charge,
        permit: OwnedSemaphorePermit,
    ) -> Option<u64> {
        let attached = self.attached.get_mut(&channel)?;
        attached.next += 1;
        let inbound = Inbound {
            id,
            charge: Arc::new(charge),
            _permit: permit,
        };
        attached.inbound.insert(attached.next, inbound);
        Some(attached.next)
    }

    /// Removes a closed connection.
    pub(super) fn detach(&mut self, channel: ChannelId) {
        self.attached.remove(&channel);
        self.hub.close(channel);
    }

    pub(super) fn connections(&self) -> Vec<Connection> {
        let attached = self.attached.values();
        attached
            .map(|attached| attached.connection.clone())
            .collect()
    }

    /// Subscribes to the state of a document.
    pub(super) fn watch(&mut self, doc: &DocId) -> watch::Receiver<DocState> {
        let kept = self.hub.head(doc).map(|head| head.version.clone());
        let docs = &mut self.docs;
        docs.retain(|_, seen| seen.receiver_count() > 0);
        let seen = docs.entry(doc.clone()).or_insert_with(|| {
            let seen = DocState {
                kept: kept.unwrap_or_default(),
                ..DocState::default()
            };
            watch::channel(seen).0
        });
        seen.subscribe()
    }

    /// A peer refused what this node sent.
    pub(super) fn refused(&mut self, refusal: &control::Refusal) {
        let refuse = |seen: &mut DocState| {
            seen.refusals += 1;
            seen.refusal = Some(refusal.clone());
        };
        match &refusal.doc {
            Some(doc) => self.update_doc(&doc.as_str().into(), refuse),
            None => {
                for seen in self.docs.values() {
                    seen.send_modify(refuse);
                }
            }
        }
    }

    /// Tells the peer of a channel why a frame was refused, on connections that have no POST to answer.
    pub(super) fn tell_refused(&self, channel: ChannelId, status: u16, reason: &str) {
        if let Some(attached) = self.attached.get(&channel) {
            attached.tell_refused(&Refused::new(status, reason));
        }
    }

    fn update_doc(&mut self, doc: &DocId, change: impl FnOnce(&mut DocState)) {
        if let Some(seen) = self.docs.get(doc) {
            seen.send_modify(change);
        }
    }
}

/// A document's lane, so that a large document does not delay small updates of others.
fn lane(doc: &DocId) -> Lane {
    let hash = doc.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    Lane(hash.max(1))
}

/// Runs the machine's timers while the node exists.
pub(super) async fn run_timers(core: std::sync::Weak<Core>) {
    loop {
        let Some(strong) = core.upgrade() else {
            return;
        };
        let next = strong.drive(|state, now| {
            state.hub.handle_timeout(now);
            (!state.ended).then(|| state.hub.poll_timeout())
        });
        let Some(next) = next else {
            return;
        };
        // While it waits, this task must not keep the node alive.
        let timer = strong.timer.clone();
        drop(strong);
        let notified = timer.notified();
        match next {
            Some(at) => tokio::select! {
                () = notified => {}
                () = tokio::time::sleep_until(at.into()) => {}
            },
            None => notified.await,
        }
    }
}

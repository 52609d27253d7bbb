//! The part of the endpoint's task that is the same for all transports: carries out commands of the
//! handles, runs handlers, and produces messages to send.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use breakbulk_message::vscode::{Out, Reply, Request, Thrown};
use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::actor::{self, Actors, Cancellation, Incoming, Returned};
use super::call::{CallError, Slot};
use super::inbox::{Commands, Shared, error_of};
use super::status::Ended;
use super::{Config, Stream};
use crate::machine::handshake::{self, Handshake, Step};
use crate::machine::ipc::Payload;
use crate::machine::rpc::{CallIdHashBuilder, Event, Packet, Refused, RequestId, Rpc};

/// A message to send: of the handshake, or RPC.
pub(super) enum Outgoing {
    Raw(Bytes),
    Rpc(Packet),
}

pub(super) struct Engine {
    shared: Arc<Shared>,
    rpc: Rpc,
    actors: Actors,
    handshake: Handshake,
    handshake_messages: VecDeque<Bytes>,
    commands: Commands,
    /// Calls that the RPC machine had no room for.
    backlog: VecDeque<(Request, Arc<Slot>)>,
    calls: HashMap<u32, Arc<Slot>, CallIdHashBuilder>,
    running: FuturesUnordered<RunningHandler>,
    cancellations: HashMap<RequestId, Cancellation>,
    terminate: bool,
    finishing: bool,
    ended: Option<Ended>,
}

/// The commands that concern the transport's driver.
#[derive(Default)]
pub(super) struct DriverCommands {
    pub(super) stream: Option<(u64, Box<dyn Stream>)>,
}

impl Engine {
    pub(super) fn new(shared: Arc<Shared>, config: Config) -> Self {
        let (handshake, first) = Handshake::new(config.handshake);
        Self {
            shared,
            rpc: Rpc::new(config.rpc),
            actors: config.actors,
            handshake,
            handshake_messages: first.into_iter().collect(),
            commands: Commands::default(),
            backlog: VecDeque::new(),
            calls: HashMap::default(),
            running: FuturesUnordered::new(),
            cancellations: HashMap::new(),
            terminate: false,
            finishing: false,
            ended: None,
        }
    }

    /// Carries out the queued commands, and polls the handlers.
    pub(super) fn work(&mut self, now: Instant, context: &mut Context<'_>) -> DriverCommands {
        let mut driver = DriverCommands::default();
        let with_calls = self.takes_calls();
        let mut commands = std::mem::take(&mut self.commands);
        self.shared.take(with_calls, &mut commands);
        driver.stream = commands.stream.take();
        if std::mem::take(&mut commands.dispose) {
            self.end(Ended::Disposed);
        }
        self.terminate |= std::mem::take(&mut commands.terminate);
        self.finishing |= std::mem::take(&mut commands.finish);
        while self.rpc.has_room()
            && let Some((request, slot)) = self.backlog.pop_front()
        {
            self.call(now, request, slot);
        }
        for (request, slot) in commands.calls.drain(..) {
            match self.backlog.is_empty() {
                true => self.call(now, request, slot),
                false => self.backlog.push_back((request, slot)),
            }
        }
        for slot in commands.cancels.drain(..) {
            self.cancel(&slot);
        }
        self.commands = commands;
        if self.rpc.poll_timeout().is_some_and(|(at, _)| now >= at) {
            self.rpc.handle_timeout(now);
            self.events(context);
        }
        while let Poll::Ready(Some((id, outcome))) = self.running.poll_next_unpin(context) {
            self.reply(id, outcome);
        }
        // A reply may have made room for waiting requests.
        self.events(context);
        driver
    }

    /// Registers the task to be woken by a command. False if there is one already.
    pub(super) fn sleep(&self, context: &Context<'_>) -> bool {
        self.shared.sleep(self.takes_calls(), context)
    }

    /// Handles a message from the peer.
    pub(super) fn receive(&mut self, now: Instant, message: Bytes, context: &mut Context<'_>) {
        if handshake::is_terminate(&message) {
            return self.end(Ended::Terminated);
        }
        if self.handshake.is_done() {
            self.rpc.handle_message(now, message);
            return self.events(context);
        }
        let data = match self.handshake.handle(&message) {
            Step::Send(bytes) => {
                self.handshake_messages.push_back(bytes);
                return;
            }
            Step::Initialized { data, send } => {
                self.handshake_messages.push_back(send);
                Some(data)
            }
            Step::Nothing => None,
            Step::Unexpected { expected, len } => {
                return self.end(Ended::Failed(format!(
                    "the handshake expected {expected}, and a message of {len} bytes came"
                )));
            }
        };
        self.shared.status.send_modify(|status| {
            status.initialized = true;
            status.init_data = data;
        });
    }

    pub(super) fn wants_message(&self) -> bool {
        self.rpc.wants_message()
    }

    /// The next message to send.
    pub(super) fn next(&mut self) -> Option<Outgoing> {
        if let Some(bytes) = self.handshake_messages.pop_front() {
            return Some(Outgoing::Raw(bytes));
        }
        if !self.handshake.is_done() {
            return None;
        }
        if let Some(packet) = self.rpc.poll_transmit() {
            return Some(Outgoing::Rpc(packet));
        }
        let terminate = std::mem::take(&mut self.terminate);
        terminate.then_some(Outgoing::Raw(handshake::TERMINATE))
    }

    pub(super) fn has_outgoing(&self) -> bool {
        let rpc = self.terminate || self.rpc.queued_bytes() > 0;
        !self.handshake_messages.is_empty() || (self.handshake.is_done() && rpc)
    }

    /// Whether `finish` was called and everything is done and handed to the transport.
    pub(super) fn is_finished(&self) -> bool {
        self.finishing
            && self.calls.is_empty()
            && self.backlog.is_empty()
            && self.running.is_empty()
            && !self.has_outgoing()
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.rpc.poll_timeout().map(|(at, _)| at)
    }

    pub(super) fn ended(&self) -> Option<&Ended> {
        self.ended.as_ref()
    }

    /// Ends the session; all calls fail.
    pub(super) fn end(&mut self, ended: Ended) {
        if self.ended.is_some() {
            return;
        }
        self.rpc.dispose();
        self.handshake_messages.clear();
        self.running.clear();
        self.cancellations.clear();
        for (_, slot) in self.calls.drain() {
            slot.end(Err(error_of(&ended)));
        }
        for (_, slot) in self.backlog.drain(..) {
            slot.end(Err(error_of(&ended)));
        }
        self.shared.close(&ended);
        self.ended = Some(ended);
    }

    /// Fails a call that the transport could not send.
    pub(super) fn fail_call(&mut self, req: u32, why: String) {
        self.rpc.lost(req);
        if let Some(slot) = self.calls.remove(&req) {
            slot.end(Err(CallError::Ended(Ended::Failed(why))));
        }
    }

    /// Reports a new stream.
    pub(super) fn connected(&self, stream: u64) {
        self.shared.status.send_modify(|status| {
            status.connected = true;
            status.stream = stream;
        });
    }

    pub(super) fn disconnected(&self) {
        let status = &self.shared.status;
        status.send_if_modified(|status| std::mem::take(&mut status.connected));
    }

    fn takes_calls(&self) -> bool {
        self.backlog.is_empty() && self.rpc.has_room()
    }

    fn call(&mut self, now: Instant, request: Request, slot: Arc<Slot>) {
        if let Some(ended) = &self.ended {
            return slot.end(Err(error_of(ended)));
        }
        let mut state = slot.lock();
        if state.cancelled {
            drop(state);
            return slot.end(Err(CallError::Canceled));
        }
        match self.rpc.call(now, request) {
            Ok(req) => {
                state.req = Some(req);
                drop(state);
                self.calls.insert(req, slot);
            }
            Err(refused) => {
                drop(state);
                match refused.refused {
                    Refused::QueueFull { .. } | Refused::TooManyCalls { .. } => {
                        self.backlog.push_front((*refused.request, slot));
                    }
                    why => slot.end(Err(CallError::Refused(why))),
                }
            }
        }
    }

    fn cancel(&mut self, slot: &Arc<Slot>) {
        let (req, forgotten) = {
            let slot = slot.lock();
            (slot.req, slot.forgotten)
        };
        // A call that was not sent yet is dropped when its turn comes.
        let Some(req) = req else { return };
        // The number may belong to another call by now.
        if !self
            .calls
            .get(&req)
            .is_some_and(|own| Arc::ptr_eq(own, slot))
        {
            return;
        }
        self.rpc.cancel(req);
        if forgotten {
            self.rpc.forget(req);
            self.calls.remove(&req);
        }
    }

    fn events(&mut self, context: &mut Context<'_>) {
        while let Some(event) = self.rpc.poll_event() {
            match event {
                Event::Request { id, request } => self.begin(id, request, context),
                Event::Cancelled { id } => {
                    if let Some(cancellation) = self.cancellations.get(&id) {
                        cancellation.cancel();
                    }
                }
                Event::Reply { req, outcome } => {
                    if let Some(slot) = self.calls.remove(&req) {
                        slot.end(outcome.map_err(Into::into));
                    }
                }
                Event::Responsive => self.responsive(true),
                Event::Unresponsive => self.responsive(false),
                Event::Failed(error) => self.end(Ended::Failed(error.to_string())),
            }
        }
    }

    fn responsive(&self, responsive: bool) {
        let status = &self.shared.status;
        status.send_modify(|status| status.responsive = responsive);
    }

    /// Polls a handler once: replies if it is done, or acknowledges the request and keeps it running.
    fn begin(&mut self, id: RequestId, request: Request, context: &mut Context<'_>) {
        let handler = match self.actors.find(&request) {
            Ok(handler) => handler,
            Err(thrown) => return self.reply(id, Err(thrown)),
        };
        let cancellation = match request.cancellation {
            true => Cancellation::new(),
            false => Cancellation::default(),
        };
        let incoming = Incoming {
            cancellation: cancellation.clone(),
            shared: self.shared.clone(),
            request,
        };
        let cancellable = incoming.request.cancellation;
        let begun = catch_unwind(AssertUnwindSafe(|| handler(incoming)));
        let Ok(future) = begun else {
            return self.reply(id, Err(panicked()));
        };
        let mut running_handler = RunningHandler { id, future };
        match Pin::new(&mut running_handler).poll(context) {
            Poll::Ready((id, outcome)) => self.reply(id, outcome),
            Poll::Pending => {
                self.rpc.acknowledge(id);
                if cancellable {
                    self.cancellations.insert(id, cancellation);
                }
                self.running.push(running_handler);
            }
        }
    }

    fn reply(&mut self, id: RequestId, outcome: Result<Returned, Thrown>) {
        if !self.cancellations.is_empty() {
            self.cancellations.remove(&id);
        }
        let uris = self.shared.uris.as_deref();
        let reply = match outcome.and_then(|returned| returned.into_reply(uris)) {
            Ok(reply) => reply,
            Err(thrown) => thrown_reply(&thrown),
        };
        // The machine has replaced a reply that cannot be sent by an error reply.
        if let Err(refused) = self.rpc.reply(id, reply) {
            tracing::debug!(req = id.req(), %refused, "a reply cannot be sent; the peer gets an error instead");
        }
    }
}

impl Drop for Engine {
    /// The task may be dropped with its runtime, or panic.
    fn drop(&mut self) {
        self.end(Ended::Disposed);
    }
}

fn thrown_reply(thrown: &Thrown) -> Reply {
    Reply::write_err(thrown).unwrap_or_else(|why| {
        let error = actor::error(format!("what was thrown cannot be sent: {why}"));
        Reply::write_err(&error).unwrap_or(Reply::ErrEmpty)
    })
}

fn panicked() -> Thrown {
    actor::error("the handler panicked".to_owned())
}

/// A handler that runs.
struct RunningHandler {
    id: RequestId,
    future: actor::Running,
}

impl Future for RunningHandler {
    type Output = (RequestId, Result<Returned, Thrown>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let future = &mut self.future;
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context)));
        match polled {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(outcome)) => Poll::Ready((self.id, outcome)),
            Err(_) => Poll::Ready((self.id, Err(panicked()))),
        }
    }
}

impl Payload for Outgoing {
    fn len(&self) -> usize {
        match self {
            Self::Raw(bytes) => bytes.len(),
            Self::Rpc(packet) => packet.len(),
        }
    }

    fn write(&self, out: &mut impl Out) {
        match self {
            Self::Raw(bytes) => out.put_shared(bytes),
            Self::Rpc(packet) => packet.write(out),
        }
    }
}

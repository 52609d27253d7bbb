//! What an endpoint does whatever carries it: wishes in, handlers run, replies out.

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
use super::inbox::{Shared, Wishes, error_of};
use super::status::Ended;
use super::{Options, Stream};
use crate::machine::handshake::{self, Handshake, Step};
use crate::machine::ipc::Payload;
use crate::machine::rpc::{Event, OwnNumbersState, Packet, Refused, RequestId, Rpc};

/// What goes out: words of the handshake, then RPC.
pub(super) enum Outgoing {
    Word(Bytes),
    Rpc(Packet),
}

pub(super) struct Engine {
    shared: Arc<Shared>,
    rpc: Rpc,
    actors: Actors,
    handshake: Handshake,
    words: VecDeque<Bytes>,
    wishes: Wishes,
    /// Calls that the machine had no room for.
    backlog: VecDeque<(Request, Arc<Slot>)>,
    calls: HashMap<u32, Arc<Slot>, OwnNumbersState>,
    running: FuturesUnordered<Handling>,
    cancellations: HashMap<RequestId, Cancellation>,
    terminate: bool,
    finishing: bool,
    ended: Option<Ended>,
}

/// What the carrier has to do about wishes.
#[derive(Default)]
pub(super) struct Asked {
    pub(super) stream: Option<(u64, Box<dyn Stream>)>,
}

impl Engine {
    pub(super) fn new(shared: Arc<Shared>, options: Options) -> Self {
        let (handshake, first) = Handshake::new(options.handshake);
        Self {
            shared,
            rpc: Rpc::new(options.rpc),
            actors: options.actors,
            handshake,
            words: first.into_iter().collect(),
            wishes: Wishes::default(),
            backlog: VecDeque::new(),
            calls: HashMap::default(),
            running: FuturesUnordered::new(),
            cancellations: HashMap::new(),
            terminate: false,
            finishing: false,
            ended: None,
        }
    }

    /// Does what was wished meanwhile, and lets handlers go on.
    pub(super) fn work(&mut self, now: Instant, context: &mut Context<'_>) -> Asked {
        let mut asked = Asked::default();
        let with_calls = self.takes_calls();
        let mut wishes = std::mem::take(&mut self.wishes);
        self.shared.take(with_calls, &mut wishes);
        asked.stream = wishes.stream.take();
        if std::mem::take(&mut wishes.dispose) {
            self.end(Ended::Disposed);
        }
        self.terminate |= std::mem::take(&mut wishes.terminate);
        self.finishing |= std::mem::take(&mut wishes.finish);
        while self.rpc.has_room()
            && let Some((request, slot)) = self.backlog.pop_front()
        {
            self.call(now, request, slot);
        }
        for (request, slot) in wishes.calls.drain(..) {
            match self.backlog.is_empty() {
                true => self.call(now, request, slot),
                false => self.backlog.push_back((request, slot)),
            }
        }
        for slot in wishes.cancels.drain(..) {
            self.cancel(&slot);
        }
        self.wishes = wishes;
        if self.rpc.poll_timeout().is_some_and(|(at, _)| now >= at) {
            self.rpc.handle_timeout(now);
            self.events(context);
        }
        while let Poll::Ready(Some((id, outcome))) = self.running.poll_next_unpin(context) {
            self.reply(id, outcome);
        }
        // A reply may have made room for requests that were held.
        self.events(context);
        asked
    }

    /// Sleeps until something is wished or a handler goes on. False if there is work already.
    pub(super) fn sleep(&self, context: &Context<'_>) -> bool {
        self.shared.sleep(self.takes_calls(), context)
    }

    /// Takes a message of the peer's.
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
                self.words.push_back(bytes);
                return;
            }
            Step::Initialized { data, send } => {
                self.words.push_back(send);
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
        if let Some(word) = self.words.pop_front() {
            return Some(Outgoing::Word(word));
        }
        if !self.handshake.is_done() {
            return None;
        }
        if let Some(packet) = self.rpc.poll_transmit() {
            return Some(Outgoing::Rpc(packet));
        }
        let terminate = std::mem::take(&mut self.terminate);
        terminate.then_some(Outgoing::Word(handshake::TERMINATE))
    }

    pub(super) fn has_outgoing(&self) -> bool {
        let rpc = self.terminate || self.rpc.queued_bytes() > 0;
        !self.words.is_empty() || (self.handshake.is_done() && rpc)
    }

    /// Whether it is to end, and what was left is done and handed to the carrier.
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

    /// Ends the session: nobody is left waiting.
    pub(super) fn end(&mut self, ended: Ended) {
        if self.ended.is_some() {
            return;
        }
        self.rpc.dispose();
        self.words.clear();
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

    /// A call of ours could not be carried.
    pub(super) fn fail_call(&mut self, req: u32, why: String) {
        self.rpc.lost(req);
        if let Some(slot) = self.calls.remove(&req) {
            slot.end(Err(CallError::Ended(Ended::Failed(why))));
        }
    }

    /// There is a stream again.
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
        // One that was not sent yet is dropped when its turn comes.
        let Some(req) = req else { return };
        // The number may serve another call by now.
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

    /// Runs a handler up to its first wait, acknowledges, and replies if it is done already.
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
        let mut handling = Handling { id, future };
        match Pin::new(&mut handling).poll(context) {
            Poll::Ready((id, outcome)) => self.reply(id, outcome),
            Poll::Pending => {
                self.rpc.acknowledge(id);
                if cancellable {
                    self.cancellations.insert(id, cancellation);
                }
                self.running.push(handling);
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
        // A reply that cannot be sent was replaced by an error that says so.
        if let Err(refused) = self.rpc.reply(id, reply) {
            tracing::debug!(req = id.req(), %refused, "a reply was not sent as it is");
        }
    }
}

impl Drop for Engine {
    /// The task may be dropped with its runtime, or die of a panic.
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
struct Handling {
    id: RequestId,
    future: actor::Running,
}

impl Future for Handling {
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
            Self::Word(word) => word.len(),
            Self::Rpc(packet) => packet.len(),
        }
    }

    fn write(&self, out: &mut impl Out) {
        match self {
            Self::Word(word) => out.put_shared(word),
            Self::Rpc(packet) => packet.write(out),
        }
    }
}

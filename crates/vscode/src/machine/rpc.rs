//! The RPC as a pure state machine: calls, requests, acknowledgements, cancellation and timeouts.
//!
//! No socket, no clock, no task: messages go in by [`Rpc::handle_message`] and out by
//! [`Rpc::poll_transmit`], time is an argument, and [`Rpc::poll_event`] returns what happened.
//! [`Config`] bounds the memory that the peer can make it use.

mod calls;
mod config;
mod event;
mod requests;
mod responsive;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Instant;

use breakbulk_message::vscode::{
    Body, DecodeError, EncodeError, Header, MessageType, Out, Reply, Request, RpcMessage,
    SerializedError, decode, encode_to, encoded_len, request_len,
};
use bytes::Bytes;

pub use config::Config;
pub use event::{CallFailed, Event, Ignored, Refused, RefusedCall, RequestId, RpcError};

#[cfg(feature = "net")]
pub(crate) use calls::CallIdHashBuilder;

use calls::Calls;
use requests::Requests;
use responsive::Responsive;

/// Bytes charged for a queued message in addition to its own.
const MESSAGE_CHARGE: usize = 128;

/// Messages up to this size are copied out of their read buffer, so that they do not keep it alive.
const SMALL: usize = 4 << 10;

/// How many running requests may keep their read buffers alive.
const SHARING_MAX: usize = 64;

/// One side of an RPC session.
///
/// ```
/// use std::time::Instant;
/// use breakbulk_message::vscode::{Args, Reply, Request, RpcId};
/// use breakbulk_vscode::machine::rpc::{Config, Event, Rpc};
///
/// let now = Instant::now();
/// let (mut caller, mut callee) = (Rpc::new(Config::default()), Rpc::new(Config::default()));
/// let request = Request {
///     rpc_id: RpcId::new(2)?,
///     method: "$add".into(),
///     args: Args::Json("[4,1]".into()),
///     cancellation: false,
/// };
/// let req = caller.call(now, request)?;
/// callee.handle_message(now, caller.poll_transmit().unwrap().to_bytes());
/// let Some(Event::Request { id, .. }) = callee.poll_event() else { panic!() };
/// callee.reply(id, Reply::OkJson("5".into()))?;
/// while let Some(packet) = callee.poll_transmit() {
///     caller.handle_message(now, packet.to_bytes());
/// }
/// let outcome = Ok(Reply::OkJson("5".into()));
/// assert_eq!(caller.poll_event(), Some(Event::Reply { req, outcome }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Rpc {
    config: Config,
    calls: Calls,
    requests: Requests,
    responsive: Responsive,
    outgoing: VecDeque<Packet>,
    queued_bytes: usize,
    events: VecDeque<Event>,
    /// Requests that wait until the outgoing queue has room, with the cancellations behind them.
    held: VecDeque<Event>,
    ignored: Ignored,
    disposed: bool,
}

/// An outgoing message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    message: RpcMessage,
    len: usize,
}

impl Packet {
    fn new(message: RpcMessage) -> Result<Self, EncodeError> {
        let len = encoded_len(&message)?;
        Ok(Self { message, len })
    }

    /// Its size when it is written.
    pub fn len(&self) -> usize {
        self.len
    }

    /// No message is empty.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The message.
    pub fn message(&self) -> &RpcMessage {
        &self.message
    }

    /// Appends its bytes; `out` may keep buffers without a copy.
    pub fn write(&self, out: &mut impl Out) {
        // Its size was computed when it was made, so encoding cannot fail.
        let _ = encode_to(&self.message, out);
    }

    /// Its bytes as one slice.
    pub fn to_bytes(&self) -> Bytes {
        let mut out = Vec::with_capacity(self.len);
        self.write(&mut out);
        out.into()
    }
}

impl Rpc {
    /// A new session.
    pub fn new(config: Config) -> Self {
        Self {
            calls: Calls::default(),
            requests: Requests::default(),
            responsive: Responsive::new(config.unresponsive_after, config.check_every),
            outgoing: VecDeque::new(),
            queued_bytes: 0,
            events: VecDeque::new(),
            held: VecDeque::new(),
            ignored: Ignored::default(),
            disposed: false,
            config,
        }
    }

    /// Calls a method of the peer; returns the number that its reply will carry.
    pub fn call(&mut self, now: Instant, request: Request) -> Result<u32, RefusedCall> {
        let refused = |refused, request| {
            Err(RefusedCall {
                refused,
                request: Box::new(request),
            })
        };
        if self.disposed {
            return refused(Refused::Disposed, request);
        }
        if self.calls.len() >= self.config.pending_calls {
            let limit = self.config.pending_calls;
            return refused(Refused::TooManyCalls { limit }, request);
        }
        let limit = self.config.queued_bytes;
        if self.queued_bytes >= limit {
            let queued = self.queued_bytes;
            return refused(Refused::QueueFull { queued, limit }, request);
        }
        let limit = self.config.sent_message;
        // A call that cannot be encoded uses no number.
        let len = match request_len(&request) {
            Ok(len) if len <= limit => len,
            Ok(len) => return refused(Refused::TooLarge { len, limit }, request),
            Err(error) => return refused(Refused::Encode(error), request),
        };
        let req = self.calls.begin(request.cancellation);
        self.responsive.sent(now);
        let body = Body::Request(request);
        let message = RpcMessage { req, body };
        self.push(Packet { message, len });
        Ok(req)
    }

    /// Sends a cancellation of a call. The peer still replies. False if the call is over, was made
    /// without cancellation or was cancelled before.
    pub fn cancel(&mut self, req: u32) -> bool {
        let cancel = !self.disposed && self.calls.cancel(req);
        if cancel {
            self.send(req, Body::Cancel);
        }
        cancel
    }

    /// Drops the reply of a call when it comes; its number stays in use until then.
    pub fn forget(&mut self, req: u32) {
        self.calls.forget(req);
    }

    /// Ends a call that the transport could not send: no acknowledgement and no reply will come.
    pub fn lost(&mut self, req: u32) {
        if self.calls.end(req) != calls::Ended::Unknown {
            self.responsive.lost();
        }
    }

    /// Sends the acknowledgement that a request's handler runs, once. [`reply`](Self::reply) does it if
    /// it was not done.
    pub fn acknowledge(&mut self, id: RequestId) {
        if !self.disposed
            && let Some(req) = self.requests.acknowledge(id)
        {
            self.send(req, Body::Acknowledged);
        }
    }

    /// Replies to a request. If the reply cannot be encoded or is too large, the peer gets an error
    /// instead, which is returned here too. After [`dispose`](Self::dispose) nothing is sent.
    pub fn reply(&mut self, id: RequestId, reply: Reply) -> Result<(), Refused> {
        if self.disposed {
            return Err(Refused::Disposed);
        }
        self.acknowledge(id);
        let Some(req) = self.requests.end(id) else {
            return Err(Refused::NotRunning);
        };
        let body = Body::Reply(reply);
        let limit = self.config.sent_message;
        let refused = match Packet::new(RpcMessage { req, body }) {
            Ok(packet) if packet.len <= limit => {
                self.push_reply(packet);
                return Ok(());
            }
            Ok(packet) => Refused::TooLarge {
                len: packet.len,
                limit,
            },
            Err(error) => Refused::Encode(error),
        };
        self.send_error(req, &format!("the result cannot be sent: {refused}"));
        Err(refused)
    }

    /// Handles a message from the peer.
    pub fn handle_message(&mut self, now: Instant, message: Bytes) {
        if self.disposed {
            return;
        }
        match Header::read(&message) {
            // The most frequent messages; nothing of them is kept.
            Some(Header {
                message_type: MessageType::Acknowledged,
                ..
            }) => self.handle_acknowledged(now),
            Some(Header {
                message_type: MessageType::Cancel,
                req,
            }) => self.handle_cancel(req),
            Some(Header { message_type, req })
                if message_type.is_reply() && !self.calls.is_pending(req) =>
            {
                self.ignored.replies += 1;
            }
            header => {
                let message = match message.len() {
                    ..=SMALL if !self.may_share(header) => Bytes::copy_from_slice(&message),
                    _ => message,
                };
                self.handle_body(message);
            }
        }
    }

    /// Checks whether the peer is responsive, if that is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if !self.disposed && self.responsive.check(now) {
            self.events.push_back(Event::Unresponsive);
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), and why.
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let due = self.responsive.due()?;
        (!self.disposed).then_some((due, "the check whether the peer is responsive"))
    }

    /// The next message to send.
    pub fn poll_transmit(&mut self) -> Option<Packet> {
        let packet = self.outgoing.pop_front()?;
        self.queued_bytes -= packet.len + MESSAGE_CHARGE;
        Some(packet)
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        match self.queued_bytes < self.config.queued_bytes {
            true => self.held.pop_front(),
            false => None,
        }
    }

    /// Whether to go on reading. It stops while the peer's running requests are at their limit, unless
    /// calls wait for replies, which the handlers may need to finish.
    pub fn wants_message(&self) -> bool {
        self.requests.has_room(&self.config) || !self.calls.is_empty()
    }

    /// Whether another call would be accepted now.
    pub fn has_room(&self) -> bool {
        !self.disposed
            && self.calls.len() < self.config.pending_calls
            && self.queued_bytes < self.config.queued_bytes
    }

    /// Ends the session: pending calls and later ones are cancelled, and nothing more is sent.
    pub fn dispose(&mut self) {
        if std::mem::replace(&mut self.disposed, true) {
            return;
        }
        self.outgoing.clear();
        self.queued_bytes = 0;
        self.held.clear();
        self.events.retain(|event| !event.is_of_request());
        self.requests.clear();
        for req in self.calls.end_all() {
            let outcome = Err(CallFailed::Canceled);
            self.events.push_back(Event::Reply { req, outcome });
        }
    }

    /// Whether the session was ended.
    pub fn is_disposed(&self) -> bool {
        self.disposed
    }

    /// Bytes queued for sending, with a charge for each message.
    pub fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Calls without a reply, forgotten ones too.
    pub fn pending_calls(&self) -> usize {
        self.calls.len()
    }

    /// Requests without a reply.
    pub fn running_requests(&self) -> usize {
        self.requests.len()
    }

    /// Requests sent and not yet acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.responsive.unacknowledged()
    }

    /// Counts of messages that were ignored.
    pub fn ignored(&self) -> Ignored {
        self.ignored
    }

    /// Sets the last request number, for tests of the wrap-around.
    #[doc(hidden)]
    pub fn set_last_id(&mut self, last: u32) {
        self.calls.set_last_id(last);
    }

    /// Whether a small message may keep its read buffer alive: a JSON request mostly ends before the
    /// next read, and only a few may.
    fn may_share(&self, header: Option<Header>) -> bool {
        let json = header.is_some_and(|header| {
            header.message_type <= MessageType::RequestJsonArgsWithCancellation
        });
        json && self.requests.len() < SHARING_MAX
    }

    fn handle_acknowledged(&mut self, now: Instant) {
        match self.responsive.acknowledged(now) {
            responsive::Acknowledged::Surplus => self.ignored.acknowledgements += 1,
            responsive::Acknowledged::Expected => {}
            responsive::Acknowledged::ResponsiveAgain => self.events.push_back(Event::Responsive),
        }
    }

    fn handle_cancel(&mut self, req: u32) {
        let Some(id) = self.requests.cancel(req) else {
            self.ignored.cancels += 1;
            return;
        };
        // A cancellation goes into the queue that has its request, after the request.
        let queue = match self.held.is_empty() {
            true => &mut self.events,
            false => &mut self.held,
        };
        queue.push_back(Event::Cancelled { id });
    }

    fn handle_body(&mut self, message: Bytes) {
        let len = message.len();
        match decode(message, &self.config.received) {
            Ok(RpcMessage { req, body }) => match body {
                Body::Request(request) => self.handle_request(req, request, len),
                Body::Reply(reply) => self.end_call(req, Ok(reply)),
                // Handled by their headers, before decoding.
                Body::Acknowledged | Body::Cancel => {}
            },
            Err(error) => self.handle_undecodable(error),
        }
    }

    fn handle_request(&mut self, req: u32, request: Request, len: usize) {
        if !self.requests.has_room(&self.config) {
            let Config {
                running,
                running_bytes,
                ..
            } = self.config;
            self.send(req, Body::Acknowledged);
            self.send_error(
                req,
                &format!(
                    "busy: over the limit of {running} requests or {running_bytes} bytes of them \
                     at once; wait for replies"
                ),
            );
            return;
        }
        let id = self.requests.begin(req, len, request.cancellation);
        let wait = !self.held.is_empty() || self.queued_bytes >= self.config.queued_bytes;
        let queue = match wait {
            true => &mut self.held,
            false => &mut self.events,
        };
        queue.push_back(Event::Request { id, request });
    }

    /// Handles a message that cannot be decoded: an invalid request gets an error reply, and an invalid
    /// reply fails its call.
    fn handle_undecodable(&mut self, error: DecodeError) {
        match error.header {
            Some(header) if header.message_type.is_request() => {
                self.send(header.req, Body::Acknowledged);
                self.send_error(header.req, &format!("the request cannot be read: {error}"));
            }
            Some(header) if header.message_type.is_reply() => {
                self.end_call(header.req, Err(CallFailed::Undecodable(error)));
            }
            _ => self.ignored.messages += 1,
        }
    }

    fn end_call(&mut self, req: u32, outcome: Result<Reply, CallFailed>) {
        match self.calls.end(req) {
            calls::Ended::Wanted => self.events.push_back(Event::Reply { req, outcome }),
            calls::Ended::Forgotten => {}
            calls::Ended::Unknown => self.ignored.replies += 1,
        }
    }

    fn send_error(&mut self, req: u32, message: &str) {
        let error = SerializedError::new("Error", message);
        let reply = Reply::write_err(&error.into()).unwrap_or(Reply::ErrEmpty);
        if let Ok(packet) = Packet::new(RpcMessage {
            req,
            body: Body::Reply(reply),
        }) {
            self.push_reply(packet);
        }
    }

    /// Sends a message that is only a header.
    fn send(&mut self, req: u32, body: Body) {
        let message = RpcMessage { req, body };
        let len = Header::LEN;
        self.push_reply(Packet { message, len });
    }

    fn push(&mut self, packet: Packet) {
        // The message before it may have ended the session.
        if self.disposed {
            return;
        }
        self.queued_bytes += packet.len + MESSAGE_CHARGE;
        self.outgoing.push_back(packet);
    }

    /// Queues a message that the peer caused. If the peer does not read and too much is queued, the
    /// session ends.
    fn push_reply(&mut self, packet: Packet) {
        self.push(packet);
        let (queued, limit) = (self.queued_bytes, self.config.unread_bytes);
        if queued > limit && !self.disposed {
            self.dispose();
            self.events
                .push_back(Event::Failed(RpcError::NotRead { queued, limit }));
        }
    }
}

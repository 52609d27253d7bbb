//! Messages of a client: read by the byte ranges that the wire found, answered at once or handed to
//! the application.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use breakbulk_link::{Message, MessageKind, Shape};
use breakbulk_message::jsonrpc::{is_batch, string};
use bytes::Bytes;
use serde_json::value::RawValue;

use super::answers::Doing;
use super::config::close;
use super::dispatch::{Dispatched, Dispatching};
use super::error::RpcError;
use super::introduce::Introduction;
use super::types::{Call, Channels, ClientId, Output, RequestId, When, Work};
use super::{Asked, Host, reply};

/// The most waiting messages of a client that are handled in one call: each may be answered, and nothing
/// is charged for an answer before it is on the client's link.
const TURN: usize = 64;

impl Host {
    /// A message of a client: it is handled now, or waits for its turn.
    pub(super) fn receive(&mut self, id: ClientId, message: Message, app: &impl Channels) {
        let is_free = self.is_free(id);
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        if !client.waiting.is_empty() || !is_free {
            client.waiting.push_back(message);
        } else if let Some(later) = self.message(id, message, app) {
            self.wait_for_room(id, later);
        }
    }

    /// Handles a client's waiting messages until one of them has to wait again. After [`TURN`] of them
    /// the rest waits until what they caused is done.
    pub(super) fn advance(&mut self, id: ClientId, app: &impl Channels) {
        for _ in 0..TURN {
            if self.is_free(id)
                && let Some(client) = self.clients.get_mut(&id)
                && let Some(message) = client.waiting.pop_front()
            {
                if let Some(later) = self.message(id, message, app) {
                    return self.wait_for_room(id, later);
                }
            } else {
                return;
            }
        }
        let waiting = self.clients.get(&id).map(|client| &client.waiting);
        if waiting.is_some_and(|waiting| !waiting.is_empty()) && self.is_free(id) {
            self.begin(id, Doing::Pause);
            self.work(id, Work::Continue);
        }
    }

    /// What the last messages of a client caused is done: its next ones are handled.
    pub fn handle_continue(&mut self, client: ClientId, app: &impl Channels) {
        let Some(client_state) = self.clients.get_mut(&client) else {
            return;
        };
        if matches!(client_state.doing, Some(Doing::Pause)) {
            client_state.doing = None;
            self.advance(client, app);
        }
    }

    fn wait_for_room(&mut self, id: ClientId, action: Message) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.waiting.push_front(action);
            self.waiting_for_room.insert(id);
        }
    }

    /// Whether nothing keeps a client's next message waiting.
    fn is_free(&self, id: ClientId) -> bool {
        let most = self.config.limits.requests.max(1);
        self.clients.get(&id).is_some_and(|client| {
            client.doing.is_none()
                && client.asked.len() < most
                && (self.closing.is_empty() || !self.closing.contains_key(&id))
        })
    }

    /// The application has decided on an action.
    pub fn handle_dispatched(
        &mut self,
        client: ClientId,
        dispatched: &Dispatched,
        app: &impl Channels,
    ) {
        let doing = self.clients.get_mut(&client).and_then(|it| it.doing.take());
        let Some(Doing::Dispatch(request)) = doing else {
            return;
        };
        match dispatched.0 {
            Ok(()) => {
                if let Some(id) = request {
                    self.answer(client, "dispatchAction", reply::result(&id, "null"));
                }
            }
            Err((code, reason)) => self.close(client, code, reason, When::Now),
        }
        self.advance(client, app);
    }

    /// Handles one message. Returns it if it is an action for which the log has no room.
    fn message(
        &mut self,
        client: ClientId,
        message: Message,
        app: &impl Channels,
    ) -> Option<Message> {
        // The wire has checked that it is UTF-8.
        let text = std::str::from_utf8(&message.bytes).ok()?;
        let (method, id) = self.read(client, text, &message.shape)?;
        let who = self.clients.get(&client)?.who.as_ref();
        let Some(client_id) = who.map(|who| who.client_id.clone()) else {
            let (method, id) = (method.into_owned(), id.map(ToOwned::to_owned));
            self.before_handshake(client, &method, id, message);
            return None;
        };
        let params = message.shape.body.clone();
        let params = params.map_or("null", |range| &text[range]);
        match (&*method, id) {
            ("initialize" | "reconnect", Some(id)) => {
                let text = "this connection is initialized already; open another one";
                let error = RpcError::new(RpcError::INVALID_REQUEST, text);
                self.refuse(client, Some(id), &method, &error);
            }
            ("subscribe", Some(id)) => self.subscribe(client, &client_id, id, params, app),
            ("ping", Some(id)) => self.answer(client, &method, reply::result(id, "null")),
            ("unsubscribe", id) => {
                if let Some(channel) = reply::channel(params) {
                    self.unsubscribe(client, &channel);
                }
                if let Some(id) = id {
                    self.answer(client, &method, reply::result(id, "null"));
                }
            }
            ("dispatchAction", _) if !app.has_room(params.len()) => return Some(message),
            ("dispatchAction", id) => {
                let id = id.map(ToOwned::to_owned);
                self.begin_dispatch(client, client_id, id, message);
            }
            (_, Some(id)) => {
                let (id, method) = (id.to_owned(), method.into_owned());
                self.begin_call(client, client_id, Asked { id, method }, message);
            }
            (_, None) => self.ignore_notification(client),
        }
        None
    }

    /// The method of a request or notification, and the id where it is a request; anything else is
    /// refused or ignored here.
    fn read<'a>(
        &mut self,
        client: ClientId,
        text: &'a str,
        shape: &Shape,
    ) -> Option<(Cow<'a, str>, Option<&'a RawValue>)> {
        let raw = |range: Range<usize>| -> Option<&'a RawValue> {
            serde_json::from_str(text.get(range)?).ok()
        };
        let id = shape.id.clone().and_then(raw);
        let method = shape.method.clone().and_then(|range| {
            let quoted = range.start.checked_sub(1)?..range.end + 1;
            string(raw(quoted)?)
        });
        match (shape.kind, method) {
            (MessageKind::Request, Some(method)) => Some((method, id)),
            (MessageKind::Notification, Some(method)) => Some((method, None)),
            (MessageKind::Result | MessageKind::Error, _) => {
                tracing::debug!(client = ?self.name(client), "ignored a response: the host sends no requests");
                None
            }
            _ => {
                self.unreadable(client, text, id);
                None
            }
        }
    }

    /// Before its handshake a client may send `initialize` or `reconnect`, and nothing else.
    fn before_handshake(
        &mut self,
        client: ClientId,
        method: &str,
        id: Option<Box<RawValue>>,
        message: Message,
    ) {
        match (method, id) {
            ("initialize" | "reconnect", Some(id)) => {
                let first = method == "initialize";
                self.begin(client, Doing::Introduce(id, first));
                let params = message.shape.body.clone();
                let (bytes, _charge) = message.into_parts();
                let introduction = Introduction {
                    first,
                    bytes,
                    params,
                    _charge,
                };
                self.work(client, Work::Introduce(introduction));
            }
            (_, Some(id)) => {
                let text = "initialize or reconnect comes first";
                let error = RpcError::new(RpcError::INVALID_REQUEST, text);
                self.refuse(client, Some(&id), method, &error);
            }
            ("dispatchAction", None) => {
                let reason = "dispatchAction before initialize or reconnect";
                self.close(client, close::PROTOCOL, reason, When::Now);
            }
            (_, None) => self.ignore_notification(client),
        }
    }

    fn ignore_notification(&self, client: ClientId) {
        tracing::debug!(client = ?self.name(client), "ignored a notification of an unknown method");
    }

    /// Lets the application decide on an action of a client.
    fn begin_dispatch(
        &mut self,
        client: ClientId,
        client_id: Arc<str>,
        id: Option<Box<RawValue>>,
        message: Message,
    ) {
        self.begin(client, Doing::Dispatch(id));
        let params = message.shape.body.clone().unwrap_or_default();
        let (bytes, _charge) = message.into_parts();
        let dispatching = Dispatching {
            client_id,
            bytes,
            params,
            _charge,
        };
        self.work(client, Work::Dispatch(dispatching));
    }

    /// Lets the application answer a request.
    fn begin_call(
        &mut self,
        client: ClientId,
        client_id: Arc<str>,
        asked: Asked,
        message: Message,
    ) {
        self.next_request += 1;
        let request = RequestId(self.next_request);
        let method = asked.method.clone();
        if let Some(client) = self.clients.get_mut(&client) {
            client.asked.insert(request, asked);
        }
        let body = message.shape.body.clone();
        let (bytes, _charge) = message.into_parts();
        let call = Call {
            client_id,
            method,
            params: body.map_or(Bytes::from_static(b"null"), |body| bytes.slice(body)),
            _charge,
        };
        self.work(client, Work::Call(request, call));
    }

    pub(super) fn begin(&mut self, client: ClientId, doing: Doing) {
        if let Some(client) = self.clients.get_mut(&client) {
            client.doing = Some(doing);
        }
    }

    pub(super) fn work(&mut self, client: ClientId, work: Work) {
        self.out.push_back(Output::Work { client, work });
    }

    /// Answers with an error what is no JSON-RPC message, or is a batch.
    fn unreadable(&mut self, client: ClientId, text: &str, id: Option<&RawValue>) {
        let error = if is_batch(text.as_bytes()) {
            let text = "batches are not taken; send their members one by one";
            RpcError::new(RpcError::INVALID_REQUEST, text)
        } else if serde_json::from_str::<&RawValue>(text).is_err() {
            RpcError::new(RpcError::PARSE_ERROR, "not valid JSON")
        } else {
            RpcError::new(RpcError::INVALID_REQUEST, "not a JSON-RPC 2.0 message")
        };
        // An id that is neither a string nor a number nor null is not repeated.
        let id = id.filter(|id| !id.get().starts_with(['{', '[', 't', 'f']));
        self.refuse(client, id, "", &error);
    }
}

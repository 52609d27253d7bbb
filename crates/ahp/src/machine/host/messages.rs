//! What a client says: read by the byte ranges that the wire found, routed, and answered.

use breakbulk_link::{Message, MessageKind};
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

impl Host {
    /// A client said something: it is handled now, or waits for its turn.
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

    /// Handles what waits, as far as nothing stands in the way.
    pub(super) fn advance(&mut self, id: ClientId, app: &impl Channels) {
        while self.is_free(id)
            && let Some(client) = self.clients.get_mut(&id)
            && let Some(message) = client.waiting.pop_front()
        {
            if let Some(later) = self.message(id, message, app) {
                return self.wait_for_room(id, later);
            }
        }
    }

    fn wait_for_room(&mut self, id: ClientId, action: Message) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.waiting.push_front(action);
            self.crowded.insert(id);
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

    /// One message. It comes back if it is an action, and the log has no room for it.
    fn message(
        &mut self,
        client: ClientId,
        message: Message,
        app: &impl Channels,
    ) -> Option<Message> {
        let shape = &message.shape;
        // The wire has read it as text already.
        let text = std::str::from_utf8(&message.bytes).ok()?;
        let raw = |range: std::ops::Range<usize>| -> Option<&RawValue> {
            serde_json::from_str(text.get(range)?).ok()
        };
        let id = shape.id.clone().and_then(raw);
        let method = shape.method.clone().and_then(|range| {
            let quoted = range.start.checked_sub(1)?..range.end + 1;
            string(raw(quoted)?)
        });
        let known = self.clients.get(&client)?.who.as_ref();
        let known = known.map(|who| who.client_id.clone());
        let is_request = shape.kind == MessageKind::Request;
        let method = match (shape.kind, method) {
            (MessageKind::Request | MessageKind::Notification, Some(method)) => method,
            (MessageKind::Result | MessageKind::Error, _) => {
                tracing::debug!(client = ?self.name(client), "a client answered what nobody asked");
                return None;
            }
            _ => {
                self.unreadable(client, text, id);
                return None;
            }
        };
        // Only a request is answered.
        let id = id.filter(|_| is_request);
        let params = shape.body.clone().map_or("null", |range| &text[range]);
        match (&*method, known, id) {
            ("initialize" | "reconnect", None, Some(id)) => {
                let (id, first) = (id.to_owned(), method == "initialize");
                self.begin(client, Doing::Introduce(id, first));
                let params = shape.body.clone();
                let (bytes, _charge) = message.into_parts();
                let introduction = Introduction {
                    first,
                    bytes,
                    params,
                    _charge,
                };
                self.work(client, Work::Introduce(introduction));
            }
            ("initialize" | "reconnect", Some(_), Some(id)) => {
                let text = "this connection is initialized already; open another one";
                let error = RpcError::new(RpcError::INVALID_REQUEST, text);
                self.refuse(client, Some(id), &method, &error);
            }
            (_, None, Some(id)) => {
                let text = "initialize or reconnect comes first";
                let error = RpcError::new(RpcError::INVALID_REQUEST, text);
                self.refuse(client, Some(id), &method, &error);
            }
            ("subscribe", Some(client_id), Some(id)) => {
                self.subscribe(client, &client_id, id, params, app);
            }
            ("ping", Some(_), Some(id)) => {
                self.answer(client, &method, reply::result(id, "null"));
            }
            ("unsubscribe", Some(_), id) => {
                if let Some(channel) = reply::channel(params) {
                    self.unsubscribe(client, &channel);
                }
                if let Some(id) = id {
                    self.answer(client, &method, reply::result(id, "null"));
                }
            }
            ("dispatchAction", None, None) => {
                let reason = "dispatchAction before initialize or reconnect";
                self.close(client, close::PROTOCOL, reason, When::Now);
            }
            ("dispatchAction", Some(client_id), id) => {
                if !app.has_room(params.len()) {
                    return Some(message);
                }
                self.begin(client, Doing::Dispatch(id.map(ToOwned::to_owned)));
                let params = shape.body.clone().unwrap_or_default();
                let (bytes, _charge) = message.into_parts();
                let dispatching = Dispatching {
                    client_id,
                    bytes,
                    params,
                    _charge,
                };
                self.work(client, Work::Dispatch(dispatching));
            }
            (_, Some(client_id), Some(id)) => {
                let (id, method) = (id.to_owned(), method.into_owned());
                self.next_request += 1;
                let request = RequestId(self.next_request);
                let asked = Asked {
                    id,
                    method: method.clone(),
                };
                self.clients.get_mut(&client)?.asked.insert(request, asked);
                let body = shape.body.clone();
                let (bytes, _charge) = message.into_parts();
                let call = Call {
                    client_id,
                    method,
                    params: body.map_or(Bytes::from_static(b"null"), |body| bytes.slice(body)),
                    _charge,
                };
                self.work(client, Work::Call(request, call));
            }
            _ => {
                tracing::debug!(client = ?self.name(client), "a notification of an unknown method");
            }
        }
        None
    }

    pub(super) fn begin(&mut self, client: ClientId, doing: Doing) {
        if let Some(client) = self.clients.get_mut(&client) {
            client.doing = Some(doing);
        }
    }

    pub(super) fn work(&mut self, client: ClientId, work: Work) {
        self.out.push_back(Output::Work { client, work });
    }

    /// No JSON-RPC, or a batch.
    fn unreadable(&mut self, client: ClientId, text: &str, id: Option<&RawValue>) {
        let error = if is_batch(text.as_bytes()) {
            let text = "batches are not taken; send their members one by one";
            RpcError::new(RpcError::INVALID_REQUEST, text)
        } else if serde_json::from_str::<&RawValue>(text).is_err() {
            RpcError::new(RpcError::PARSE_ERROR, "not valid JSON")
        } else {
            RpcError::new(RpcError::INVALID_REQUEST, "not a JSON-RPC 2.0 message")
        };
        // An id that is no id is not given back.
        let id = id.filter(|id| !id.get().starts_with(['{', '[', 't', 'f']));
        self.refuse(client, id, "", &error);
    }
}

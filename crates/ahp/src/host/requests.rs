//! What a client asks: read, routed, and answered when the application has an answer.

use std::collections::HashMap;
use std::future::poll_fn;
use std::ops::Range;
use std::pin::Pin;
use std::task::Poll;

use breakbulk_link::{Charge, Message, MessageKind};
use breakbulk_message::jsonrpc::{integer, is_batch, string};
use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::task::{self, JoinSet};

use super::application::{Application, Call, Dispatch};
use super::config::close;
use super::error::{PublishError, RpcError};
use super::reply;
use super::serve::Peer;

/// What the application works on for one client.
#[derive(Default)]
pub(super) struct Requests {
    tasks: JoinSet<Answer>,
    /// What they answer; a request that panics leaves nothing else.
    asked: HashMap<task::Id, Asked>,
}

pub(super) struct Asked {
    id: Box<RawValue>,
    method: String,
}

pub(super) type Answer = Result<Box<RawValue>, RpcError>;

impl Requests {
    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// The next one that is done; `None` while there are none. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<(Asked, Answer)> {
        let (task, answer) = match self.tasks.join_next_with_id().await? {
            Ok(done) => done,
            Err(error) => {
                tracing::error!(%error, "a request was not finished");
                let failed = RpcError::new(RpcError::INTERNAL_ERROR, "the request failed");
                (error.id(), Err(failed))
            }
        };
        let asked = self.asked.remove(&task)?;
        Some((asked, answer))
    }
}

impl<A: Application> Peer<A> {
    pub(super) async fn message(&mut self, message: Message) {
        let shape = message.shape.clone();
        let (bytes, charge) = message.into_parts();
        // The wire has read it as text already.
        let Ok(text) = std::str::from_utf8(&bytes) else {
            return;
        };
        let id = shape.id.and_then(|range| raw(text, range));
        let method = shape.method.and_then(|range| {
            let quoted = range.start.checked_sub(1)?..range.end + 1;
            string(raw(text, quoted)?)
        });
        match (shape.kind, method, id) {
            (MessageKind::Request, Some(method), Some(id)) => {
                self.request(id, &method, text, shape.body, (&bytes, charge))
                    .await;
            }
            (MessageKind::Notification, Some(method), _) => {
                let params = shape.body.map_or("null", |range| &text[range]);
                self.notification(&method, params).await;
            }
            (MessageKind::Result | MessageKind::Error, ..) => {
                tracing::debug!(client = ?self.client_id(), "an answer to nothing");
            }
            _ => self.unreadable(text, id),
        }
    }

    async fn request(
        &mut self,
        id: &RawValue,
        method: &str,
        text: &str,
        body: Option<Range<usize>>,
        (bytes, charge): (&Bytes, Charge),
    ) {
        let params = body.clone().map_or("null", |range| &text[range]);
        let client_id = match (method, &self.who) {
            ("initialize", _) => return self.initialize(id, params).await,
            ("reconnect", _) => return self.reconnect(id, params).await,
            (_, None) => {
                let text = "initialize or reconnect comes first";
                let error = RpcError::new(RpcError::INVALID_REQUEST, text);
                return self.refuse(Some(id), method, &error);
            }
            (_, Some(who)) => who.client_id.clone(),
        };
        match method {
            "subscribe" => self.subscribe(id, params),
            "ping" => self.answer(method, reply::result(id, "null")),
            "unsubscribe" | "dispatchAction" => {
                self.notification(method, params).await;
                self.answer(method, reply::result(id, "null"));
            }
            _ => {
                let params = body.map_or(Bytes::from_static(b"null"), |body| bytes.slice(body));
                let call = Call {
                    client_id,
                    method: method.to_owned(),
                    params,
                    _charge: charge,
                };
                self.call(id, call).await;
            }
        }
    }

    /// Begins at once, so that requests and actions begin in the order they came.
    async fn call(&mut self, id: &RawValue, call: Call) {
        let asked = Asked {
            id: id.to_owned(),
            method: call.method.clone(),
        };
        let host = self.host.clone();
        let mut work: Pin<Box<dyn Future<Output = Answer> + Send>> =
            Box::pin(async move { host.inner.app.request(&host, call).await });
        match poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await {
            Poll::Ready(answer) => self.answered(&asked, answer),
            Poll::Pending => {
                let task = self.requests.tasks.spawn(work);
                self.requests.asked.insert(task.id(), asked);
            }
        }
    }

    pub(super) fn answered(&mut self, asked: &Asked, answer: Answer) {
        match answer {
            Ok(result) => self.answer(&asked.method, reply::result(&asked.id, result.get())),
            Err(error) => self.refuse(Some(&asked.id), &asked.method, &error),
        }
    }

    async fn notification(&mut self, method: &str, params: &str) {
        match (method, &self.who) {
            ("dispatchAction", None) => {
                let reason = "dispatchAction before initialize or reconnect";
                self.connection.close(close::PROTOCOL, reason);
            }
            ("dispatchAction", Some(_)) => self.dispatch(params).await,
            ("unsubscribe", Some(_)) => {
                let channel = reply::members(params).filter(|(name, _)| name == "channel");
                if let Some(channel) = channel.last().and_then(|(_, value)| string(value)) {
                    self.host.inner.core().unsubscribe(self.id, &channel);
                }
            }
            _ => tracing::debug!(client = ?self.client_id(), "a notification that nobody knows"),
        }
    }

    /// A client's action. One that cannot be read ends the connection: its sender has no other way
    /// to learn that no echo will come.
    async fn dispatch(&mut self, params: &str) {
        let (mut channel, mut client_seq, mut action) = (None, None, None);
        for (name, value) in reply::members(params) {
            match &*name {
                "channel" => channel = string(value),
                "clientSeq" => client_seq = integer(value).and_then(|seq| i64::try_from(seq).ok()),
                "action" => action = Some(value),
                _ => {}
            }
        }
        let (Some(channel), Some(client_seq), Some(action)) = (channel, client_seq, action) else {
            let reason = "invalid dispatchAction: channel, clientSeq and action are needed";
            return self.connection.close(close::PROTOCOL, reason);
        };
        let Some(who) = &self.who else { return };
        self.room(action.get().len() + channel.len()).await;
        let dispatch = Dispatch {
            client_id: &who.client_id,
            client_seq,
            channel: &channel,
            action,
        };
        let (code, reason) = match self.host.inner.app.dispatched(&self.host, &dispatch) {
            Ok(()) => return,
            Err(PublishError::Behind { .. }) => (
                close::TRY_LATER,
                "your action was not taken, too many wait: reconnect and dispatch it again",
            ),
            Err(PublishError::ShutDown) => (
                close::GOING_AWAY,
                "your action was not taken: the host is shut down",
            ),
            Err(PublishError::Failed { .. }) => (
                close::FAILED,
                "your action was not taken: the host has failed",
            ),
        };
        self.connection.close(code, reason);
    }

    /// Waits until the log has room for an action: this client's turn, and nobody else's.
    async fn room(&self, size: usize) {
        let inner = &self.host.inner;
        let mut visible = inner.visible.subscribe();
        loop {
            visible.borrow_and_update();
            if inner.pending.has_room(size) {
                return;
            }
            tokio::select! {
                biased;
                _ = self.connection.closed() => return,
                changed = visible.changed() => if changed.is_err() { return },
            }
        }
    }

    /// No JSON-RPC, or a batch.
    fn unreadable(&self, text: &str, id: Option<&RawValue>) {
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
        self.refuse(id, "", &error);
    }
}

fn raw(text: &str, range: Range<usize>) -> Option<&RawValue> {
    serde_json::from_str(text.get(range)?).ok()
}

//! The events of a client for its application.

use breakbulk_link::Closed;
use breakbulk_message::ahp;
use breakbulk_message::jsonrpc::range_in;
use serde_json::value::RawValue;

use super::question::Question;
use super::text::Text;

/// An event, in order. `R` is the type by which the application answers a request of the host.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<R = Question> {
    /// The current state of a channel; it contains all earlier actions of that channel.
    Snapshot(Snapshot),
    /// An action on a channel.
    Action(Action),
    /// Any other notification.
    Notification {
        /// Its method.
        method: String,
        /// Its params, as JSON.
        params: Option<Text>,
    },
    /// A request of the host.
    Request(R),
    /// A message that is not JSON-RPC.
    Other(Text),
    /// The connection ended.
    Disconnected {
        /// Why.
        closed: Closed,
        /// The numbers of dispatched actions that were not sent, or not completely. The others were
        /// handed to the transport; that one arrived is certain only once it comes back with its
        /// [`Action::origin`].
        unsent: Vec<i64>,
    },
}

impl<R> Event<R> {
    /// Converts the request, if it is one.
    pub fn map<S>(self, request: impl FnOnce(R) -> S) -> Event<S> {
        match self {
            Self::Request(one) => Event::Request(request(one)),
            Self::Snapshot(one) => Event::Snapshot(one),
            Self::Action(one) => Event::Action(one),
            Self::Notification { method, params } => Event::Notification { method, params },
            Self::Other(text) => Event::Other(text),
            Self::Disconnected { closed, unsent } => Event::Disconnected { closed, unsent },
        }
    }
}

/// An action on a channel.
#[derive(Clone, Debug)]
pub struct Action {
    /// The channel.
    pub channel: String,
    /// Its number (`serverSeq`).
    pub seq: i64,
    /// What happened, as JSON.
    pub action: Text,
    /// Who dispatched it, if a client did.
    pub origin: Option<Origin>,
    /// Why the host refused it.
    pub rejection_reason: Option<String>,
}

/// Who dispatched an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The client.
    pub client_id: String,
    /// That client's own number for it.
    pub client_seq: i64,
}

/// The state of a channel.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The channel.
    pub resource: String,
    /// Its state, as JSON.
    pub state: Text,
    /// The number of the last action that is in it.
    pub from_seq: i64,
}

/// The states of one answer. They are parsed one by one.
#[derive(Clone, Debug)]
pub struct Snapshots {
    pub(super) list: List,
    pub(super) count: usize,
}

impl Snapshots {
    /// The states, in the order of the answer.
    pub fn iter(&self) -> impl Iterator<Item = Snapshot> + use<> {
        let mut list = self.list.clone();
        std::iter::from_fn(move || list.next().and_then(|one| Snapshot::read(&one)))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl Action {
    /// From the text of the params and what was read from it.
    pub(super) fn new(params: &Text, read: ahp::Action<'_>) -> Self {
        Self {
            channel: read.channel.into_owned(),
            seq: read.server_seq,
            action: params.part(read.action.get()),
            origin: read.origin.map(|origin| Origin {
                client_id: origin.client_id.into_owned(),
                client_seq: origin.client_seq,
            }),
            rejection_reason: read.rejection_reason.map(Into::into),
        }
    }
}

impl Snapshot {
    pub(super) fn read(snapshot: &Text) -> Option<Self> {
        let raw = serde_json::from_str(snapshot).ok()?;
        let read = ahp::Snapshot::read(raw).ok()?;
        Some(Self {
            resource: read.resource.into_owned(),
            state: snapshot.part(read.state.get()),
            from_seq: read.from_seq,
        })
    }
}

/// The objects of an array, parsed one by one, so that a million of them need no memory.
#[derive(Clone, Debug)]
pub(super) struct List(Text);

impl List {
    /// From a part of a message that is an array, or a single object.
    pub(super) fn new(text: &Text, array: &str) -> Self {
        let mut list = text.part(array);
        list.skip(usize::from(array.starts_with('[')));
        Self(list)
    }

    /// The next object.
    pub(super) fn next(&mut self) -> Option<Text> {
        let rest = self.0.trim_start_matches([',', ' ', '\t', '\r', '\n']);
        if !rest.starts_with('{') {
            return None;
        }
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<&RawValue>();
        let object = values.next()?.ok()?.get();
        let text = self.0.part(object);
        let end = range_in(&self.0, object).end;
        self.0.skip(end);
        Some(text)
    }
}

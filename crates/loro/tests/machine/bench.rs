//! The machine with a simulated clock, and helpers to make messages.

use std::sync::Arc;
use std::time::Instant;

use breakbulk_loro::machine::{
    ChannelId, Event, Finished, Head, Hub, Opening, Outcome, Output, TaskId, Work, WorkError,
};
use breakbulk_loro::{DocId, Limits, Permissions};
use breakbulk_message::loro::{ChannelMsg, PeerIdentity, PeerType, Transmission, VersionVector};
use bytes::Bytes;

pub(crate) fn identity(peer_id: &str) -> PeerIdentity {
    PeerIdentity {
        peer_id: peer_id.into(),
        name: None,
        kind: PeerType::User,
    }
}

pub(crate) fn version(counter: i32) -> VersionVector {
    [(1, counter)]
        .into_iter()
        .filter(|(_, to)| *to > 0)
        .collect()
}

pub(crate) fn update(counter: i32) -> Transmission {
    Transmission::Update {
        data: Bytes::from_static(b"changes"),
        version: version(counter),
    }
}

pub(crate) fn sync_request(doc: &str, counter: i32, bi: bool) -> ChannelMsg {
    ChannelMsg::SyncRequest {
        doc_id: doc.into(),
        requester_doc_version: version(counter),
        bidirectional: Some(bi),
        ephemeral: None,
    }
}

pub(crate) fn response(doc: &str, transmission: Transmission) -> ChannelMsg {
    ChannelMsg::SyncResponse {
        doc_id: doc.into(),
        transmission,
        ephemeral: None,
    }
}

/// The machine with a simulated clock, and what it put out.
pub(crate) struct Bench {
    pub(crate) hub: Hub,
    pub(crate) now: Instant,
    pub(crate) tasks: Vec<(TaskId, DocId, Work)>,
    pub(crate) sent: Vec<(ChannelId, ChannelMsg)>,
    pub(crate) settled: Vec<Result<(), u16>>,
    pub(crate) closed: Vec<(ChannelId, u16, String)>,
    pub(crate) events: Vec<Event>,
    pub(crate) tokens: u64,
}

impl Bench {
    pub(crate) fn new(permissions: impl Permissions, limits: Limits, docs: &[(&str, i32)]) -> Self {
        let kept = docs.iter().map(|(doc, counter)| {
            let head = Head {
                version: version(*counter),
                size: 1,
            };
            ((*doc).into(), head)
        });
        Self {
            hub: Hub::new(identity("1000"), limits, Arc::new(permissions), kept),
            now: Instant::now(),
            tasks: Vec::new(),
            sent: Vec::new(),
            settled: Vec::new(),
            closed: Vec::new(),
            events: Vec::new(),
            tokens: 0,
        }
    }

    pub(crate) fn take(&mut self) {
        while let Some(output) = self.hub.poll_output() {
            match output {
                Output::Send { to, message, .. } => {
                    let each = to.into_iter().map(|to| (to, message.clone()));
                    self.sent.extend(each);
                }
                Output::Task { id, doc, work, .. } => self.tasks.push((id, doc, work)),
                Output::Settle { outcome, .. } => {
                    self.settled.push(outcome.map_err(|refused| refused.status));
                }
                Output::Close {
                    channel,
                    code,
                    reason,
                } => self.closed.push((channel, code, reason)),
                Output::Event(event) => self.events.push(event),
                Output::Cancel { .. } | Output::WaitForRoom { .. } => {}
            }
        }
    }

    pub(crate) fn say(&mut self, channel: ChannelId, message: ChannelMsg) {
        self.tokens += 1;
        self.hub
            .handle_frame(self.now, channel, self.tokens, vec![message]);
        self.take();
    }

    /// An established peer; what was sent to it so far is dropped.
    pub(crate) fn peer(&mut self, peer_id: &str) -> ChannelId {
        let channel = self.stranger();
        let identity = identity(peer_id);
        self.say(channel, ChannelMsg::EstablishRequest { identity });
        self.sent.clear();
        self.settled.clear();
        channel
    }

    pub(crate) fn stranger(&mut self) -> ChannelId {
        let opening = Opening {
            claim: "somebody".into(),
            subject: None,
            dialed: false,
            sends_establish: false,
        };
        self.hub.open(self.now, opening)
    }

    pub(crate) fn done(&mut self, counter: i32, result: Result<Outcome, WorkError>) {
        let (id, ..) = self.tasks.remove(0);
        let finished = Finished {
            head: Head {
                version: version(counter),
                size: 1,
            },
            local: None,
            result,
        };
        self.hub.handle_done(self.now, id, finished);
        self.take();
    }

    pub(crate) fn heard(&mut self, channel: ChannelId) -> Vec<ChannelMsg> {
        let (his, others) = std::mem::take(&mut self.sent)
            .into_iter()
            .partition(|(to, _)| *to == channel);
        self.sent = others;
        let his: Vec<(ChannelId, ChannelMsg)> = his;
        his.into_iter().map(|(_, message)| message).collect()
    }
}

//! State that all peers of a machine share: the configuration, the memory budget, the queue of events
//! for the application, and notices to keys that are not in the peer table.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::machine::{PublicKey, Seal};
use breakbulk_link::{Budget, Cap, Config as LinkConfig, Link, Order, Random};
use breakbulk_wire::{Cep22, Layout, nostr_cap};
use bytes::Bytes;

use super::{Arrival, Event, InboundMessage, Publish, PublishId, Role, SendId};
use crate::machine::Failure;
use crate::machine::config::Config;
use crate::machine::prepared::{Kind, Prepared};
use crate::machine::tags;

/// Queued events above which further ones are dropped; messages and outcomes never are.
const EVENTS_MAX: usize = 4096;

/// Queued notices above which further ones are dropped.
const NOTICES_MAX: usize = 256;

/// Chunks of one transfer that may be unconfirmed at once: what existing receivers can reorder.
const UNCONFIRMED_MAX: u32 = 21;

/// How far ahead of the first missing chunk others are taken. A relay confirms chunks that this side has not read
/// yet; if both ends are cut off then, chunks that came late overtake those that are sent again.
const AHEAD_MAX: usize = 256;

pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) role: Role,
    pub(crate) budget: Budget,
    pub(crate) events: VecDeque<Event>,
    /// Frames that are sent outside of any link, such as a refusal to a key that is not in the table.
    pub(crate) notices: VecDeque<Publish>,
    /// A relay refused larger events: the caps of all links must be set again.
    pub(crate) caps_changed: bool,
    /// Notifications of the application that could not be sent.
    pub(crate) lost: u64,
    random: Random,
    sends: u64,
}

impl Shared {
    pub(crate) fn new(role: Role, config: Config, random: Random) -> Self {
        Self {
            budget: Budget::new(config.limits.memory),
            config,
            role,
            events: VecDeque::new(),
            notices: VecDeque::new(),
            caps_changed: false,
            lost: 0,
            random,
            sends: 0,
        }
    }

    pub(crate) fn is_server(&self) -> bool {
        self.role == Role::Server
    }

    pub(crate) fn next_send(&mut self) -> SendId {
        self.sends += 1;
        SendId(self.sends)
    }

    /// A unique id for a request that the machine itself makes.
    pub(crate) fn fresh_name(&mut self) -> String {
        format!("{:016x}{:016x}", self.random.next(), self.random.next())
    }

    pub(crate) fn link(&mut self) -> Link {
        let (limits, timeouts) = (&self.config.limits, &self.config.timeouts);
        let mut rules = if self.is_server() {
            Cep22::server_rules()
        } else {
            Cep22::rules()
        };
        rules.order = Order::Window {
            ahead: AHEAD_MAX as u64,
            stashed: AHEAD_MAX,
        };
        rules.timeouts.age = Some(timeouts.transfer);
        rules.timeouts.accept = timeouts.accept;
        let config = LinkConfig::new(rules).with(|it| {
            it.limits = Cep22::config().limits.with(|it| {
                it.message = limits.message;
                it.pieces = limits.chunks;
                it.transfers = limits.transfers;
                it.memory = limits.peer_memory;
                it.queued = limits.queued;
            });
            it.confirm = Some(UNCONFIRMED_MAX);
            it.plan_elsewhere = self.config.plan_elsewhere;
            it.report_opened = true;
            it.progress = 1;
        });
        let wire = Arc::new(Cep22 {
            layout: if self.config.unasked {
                Layout::Unasked
            } else {
                Layout::ByPeer
            },
            json_rpc: true,
        });
        let mut seed = [0; 32];
        for word in seed.chunks_exact_mut(8) {
            word.copy_from_slice(&self.random.next().to_be_bytes());
        }
        Link::new(wire.clone(), wire, config, self.budget.clone(), seed)
    }

    /// The cap of an event that carries the discovery tags, as a gift wrap or plain.
    pub(crate) fn cap(&self, sealed: bool) -> Cap {
        let tag = |tag: &Vec<String>| tag.iter().map(|part| 2 * part.len() + 4).sum::<usize>() + 3;
        // In a gift wrap a tag is escaped once more and base64-encoded.
        let introduction: usize = self.config.introduction.iter().map(tag).sum::<usize>() * 2;
        let less = |size: usize| size.saturating_sub(introduction);
        nostr_cap(
            less(self.config.event_max),
            less(self.config.cut_above),
            sealed,
        )
    }

    /// Queues an event; dropped if the application does not poll.
    pub(crate) fn push_event(&mut self, event: Event) {
        if self.events.len() < EVENTS_MAX {
            self.events.push_back(event);
        }
    }

    /// Queues the outcome of a sent message: never dropped, and bounded by the messages accepted.
    pub(crate) fn push_outcome(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// Queues a message for the application that the machine itself made.
    pub(crate) fn deliver_own(&mut self, peer: PublicKey, kind: Kind, text: String) {
        self.events.push_back(Event::Message(InboundMessage {
            peer,
            kind,
            bytes: Bytes::from(text),
            charge: None,
        }));
    }

    /// Queues progress for the application; dropped if the application does not poll.
    pub(crate) fn deliver_progress(&mut self, peer: PublicKey, text: String) {
        if self.events.len() < EVENTS_MAX {
            self.deliver_own(peer, Kind::Notification, text);
        }
    }

    /// Sends an error response to a request that is refused. Other messages are dropped.
    pub(crate) fn refuse_request(&mut self, arrival: &Arrival, failure: &Failure) {
        let Ok(message) = Prepared::read(arrival.content.clone()) else {
            return;
        };
        if let (Kind::Request, Some(id)) = (message.kind, &message.id) {
            self.queue_notice(
                arrival.from,
                failure.answer(id),
                Some(arrival.id),
                arrival.seal,
            );
        }
    }

    /// Queues one frame outside of any link, without order.
    pub(crate) fn queue_notice(
        &mut self,
        to: PublicKey,
        content: String,
        answers: Option<super::EventId>,
        seal: Seal,
    ) {
        if self.notices.len() < NOTICES_MAX {
            self.notices.push_back(Publish {
                id: PublishId(0),
                to,
                content,
                tags: tags::compose(&to, answers, None),
                seal,
            });
        }
    }
}

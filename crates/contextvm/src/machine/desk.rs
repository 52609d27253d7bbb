//! What all peers of a machine share: the configuration, the memory, and what goes up.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::machine::{PublicKey, Seal};
use breakbulk_link::{Budget, Cap, Config as LinkConfig, Limits as LinkLimits, Link, Random};
use breakbulk_wire::{Cep22, Layout, nostr_cap};
use bytes::Bytes;

use super::{Arrival, Event, InboundMessage, Publish, PublishId, Role, SendId};
use crate::machine::Failure;
use crate::machine::config::Config;
use crate::machine::prepared::{Kind, Prepared};
use crate::machine::tags;

/// Events that wait beside the messages; a flood of them is dropped, messages never are.
const NEWS_MAX: usize = 4096;

/// Answers to those whom we do not hold.
const NOTICES_MAX: usize = 256;

/// Chunks of one transfer that no relay has confirmed: what a real receiver can put in order.
const UNCONFIRMED: u32 = 21;

pub(crate) struct Desk {
    pub(crate) config: Config,
    pub(crate) role: Role,
    pub(crate) budget: Budget,
    pub(crate) events: VecDeque<Event>,
    /// What is said to those whom we do not hold.
    pub(crate) notices: VecDeque<Publish>,
    /// A relay took less than we thought: all caps are to be set anew.
    pub(crate) caps_changed: bool,
    random: Random,
    sends: u64,
}

impl Desk {
    pub(crate) fn new(role: Role, config: Config, random: Random) -> Self {
        Self {
            budget: Budget::new(config.limits.memory),
            config,
            role,
            events: VecDeque::new(),
            notices: VecDeque::new(),
            caps_changed: false,
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

    /// A name that nobody else uses, for requests of our own.
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
        rules.timeouts.age = Some(timeouts.transfer);
        rules.timeouts.accept = timeouts.accept;
        let config = LinkConfig {
            limits: LinkLimits {
                message: limits.message,
                pieces: limits.chunks,
                transfers: limits.transfers,
                memory: limits.peer_memory,
                queued: limits.queued,
                ..Cep22::config().limits
            },
            confirm: Some(UNCONFIRMED),
            plan_elsewhere: self.config.plan_elsewhere,
            report_opened: true,
            progress: 1,
            ..LinkConfig::new(rules)
        };
        let wire = Arc::new(Cep22 {
            layout: if self.config.unasked {
                Layout::Unasked
            } else {
                Layout::ByPeer
            },
        });
        let mut seed = [0; 32];
        for word in seed.chunks_exact_mut(8) {
            word.copy_from_slice(&self.random.next().to_be_bytes());
        }
        Link::new(wire.clone(), wire, config, self.budget.clone(), seed)
    }

    /// What an event may hold, sealed or bare, with our introduction in it.
    pub(crate) fn cap(&self, sealed: bool) -> Cap {
        let tag = |tag: &Vec<String>| tag.iter().map(|part| 2 * part.len() + 4).sum::<usize>() + 3;
        // Inside of a seal a tag is escaped once more, and grows by the seal's coding.
        let introduction: usize = self.config.introduction.iter().map(tag).sum::<usize>() * 2;
        let less = |size: usize| size.saturating_sub(introduction);
        nostr_cap(
            less(self.config.event_max),
            less(self.config.cut_above),
            sealed,
        )
    }

    /// Something that happened; a flood of it is worth no memory.
    pub(crate) fn tell(&mut self, event: Event) {
        if self.events.len() < NEWS_MAX {
            self.events.push_back(event);
        }
    }

    /// The outcome of a message of ours: always told, and no more often than messages are taken.
    pub(crate) fn tell_outcome(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// A message for the application that was made here.
    pub(crate) fn deliver_own(&mut self, peer: PublicKey, text: String) {
        self.events.push_back(Event::Message(InboundMessage {
            peer,
            bytes: Bytes::from(text),
            charge: None,
        }));
    }

    /// Progress for the application; what it does not take in time it does not need.
    pub(crate) fn deliver_progress(&mut self, peer: PublicKey, text: String) {
        if self.events.len() < NEWS_MAX {
            self.deliver_own(peer, text);
        }
    }

    /// Answers a request of somebody whom we cannot hold. What is no request gets no answer.
    pub(crate) fn turn_away(&mut self, arrival: &Arrival, failure: &Failure) {
        let Ok(message) = Prepared::read(arrival.content.clone()) else {
            return;
        };
        if let (Kind::Request, Some(id)) = (message.kind, &message.id) {
            self.notice(
                arrival.from,
                failure.answer(id),
                Some(arrival.id),
                arrival.seal,
            );
        }
    }

    /// Says something outside of any link; one frame that needs no order.
    pub(crate) fn notice(
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

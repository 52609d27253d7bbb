//! What becomes of requests that nobody is left to answer: their senders get an error, and the end of the
//! session counts them.

use std::sync::Arc;

use breakbulk_link::{Closed, Outgoing, Shape};

use super::open_requests::{Step, not_answered, steps};
use super::run::{Pump, SUBSTITUTE, Stopped, passed_on};
use super::{Passing, Side, is_normal};
use crate::watch::Noted;

impl<P: Passing> Pump<P> {
    /// Follows which requests are open, by a message that arrived by a side.
    pub(super) fn follow(&mut self, from: Side, bytes: &[u8], shape: &Shape) {
        let (asker, answerer) = match from {
            Side::Listen => (&mut self.listen.open, &mut self.to.open),
            Side::To => (&mut self.to.open, &mut self.listen.open),
        };
        let passing = &self.passing;
        steps(bytes, shape, |step| match step {
            Step::Asked { id, method } => asker.asked(id, !passing.asks_again(method)),
            Step::Answered(id) => answerer.closed(id),
            Step::Cancelled(id) => asker.closed(id),
        });
    }

    /// Removes the requests in this message of a side from its open ones: the gateway itself answers them.
    pub(super) fn answered_here(&mut self, from: Side, bytes: &[u8], shape: &Shape) {
        let open = &mut self.end(from).open;
        steps(bytes, shape, |step| {
            if let Step::Asked { id, .. } = step {
                open.closed(id);
            }
        });
    }

    /// Whether requests are open that may still be answered.
    pub(super) fn has_open_requests(&self) -> bool {
        let (listen, to) = (&self.listen, &self.to);
        let waits = |asker: &super::end::End, answerer: &super::end::End| {
            !asker.closed && !answerer.closed && !asker.open.is_empty()
        };
        waits(listen, to) || waits(to, listen)
    }

    /// A side is closed: answers the other side's open requests with an error, and counts those of this side,
    /// unless its program chose to leave.
    pub(super) fn close_open_requests(&mut self, side: Side, closed: &Closed, by_peer: bool) {
        let is_private = self.end(side).is_private;
        let own = self.end(side).open.take().count;
        if !by_peer {
            self.unanswered += own;
        }
        let (code, reason) = passed_on(closed, is_private);
        let why = match (reason.is_empty(), is_normal(code)) {
            (true, _) => format!("the other side closed with {code}"),
            (false, true) => reason,
            (false, false) => format!("{reason} ({code})"),
        };
        let why = match &self.refused {
            Some(refused) if closed.code == 1009 => format!("{why}; {refused}"),
            _ => why,
        };
        // A client may leave when it likes: it does not have to answer its server first.
        let is_lost = side == Side::To || !by_peer || !is_normal(closed.code);
        self.answer_open(side.other(), &why, is_lost);
        self.why = why;
    }

    /// Answers the open requests of a side with an error.
    pub(super) fn answer_open(&mut self, side: Side, why: &str, is_lost: bool) {
        let end = self.end(side);
        let unanswered = end.open.take();
        if unanswered.count == 0 {
            return;
        }
        if end.takes_messages() && end.channel.answers_open() {
            for (id, charge) in unanswered.ids {
                let mut answer = Outgoing::new(not_answered(&id, why)).tagged(SUBSTITUTE);
                answer.charge = charge.map(Arc::new);
                end.send(answer, Noted::Made);
            }
        }
        let requests = unanswered.count;
        tracing::debug!(%side, requests, is_lost, why, "open requests were answered with an error");
        if is_lost {
            self.unanswered += requests;
        }
    }

    /// The code and reason by which both sides are closed when the gateway is stopped. The other end of
    /// a side may be a gateway, which must not take a stop that cost answers for a normal end.
    pub(super) fn stop_reason(&self) -> (u16, String) {
        let stopping = self.stopping.unwrap_or(Stopped::Gateway).words();
        match self.unanswered {
            requests if requests > 0 && self.listen.channel.answers_open() => {
                let reason = format!("{stopping}, and {}", unanswered_words(requests));
                (1011, reason)
            }
            _ => (1001, stopping.to_owned()),
        }
    }
}

/// How many requests were not answered, for a person.
pub(crate) fn unanswered_words(requests: usize) -> String {
    match requests {
        1 => "1 request was not answered".to_owned(),
        requests => format!("{requests} requests were not answered"),
    }
}

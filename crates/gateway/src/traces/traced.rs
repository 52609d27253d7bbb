//! Watches the requests of a session on their way, and makes a span of each.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use breakbulk_link::{Budget, Charge, Event, MessageKind, SendError, Shape, SubBudget};
use breakbulk_message::jsonrpc::{integer, member, shortest_id};
use breakbulk_message::mcp::{Traceparent, traceparent};
use breakbulk_net::plain_text;
use bytes::Bytes;
use memchr::memmem;

use super::Traces;
use super::span::{Of, Outcome, Span};
use crate::pump::{Incoming, Oversized, Pass, Passing, Replacement, Side, Step, steps};

/// The most open requests of one side that become spans.
const OPEN: usize = 1024;

/// The longest id of a request that becomes a span, in bytes of JSON.
const ID: usize = 256;

/// What an open span takes, beside the bytes of its texts.
const ENTRY: usize = 512;

/// Makes spans of requests, and passes all messages to `inner`. In a request that names a `traceparent` it is
/// replaced by the one of the request's span, which has as many bytes; no other byte of any message is
/// changed.
pub(super) struct Traced<P> {
    inner: P,
    traces: Traces,
    of: Arc<Of>,
    memory: Option<SubBudget>,
    listen: BTreeMap<String, Open>,
    to: BTreeMap<String, Open>,
}

struct Open {
    span: Span,
    since: Instant,
    _charge: Option<Charge>,
}

impl<P> Traced<P> {
    /// Open spans are charged to the budget.
    pub(super) fn new(
        inner: P,
        traces: Traces,
        route: &str,
        session: &str,
        budget: Option<&Budget>,
    ) -> Self {
        let of = Of {
            route: route.to_owned(),
            session: session.to_owned(),
        };
        Self {
            inner,
            traces,
            of: Arc::new(of),
            memory: budget.map(|budget| budget.part(OPEN * 2 * ENTRY)),
            listen: BTreeMap::new(),
            to: BTreeMap::new(),
        }
    }

    fn open(&mut self, from: Side) -> &mut BTreeMap<String, Open> {
        match from {
            Side::Listen => &mut self.listen,
            Side::To => &mut self.to,
        }
    }

    /// Begins a span. Returns its context, if the request belongs to a trace that is recorded.
    fn asked(
        &mut self,
        from: Side,
        (id, method): (&str, &str),
        size: usize,
        parent: Option<Traceparent>,
    ) -> Option<Traceparent> {
        // Whoever began the trace decided that nobody records it.
        if parent.is_some_and(|parent| !parent.is_sampled()) {
            return None;
        }
        let context = new_span(parent)?;
        let method = plain_text(method);
        let charge = match &self.memory {
            Some(memory) => memory.charge(ENTRY + 2 * id.len() + method.len()).map(Some),
            None => Some(None),
        };
        let key = shortest_id(id).into_owned();
        let open = match from {
            Side::Listen => &mut self.listen,
            Side::To => &mut self.to,
        };
        let is_over = open.len() >= OPEN || id.len() > ID || open.contains_key(&key);
        let Some(charge) = charge.filter(|_| !is_over) else {
            self.traces.dropped(1);
            return None;
        };
        let span = Span {
            context,
            parent: parent.map(|parent| parent.span),
            of: self.of.clone(),
            from: match from {
                Side::Listen => "listen",
                Side::To => "to",
            },
            method,
            id: plain_text(id),
            started: SystemTime::now(),
            took: std::time::Duration::ZERO,
            request_bytes: size,
            response_bytes: None,
            outcome: Outcome::Unanswered,
        };
        let entry = Open {
            span,
            since: Instant::now(),
            _charge: charge,
        };
        open.insert(key, entry);
        Some(context)
    }

    /// Ends the span of a request that came by a side.
    fn end(&mut self, from: Side, id: &str, outcome: Outcome, response: Option<usize>) {
        if let Some(open) = self.open(from).remove(&*shortest_id(id)) {
            let mut span = open.span;
            span.took = open.since.elapsed();
            span.outcome = outcome;
            span.response_bytes = response;
            self.traces.ended(span);
        }
    }

    /// Begins and ends the spans of the requests and answers in a message. If the message is a request with a
    /// `traceparent`, returns the new one, and where the old one is.
    fn follow(
        &mut self,
        from: Side,
        bytes: &Bytes,
        shape: &Shape,
    ) -> Option<(Range<usize>, Traceparent)> {
        let parent = match shape.kind {
            MessageKind::Request => told_parent(bytes, shape),
            _ => None,
        };
        let answer = match shape.kind {
            MessageKind::Error => Outcome::Error(error_code(bytes, shape)),
            _ => Outcome::Answered,
        };
        let mut context = None;
        steps(bytes, shape, |step| match step {
            Step::Asked { id, method } => {
                let told = parent.as_ref().map(|(_, parent)| *parent);
                context = self.asked(from, (id, method), bytes.len(), told);
            }
            Step::Answered(id) => self.end(from.other(), id, answer, Some(bytes.len())),
            Step::Cancelled(id) => self.end(from, id, Outcome::Cancelled, None),
        });
        Some((parent?.0, context?))
    }
}

impl<P: Passing> Passing for Traced<P> {
    fn pass(&mut self, from: Side, mut message: Incoming<'_>) -> Pass {
        let shape = message.shape;
        if let Some((range, context)) = self.follow(from, &message.bytes, shape) {
            message.bytes = with(message.bytes, range, &context.to_string());
        }
        self.inner.pass(from, message)
    }

    fn heard(&mut self, from: Side, event: &Event) {
        self.inner.heard(from, event);
    }

    fn asks_again(&self, method: &str) -> bool {
        self.inner.asks_again(method)
    }

    fn sent(&mut self, to: Side, tag: u64) {
        self.inner.sent(to, tag);
    }

    fn not_sent(&mut self, to: Side, bytes: &Bytes, error: &SendError) -> Replacement {
        let shape = breakbulk_wire::shape_of(std::str::from_utf8(bytes).unwrap_or_default());
        steps(bytes, &shape, |step| {
            if let Step::Asked { id, .. } = step {
                self.end(to.other(), id, Outcome::NotSent, None);
            }
        });
        self.inner.not_sent(to, bytes, error)
    }

    fn oversized(&mut self, from: Side, oversized: &Oversized) -> Replacement {
        if let Some(id) = oversized.id.as_deref().filter(|_| oversized.is_answer) {
            let size = usize::try_from(oversized.size).ok();
            self.end(from.other(), id, Outcome::NotSent, size);
        }
        self.inner.oversized(from, oversized)
    }
}

impl<P> Drop for Traced<P> {
    fn drop(&mut self) {
        for open in [&mut self.listen, &mut self.to] {
            for open in std::mem::take(open).into_values() {
                let mut span = open.span;
                span.took = open.since.elapsed();
                self.traces.ended(span);
            }
        }
    }
}

/// The `traceparent` that a request tells, and where it stands in the message.
fn told_parent(bytes: &Bytes, shape: &Shape) -> Option<(Range<usize>, Traceparent)> {
    let body = shape.body.clone()?;
    let params = bytes.get(body.clone())?;
    // Large params are not parsed in vain.
    memmem::find(params, b"\"traceparent\"")?;
    let (range, parent) = traceparent(std::str::from_utf8(params).ok()?)?;
    Some((body.start + range.start..body.start + range.end, parent))
}

fn error_code(bytes: &Bytes, shape: &Shape) -> Option<i64> {
    let error = std::str::from_utf8(bytes.get(shape.body.clone()?)?).ok()?;
    integer(member(error, "code")?)?.try_into().ok()
}

/// A span of its own in the parent's trace, or in a new one.
fn new_span(parent: Option<Traceparent>) -> Option<Traceparent> {
    let mut random = [0; 24];
    getrandom::fill(&mut random).ok()?;
    let (trace, span) = random.split_at(16);
    Some(Traceparent {
        trace: match parent {
            Some(parent) => parent.trace,
            None => trace.try_into().ok()?,
        },
        span: span.try_into().ok()?,
        flags: parent.map_or(1, |parent| parent.flags),
    })
}

/// The message with other bytes in this place, as many as there were. It is copied only if it is shared.
fn with(bytes: Bytes, range: Range<usize>, text: &str) -> Bytes {
    let put = |bytes: &mut [u8]| {
        if let Some(place) = bytes.get_mut(range)
            && place.len() == text.len()
        {
            place.copy_from_slice(text.as_bytes());
        }
    };
    match bytes.try_into_mut() {
        Ok(mut bytes) => {
            put(&mut bytes);
            bytes.freeze()
        }
        Err(shared) => {
            let mut bytes = shared.to_vec();
            put(&mut bytes);
            bytes.into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::TracesConfig;
    use super::super::export::QUEUE;
    use super::*;
    use crate::pump::Plain;

    fn ask(traced: &mut Traced<Plain>, text: String) -> Bytes {
        let shape = breakbulk_wire::shape_of(&text);
        let message = Incoming {
            bytes: text.into(),
            shape: &shape,
            key: None,
            id: None,
        };
        match traced.pass(Side::Listen, message) {
            Pass::On(outgoing) => outgoing.bytes,
            other => panic!("{other:?}"),
        }
    }

    // TRACE-3
    #[test]
    fn spans_are_bounded_charged_and_counted_where_they_are_dropped() {
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let request = |id: usize| {
            format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"m","params":{{"_meta":{{"traceparent":"{parent}"}}}}}}"#
            )
        };
        // The most open spans: limited by their number, or by the memory of the session.
        for (memory, most) in [(usize::MAX, OPEN), (10 * (ENTRY + 9), 10)] {
            let (traces, exporter) = Traces::new(TracesConfig::new("http://127.0.0.1:1"));
            let budget = Budget::new(memory);
            let mut traced = Traced::new(Plain::default(), traces.clone(), "r", "s", Some(&budget));
            let mut edited = 0;
            for id in 0..2 * OPEN {
                // What gets no span passes as it is.
                edited += usize::from(ask(&mut traced, request(id)) != request(id));
            }
            assert_eq!(edited, most);
            assert_eq!(traces.counts(), ((2 * OPEN - most) as u64, 0));
            assert!(budget.used() >= most * ENTRY);
            drop(traced);
            assert_eq!(budget.used(), 0);
            drop(exporter);
        }

        // The most spans that wait for the collector.
        let (traces, _exporter) = Traces::new(TracesConfig::new("http://127.0.0.1:1"));
        let mut traced = Traced::new(Plain::default(), traces.clone(), "r", "s", None);
        for id in 0..QUEUE + 7 {
            ask(&mut traced, request(id));
            traced.end(Side::Listen, &id.to_string(), Outcome::Answered, None);
        }
        assert_eq!(traces.counts(), (7, 0));
    }

    #[test]
    fn a_message_is_edited_in_place_unless_it_is_shared() {
        let bytes = Bytes::from(b"a--b".to_vec());
        let at = bytes.as_ptr();
        let edited = with(bytes, 1..3, "xy");
        assert_eq!((&edited[..], edited.as_ptr()), (&b"axyb"[..], at));
        let shared = edited.clone();
        assert_eq!(&with(edited, 1..3, "--")[..], b"a--b");
        assert_eq!(&shared[..], b"axyb");
    }
}

//! The requests that arrived by one side and have no answer yet.
//!
//! When nobody is left to answer them, the gateway does, with an error that says why.

use std::collections::BTreeMap;

use breakbulk_link::{Budget, Charge, MessageKind, Shape, SubBudget};
use breakbulk_message::jsonrpc::{self, Envelope, Kind, shortest_id};
use breakbulk_message::mcp;

/// The most requests of one side whose ids are remembered; further ones are only counted.
const REQUESTS: usize = 1024;

/// The longest id that is remembered, in bytes of JSON.
const ID: usize = 256;

/// What is charged for a request, and for the error that may answer it, beside the bytes of the id.
const ENTRY: usize = 512;

/// The code of the error for a request that nobody is left to answer.
const NOT_ANSWERED: i32 = -32000;

/// The open requests of one side.
#[derive(Debug, Default)]
pub(super) struct OpenRequests {
    /// What the entries are charged to.
    memory: Option<SubBudget>,
    /// By the id in its shortest form: an answer may write it in another one.
    ids: BTreeMap<String, Open>,
    /// Requests whose ids are not remembered: there are too many, the id is too long or in use, or no memory
    /// is left.
    nameless: usize,
}

#[derive(Debug)]
struct Open {
    /// As the request has it.
    id: Box<str>,
    /// Whether it is answered with an error, or only counted.
    is_answered: bool,
    charge: Option<Charge>,
}

/// The open requests of a side that will not be answered any more.
#[derive(Debug, Default)]
pub(super) struct Unanswered {
    /// How many there are.
    pub(super) count: usize,
    /// The ids of those that are answered with an error, and what they are charged.
    pub(super) ids: Vec<(Box<str>, Option<Charge>)>,
}

impl OpenRequests {
    /// Entries are charged to this budget.
    pub(super) fn charged_to(budget: Option<Budget>) -> Self {
        let most = REQUESTS * (ENTRY + 2 * ID);
        Self {
            memory: budget.map(|budget| budget.part(most)),
            ..Self::default()
        }
    }

    pub(super) fn len(&self) -> usize {
        self.ids.len() + self.nameless
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A request with this id arrived.
    pub(super) fn asked(&mut self, id: &str, is_answered: bool) {
        let key = shortest_id(id);
        if id.len() > ID || self.ids.len() >= REQUESTS || self.ids.contains_key(&*key) {
            self.nameless += 1;
            return;
        }
        let charge = match &self.memory {
            None => None,
            Some(memory) => match memory.charge(ENTRY + 2 * id.len()) {
                Some(charge) => Some(charge),
                None => {
                    self.nameless += 1;
                    return;
                }
            },
        };
        let open = Open {
            id: id.into(),
            is_answered,
            charge,
        };
        self.ids.insert(key.into_owned(), open);
    }

    /// The request with this id was answered, or is not waited for any more.
    pub(super) fn closed(&mut self, id: &str) {
        if self.ids.remove(&*shortest_id(id)).is_none() {
            self.nameless = self.nameless.saturating_sub(1);
        }
    }

    /// Takes all of them.
    pub(super) fn take(&mut self) -> Unanswered {
        let count = self.len();
        self.nameless = 0;
        let ids = std::mem::take(&mut self.ids).into_values();
        Unanswered {
            count,
            ids: ids
                .filter(|open| open.is_answered)
                .map(|open| (open.id, open.charge))
                .collect(),
        }
    }
}

/// The error for a request that nobody is left to answer.
pub(super) fn not_answered(id: &str, why: &str) -> String {
    let message = format!("the request was not answered: {why}");
    jsonrpc::error(
        Some(id),
        NOT_ANSWERED,
        &message,
        Some(r#"{"reason":"notAnswered"}"#),
    )
}

/// What a message means for open requests. Ids are JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step<'m> {
    /// Its sender waits for an answer.
    Asked {
        /// The id.
        id: &'m str,
        /// The method, as it is written in the message.
        method: &'m str,
    },
    /// It answers the request with this id.
    Answered(&'m str),
    /// Its sender does not wait for the answer to this request any more.
    Cancelled(&'m str),
}

/// Calls `step` for each request, answer and cancellation in a message.
pub(crate) fn steps<'m>(bytes: &'m [u8], shape: &Shape, mut step: impl FnMut(Step<'m>)) {
    let part = |range: &Option<std::ops::Range<usize>>| {
        let part = bytes.get(range.clone()?)?;
        std::str::from_utf8(part).ok()
    };
    let method = part(&shape.method).unwrap_or_default();
    match (shape.kind, part(&shape.id)) {
        (MessageKind::Request, Some(id)) => step(Step::Asked { id, method }),
        (MessageKind::Result | MessageKind::Error, Some(id)) => step(Step::Answered(id)),
        (MessageKind::Notification, _) if method == mcp::CANCELLED => {
            let params = part(&shape.body).and_then(|text| serde_json::from_str(text).ok());
            if let Some(id) = params.and_then(mcp::cancelled_request) {
                step(Step::Cancelled(id.get()));
            }
        }
        (MessageKind::Opaque, _) if jsonrpc::is_batch(bytes) => {
            let text = std::str::from_utf8(bytes).unwrap_or_default();
            let batch = jsonrpc::batch(text).into_iter().flatten();
            batch
                .filter_map(|envelope| of_envelope(&envelope))
                .for_each(step);
        }
        _ => {}
    }
}

fn of_envelope<'m>(envelope: &Envelope<'m>) -> Option<Step<'m>> {
    let id = envelope.id?.get();
    match envelope.kind()? {
        Kind::Request => {
            let method = envelope.method?.get();
            Some(Step::Asked {
                id,
                method: method.trim_matches('"'),
            })
        }
        Kind::Result | Kind::Error => Some(Step::Answered(id)),
        Kind::Notification => None,
    }
}

#[cfg(test)]
mod tests {
    use breakbulk_wire::shape_of;

    use super::*;

    #[test]
    fn an_answer_closes_its_request_however_it_writes_the_id() {
        for (asked, answered, is_closed) in [
            ("1", "1", true),
            ("1", "1.0", true),
            ("10", "1e1", true),
            ("1", "\"1\"", false),
            (r#""\u0061 b""#, r#""a b""#, true),
            (r#""a""#, r#""b""#, false),
            ("1.5", "1.5", true),
            ("null", "null", true),
        ] {
            let mut open = OpenRequests::default();
            open.asked(asked, true);
            open.closed(answered);
            assert_eq!(open.is_empty(), is_closed, "{asked} {answered}");
        }
    }

    // PROG-18
    #[test]
    fn what_is_remembered_is_bounded_and_charged_and_the_rest_is_counted() {
        let budget = Budget::new(1 << 20);
        let mut open = OpenRequests::charged_to(Some(budget.clone()));
        open.asked(&format!("\"{}\"", "x".repeat(ID)), true);
        for id in 0..5000 {
            open.asked(&id.to_string(), true);
        }
        assert_eq!(open.len(), 5001);
        let held = budget.used();
        assert!((REQUESTS * ENTRY..=1 << 20).contains(&held), "{held}");
        open.closed("7");
        open.closed("4999");
        let unanswered = open.take();
        assert_eq!((unanswered.count, unanswered.ids.len()), (4999, 1023));
        drop(unanswered);
        assert_eq!((open.len(), budget.used()), (0, 0));
        // Without memory they are counted.
        let mut poor = OpenRequests::charged_to(Some(Budget::new(100)));
        poor.asked("1", true);
        let unanswered = poor.take();
        assert_eq!((unanswered.count, unanswered.ids.len()), (1, 0));
    }

    #[test]
    fn requests_answers_and_cancellations_are_found_in_batches_too() {
        let asked = |id, method| Step::Asked { id, method };
        for (text, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":"a","method":"m"}"#,
                vec![asked("\"a\"", "m")],
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"result":1}"#,
                vec![Step::Answered("1")],
            ),
            (r#"{"jsonrpc":"2.0","method":"m"}"#, vec![]),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}"#,
                vec![Step::Cancelled("3")],
            ),
            (
                r#" [{"jsonrpc":"2.0","id":1,"method":"m"},7,{"jsonrpc":"2.0","method":"n"},{"jsonrpc":"2.0","id":2,"error":{}}]"#,
                vec![asked("1", "m"), Step::Answered("2")],
            ),
            ("[", vec![]),
            ("no json", vec![]),
        ] {
            let mut found = Vec::new();
            steps(text.as_bytes(), &shape_of(text), |step| found.push(step));
            assert_eq!(found, expected, "{text}");
        }
    }
}

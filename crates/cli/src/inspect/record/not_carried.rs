//! Messages that did not get through for their size, although the connections went on: which one, whose limit
//! it is over, and what would help.

use breakbulk::gateway::record::{Fate, NotCarried};
use serde_json::{Value, json};

use super::book::Session;
use super::chain::Chain;
use super::print::grouped;

/// One such message, in words.
pub(super) struct Uncarried {
    /// Which message, and what became of it.
    pub(super) what: String,
    /// Whose limit it is over.
    pub(super) cap: Option<String>,
    /// What would help.
    pub(super) option: String,
    method: Option<String>,
    id: Option<String>,
    bytes: Option<u64>,
    limit: Option<u64>,
}

/// All such messages of a conversation.
pub(super) fn of(chain: &Chain<'_>) -> Vec<Uncarried> {
    let told = chain.iter().flat_map(|session| {
        let each = session.not_carried.iter();
        each.map(move |(what, method)| told(session, what, method.as_deref()))
    });
    let mut all: Vec<Uncarried> = told.collect();
    // The gateway that did not pass a message on tells more than the error that passed other gateways.
    let first = chain.first();
    for (method, id) in first.into_iter().flat_map(|session| &session.too_large) {
        if !all.iter().any(|it| it.id.as_ref() == Some(id)) {
            all.push(elsewhere(method.as_deref(), id));
        }
    }
    all
}

/// What a gateway did with a message.
fn told(session: &Session, what: &NotCarried, method: Option<&str>) -> Uncarried {
    let gateway = format!("the gateway of {}", session.point.session);
    let name = named(method, what.id.as_deref());
    let bytes = grouped(what.bytes);
    let became = match what.instead {
        Fate::Answered => format!(
            "the request {name} of {bytes} bytes did not pass: {gateway} answered it with an error"
        ),
        Fate::Replaced => format!(
            "the answer to {name}, of {bytes} bytes, did not pass: {gateway} put an error in its place"
        ),
        Fate::Dropped => format!("{name} of {bytes} bytes did not pass: {gateway} dropped it"),
        Fate::Closed => format!(
            "{name} of {bytes} bytes could not be passed on: {gateway} closed both connections"
        ),
    };
    let side = what.side.word();
    // Which option helps depends on the limit, and the gateway has said it.
    let (fact, remedy) = match what.why.split_once("; ") {
        Some(parts) => parts,
        None => (&*what.why, &*what.why),
    };
    let cap = what.limit.map(|limit| {
        let limit = grouped(limit);
        match what.own {
            true => format!("{limit} bytes, the max-message of {gateway} at its end --{side}"),
            false => format!("{limit} bytes at the end --{side} of {gateway}: {fact}"),
        }
    });
    let option = match (what.own, &cap) {
        (true, _) => format!(
            "start {gateway} with --max-message {} or more (and the other gateway, if there is one), or ask for less",
            what.bytes
        ),
        (false, Some(_)) => remedy.to_owned(),
        (false, None) => what.why.clone(),
    };
    Uncarried {
        what: became,
        cap,
        option,
        method: method.map(ToOwned::to_owned),
        id: what.id.clone(),
        bytes: Some(what.bytes),
        limit: what.limit,
    }
}

/// An error that passed by, from a gateway that was not recorded, or from the server itself.
fn elsewhere(method: Option<&str>, id: &str) -> Uncarried {
    let name = named(method, Some(id));
    Uncarried {
        what: format!("{name} was answered with error -32011: a message is over the limit of a gateway or program on the way"),
        cap: None,
        option: "the text of the error names size, limit and option; so does a record (--record) of the gateway that sent it".to_owned(),
        method: method.map(ToOwned::to_owned),
        id: Some(id.to_owned()),
        bytes: None,
        limit: None,
    }
}

fn named(method: Option<&str>, id: Option<&str>) -> String {
    let id = id.map(|id| format!("id {id}"));
    let words: Vec<&str> = method.into_iter().chain(id.as_deref()).collect();
    match words.is_empty() {
        true => "a message without method and id".to_owned(),
        false => words.join(" "),
    }
}

impl Uncarried {
    pub(super) fn to_json(&self) -> Value {
        json!({
            "method": self.method,
            "id": self.id,
            "bytes": self.bytes,
            "limit": self.limit,
            "what": self.what,
            "cap": self.cap,
            "option": self.option,
        })
    }
}

//! What the ends of a gateway carry. Two ends make a gateway if there is a kind of message that both carry.

use std::fmt;

#[cfg(feature = "process")]
use breakbulk_link::Carries;

use crate::endpoint::{At, Endpoint, TunnelUse, WireKind};
use crate::error::PlanError;

/// A kind of message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carried {
    /// JSON-RPC, or any other text of which one line or one frame is one message.
    Text,
    /// The messages of loro-extended.
    Loro,
    /// Messages that are bytes, and whose content is not read.
    Bytes,
}

impl Carried {
    /// An endpoint that carries it, to be named in an error.
    fn example(self) -> &'static str {
        match self {
            Self::Text => "ws://HOST:PORT",
            Self::Loro => "loro+ws://HOST:PORT",
            Self::Bytes => "ws://HOST:PORT of a gateway",
        }
    }
}

impl fmt::Display for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text (JSON-RPC)",
            Self::Loro => "loro's messages",
            Self::Bytes => "bytes",
        })
    }
}

/// What an end carries, the usual kind first, and how the end is named in an error: the one place that
/// says it. A new transport is a row here.
fn carried(end: &Endpoint) -> (&'static [Carried], String) {
    use Carried::{Bytes, Loro, Text};
    match (&end.at, end.wire) {
        #[cfg(feature = "process")]
        (At::Stdio, _) => stream(end, "stdio:"),
        #[cfg(feature = "process")]
        (At::Exec(_), _) => stream(end, "exec:"),
        #[cfg(feature = "process")]
        (At::Socket(address), _) => stream(end, address.scheme()),
        (At::Ws(address), WireKind::Whole) => (&[Text, Bytes], named(WireKind::Whole, address)),
        (At::Ws(address), WireKind::Loro) => (&[Loro, Bytes], named(WireKind::Loro, address)),
        // An AHP program takes text alone; a gateway takes bytes, too. (The wire cep22 is for relays.)
        (At::Ws(address), WireKind::Ahp | WireKind::Cep22) => {
            let name = format!("{}:", address.scheme());
            match end.options.tunnel {
                Some(TunnelUse::Never) => (&[Text], format!("{name} with tunnel=never")),
                _ => (&[Text, Bytes], name),
            }
        }
        #[cfg(feature = "http")]
        (At::Http(address), _) => (&[Text], format!("{}:", address.scheme())),
        #[cfg(feature = "loro")]
        (At::Loro(address), _) => (&[Loro], address.form().to_owned()),
        #[cfg(feature = "nostr")]
        (At::Relays(_), _) => (&[Text], "cep22+nostr:".to_owned()),
    }
}

fn named(wire: WireKind, address: &crate::endpoint::WsAddress) -> String {
    format!("{wire}+{}:", address.scheme())
}

/// A stream of messages carries what its framing does.
#[cfg(feature = "process")]
fn stream(end: &Endpoint, name: &str) -> (&'static [Carried], String) {
    let framing = end.options.framing.unwrap_or_default();
    match framing.carries() {
        Carries::Text => (&[Carried::Text], name.to_owned()),
        Carries::Binary => (&[Carried::Bytes], format!("{name} with framing={framing}")),
    }
}

/// The kind of message that two ends carry; an error names an end for each that works.
pub(super) fn in_common(listen: &Endpoint, to: &Endpoint) -> Result<Carried, PlanError> {
    let ((of_listen, listen), (of_to, to)) = (carried(listen), carried(to));
    let both = of_listen.iter().find(|kind| of_to.contains(kind));
    both.copied().ok_or_else(|| PlanError::NothingInCommon {
        words: format!(
            "{listen} carries {}, and {to} carries {}; use {} with {listen}, or {} with {to}",
            each(of_listen),
            each(of_to),
            of_listen[0].example(),
            of_to[0].example()
        ),
    })
}

fn each(kinds: &[Carried]) -> String {
    let names: Vec<_> = kinds.iter().map(ToString::to_string).collect();
    names.join(" or ")
}

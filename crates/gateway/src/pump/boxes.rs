//! The middle boxes: AHP programs that know nothing of segments, with a capped link on one side.

use breakbulk_link::{Event, Outgoing, SendError};
use bytes::Bytes;

use super::unsent::{instead, of_oversized};
use super::{Incoming, Instead, Oversized, Pass, Passing, Ports, Side, TOO_LARGE};
use breakbulk_ahp::Settings;
use breakbulk_ahp::foreign::{ClientSide, HostSide, Sessions};

/// Before a client: it listens to whole messages; the host is behind the capped link that it makes.
#[derive(Debug)]
pub struct ClientBox {
    client: ClientSide,
    too_large_code: i32,
}

impl ClientBox {
    /// For a new connection; `sessions` are those of all connections before.
    pub fn new(settings: Settings, sessions: Sessions) -> Self {
        Self {
            too_large_code: settings.too_large_code,
            client: ClientSide::new(settings, sessions),
        }
    }
}

impl Passing for ClientBox {
    fn pass(&mut self, from: Side, ports: Ports<'_>, message: Incoming<'_>) -> Pass {
        let Incoming { bytes, key, .. } = message;
        let message = ports.to.with(|link| match from {
            Side::Listen => self.client.to_host(link, bytes),
            Side::To => Outgoing::new(self.client.from_host(link, bytes, key)),
        });
        Pass::On(Box::new(message))
    }

    fn heard(&mut self, from: Side, event: &Event) {
        if from == Side::To {
            self.client.heard(event);
        }
    }

    fn not_sent(&mut self, to: Side, bytes: &Bytes, error: &SendError) -> Instead {
        match to {
            Side::To => self.client.not_sent(bytes, error),
            Side::Listen => instead(bytes, error, self.too_large_code),
        }
    }

    fn oversized(&mut self, _from: Side, oversized: &Oversized) -> Instead {
        // Whatever a client tells may change its state: what follows would hide that it is missing.
        of_ahp(oversized, self.too_large_code, |_| false)
    }
}

/// Of an AHP program only what carries no state may be missing.
fn of_ahp(oversized: &Oversized, too_large_code: i32, may_miss: impl Fn(&str) -> bool) -> Instead {
    match of_oversized(oversized, too_large_code) {
        Instead::Drop(words) if !oversized.method.as_deref().is_some_and(may_miss) => {
            Instead::Close(TOO_LARGE, words)
        }
        instead => instead,
    }
}

/// Before a host: clients come by the capped link; the host gets whole messages.
#[derive(Debug)]
pub struct HostBox {
    host: HostSide,
    too_large_code: i32,
}

impl HostBox {
    /// For a new connection; `sessions` are those of all connections before.
    pub fn new(settings: Settings, sessions: Sessions) -> Self {
        Self {
            too_large_code: settings.too_large_code,
            host: HostSide::new(settings, sessions),
        }
    }
}

impl Passing for HostBox {
    fn pass(&mut self, from: Side, ports: Ports<'_>, message: Incoming<'_>) -> Pass {
        let bytes = message.bytes;
        let message = ports.listen.with(|link| match from {
            Side::Listen => Outgoing::new(self.host.from_client(bytes)),
            Side::To => self.host.to_client(link, bytes),
        });
        Pass::On(Box::new(message))
    }

    fn heard(&mut self, from: Side, event: &Event) {
        if from == Side::Listen {
            self.host.heard(event);
        }
    }

    fn not_sent(&mut self, to: Side, bytes: &Bytes, error: &SendError) -> Instead {
        match to {
            Side::Listen => self.host.not_sent(bytes, error),
            Side::To => instead(bytes, error, self.too_large_code),
        }
    }

    fn oversized(&mut self, _from: Side, oversized: &Oversized) -> Instead {
        // The next action would hide the hole.
        let may_miss = |method: &str| !method.contains('\\') && method != "\"action\"";
        of_ahp(oversized, self.too_large_code, may_miss)
    }
}

/// Segments on both sides, each with limits of its own: what one side cuts is put together and cut
/// anew for the other.
#[derive(Debug)]
pub struct BothBoxes {
    host: HostSide,
    client: ClientSide,
}

impl BothBoxes {
    /// For a new pair of connections; the sessions of hosts and of clients are kept apart.
    pub fn new(listen: Settings, to: Settings, clients: Sessions, hosts: Sessions) -> Self {
        Self {
            host: HostSide::new(listen, clients),
            client: ClientSide::new(to, hosts),
        }
    }
}

impl Passing for BothBoxes {
    fn pass(&mut self, from: Side, ports: Ports<'_>, message: Incoming<'_>) -> Pass {
        let Incoming { bytes, key, .. } = message;
        let message = match from {
            Side::Listen => {
                let bytes = self.host.from_client(bytes);
                ports.to.with(|link| self.client.to_host(link, bytes))
            }
            Side::To => {
                let bytes = ports
                    .to
                    .with(|link| self.client.from_host(link, bytes, key));
                ports.listen.with(|link| self.host.to_client(link, bytes))
            }
        };
        Pass::On(Box::new(message))
    }

    fn heard(&mut self, from: Side, event: &Event) {
        match from {
            Side::Listen => self.host.heard(event),
            Side::To => self.client.heard(event),
        }
    }

    fn not_sent(&mut self, to: Side, bytes: &Bytes, error: &SendError) -> Instead {
        match to {
            Side::To => self.client.not_sent(bytes, error),
            Side::Listen => self.host.not_sent(bytes, error),
        }
    }
}

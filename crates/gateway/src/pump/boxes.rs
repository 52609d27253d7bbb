//! Middle boxes for AHP programs that do not know segments: one side carries whole messages, the other one
//! is capped.

use breakbulk_link::{Event, Outgoing, SendError};
use bytes::Bytes;

use super::unsent::{instead, of_oversized, second_gateway};
use super::{Incoming, Oversized, Pass, Passing, Replacement, Side, TOO_LARGE};
use breakbulk_ahp::Config;
use breakbulk_ahp::foreign::{ClientSide, HostSide, Sessions};
use breakbulk_net::{Connection, now};

/// For a client: it sends and receives whole messages, and the connection to the host is capped.
pub struct ClientBox {
    host: Connection,
    client: ClientSide,
    too_large_code: i32,
}

impl ClientBox {
    /// For one connection to a host; `sessions` is shared with all earlier connections.
    pub fn new(host: Connection, config: Config, sessions: Sessions) -> Self {
        Self {
            host,
            too_large_code: config.too_large_code,
            client: ClientSide::new(config, sessions),
        }
    }
}

impl Passing for ClientBox {
    fn pass(&mut self, from: Side, message: Incoming<'_>) -> Pass {
        let Incoming { bytes, key, .. } = message;
        let message = self.host.with(|link| match from {
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

    fn asks_again(&self, method: &str) -> bool {
        is_handshake(method)
    }

    fn not_sent(&mut self, to: Side, bytes: &Bytes, error: &SendError) -> Replacement {
        match to {
            Side::To => self.client.not_sent(bytes, error),
            Side::Listen => instead(bytes, error, self.too_large_code),
        }
    }

    fn oversized(&mut self, _from: Side, oversized: &Oversized) -> Replacement {
        // Any notification of a client may change state, and later ones would hide that it is missing.
        of_ahp(oversized, self.too_large_code, |_| false)
    }
}

/// Whether a method is that of a handshake. A client whose connection closes during a handshake tries
/// again; an error would be taken for a refusal.
fn is_handshake(method: &str) -> bool {
    matches!(method, "initialize" | "reconnect")
}

/// Closes both sides for an oversized notification, unless it may be dropped because it changes no state.
fn of_ahp(
    oversized: &Oversized,
    too_large_code: i32,
    may_drop: impl Fn(&str) -> bool,
) -> Replacement {
    match of_oversized(oversized, too_large_code) {
        Replacement::Drop(words) if !oversized.method.as_deref().is_some_and(may_drop) => {
            Replacement::Close(TOO_LARGE, words)
        }
        instead => instead,
    }
}

/// For a host: it sends and receives whole messages, and the connections of clients are capped.
pub struct HostBox {
    client: Connection,
    host: HostSide,
    too_large_code: i32,
    /// Where clients find this gateway.
    address: Option<String>,
}

impl HostBox {
    /// For the connection of one client; `sessions` is shared with all earlier connections.
    pub fn new(client: Connection, config: Config, sessions: Sessions) -> Self {
        Self {
            client,
            too_large_code: config.too_large_code,
            host: HostSide::new(config, sessions),
            address: None,
        }
    }

    /// Sets the address where clients find this gateway: a client that does not know pieces is told to put a
    /// second gateway before it, with this address as its target.
    pub fn listening_at(self, address: Option<String>) -> Self {
        Self { address, ..self }
    }
}

impl Passing for HostBox {
    fn pass(&mut self, from: Side, message: Incoming<'_>) -> Pass {
        let bytes = message.bytes;
        let message = self.client.with(|link| match from {
            Side::Listen => Outgoing::new(self.host.from_client(bytes)),
            Side::To => self.host.to_client(now(), link, bytes),
        });
        Pass::On(Box::new(message))
    }

    fn heard(&mut self, from: Side, event: &Event) {
        if from == Side::Listen {
            self.host.heard(now(), event);
        }
    }

    fn asks_again(&self, method: &str) -> bool {
        is_handshake(method)
    }

    fn not_sent(&mut self, to: Side, bytes: &Bytes, error: &SendError) -> Replacement {
        match to {
            Side::Listen => {
                let instead = self.host.not_sent(bytes, error);
                let second = self
                    .address
                    .as_deref()
                    .and_then(|address| second_gateway(bytes, error, self.too_large_code, address));
                second.unwrap_or(instead)
            }
            Side::To => instead(bytes, error, self.too_large_code),
        }
    }

    fn oversized(&mut self, _from: Side, oversized: &Oversized) -> Replacement {
        // The next action would hide that this one is missing.
        let may_drop = |method: &str| !method.contains('\\') && method != "\"action\"";
        of_ahp(oversized, self.too_large_code, may_drop)
    }
}

/// Segments on both sides, each with limits of its own: messages are assembled and cut again.
pub struct BothBoxes {
    listen: Connection,
    host: HostSide,
    to: Connection,
    client: ClientSide,
    too_large_code: i32,
    /// Where clients find this gateway.
    address: Option<String>,
}

impl BothBoxes {
    /// Between the connection of a client and the connection to a host, each with its config and
    /// sessions.
    pub fn new(
        (listen, listen_config, clients): (Connection, Config, Sessions),
        (to, to_config, hosts): (Connection, Config, Sessions),
    ) -> Self {
        Self {
            listen,
            too_large_code: listen_config.too_large_code,
            host: HostSide::new(listen_config, clients),
            to,
            client: ClientSide::new(to_config, hosts),
            address: None,
        }
    }

    /// Sets where clients find this gateway, as for a [`HostBox`].
    pub fn listening_at(self, address: Option<String>) -> Self {
        Self { address, ..self }
    }
}

impl Passing for BothBoxes {
    fn pass(&mut self, from: Side, message: Incoming<'_>) -> Pass {
        let Incoming { bytes, key, .. } = message;
        let message = match from {
            Side::Listen => {
                let bytes = self.host.from_client(bytes);
                self.to.with(|link| self.client.to_host(link, bytes))
            }
            Side::To => {
                let bytes = self.to.with(|link| self.client.from_host(link, bytes, key));
                self.listen
                    .with(|link| self.host.to_client(now(), link, bytes))
            }
        };
        Pass::On(Box::new(message))
    }

    fn heard(&mut self, from: Side, event: &Event) {
        match from {
            Side::Listen => self.host.heard(now(), event),
            Side::To => self.client.heard(event),
        }
    }

    fn asks_again(&self, method: &str) -> bool {
        is_handshake(method)
    }

    fn not_sent(&mut self, to: Side, bytes: &Bytes, error: &SendError) -> Replacement {
        match to {
            Side::To => self.client.not_sent(bytes, error),
            Side::Listen => {
                let instead = self.host.not_sent(bytes, error);
                let second = self
                    .address
                    .as_deref()
                    .and_then(|address| second_gateway(bytes, error, self.too_large_code, address));
                second.unwrap_or(instead)
            }
        }
    }
}

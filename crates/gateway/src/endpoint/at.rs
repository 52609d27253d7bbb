//! The transport of an endpoint and its address, and what each transport can do.

use breakbulk_link::Carrier;

#[cfg(feature = "loro")]
use super::LoroAddress;
#[cfg(feature = "nats")]
use super::NatsAddress;
#[cfg(feature = "nostr")]
use super::RelayAddress;
#[cfg(feature = "process")]
use super::SocketAddress;
use super::WsAddress;
use crate::error::EndError;

/// The transport, and its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// This process's own standard streams.
    #[cfg(feature = "process")]
    Stdio,
    /// The standard streams of a command.
    #[cfg(feature = "process")]
    Exec(Vec<String>),
    /// A TCP or Unix socket.
    #[cfg(feature = "process")]
    Socket(SocketAddress),
    /// A WebSocket.
    Ws(WsAddress),
    /// An MCP server over HTTP.
    #[cfg(feature = "http")]
    Http(WsAddress),
    /// loro-extended over HTTP.
    #[cfg(feature = "loro")]
    Loro(LoroAddress),
    /// A tunnel over plain HTTP.
    #[cfg(feature = "http")]
    Exchange(WsAddress),
    /// A tunnel over NATS.
    #[cfg(feature = "nats")]
    Nats(NatsAddress),
    /// Nostr relays.
    #[cfg(feature = "nostr")]
    Relays(RelayAddress),
}

impl At {
    /// The address, if this is a WebSocket.
    pub(crate) fn ws(&self) -> Option<&WsAddress> {
        match self {
            Self::Ws(address) => Some(address),
            #[cfg(any(
                feature = "http",
                feature = "loro",
                feature = "nats",
                feature = "process",
                feature = "nostr"
            ))]
            _ => None,
        }
    }

    /// The address, if this is a WebSocket or HTTP.
    pub(crate) fn web(&self) -> Option<&WsAddress> {
        match self {
            Self::Ws(address) => Some(address),
            #[cfg(feature = "http")]
            Self::Http(address) | Self::Exchange(address) => Some(address),
            #[cfg(any(
                feature = "loro",
                feature = "nats",
                feature = "process",
                feature = "nostr"
            ))]
            _ => None,
        }
    }

    pub(crate) fn is_http(&self) -> bool {
        #[cfg(feature = "http")]
        return matches!(self, Self::Http(_));
        #[cfg(not(feature = "http"))]
        false
    }

    pub(crate) fn is_ws(&self) -> bool {
        self.ws().is_some()
    }

    /// How the program at this end gets its messages.
    pub(super) fn carriers(&self) -> &'static [Carrier] {
        match self {
            #[cfg(feature = "process")]
            Self::Stdio | Self::Exec(_) | Self::Socket(_) => &[Carrier::Lines],
            Self::Ws(_) => &[Carrier::WebSocket],
            #[cfg(feature = "http")]
            Self::Http(_) => &[Carrier::Post, Carrier::EventStream],
            #[cfg(feature = "http")]
            Self::Exchange(_) => &[],
            #[cfg(feature = "nats")]
            Self::Nats(_) => &[],
            #[cfg(feature = "loro")]
            Self::Loro(_) => &[],
            #[cfg(feature = "nostr")]
            Self::Relays(_) => &[],
        }
    }

    /// Whether it is a TCP or Unix socket whose other end is any program.
    pub(crate) fn is_socket(&self) -> bool {
        #[cfg(feature = "process")]
        return matches!(self, Self::Socket(_));
        #[cfg(not(feature = "process"))]
        false
    }

    /// Whether its two sides know bearer tokens.
    pub(crate) fn has_token(&self) -> bool {
        match self {
            Self::Ws(_) => true,
            #[cfg(feature = "http")]
            Self::Http(_) | Self::Exchange(_) => true,
            #[cfg(feature = "loro")]
            Self::Loro(_) => true,
            #[cfg(any(feature = "nats", feature = "process", feature = "nostr"))]
            _ => false,
        }
    }

    /// Whether it is encrypted by TLS.
    pub(super) fn is_secure(&self) -> bool {
        match self {
            Self::Ws(address) => address.secure,
            #[cfg(feature = "http")]
            Self::Http(address) | Self::Exchange(address) => address.secure,
            #[cfg(feature = "nats")]
            Self::Nats(address) => address.secure,
            #[cfg(feature = "loro")]
            Self::Loro(address) => address.secure,
            #[cfg(any(feature = "nats", feature = "process", feature = "nostr"))]
            _ => false,
        }
    }

    /// Whether it can be a target: a listener's address may be shorter.
    pub(crate) fn check_target(&self) -> Result<(), EndError> {
        match self {
            Self::Ws(address) => address.check_target(),
            #[cfg(feature = "http")]
            Self::Http(address) | Self::Exchange(address) => address.check_target(),
            #[cfg(feature = "process")]
            Self::Socket(address) => address.check_target(),
            #[cfg(feature = "loro")]
            Self::Loro(address) => address.check_target(),
            #[cfg(any(feature = "nats", feature = "process", feature = "nostr"))]
            _ => Ok(()),
        }
    }

    pub(crate) fn is_web(&self) -> bool {
        self.web().is_some()
    }

    pub(crate) fn is_exchange(&self) -> bool {
        #[cfg(feature = "http")]
        return matches!(self, Self::Exchange(_));
        #[cfg(not(feature = "http"))]
        false
    }

    pub(crate) fn is_nats(&self) -> bool {
        #[cfg(feature = "nats")]
        return matches!(self, Self::Nats(_));
        #[cfg(not(feature = "nats"))]
        false
    }

    /// Whether it has frames: a WebSocket, or what else carries a tunnel.
    pub(crate) fn has_frames(&self) -> bool {
        self.is_ws() || self.is_exchange() || self.is_nats()
    }

    /// Whether clients of a listener there can come back to their sessions.
    #[cfg(feature = "nats")]
    pub(crate) fn is_resumable(&self) -> bool {
        self.has_frames() || self.is_http()
    }

    pub(crate) fn is_relays(&self) -> bool {
        #[cfg(feature = "nostr")]
        return matches!(self, Self::Relays(_));
        #[cfg(not(feature = "nostr"))]
        false
    }

    #[cfg(feature = "nostr")]
    pub(crate) fn is_stdio(&self) -> bool {
        #[cfg(feature = "process")]
        return matches!(self, Self::Stdio);
        #[cfg(not(feature = "process"))]
        false
    }
}

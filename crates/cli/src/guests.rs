//! The options of a listener: which clients it accepts, and how many from one address.

use breakbulk::net::{AddressLimits, ProxyHeader, raise_open_files};
use clap::Args;

use crate::number::whole;

/// How many requests one address may send in a second, unless an option says otherwise.
const RATE: u32 = 500;

/// Files that the program needs beside those of clients.
const OWN_FILES: usize = 32;

#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GuestOptions {
    /// The most connections from one address (IPv6: from one /64 network) [default: a quarter of all].
    /// Connections from this machine itself are not limited
    #[arg(long, value_name = "NUMBER", value_parser = whole::<usize>)]
    pub(crate) max_per_address: Option<usize>,
    /// The most requests per second from one address; four times as many in a burst [default: 500]
    #[arg(long, value_name = "NUMBER", value_parser = whole::<u32>)]
    pub(crate) rate_per_address: Option<u32>,
    /// Clients come through a proxy, which names them in this header: x-forwarded-for or forwarded. The
    /// address of a client is its last entry. Use it only if nobody can reach this listener without the
    /// proxy
    #[arg(long, value_name = "HEADER")]
    pub(crate) trust_proxy: Option<ProxyHeader>,
    /// Clients may address this listener by this host name, beside localhost and loopback addresses; may
    /// be given more than once [default: any name for clients with a token or on another machine, else
    /// none]
    #[arg(long = "allow-host", value_name = "HOST")]
    pub(crate) hosts: Vec<String>,
    /// Web pages of this origin may connect, "*" for all; may be given more than once [default: those
    /// of this machine]
    #[arg(long = "origin", value_name = "ORIGIN")]
    pub(crate) origins: Vec<String>,
    /// The user with this number may connect to a Unix socket, beside the one who runs this and root; may
    /// be given more than once
    #[cfg(unix)]
    #[arg(long = "allow-user", value_name = "UID", value_parser = whole::<u32>)]
    pub(crate) users: Vec<u32>,
}

impl GuestOptions {
    /// The limits for one address, of a listener with so many connections in all.
    pub(crate) fn per_address(&self, connections: usize) -> AddressLimits {
        let usual = connections.div_ceil(4);
        AddressLimits {
            connections: self.max_per_address.unwrap_or(usual).max(1),
            per_second: self.rate_per_address.unwrap_or(RATE).max(1),
            proxy: self.trust_proxy,
            ..AddressLimits::default()
        }
    }

    #[cfg(unix)]
    pub(crate) fn users(&self) -> &[u32] {
        &self.users
    }

    pub(crate) fn hosts(&self) -> Option<Vec<String>> {
        (!self.hosts.is_empty()).then(|| self.hosts.clone())
    }

    pub(crate) fn origins(&self) -> Option<Vec<String>> {
        (!self.origins.is_empty()).then(|| self.origins.clone())
    }
}

/// How many connections and handshakes the limit of open files allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) connections: usize,
    pub(crate) handshakes: usize,
}

impl Room {
    /// Raises the limit of open files, and returns the room for at most this many connections of
    /// `files` open files each. Says so if there is less than was asked for by `option`, where there is one.
    pub(crate) fn make(connections: usize, files: usize, option: Option<&str>) -> Self {
        let limit = raise_open_files().unwrap_or(usize::MAX);
        let room = Self::within(limit, connections, files);
        if room.connections < connections {
            let (of, or_lower) = match option {
                Some(option) => (
                    format!("that {option} allows"),
                    format!(", or lower {option}"),
                ),
                None => ("wanted".to_owned(), String::new()),
            };
            tracing::warn!(
                "the limit of {limit} open files has room for {} of the {connections} connections {of}; \
                 raise the limit (ulimit -n){or_lower}",
                room.connections
            );
        }
        room
    }

    fn within(limit: usize, connections: usize, files: usize) -> Self {
        let handshakes = (limit / 4).clamp(1, 256);
        // Refused clients that are still being answered are a quarter of the handshakes.
        let taken = OWN_FILES + handshakes + handshakes.div_ceil(4);
        let room = limit.saturating_sub(taken) / files.max(1);
        Self {
            connections: room.clamp(1, connections.max(1)),
            handshakes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_and_handshakes_fit_in_the_limit_of_open_files() {
        for (limit, asked, files, connections, handshakes) in [
            (usize::MAX, 256, 6, 256, 256),
            (1 << 20, 256, 6, 256, 256),
            (1024, 256, 6, 112, 256),
            (128, 256, 6, 9, 32),
            (128, 4, 6, 4, 32),
            (16, 256, 6, 1, 4),
        ] {
            let room = Room::within(limit, asked, files);
            let expected = Room {
                connections,
                handshakes,
            };
            assert_eq!(room, expected, "{limit}");
        }
    }
}

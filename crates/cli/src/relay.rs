//! `breakbulk relay`: a capped path on this machine, to try out what happens at its cap.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use breakbulk_testkit::bad_path::{BadPath, Counts, Weather};
use breakbulk_testkit::bad_relay::{self, BadRelay};
use breakbulk_testkit::http_path::HttpPath;
use clap::Args;
use tracing::Level;

use crate::failure::Failure;
use crate::log::LogOptions;
use crate::size::{self, Size};
use crate::{log, signals};

/// How often the counts of a relay that cannot be waited for are read.
const LOOK: Duration = Duration::from_millis(250);

const RULES: &str = "\
It stands for the capped path of a network, on this machine: a WebSocket relay
closes a connection with 1009 when a message is over --cap, a proxy for HTTP
answers a body over --cap with 413 (a response: 502), a Nostr relay (--nostr)
refuses an event over --cap. What is within the cap passes unchanged, both ways.
It knows no tokens and no TLS, and listens on this machine alone.

It runs until a signal comes.

Examples:
  breakbulk relay --listen ws://9000 --to ws://127.0.0.1:8080
  breakbulk relay --listen http://9000 --to http://127.0.0.1:8080 --cap 100KB
  breakbulk relay --listen ws://7777 --nostr --cap 64KiB";

#[derive(Args, Debug)]
#[command(after_long_help = RULES, after_help = "See --help for what it does, and examples.")]
pub(crate) struct Relay {
    /// Where clients connect: ws://PORT or http://PORT of this machine; port 0 is any free one
    #[arg(long, value_name = "ENDPOINT", default_value = "ws://9000")]
    listen: Place,
    /// The server that the relay connects each client to: ws://HOST:PORT or http://HOST:PORT
    #[arg(long, value_name = "ENDPOINT", required_unless_present = "nostr")]
    to: Option<Place>,
    /// Run a Nostr relay instead
    #[arg(long, conflicts_with = "to")]
    nostr: bool,
    /// The largest message, body or event that passes [default: 1MB; with --nostr 64KiB]
    #[arg(long, value_name = "SIZE")]
    cap: Option<Size>,
    #[command(flatten)]
    log: LogOptions,
}

/// A scheme, a host and a port. A path behind them is left out: the relay passes on what clients ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    scheme: Scheme,
    /// Host and port.
    address: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Ws,
    Http,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, rest) = match text.split_once("://") {
            Some(("ws", rest)) => (Scheme::Ws, rest),
            Some(("http", rest)) => (Scheme::Http, rest),
            Some((scheme @ ("wss" | "https"), _)) => {
                return Err(format!(
                    "breakbulk relay knows no TLS; write {}://HOST:PORT",
                    scheme.strip_suffix('s').unwrap_or(scheme)
                ));
            }
            _ => return Err("write ws://HOST:PORT or http://HOST:PORT".to_owned()),
        };
        let address = rest.split(['/', '?']).next().unwrap_or_default();
        let address = match address.parse::<u16>() {
            Ok(port) => format!("127.0.0.1:{port}"),
            Err(_) => address.to_owned(),
        };
        let port = address
            .rsplit_once(':')
            .filter(|(host, _)| !host.is_empty());
        match port.map(|(_, port)| port.parse::<u16>()) {
            Some(Ok(_)) => Ok(Self { scheme, address }),
            _ => Err(format!(
                "there is no port in {text:?}; write {scheme}://HOST:PORT"
            )),
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ws => "ws",
            Self::Http => "http",
        })
    }
}

impl Relay {
    pub(crate) fn run(self) -> Result<(), Failure> {
        self.log.start(Level::INFO)?;
        let runtime = tokio::runtime::Runtime::new()
            .map_err(|error| Failure::Io("cannot start threads".to_owned(), error))?;
        let outcome = runtime.block_on(self.serve());
        runtime.shutdown_background();
        outcome
    }

    async fn serve(&self) -> Result<(), Failure> {
        let signals = signals::Stop::on_signals();
        let signals =
            signals.map_err(|error| Failure::Io("cannot watch for signals".to_owned(), error))?;
        let listen = self.place_to_listen()?;
        let carrying = async {
            match (&self.to, self.listen.scheme) {
                (None, _) => self.nostr(listen).await,
                (Some(to), Scheme::Ws) => self.websockets(listen, to).await,
                (Some(to), Scheme::Http) => self.http(listen, to).await,
            }
        };
        tokio::select! {
            failed = carrying => failed,
            () = signals.asked() => Ok(()),
        }
    }

    /// # Errors
    /// If it could be reached from elsewhere, or if both ends do not fit together.
    fn place_to_listen(&self) -> Result<SocketAddr, Failure> {
        let scheme = self.listen.scheme;
        let wrong = match &self.to {
            Some(to) if to.scheme != scheme => Some(format!(
                "--listen is {scheme}:// and --to is {}://; give both the same scheme",
                to.scheme
            )),
            None if scheme == Scheme::Http => {
                Some("--listen: a Nostr relay is reached by WebSocket; write ws://PORT".to_owned())
            }
            _ => None,
        };
        if let Some(wrong) = wrong {
            return Err(Failure::Usage(wrong));
        }
        let address = self.listen.address.replace("localhost", "127.0.0.1");
        match address.parse::<SocketAddr>() {
            Ok(address) if address.ip().is_loopback() => Ok(address),
            _ => Err(Failure::Usage(format!(
                "--listen {scheme}://{}: breakbulk relay is for trials and has no tokens, so it listens on this machine alone; write {scheme}://PORT",
                self.listen.address
            ))),
        }
    }

    fn cap(&self) -> usize {
        let usual = match self.nostr {
            true => 64 << 10,
            false => 1_000_000,
        };
        self.cap.map_or(usual, |cap| cap.0)
    }

    fn started(&self, address: SocketAddr) {
        let address = format!("{}://{address}", self.listen.scheme);
        tracing::info!(
            "the cap is {}: larger messages are refused",
            size::show(self.cap())
        );
        log::address("listening on", &address);
    }

    async fn websockets(&self, listen: SocketAddr, to: &Place) -> Result<(), Failure> {
        let weather = Weather::capped(self.cap() as u64);
        let path = BadPath::start_at(listen, &to.address, weather).await;
        let path = path.map_err(|error| cannot_listen(listen, &error))?;
        self.started(path.address());
        let mut before = Counts::default();
        loop {
            let now = path.until(|now| changed(now) != changed(&before)).await;
            if now.accepted > before.accepted {
                tracing::info!("connection {} opened", now.accepted);
            }
            if now.unreachable > before.unreachable {
                tracing::warn!(
                    "--to: {} cannot be reached, so the connection of the client was reset; start the server there first",
                    to.address
                );
            }
            for (from, now, before) in [
                ("a client", now.from_client, before.from_client),
                (&to.address, now.from_target, before.from_target),
            ] {
                if now.blocked > before.blocked {
                    let cap = self.cap();
                    let size = now.largest_blocked;
                    tracing::warn!(
                        "closed with 1009: {from} sent a message over the cap of {cap} bytes (the largest so far: {size} bytes)"
                    );
                }
            }
            if now.open == 0 && before.open > 0 {
                let frames = now.from_client.frames + now.from_target.frames;
                let largest = now
                    .from_client
                    .largest_message
                    .max(now.from_target.largest_message);
                tracing::info!(
                    "no connection is open; passed so far: {frames} frames, the largest message {largest} bytes"
                );
            }
            before = now;
        }
    }

    async fn http(&self, listen: SocketAddr, to: &Place) -> Result<(), Failure> {
        let unknown = |error| Failure::Usage(format!("--to http://{}: {error}", to.address));
        let mut addresses = tokio::net::lookup_host(&to.address)
            .await
            .map_err(unknown)?;
        let target = addresses.next().ok_or_else(|| {
            Failure::Usage(format!(
                "--to http://{}: the name has no address",
                to.address
            ))
        })?;
        let path = HttpPath::start_at(listen, target, self.cap()).await;
        let path = path.map_err(|error| cannot_listen(listen, &error))?;
        self.started(path.address());
        let mut before = 0;
        loop {
            tokio::time::sleep(LOOK).await;
            let (refused, largest) = path.refused();
            if refused > before {
                tracing::warn!(
                    "refused a body over the cap of {} bytes ({refused} so far, the largest {largest} bytes)",
                    self.cap()
                );
            }
            before = refused;
        }
    }

    async fn nostr(&self, listen: SocketAddr) -> Result<(), Failure> {
        if listen.ip() != IpAddr::V4(Ipv4Addr::LOCALHOST) {
            let why = "--listen: a Nostr relay listens at 127.0.0.1; write ws://PORT";
            return Err(Failure::Usage(why.to_owned()));
        }
        let relay = BadRelay::start(bad_relay::Weather {
            event_max: self.cap(),
            port: (listen.port() != 0).then_some(listen.port()),
            ..bad_relay::Weather::default()
        });
        let relay = relay.await.map_err(|error| cannot_listen(listen, &error))?;
        tracing::info!(
            "the cap is {}: larger messages are refused",
            size::show(self.cap())
        );
        log::address("listening on", relay.url().trim_end_matches('/'));
        let mut before = 0;
        loop {
            tokio::time::sleep(LOOK).await;
            let refused = relay.refused();
            if refused > before {
                tracing::warn!(
                    "refused an event over the cap of {} bytes ({refused} so far, the largest {} bytes)",
                    self.cap(),
                    relay.largest()
                );
            }
            before = refused;
        }
    }
}

/// The counts whose change is logged: passing frames are not among them.
fn changed(counts: &Counts) -> [u64; 5] {
    let blocked = counts.from_client.blocked + counts.from_target.blocked;
    [
        counts.accepted,
        counts.open,
        counts.unreachable,
        blocked,
        counts.long_heads,
    ]
}

fn cannot_listen(address: SocketAddr, error: &impl fmt::Display) -> Failure {
    Failure::Usage(format!(
        "--listen: {address}: {error}; if another program has this port, choose another one"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        for (text, scheme, address) in [
            ("ws://9000", Scheme::Ws, "127.0.0.1:9000"),
            ("ws://127.0.0.1:9000/a/b?c", Scheme::Ws, "127.0.0.1:9000"),
            ("ws://[::1]:9000", Scheme::Ws, "[::1]:9000"),
            ("http://example.com:80/mcp", Scheme::Http, "example.com:80"),
        ] {
            let address = address.to_owned();
            assert_eq!(text.parse(), Ok(Place { scheme, address }), "{text}");
        }
        for (wrong, why) in [
            ("9000", "write ws://HOST:PORT or http://HOST:PORT"),
            ("wss://a:1", "knows no TLS; write ws://HOST:PORT"),
            ("https://a:1", "knows no TLS; write http://HOST:PORT"),
            ("ws://localhost", "there is no port"),
            ("ws://:9000", "there is no port"),
            ("ws://a:99999", "there is no port"),
        ] {
            let error = wrong.parse::<Place>().expect_err(wrong);
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }
}

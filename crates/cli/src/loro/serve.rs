//! `breakbulk loro serve`.

use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use breakbulk::gateway::{TokenCheck, TokenFile};
use breakbulk::link::Budget;
use breakbulk::loro::http::serve_options;
use breakbulk::loro::store::{DiskStore, MemoryStore, NatsStore, StoreStatus};
use breakbulk::loro::{Config, Node, Rights, Rule};
use breakbulk::net::http::{self, ServeOptions};
use breakbulk::net::nats::journal::JournalOptions;
use breakbulk::net::ws::Identity;
use breakbulk::net::{AddressLimits, ListenAddress, ListenSocket};
use clap::Args;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tracing::Level;

use crate::failure::Failure;
use crate::guests::{GuestOptions, Room};
use crate::log::LogOptions;
use crate::number::whole;
use crate::signals::Stop;
use crate::size::Size;
use crate::{log, token};

/// How long a client may take to poll again at shutdown before it counts as gone.
const POLLS_AGAIN: Duration = Duration::from_secs(2);

/// How long the answers to the last requests may take once all connections are closed.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

#[derive(Args)]
#[command(after_help = "\
The token that clients must send is read from --token-file, or from
BREAKBULK_TOKEN in the environment. The file has one token, or several lines of
a name and a token each; it is read again when it changes, and only its owner
may be able to read it. Clients send it as Authorization: Bearer, or, where a
browser cannot, as ?token= in the address.

RIGHT is read, write, create or delete, each including the ones before it, on
all documents whose names begin with PREFIX. Once a --right is given nothing
else is allowed: documents without a right to read look as if they did not
exist. Example: --right read: --right create:notes/

A WebSocket on which nothing came for 10 s is pinged, and closed after 30 s; a
polling client that was away for 120 s is forgotten.

Servers with the same --store share all documents: a client may use any of them,
and what one of them acknowledged is stored by most of the stream's replicas.
Write several NATS servers with commas between them, and in how many of them a
new stream is kept: nats://a:4222,b:4222,c:4222/DOCS?replicas=3; or tls://…,
USER:PASSWORD@ or TOKEN@ before the hosts, &creds=FILE after. Each server keeps
all documents in memory, as stored. While NATS is away documents can be read,
and changes are refused.

If the disk is full, documents can still be read, changes are refused, and both
are logged; changes are accepted again once there is room.")]
pub(super) struct Serve {
    /// The directory to store documents in; without it they are lost when this process ends
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Share documents with other servers: nats://HOST:PORT/STREAM, a stream of NATS JetStream
    #[arg(long, value_name = "URL", conflicts_with = "data")]
    store: Option<String>,
    /// Where to listen: HOST:PORT, or unix:PATH for programs of this machine and user
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7402")]
    listen: String,
    /// A file with the token that clients must send, or with names and tokens
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    guests: GuestOptions,
    /// The server's certificate, for https and wss
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// The certificate's key
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Accept only clients with a certificate that this authority signed
    #[arg(long, value_name = "FILE", requires = "cert")]
    client_ca: Option<PathBuf>,
    /// Listen beyond this machine without a token
    #[arg(long)]
    allow_remote: bool,
    /// The most connections at a time
    #[arg(long, value_name = "NUMBER", value_parser = whole::<usize>, default_value_t = 1024)]
    max_connections: usize,
    /// The largest document, as stored
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    max_document: Size,
    /// All documents together, as stored; further changes are refused [default: no limit]
    #[arg(long, value_name = "SIZE")]
    max_store: Option<Size>,
    /// What clients may do with documents: RIGHT:PREFIX, or NAME=RIGHT:PREFIX for the token of that name;
    /// may be given more than once [default: everything but delete]
    #[arg(long = "right", value_name = "RULE")]
    rights: Vec<Rule>,
    /// The largest message that is accepted
    #[arg(long, value_name = "SIZE", default_value = "50MiB")]
    max_message: Size,
    /// The memory for messages of all connections together, incoming and outgoing, and for documents
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    memory: Size,
    /// How long to wait for queued messages at shutdown, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = whole::<u64>, default_value_t = 10)]
    grace: u64,
    #[command(flatten)]
    log: LogOptions,
}

impl Serve {
    pub(super) async fn run(self) -> Result<(), Failure> {
        self.log.start(Level::INFO)?;
        let stop = Stop::on_signals()
            .map_err(|error| Failure::Io("cannot watch for signals".to_owned(), error))?;
        let tokens = match &self.token_file {
            Some(file) => {
                let tokens = TokenFile::open(file);
                let tokens =
                    tokens.map_err(|error| Failure::Usage(format!("--token-file: {error}")))?;
                Some(TokenCheck::File(Arc::new(tokens)))
            }
            None => token::from_environment()?.map(TokenCheck::One),
        };
        // A connection has at most two sockets most of the time: its own, and that of a POST.
        let room = Room::make(self.max_connections, 2, Some("--max-connections"));
        let listener = self
            .bind(tokens.is_some() || self.client_ca.is_some())
            .await?;
        let address = listener.address().map_err(|error| self.io(error))?;
        // Half is for messages, the other half for documents, which take several times their stored bytes
        // while they are worked on.
        let messages = self.memory.0 / 2;
        // A quarter of that is divided among all clients, so that each has a part that others cannot take.
        let reserved = messages / 4 / self.max_connections.max(1);
        let budget = Budget::new(messages - messages / 4);
        let node = self.node(&budget, reserved).await?;
        let tokens_in_clear = tokens.is_some() && self.cert.is_none() && !address.is_local();
        let (server, arrivals) =
            http::Server::new(self.options(tokens, room.connections, &address, budget));
        let serving = node.serve(arrivals);
        let identity = (self.cert.clone()).zip(self.key.clone());
        let (address, ways) = heard_at(&address, identity.is_some());
        let per_address = self.guests.per_address(self.max_connections);
        let limits = http::Limits::default().with(|limits| {
            limits.sockets = room
                .connections
                .saturating_mul(2)
                .saturating_add(room.handshakes.min(64));
            limits.per_address = AddressLimits {
                connections: (per_address.connections.saturating_mul(2)).saturating_add(64),
                ..per_address
            };
            limits.identity = identity.map(|(chain, key)| Identity { chain, key });
            limits.client_authority = self.client_ca.clone();
        });
        if tokens_in_clear {
            tracing::warn!(
                "--listen: tokens travel in clear text, and whoever sees one can use it; give --cert and --key"
            );
        }
        let shared = match &self.store {
            Some(store) => {
                let options = JournalOptions::parse(store);
                let options =
                    options.map_err(|error| Failure::Usage(format!("--store: {error}")))?;
                Some(options.name())
            }
            None => None,
        };
        let kept = match (&self.data, &shared) {
            (_, Some(name)) => format!("shared at {name}"),
            (Some(data), None) => format!("stored in {}", data.display()),
            (None, None) => "lost when this process ends (store them with --data DIR)".to_owned(),
        };
        log::address("listening on", &address);
        tracing::info!(
            "serving {} documents, {kept}; {ways}",
            node.documents().len()
        );
        let serving_http = http::serve_until(listener, server.router(), limits, stop.asked());
        let mut serving_http = tokio::spawn(serving_http);
        let outcome = tokio::select! {
            // Before a signal it ends only by an error.
            ended = &mut serving_http => match ended {
                Ok(Err(error)) => Err(Failure::Session(error.to_string())),
                _ => Ok(()),
            },
            () = stop.asked() => Ok(()),
            reason = store_lost(&node) => Err(Failure::Session(reason)),
        };
        serving.abort();
        let grace = Duration::from_secs(self.grace);
        let ending = async {
            // POSTs in progress need the node, and event streams and polls end with its connections.
            let _ = timeout(grace / 2, server.posts_answered()).await;
            node.shut_down(grace).await;
            if !serving_http.is_finished() {
                let _ = timeout(LAST_ANSWERS, &mut serving_http).await;
            }
        };
        tokio::select! {
            () = ending => {}
            () = server.end_absent_polls(POLLS_AGAIN) => {}
            () = stop.insisted() => return Err(Failure::Session("stopped at once by a second signal".to_owned())),
        }
        outcome
    }

    async fn bind(&self, has_token: bool) -> Result<ListenSocket, Failure> {
        #[cfg(unix)]
        if let Some(path) = self.listen.strip_prefix("unix:") {
            if self.cert.is_some() {
                let text = "--cert is for HOST:PORT: a Unix socket does not leave this machine";
                return Err(Failure::Usage(text.to_owned()));
            }
            return ListenSocket::unix(path, self.guests.users())
                .map_err(|error| Failure::Usage(format!("--listen: {error}")));
        }
        let mut addresses = self.listen.to_socket_addrs().map_err(|error| {
            Failure::Usage(format!("--listen {}: {error}; give HOST:PORT", self.listen))
        })?;
        let address: SocketAddr = addresses.next().ok_or_else(|| {
            Failure::Usage(format!("--listen {}: there is no such host", self.listen))
        })?;
        if !address.ip().is_loopback() && !has_token && !self.allow_remote {
            return Err(Failure::Usage(format!(
                "--listen: {address} is open to others than this machine; set BREAKBULK_TOKEN or --token-file FILE, or listen at 127.0.0.1 (--allow-remote accepts clients without a token)"
            )));
        }
        let listener = TcpListener::bind(address).await;
        Ok(listener.map_err(|error| self.io(error))?.into())
    }

    async fn node(&self, budget: &Budget, reserved: usize) -> Result<Node, Failure> {
        let mut config = Config::server("breakbulk");
        config.limits.document_bytes = self.max_document.0 as u64;
        config.limits.all_document_bytes = self.max_store.map_or(u64::MAX, |max| max.0 as u64);
        config.message = self.max_message.0;
        let (memory, threads) = (self.memory.0, config.threads.max(1));
        config.budget = budget.clone();
        config.reserved = reserved;
        config.limits.loaded_bytes = (memory / 8) as u64;
        config.limits.expanded_bytes = (memory / 2 / threads) as u64;
        if !self.rights.is_empty() {
            config.permissions = Arc::new(Rights::new(self.rights.clone()));
        }
        if let Some(store) = &self.store {
            let unusable =
                |error: &dyn std::fmt::Display| Failure::Usage(format!("--store: {error}"));
            let store = NatsStore::open(store)
                .await
                .map_err(|error| unusable(&error))?;
            return Node::new(config, store).map_err(|error| unusable(&error));
        }
        let node = match &self.data {
            None => Node::new(config, MemoryStore::new()),
            Some(data) => {
                let name = data.display().to_string();
                std::fs::create_dir_all(data)
                    .map_err(|error| Failure::Usage(format!("--data {name}: {error}")))?;
                DiskStore::open(data.join("documents.redb"))
                    .and_then(|store| Node::new(config, store))
            }
        };
        node.map_err(|error| match &self.data {
            Some(data) => Failure::Usage(format!("--data {}: {error}", data.display())),
            None => Failure::Session(error.to_string()),
        })
    }

    fn options(
        &self,
        tokens: Option<TokenCheck>,
        connections: usize,
        address: &ListenAddress,
        budget: Budget,
    ) -> ServeOptions {
        let mut options = ServeOptions {
            connections,
            budget: Some(budget),
            per_address: self.guests.per_address(self.max_connections).connections,
            allowed_origins: self.guests.origins(),
            allowed_hosts: self.guests.hosts(),
            ..serve_options()
        };
        // Data channels are bound to the address of the listener, or to this machine if it is a Unix socket.
        let ip = match address {
            ListenAddress::Tcp(address) => address.ip(),
            _ => Ipv4Addr::LOCALHOST.into(),
        };
        if !ip.is_unspecified() {
            options.webrtc.bind = vec![SocketAddr::new(ip, 0).to_string()];
        }
        if let Some(tokens) = tokens {
            options.authorize = Arc::new(tokens);
        }
        options
    }

    fn io(&self, error: std::io::Error) -> Failure {
        Failure::Usage(format!("--listen {}: {error}", self.listen))
    }
}

/// Where the server listens, as its clients write it, and how else it can be reached there.
fn heard_at(address: &ListenAddress, secure: bool) -> (String, String) {
    let (web, socket) = match secure {
        true => ("https", "wss"),
        false => ("http", "ws"),
    };
    match address {
        ListenAddress::Unix(path) => (
            format!("unix:{}", path.display()),
            "the Unix socket takes http and ws".to_owned(),
        ),
        address => (
            format!("{socket}://{address}/ws"),
            format!("also at {web}://{address}?transport=sse, poll or webrtc"),
        ),
    }
}

/// Waits until the store can never be used again; returns why.
async fn store_lost(node: &Node) -> String {
    let mut status = node.store_status();
    let lost = status.wait_for(|status| matches!(status, StoreStatus::Lost { .. }));
    match lost.await.as_deref() {
        Ok(StoreStatus::Lost { reason }) => reason.clone(),
        _ => std::future::pending().await,
    }
}

//! Nostr relays as an end of a gateway: a server for clients that send to its key, or a client of one
//! server (ContextVM).

mod clients;
mod files;
mod heard;
mod introduce;
mod key;
mod listen;
mod port;
mod servers;
mod session;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use breakbulk_contextvm::{
    self as contextvm, Client, ClientConfig, Forgetful, Journal, Keys, Memory, Server,
    ServerConfig, npub,
};
use breakbulk_net::nostr::RelayOptions as Connecting;
use tokio::task::JoinSet;

use crate::endpoint::{At, Endpoint, RelayAddress, RelayOptions};
use crate::error::{EndError, OpenError};
use crate::open::Opened;
use crate::plan::{Config, End};
use crate::pump::{Port, Side, session_memory};
use crate::serve::accepts;
use clients::KnownClients;
use heard::HeardFile;
pub use introduce::IntroduceError;
pub use key::KeyFileError;
pub(crate) use listen::listen;
pub(crate) use port::{ClientPort, SessionPort};
use servers::KnownServers;

/// How long the relays may take to connect at first.
const CONNECT: Duration = Duration::from_secs(10);

/// A message is cut if its event would be larger, as all implementations do.
const CUT_ABOVE: usize = 48_000;

/// A session without a message for this long ends, unless the endpoint says otherwise.
const IDLE: Duration = Duration::from_secs(30 * 60);

/// The further settings of an end at relays.
#[derive(Clone)]
pub(crate) struct RelayEnd {
    /// `None`: a new one for each connection.
    keys: Option<Keys>,
    /// Where the key was read; what is learned of servers and which events were heard is kept beside it.
    file: Option<PathBuf>,
    options: RelayOptions,
    /// A session ends after this much time without a message.
    idle: Option<Duration>,
    /// The memory of all sessions.
    memory: usize,
    /// How long what is queued may take to reach a relay at the end.
    grace: Duration,
}

impl RelayEnd {
    /// For the server that listens or, if there is a `listener` on the other side, for the client of a
    /// server.
    pub(crate) fn new(
        end: &Endpoint,
        listener: Option<&At>,
        config: &Config,
    ) -> Result<Self, EndError> {
        let options = end.options.relay.clone();
        let (others, side) = match listener {
            None => {
                let others = [
                    ("server", options.server.is_some()),
                    ("timeout", options.timeout.is_some()),
                ];
                (others, Side::To)
            }
            Some(_) => {
                let others = [
                    ("allow", options.allow.is_some()),
                    ("idle", end.options.idle.is_some()),
                ];
                (others, Side::Listen)
            }
        };
        if listener.is_some() && options.server.is_none() {
            return Err(EndError::NoServer);
        }
        if let Some((option, _)) = others.into_iter().find(|(_, given)| *given) {
            return Err(EndError::OnlyFor { option, side });
        }
        let file = end.options.key.clone();
        let keys = match &file {
            Some(file) => Some(key::from_file(file)?),
            // The clients at the listener's relays must not act under the listener's own key.
            None if listener.is_some_and(At::is_relays) => None,
            None => config.key.clone(),
        };
        match (listener, &keys) {
            (None, None) => return Err(EndError::NoKey),
            (Some(listener), Some(_)) if !listener.is_stdio() => return Err(EndError::SharedKey),
            _ => {}
        }
        Ok(Self {
            keys,
            file,
            options,
            idle: end.options.idle,
            memory: config.memory,
            grace: config.grace,
        })
    }

    fn idle(&self) -> Duration {
        self.idle.unwrap_or(IDLE)
    }

    /// Where heard events are kept: beside the key, if it is in a file.
    fn journal(&self) -> Option<Arc<dyn Journal>> {
        let file = self.file.as_ref()?;
        Some(Arc::new(HeardFile::beside(file)))
    }

    fn config(&self, end: &End) -> contextvm::Config {
        let options = &self.options;
        contextvm::Config::default().with(|config| {
            config.encryption = options.encryption.unwrap_or_default();
            config.wraps = options.wraps.unwrap_or_default();
            config.allowed = options.allow.clone();
            config.limits.message = end.max_message;
            config.limits.memory = self.memory;
            config.limits.peer_memory = session_memory(end.max_message).min(self.memory);
            config.limits.queued_bytes = end.max_message;
            if let Some(timeout) = options.timeout {
                config.timeouts.soft = Some(timeout);
                config.timeouts.hard = config.timeouts.hard.map(|hard| hard.max(timeout));
            }
            config.cut_above = CUT_ABOVE.min(end.max_frame);
            config.event_max = end.max_frame;
            config.window = options.window.unwrap_or(config.window);
            config.fresh_key = self.keys.is_none();
        })
    }
}

/// Connects to the server that an end names.
pub(crate) async fn connect(end: &End, address: &RelayAddress) -> Result<Opened, OpenError> {
    let relay = end.relay.as_ref().ok_or(EndError::NoServer)?;
    let server = relay.options.server.ok_or(EndError::NoServer)?;
    check(address).await?;
    let keys = relay.keys.clone().unwrap_or_else(Keys::generate);
    let ours = keys.public_key();
    let mut setup = ClientConfig::new(keys, server, address.relays.clone());
    setup.config = relay.config(end);
    setup.relay_options = connecting(setup.relay_options);
    setup.memory = match &relay.file {
        Some(file) => Arc::new(KnownServers::beside(file)) as Arc<dyn Memory>,
        None => Arc::new(Forgetful),
    };
    setup.journal = relay.journal();
    let client = Client::connect(setup).await?;
    tracing::info!(
        server = npub(&server),
        client = npub(&ours),
        relays = address.relays.join(","),
        "connected to the relays of a server"
    );
    Ok(Opened::whole(Port::client(client, relay.grace)))
}

/// The server whose key an end has.
async fn bind(
    end: &End,
    address: &RelayAddress,
    known: &KnownClients,
) -> Result<(Server, RelayEnd), OpenError> {
    let relay = end.relay.as_ref().ok_or(EndError::NoKey)?;
    let keys = relay.keys.clone().ok_or(EndError::NoKey)?;
    check(address).await?;
    let mut setup = ServerConfig::new(keys, address.relays.clone());
    setup.config = relay.config(end);
    setup.config.known = known.all().into_iter().collect();
    setup.relay_options = connecting(setup.relay_options);
    setup.journal = relay.journal();
    Ok((Server::bind(setup).await?, relay.clone()))
}

fn connecting(usual: Connecting) -> Connecting {
    Connecting {
        connect: CONNECT,
        ..usual
    }
}

/// Whether one of the relays accepts connections: this fails sooner than waiting for a subscription.
pub(crate) async fn check(address: &RelayAddress) -> Result<(), OpenError> {
    let mut tries = JoinSet::new();
    for relay in &address.relays {
        let relay = relay.clone();
        tries.spawn(async move {
            let (scheme, rest) = relay.split_once("://").unwrap_or(("wss", &relay));
            let authority = rest.split('/').next().unwrap_or_default();
            let accepts = accepts(authority, scheme == "wss").await;
            accepts.map_err(|error| (relay, error))
        });
    }
    let mut why = Vec::new();
    while let Some(outcome) = tries.join_next().await {
        match outcome {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => why.push(error),
            Err(_) => {}
        }
    }
    why.sort_by(|one, other| one.0.cmp(&other.0));
    Err(OpenError::NoRelay(why))
}

//! Relays as an end: a server for whoever asks by its key, or a client of one server.

mod introduce;
mod key;
mod listen;
mod port;
mod servers;
mod session;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::pump::{Port, session_memory};
use breakbulk_contextvm::{
    Client, ClientConfig, Config, Forgetful, Keys, Limits, Memory, PublicKey, Server, ServerConfig,
    Timeouts, npub,
};
use breakbulk_net::nostr::RelayOptions;
use tokio::task::JoinSet;

use crate::endpoint::{At, Endpoint, NostrAddress, NostrOptions};
use crate::open::{self, Face, Opened};
use crate::plan::End;
use crate::serve::answers;
pub(crate) use listen::listen;
use port::ClientLine;
use servers::KnownServers;

/// How long the relays may take at first.
const CONNECT: Duration = Duration::from_secs(10);

/// A message is cut if its event would be larger, as everybody does.
const CUT_ABOVE: usize = 48_000;

/// A session without a word for so long ends, unless it is said otherwise.
const IDLE: Duration = Duration::from_secs(30 * 60);

/// What an end at relays has beside what all ends have.
#[derive(Clone)]
pub(crate) struct NostrEnd {
    /// `None`: a new one for each connection.
    keys: Option<Keys>,
    /// Where the key was; what is learned of servers is kept beside it.
    file: Option<PathBuf>,
    options: NostrOptions,
}

impl NostrEnd {
    /// Of both ends, those that are relays.
    pub(crate) fn both(
        listen: &Endpoint,
        to: &Endpoint,
        environment: Option<Keys>,
    ) -> Result<(Option<Self>, Option<Self>), String> {
        let is_nostr = |end: &Endpoint| matches!(end.at, At::Nostr(_));
        if !is_nostr(listen) && !is_nostr(to) {
            return Ok((None, None));
        }
        let listens = is_nostr(listen);
        let (for_listen, for_to) = match environment {
            // Who asks by us does not get to pass for us.
            Some(keys) if listens => (Some(keys), None),
            keys => (None, keys),
        };
        let one_session = matches!(listen.at, At::Stdio);
        let listen = listens.then(|| Self::server(listen, for_listen));
        let to = is_nostr(to).then(|| Self::client(to, for_to, one_session));
        Ok((
            listen
                .transpose()
                .map_err(|error| format!("--listen: {error}"))?,
            to.transpose().map_err(|error| format!("--to: {error}"))?,
        ))
    }

    fn server(end: &Endpoint, environment: Option<Keys>) -> Result<Self, String> {
        let options = end.options.nostr.clone();
        if options.server.is_some() {
            return Err(
                "server is for --to; a listener is the server, and its key says which".to_owned(),
            );
        }
        if options.timeout.is_some() {
            return Err("timeout is for --to; whoever asks has a timeout of its own".to_owned());
        }
        let this = Self::new(end, environment)?;
        match this.keys {
            Some(_) => Ok(this),
            None => Err(format!(
                "a server needs a key by which others find it: breakbulk keygen FILE makes one; then add ?key=FILE, or set {}",
                "BREAKBULK_NOSTR_KEY"
            )),
        }
    }

    fn client(
        end: &Endpoint,
        environment: Option<Keys>,
        one_session: bool,
    ) -> Result<Self, String> {
        let options = &end.options.nostr;
        if options.server.is_none() {
            return Err(
                "whom to ask? add ?server=PUBKEY, as the gateway at the server prints it when it listens"
                    .to_owned(),
            );
        }
        for (given, name) in [
            (options.allow.is_some(), "allow"),
            (options.idle.is_some(), "idle"),
        ] {
            if given {
                return Err(format!("{name} is for --listen"));
            }
        }
        let this = Self::new(end, environment)?;
        if this.keys.is_some() && !one_session {
            return Err(format!(
                "one key is one client, and many may come to --listen; leave out key and unset {}, so that each gets a key of its own",
                "BREAKBULK_NOSTR_KEY"
            ));
        }
        Ok(this)
    }

    fn new(end: &Endpoint, environment: Option<Keys>) -> Result<Self, String> {
        let file = end.options.key.clone();
        let keys = match &file {
            Some(file) => Some(key::from_file(file)?),
            None => environment,
        };
        Ok(Self {
            keys,
            file,
            options: end.options.nostr.clone(),
        })
    }

    fn idle(&self) -> Duration {
        self.options.idle.unwrap_or(IDLE)
    }

    fn config(&self, end: &End) -> Config {
        let options = &self.options;
        let usual = Config::default();
        let memory = end.memory;
        let timeouts = Timeouts {
            soft: options.timeout.or(usual.timeouts.soft),
            ..usual.timeouts
        };
        Config {
            encryption: options.encryption.unwrap_or_default(),
            wraps: options.wraps.unwrap_or_default(),
            allowed: options.allow.clone(),
            limits: Limits {
                message: end.max_message,
                memory,
                peer_memory: session_memory(end.max_message).min(memory),
                queued_bytes: end.max_message,
                ..usual.limits
            },
            timeouts,
            cut_above: CUT_ABOVE.min(end.max_frame),
            event_max: end.max_frame,
            fresh_key: self.keys.is_none(),
            ..usual
        }
    }
}

/// A client of the server that the end names.
pub(crate) async fn dial(end: &End, address: &NostrAddress) -> Result<Opened, String> {
    let (Some(nostr), Some(server)) = (&end.nostr, end.nostr.as_ref().and_then(NostrEnd::whom))
    else {
        return Err("whom to ask? add ?server=PUBKEY".to_owned());
    };
    some_relay_answers(address).await?;
    let keys = nostr.keys.clone().unwrap_or_else(Keys::generate);
    let ours = keys.public_key();
    let mut setup = ClientConfig::new(keys, server, address.relays.clone());
    setup.config = nostr.config(end);
    setup.relay_options = relay_options(setup.relay_options);
    setup.memory = match &nostr.file {
        Some(file) => Arc::new(KnownServers::beside(file)) as Arc<dyn Memory>,
        None => Arc::new(Forgetful),
    };
    let client = Client::connect(setup)
        .await
        .map_err(|error| error.to_string())?;
    tracing::info!(server = npub(&server), as = npub(&ours), "at the relays");
    let line = ClientLine::new(client.clone());
    Ok(Opened {
        face: Face::Whole,
        port: Port::new(open::whole_messages(end, line)?),
        client: Some(client),
    })
}

impl NostrEnd {
    fn whom(&self) -> Option<PublicKey> {
        self.options.server
    }
}

/// The server whose key the end has.
async fn bind(end: &End, address: &NostrAddress) -> Result<Server, String> {
    let Some((nostr, keys)) = end
        .nostr
        .as_ref()
        .and_then(|nostr| Some((nostr, nostr.keys.clone()?)))
    else {
        return Err("there is no key; add ?key=FILE".to_owned());
    };
    some_relay_answers(address).await?;
    let mut setup = ServerConfig::new(keys, address.relays.clone());
    setup.config = nostr.config(end);
    setup.relay_options = relay_options(setup.relay_options);
    Server::bind(setup).await.map_err(|error| error.to_string())
}

fn relay_options(usual: RelayOptions) -> RelayOptions {
    RelayOptions {
        connect: CONNECT,
        ..usual
    }
}

/// Whether anybody is at one of the relays at all: that is known sooner than that none of them speaks.
pub(crate) async fn some_relay_answers(address: &NostrAddress) -> Result<(), String> {
    let mut asked = JoinSet::new();
    for relay in &address.relays {
        let relay = relay.clone();
        asked.spawn(async move {
            let (scheme, rest) = relay.split_once("://").unwrap_or(("wss", &relay));
            let authority = rest.split('/').next().unwrap_or_default();
            answers(authority, scheme == "wss")
                .await
                .map_err(|error| format!("{relay} cannot be reached: {error}"))
        });
    }
    let mut why = Vec::new();
    while let Some(outcome) = asked.join_next().await {
        match outcome {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => why.push(error),
            Err(_) => {}
        }
    }
    why.sort();
    Err(format!(
        "{}; is the relay running, and is this its address?",
        why.join("; ")
    ))
}

//! What the command line asks for, checked before anything is opened.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use crate::pump::{TunnelSettings, session_memory};
use breakbulk_ahp::Settings;
use breakbulk_ahp::foreign::Sessions;
use breakbulk_contextvm::{EVENT_MAX, Keys};
use breakbulk_link::{Budget, Cap, Carries};
use breakbulk_message::ahp::{Chunking, TimeoutFrom};
use breakbulk_net::preset::Preset;
use breakbulk_net::process::Framing;
use breakbulk_net::ws::{self, Bearer, Identity, Roots};
use breakbulk_net::{Options, process};

use crate::endpoint::{At, Endpoint, TunnelUse, WireKind, WsAddress, unknown_option};
use crate::relays::NostrEnd;
use crate::token;

/// The proposal's frame for a relayed path.
const DEFAULT_FRAME: usize = 900_000;

/// The proposal's message.
const DEFAULT_MESSAGE: usize = 32 << 20;

/// No segment fits a smaller frame.
const LEAST_FRAME: usize = 256;

/// No chunk worth its event fits a smaller one.
const LEAST_EVENT: usize = 4096;

/// How long the other end of a tunnel may be silent: it does not answer while it is held up.
const TUNNEL_SILENCE: Duration = Duration::from_secs(300);

/// What holds for both ends of a gateway, and for all of its sessions.
#[derive(Clone, Debug)]
pub struct Config {
    /// The largest frame where messages are cut, if an endpoint does not say it.
    pub max_frame: Option<usize>,
    /// The largest message that is taken, if an endpoint does not say it.
    pub max_message: Option<usize>,
    /// What the capped path is known to let through.
    pub preset: Option<Preset>,
    /// The memory for the messages of all sessions, in bytes.
    pub memory: usize,
    /// The most sessions at a time.
    pub max_sessions: usize,
    /// Whether a listener without a token may be open to other machines.
    pub allow_remote: bool,
    /// Whether to look for the target before listening.
    pub check: bool,
    /// How long what is queued may take to go out at the end.
    pub grace: Duration,
    /// The bearer token of the listener or, if that is no WebSocket, of the target.
    pub token: Option<Bearer>,
    /// The key of the listener at relays or, if the listener is none, of the target at relays.
    pub key: Option<Keys>,
    /// Environment variables that commands do not inherit.
    pub hidden_variables: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_frame: None,
            max_message: None,
            preset: None,
            memory: 1 << 30,
            max_sessions: 256,
            allow_remote: false,
            check: true,
            grace: Duration::from_secs(10),
            token: None,
            key: None,
            hidden_variables: Vec::new(),
        }
    }
}

/// A gateway that can be started.
pub struct Plan {
    pub(crate) listen: End,
    pub(crate) to: End,
    pub(crate) max_sessions: usize,
    pub(crate) check: bool,
    pub(crate) grace: Duration,
    /// What is known of AHP clients over the ends of their connections.
    pub(crate) sessions: (Sessions, Sessions),
}

/// One end.
#[derive(Clone)]
pub(crate) struct End {
    pub(crate) wire: WireKind,
    pub(crate) at: At,
    pub(crate) carries: Carries,
    pub(crate) framing: Framing,
    pub(crate) tunnel: TunnelUse,
    pub(crate) max_frame: usize,
    pub(crate) max_message: usize,
    /// WebSocket fragments, where the path wants them.
    pub(crate) fragment: Option<usize>,
    pub(crate) token: Option<Bearer>,
    pub(crate) identity: Option<Identity>,
    pub(crate) roots: Roots,
    pub(crate) budget: Budget,
    /// All that the budget has.
    pub(crate) memory: usize,
    /// Keys and the like, where this is a relay.
    pub(crate) nostr: Option<NostrEnd>,
    /// How long its last words may take.
    pub(crate) grace: Duration,
    /// What was asked for and does not count, in words.
    pub(crate) overruled: Option<String>,
    /// Environment variables that a command does not inherit.
    pub(crate) hidden_variables: Vec<String>,
}

impl Plan {
    /// Checks what both ends ask for.
    pub fn new(listen: Endpoint, to: Endpoint, common: Config) -> Result<Self, String> {
        match (&listen.at, &to.at) {
            (At::Exec(_), _) => {
                return Err(
                    "--listen exec: cannot be: nobody comes to a command; use it with --to"
                        .to_owned(),
                );
            }
            (_, At::Stdio) if matches!(listen.at, At::Stdio) => {
                return Err(
                    "both ends are stdio:, and there is only one; use another --to".to_owned(),
                );
            }
            (At::Ws(_) | At::Nostr(_), At::Stdio) => {
                return Err(
                    "--to stdio: cannot be: many may come, and there is one standard output; use --listen stdio:"
                        .to_owned(),
                );
            }
            _ => {}
        }
        if common.max_sessions == 0 {
            return Err("--max-sessions 0 lets nobody in; give at least 1".to_owned());
        }
        if let At::Ws(address) = &to.at {
            address
                .check_target()
                .map_err(|error| format!("--to: {error}"))?;
        }
        let carries = carries(&listen, &to)?;
        let (listen_nostr, to_nostr) = NostrEnd::both(&listen, &to, common.key.clone())?;
        let budget = Budget::new(common.memory);
        let end = |endpoint: Endpoint, token: Option<Bearer>| {
            End::new(endpoint, &common, carries, token, &budget)
        };
        let listens = listen.is_ws();
        let (for_listen, for_to) = match common.token.clone() {
            // A token that others must send us is not sent to somebody else.
            Some(token) if listens => (Some(token), None),
            token => (None, token),
        };
        let mut listen = end(listen, for_listen).map_err(|error| format!("--listen: {error}"))?;
        let mut to = end(to, for_to).map_err(|error| format!("--to: {error}"))?;
        (listen.nostr, to.nostr) = (listen_nostr, to_nostr);
        let needed =
            session_memory(listen.max_message).saturating_add(session_memory(to.max_message));
        if needed > common.memory {
            return Err(format!(
                "--memory {} is less than one session may need, {needed} bytes; raise it or lower --max-message",
                common.memory
            ));
        }
        if let At::Ws(address) = &listen.at {
            listen.may_listen(address, common.allow_remote)?;
        }
        Ok(Self {
            listen,
            to,
            max_sessions: common.max_sessions,
            check: common.check,
            grace: common.grace,
            sessions: Default::default(),
        })
    }
}

/// Both ends carry the same kind of messages.
fn carries(listen: &Endpoint, to: &Endpoint) -> Result<Carries, String> {
    let loro = |end: &Endpoint| end.wire == WireKind::Loro;
    let takes_bytes = |end: &Endpoint| end.is_ws() && end.wire != WireKind::Ahp;
    match (
        loro(listen) || loro(to),
        takes_bytes(listen) && takes_bytes(to),
    ) {
        (false, _) => Ok(Carries::Text),
        (true, true) => Ok(Carries::Binary),
        (true, false) => Err(
            "loro+ws carries bytes, and the other end text; use whole+ws or loro+ws there"
                .to_owned(),
        ),
    }
}

impl End {
    fn new(
        endpoint: Endpoint,
        common: &Config,
        carries: Carries,
        token: Option<Bearer>,
        budget: &Budget,
    ) -> Result<Self, String> {
        let options = endpoint.options;
        let is_ws = matches!(endpoint.at, At::Ws(_));
        // What holds for both ends is about the capped path, which is where messages are cut.
        let cuts = endpoint.wire != WireKind::Whole;
        // No preset is about relays of events.
        let preset = options.preset.or(common.preset.filter(|_| cuts && is_ws));
        if carries == Carries::Binary
            && let Some(preset) = preset.filter(|preset| !preset.binary)
        {
            return Err(format!("{} lets no binary messages through", preset.name));
        }
        let max_message = options
            .max_message
            .or(common.max_message)
            .unwrap_or(DEFAULT_MESSAGE);
        let of_path = preset.map(|preset| preset.cap().max);
        let usual = match endpoint.wire {
            WireKind::Cep22 => EVENT_MAX,
            _ if !is_ws => usize::MAX,
            WireKind::Whole => max_message,
            WireKind::Ahp | WireKind::Loro => of_path.unwrap_or(DEFAULT_FRAME),
        };
        let asked = options.max_frame.or(common.max_frame.filter(|_| cuts));
        let max_frame = asked.unwrap_or(usual).min(of_path.unwrap_or(usize::MAX));
        let overruled = match (asked, preset) {
            (Some(asked), Some(preset)) if asked > max_frame => Some(format!(
                "max-frame {asked} is over the {max_frame} bytes of the preset {}: the smaller counts; leave the preset out if the path lets more through",
                preset.name
            )),
            _ => None,
        };
        let least = match endpoint.wire {
            WireKind::Cep22 => LEAST_EVENT,
            _ => LEAST_FRAME,
        };
        if max_frame < least {
            return Err(format!(
                "a frame of {max_frame} bytes holds nothing; max-frame must be at least {least}"
            ));
        }
        if max_message < LEAST_FRAME {
            return Err(format!(
                "max-message is {max_message} bytes; it must be at least {LEAST_FRAME}"
            ));
        }
        let token = match &options.token_file {
            Some(file) => Some(token::token_from_file(file)?),
            None => token.filter(|_| is_ws),
        };
        let identity = match (options.cert, options.key) {
            // A relay's key is another one.
            _ if endpoint.wire == WireKind::Cep22 => None,
            (Some(chain), Some(key)) => Some(Identity { chain, key }),
            (None, None) => None,
            _ => return Err("cert and key go together; give both".to_owned()),
        };
        Ok(Self {
            wire: endpoint.wire,
            at: endpoint.at,
            carries,
            framing: options.framing.unwrap_or_default(),
            tunnel: options.tunnel.unwrap_or_default(),
            max_frame,
            max_message,
            fragment: preset
                .and_then(|preset| preset.fragment)
                .or(Some(ws::FRAGMENT)),
            token,
            identity,
            roots: options.ca.map_or(Roots::Native, Roots::File),
            budget: budget.clone(),
            memory: common.memory,
            nostr: None,
            grace: common.grace,
            overruled,
            hidden_variables: common.hidden_variables.clone(),
        })
    }

    /// Others than this machine's own programs need a token.
    fn may_listen(&self, address: &WsAddress, allow_remote: bool) -> Result<(), String> {
        let fail = |error: String| Err(format!("--listen: {error}"));
        if let Some(query) = &address.query {
            return fail(unknown_option(query));
        }
        let (host, port) = match address.listen_at() {
            Ok(at) => at,
            Err(error) => return fail(error),
        };
        if address.secure && self.identity.is_none() {
            return fail(
                "wss:// needs a certificate: add ?cert=FILE&key=FILE, or listen at ws://"
                    .to_owned(),
            );
        }
        if self.token.is_some() || allow_remote {
            return Ok(());
        }
        let found: Vec<SocketAddr> = match (host.as_str(), port).to_socket_addrs() {
            Ok(found) => found.collect(),
            Err(error) => return fail(format!("{host} has no address: {error}; check the name")),
        };
        match found.iter().find(|address| !address.ip().is_loopback()) {
            None => Ok(()),
            Some(open) => fail(format!(
                "{} is open to others than this machine; set BREAKBULK_TOKEN or ?token-file=FILE, or listen at 127.0.0.1 (--allow-remote lets everybody in)",
                open.ip()
            )),
        }
    }

    /// What goes out in one frame.
    pub(crate) fn cap(&self) -> Cap {
        // Events are cut further down: here they are messages.
        let cap = Cap::frame(match self.at {
            At::Nostr(_) => self.max_message,
            _ => self.max_frame,
        });
        match (&self.at, self.framing) {
            (At::Stdio | At::Exec(_), Framing::Lines) => cap.lines(),
            _ => cap,
        }
    }

    pub(crate) fn tunnel_settings(&self) -> TunnelSettings {
        TunnelSettings {
            cap: self.cap(),
            max_frame: self.max_frame,
            max_message: self.max_message,
            budget: self.budget.clone(),
        }
    }

    /// As a middle box before AHP programs.
    pub(crate) fn ahp_settings(&self) -> Settings {
        let frame = self.max_frame.min(self.max_message);
        Settings {
            chunking: Chunking {
                max_frame_bytes: frame as u64,
                max_message_bytes: self.max_message as u64,
                timeout_from: TimeoutFrom::Last,
                ..Chunking::default()
            },
            cap: self.cap(),
            budget: self.budget.clone(),
            queued_bytes: self.max_message.max(64 << 20),
            options: self.options(false),
            ..Settings::default()
        }
    }

    /// How its connections are kept alive: streams have no signs of life.
    pub(crate) fn options(&self, tunnel: bool) -> Options {
        let usual = Options::default();
        match &self.at {
            At::Ws(_) if tunnel => Options {
                silence: Some(TUNNEL_SILENCE),
                ..usual
            },
            At::Ws(_) => usual,
            At::Stdio | At::Exec(_) => Options {
                keepalive: None,
                silence: None,
                ..usual
            },
            At::Nostr(_) => Options {
                keepalive: None,
                silence: None,
                grace: self.grace,
                ..usual
            },
        }
    }

    /// The largest frame that comes in.
    pub(crate) fn frame_limit(&self) -> usize {
        match self.wire {
            WireKind::Whole | WireKind::Cep22 => self.max_message,
            WireKind::Ahp | WireKind::Loro => self.max_frame,
        }
    }

    /// Whether it can be reached, before anybody comes.
    pub(crate) fn check_command(&self) -> Result<(), String> {
        match &self.at {
            At::Exec(words) => match process::find(&words[0]) {
                Ok(_) => Ok(()),
                Err(error) => Err(format!("--to exec: {error}")),
            },
            At::Stdio | At::Ws(_) | At::Nostr(_) => Ok(()),
        }
    }
}

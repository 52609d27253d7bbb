//! One end of a plan: what was asked for it, checked, and what follows from that.

#[cfg(feature = "tls")]
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use breakbulk_ahp as ahp;
use breakbulk_link::Preset;
use breakbulk_link::{Budget, Cap, Carries};
use breakbulk_message::ahp::{Chunking, TimeoutFrom};
use breakbulk_net::Options;
#[cfg(feature = "nats")]
use breakbulk_net::nats::Credentials;
#[cfg(feature = "process")]
use breakbulk_net::process::{self, Framing};
use breakbulk_net::ws::{self, Bearer};
#[cfg(feature = "tls")]
use breakbulk_net::ws::{Identity, Roots};

use super::Config;
use super::kinds::Carried;
use super::sizes::{self, Overruled};
#[cfg(feature = "http")]
use crate::endpoint::Down;
#[cfg(feature = "nats")]
use crate::endpoint::NatsNames;
use crate::endpoint::{At, Endpoint, Misspelt, TunnelUse, WireKind};
use crate::error::{EndError, OpenError};
#[cfg(feature = "http")]
use crate::mcp::HttpEnd;
use crate::pump::ReceiverLimit;
#[cfg(feature = "http")]
use crate::pump::Side;
#[cfg(feature = "nostr")]
use crate::relays::RelayEnd;
use crate::token::{self, TokenFile};
use crate::tunnel::{KnownCaps, TunnelConfig, WINDOW};
use crate::watch::SideWatch;

/// The smallest window of a tunnel: less than this costs more than it saves.
const LEAST_WINDOW: usize = 256 << 10;

/// One end, checked.
#[derive(Clone)]
pub(crate) struct End {
    pub(crate) wire: WireKind,
    pub(crate) at: At,
    /// The kind of message that both ends carry.
    pub(crate) carried: Carried,
    pub(crate) carries: Carries,
    #[cfg(feature = "process")]
    pub(crate) framing: Framing,
    /// Whether the process id of an LSP client passes a tunnel.
    #[cfg(feature = "process")]
    pub(crate) keeps_process_id: bool,
    pub(crate) tunnel: TunnelUse,
    pub(crate) max_frame: usize,
    pub(crate) max_message: usize,
    /// The size of WebSocket fragments.
    pub(crate) fragment: Option<usize>,
    pub(crate) token: Option<Bearer>,
    /// The tokens that a listener accepts.
    pub(crate) tokens: Option<Arc<TokenFile>>,
    #[cfg(feature = "tls")]
    pub(crate) identity: Option<Identity>,
    /// The authority whose clients a listener accepts.
    #[cfg(feature = "tls")]
    pub(crate) client_authority: Option<PathBuf>,
    #[cfg(feature = "tls")]
    pub(crate) roots: Roots,
    pub(crate) budget: Budget,
    /// How long a tunnel is kept after its line was lost.
    pub(crate) resume_for: Duration,
    /// How much a tunnel sends ahead.
    pub(crate) window: usize,
    /// What is known about the caps of paths.
    pub(crate) caps: KnownCaps,
    /// How frames come down in a tunnel over plain HTTP.
    #[cfg(feature = "http")]
    pub(crate) down: Down,
    /// The further settings of an end over HTTP.
    #[cfg(feature = "http")]
    pub(crate) http: Option<HttpEnd>,
    /// The further names of an end at NATS.
    #[cfg(feature = "nats")]
    pub(crate) nats: NatsNames,
    /// The user and password, or the token, for the NATS server.
    #[cfg(feature = "nats")]
    pub(crate) nats_secret: Option<Credentials>,
    /// The further settings of an end at relays.
    #[cfg(feature = "nostr")]
    pub(crate) relay: Option<RelayEnd>,
    /// The preset whose frame is smaller than the one that was asked for.
    pub(crate) overruled: Option<Overruled>,
    /// A parameter for the server that is spelled nearly as an option.
    pub(crate) misspelt: Option<Misspelt>,
    /// The program that takes its messages, whose limits are known.
    pub(crate) client: Option<Preset>,
    /// Counts what happens at this end in one session.
    pub(crate) watched: SideWatch,
}

impl End {
    /// Checks an end; `listener` is the other one, if this is the target.
    pub(crate) fn new(
        endpoint: Endpoint,
        listener: Option<&At>,
        config: &Config,
        carried: Carried,
        budget: &Budget,
    ) -> Result<Self, EndError> {
        let carries = match carried {
            Carried::Text => Carries::Text,
            Carried::Loro | Carried::Bytes => Carries::Binary,
        };
        #[cfg(feature = "nostr")]
        let relay = match endpoint.is_relays() {
            true => Some(RelayEnd::new(&endpoint, listener, config)?),
            false => None,
        };
        // A preset of the configuration, which is for both ends, is about the capped path: it applies to the
        // end where messages are cut.
        let cuts = endpoint.wire != WireKind::Whole;
        let is_web = endpoint.at.is_web();
        // The presets are about WebSocket and HTTP paths, not about Nostr relays and NATS.
        let preset = endpoint.options.preset;
        let preset = preset.or(config.preset.filter(|_| cuts && is_web));
        if carries == Carries::Binary
            && let Some(preset) = preset.filter(|preset| preset.binary == Some(false))
        {
            return Err(EndError::NoBinary {
                preset: preset.name,
            });
        }
        #[cfg(feature = "http")]
        if listener.is_none() && endpoint.options.down.is_some() {
            return Err(EndError::OnlyFor {
                option: "down",
                side: Side::To,
            });
        }
        let max_message = sizes::max_message(&endpoint, config)?;
        let (max_frame, overruled) = sizes::max_frame(&endpoint, config, preset, max_message)?;
        let fragment = sizes::fragment(&endpoint, config, preset)?;
        let asked = endpoint.options.max_frame.or(config.max_frame);
        let is_frame_asked_for = asked.is_some() || preset.is_some();
        #[cfg(feature = "http")]
        let http = match endpoint.at.is_http() {
            true => Some(HttpEnd::new(&endpoint, listener.is_none())?),
            false => None,
        };
        let options = endpoint.options;
        let is_nats = endpoint.at.is_nats();
        #[cfg(feature = "nats")]
        let nats_secret = match &options.token_file {
            Some(file) if is_nats => Some(token::nats_credentials(file)?),
            _ => None,
        };
        let tokens = match &options.token_file {
            _ if is_nats => None,
            Some(file) if listener.is_none() => Some(Arc::new(TokenFile::open(file)?)),
            _ => None,
        };
        let token = match &options.token_file {
            _ if is_nats => None,
            Some(_) if listener.is_none() => None,
            Some(file) => Some(token::token_from_file(file)?),
            // The token that clients must send to this gateway is not sent to the target.
            None if listener.is_some_and(At::has_token) => None,
            None => config.token.clone().filter(|_| endpoint.at.has_token()),
        };
        #[cfg(feature = "tls")]
        let identity = match (options.cert, options.key) {
            // At relays `key` is the file of a Nostr key, and not that of a certificate's key.
            _ if endpoint.wire == WireKind::Cep22 => None,
            (Some(chain), Some(key)) => Some(Identity { chain, key }),
            (None, None) => None,
            _ => return Err(EndError::CertOrKey),
        };
        Ok(Self {
            wire: endpoint.wire,
            at: endpoint.at,
            carried,
            carries,
            #[cfg(feature = "process")]
            framing: options.framing.unwrap_or_default(),
            #[cfg(feature = "process")]
            keeps_process_id: options.keeps_process_id.unwrap_or_default(),
            // Only a gateway takes bytes where an AHP program would take text.
            tunnel: match (endpoint.wire, carries) {
                (WireKind::Ahp, Carries::Binary) => TunnelUse::Always,
                _ => options.tunnel.unwrap_or_default(),
            },
            max_frame,
            max_message,
            fragment: Some(fragment),
            token,
            tokens,
            #[cfg(feature = "tls")]
            identity,
            #[cfg(feature = "tls")]
            client_authority: options.ca.clone().filter(|_| listener.is_none()),
            #[cfg(feature = "tls")]
            roots: options.ca.map_or(Roots::Native, Roots::File),
            budget: budget.clone(),
            resume_for: config.resume_for,
            window: (config.memory / 64).clamp(LEAST_WINDOW, WINDOW),
            caps: KnownCaps {
                learned: config.learned_caps.clone(),
                is_asked_for: is_frame_asked_for,
            },
            #[cfg(feature = "http")]
            down: options.down.unwrap_or_default(),
            #[cfg(feature = "http")]
            http,
            #[cfg(feature = "nats")]
            nats: options.nats,
            #[cfg(feature = "nats")]
            nats_secret,
            #[cfg(feature = "nostr")]
            relay,
            overruled,
            misspelt: options.misspelt,
            client: options.client,
            watched: SideWatch::default(),
        })
    }

    /// The largest frame that is sent, and how it is counted.
    pub(crate) fn cap(&self) -> Cap {
        let receiver = self.receiver_limit().map(|limit| limit.bytes);
        let cap = Cap::frame(self.max_frame.min(receiver.unwrap_or(usize::MAX)));
        match &self.at {
            #[cfg(feature = "process")]
            At::Stdio | At::Exec(_) | At::Socket(_) if self.framing == Framing::Lines => {
                cap.lines()
            }
            _ => cap,
        }
    }

    /// The largest message that the program at this end takes at once, if it is known.
    pub(crate) fn receiver_limit(&self) -> Option<ReceiverLimit> {
        let client = self.client?;
        let limit = ReceiverLimit {
            name: client.name,
            bytes: client.message?,
        };
        match &self.at {
            // The line break behind a message counts.
            #[cfg(feature = "process")]
            At::Stdio | At::Exec(_) => Some(ReceiverLimit {
                bytes: limit.bytes.saturating_sub(1),
                ..limit
            }),
            _ => Some(limit),
        }
    }

    pub(crate) fn tunnel_config(&self) -> TunnelConfig {
        TunnelConfig {
            cap: self.cap(),
            max_frame: self.max_frame,
            max_message: self.max_message,
            budget: self.budget.clone(),
            carries: self.carries,
            resume_for: self.resume_for,
            window: self.window,
            caps: self.caps.clone(),
            watched: self.watched.clone(),
        }
    }

    /// What a middle box before AHP programs does.
    pub(crate) fn ahp_config(&self) -> ahp::Config {
        let frame = self.max_frame.min(self.max_message);
        ahp::Config::default().with(|config| {
            config.chunking = Chunking {
                max_frame_bytes: frame as u64,
                max_message_bytes: self.max_message as u64,
                timeout_from: TimeoutFrom::Last,
                ..Chunking::default()
            };
            config.cap = self.cap();
            config.budget = self.budget.clone();
            config.limits.queued_bytes = self.max_message.max(64 << 20);
            config.options = self.options();
        })
    }

    /// How its connections are kept alive: streams have no pings. (A tunnel looks after its lines itself.)
    pub(crate) fn options(&self) -> Options {
        let usual = Options::default();
        match self.at.is_ws() {
            true => Options {
                write_time: Some(Options::WRITE_TIME),
                ..usual
            },
            false => Options {
                keepalive: None,
                silence: None,
                write_time: self.at.is_socket().then_some(Options::WRITE_TIME),
                ..usual
            },
        }
    }

    /// The largest frame that comes in.
    pub(crate) fn frame_limit(&self) -> usize {
        match self.wire {
            WireKind::Whole | WireKind::Cep22 => self.max_message,
            // A program of loro-extended does not know the cap of this gateway's path.
            WireKind::Loro if self.carried == Carried::Loro => ws::FRAME_LIMIT,
            WireKind::Ahp | WireKind::Loro => self.max_frame,
        }
    }

    /// Whether it carries a language server's messages whose `processId` must not reach another machine.
    pub(crate) fn hides_process_id(&self) -> bool {
        #[cfg(feature = "process")]
        return self.framing == Framing::ContentLength && !self.keeps_process_id;
        #[cfg(not(feature = "process"))]
        false
    }

    /// What it is, for people to read, without secrets: of a command only its name.
    pub(crate) fn shown(&self) -> String {
        match &self.at {
            At::Ws(address) => address.path_name(),
            #[cfg(feature = "http")]
            At::Http(address) | At::Exchange(address) => address.path_name(),
            #[cfg(feature = "process")]
            At::Stdio => "stdio:".to_owned(),
            #[cfg(feature = "process")]
            At::Exec(words) => format!("exec:{}", words.first().map_or("", String::as_str)),
            #[cfg(feature = "process")]
            At::Socket(address) => address.name(),
            #[cfg(feature = "loro")]
            At::Loro(address) => format!("{}//{}", address.form(), address.authority),
            #[cfg(feature = "nats")]
            At::Nats(address) => address.name(),
            #[cfg(feature = "nostr")]
            At::Relays(address) => format!("cep22+nostr:{}", address.relays.join(",")),
        }
    }

    /// Whether its command exists, before anybody comes.
    pub(crate) fn check_command(&self) -> Result<(), OpenError> {
        match &self.at {
            #[cfg(feature = "process")]
            At::Exec(words) => Ok(process::find(&words[0]).map(drop)?),
            _ => Ok(()),
        }
    }
}

//! One end of a plan: what was asked for it, checked, and what follows from that.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
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
#[cfg(feature = "nats")]
use crate::endpoint::NatsNames;
use crate::endpoint::{At, Endpoint, TunnelUse, WireKind};
use crate::error::{EndError, OpenError};
#[cfg(feature = "http")]
use crate::mcp::HttpEnd;
use crate::pump::ReceiverLimit;
#[cfg(feature = "nostr")]
use crate::relays::RelayEnd;
use crate::token::{self, TokenFile};
use crate::tunnel::{KnownCaps, TunnelConfig, WINDOW};
use crate::watch::SideWatch;

/// AHP's proposal names this frame size for a path with a relay in it.
const DEFAULT_FRAME: usize = 900_000;

/// AHP's proposal names this message size.
const DEFAULT_MESSAGE: usize = 32 << 20;

/// The smallest frame that has room for a segment.
const LEAST_FRAME: usize = 256;

/// The smallest event that has room for a chunk of useful size.
#[cfg(feature = "nostr")]
const LEAST_EVENT: usize = 4096;

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
    /// The program that takes its messages, whose limits are known.
    pub(crate) client: Option<Preset>,
    /// What is watched of it in one session.
    pub(crate) watched: SideWatch,
}

/// A max-frame that does not apply, since the path takes less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "max-frame {asked} is over the {max_frame} bytes of the preset {preset}: the smaller one applies; leave the preset out if the path lets more through"
)]
pub struct Overruled {
    /// What was asked for.
    pub asked: usize,
    /// What applies.
    pub max_frame: usize,
    /// The path's name.
    pub preset: &'static str,
}

/// Whether a host, with or without a port, is a name or an address of this machine.
fn is_local(host: &str) -> bool {
    let without_port = match host.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() && !name.contains(':') => name,
        _ => host,
    };
    let name = without_port.trim_matches(['[', ']']);
    match name.parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => name.eq_ignore_ascii_case("localhost"),
    }
}

/// An address of a host that other machines can reach.
fn open_to_others(host: String, port: u16) -> Result<Option<IpAddr>, EndError> {
    let found: Vec<SocketAddr> = match (host.as_str(), port).to_socket_addrs() {
        Ok(found) => found.collect(),
        Err(error) => return Err(EndError::NoAddress { host, error }),
    };
    let open = found.iter().find(|address| !address.ip().is_loopback());
    Ok(open.map(SocketAddr::ip))
}

/// The largest message that an end takes.
fn max_message(endpoint: &Endpoint, config: &Config) -> Result<usize, EndError> {
    let asked = endpoint.options.max_message.or(config.max_message);
    match asked.unwrap_or(DEFAULT_MESSAGE) {
        max_message if max_message < LEAST_FRAME => Err(EndError::MessageTooSmall {
            max_message,
            least: LEAST_FRAME,
        }),
        max_message => Ok(max_message),
    }
}

/// The largest frame of an end, and the one that was asked for if the preset allows only less.
fn max_frame(
    endpoint: &Endpoint,
    config: &Config,
    preset: Option<Preset>,
    max_message: usize,
) -> Result<(usize, Option<Overruled>), EndError> {
    let of_path = preset.map(|preset| preset.cap().max);
    let (usual, least) = match endpoint.wire {
        #[cfg(feature = "nostr")]
        WireKind::Cep22 => (breakbulk_contextvm::EVENT_MAX, LEAST_EVENT),
        _ if !endpoint.at.has_frames() => (usize::MAX, LEAST_FRAME),
        WireKind::Whole => (max_message, LEAST_FRAME),
        _ => (of_path.unwrap_or(DEFAULT_FRAME), LEAST_FRAME),
    };
    let asked = endpoint.options.max_frame;
    let asked = asked.or(config
        .max_frame
        .filter(|_| endpoint.wire != WireKind::Whole));
    let max_frame = asked.unwrap_or(usual).min(of_path.unwrap_or(usize::MAX));
    if max_frame < least {
        return Err(EndError::FrameTooSmall { max_frame, least });
    }
    let overruled = match (asked, preset) {
        (Some(asked), Some(preset)) if asked > max_frame => Some(Overruled {
            asked,
            max_frame,
            preset: preset.name,
        }),
        _ => None,
    };
    Ok((max_frame, overruled))
}

/// The largest WebSocket fragment of an end: the smallest of what was asked for, the path's and the
/// receiver's.
fn fragment(
    endpoint: &Endpoint,
    config: &Config,
    preset: Option<Preset>,
) -> Result<usize, EndError> {
    let asked = endpoint.options.fragment.or(config.fragment);
    let known = [preset, endpoint.options.client].into_iter().flatten();
    let known = known.filter_map(|preset| preset.fragment);
    let fragment = asked.into_iter().chain(known).min();
    match fragment.unwrap_or(ws::FRAGMENT) {
        fragment if fragment < LEAST_FRAME => Err(EndError::FragmentTooSmall {
            fragment,
            least: LEAST_FRAME,
        }),
        fragment => Ok(fragment),
    }
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
        // The configuration of both ends is about the capped path, which is where messages are cut.
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
        let max_message = max_message(&endpoint, config)?;
        let (max_frame, overruled) = max_frame(&endpoint, config, preset, max_message)?;
        let fragment = fragment(&endpoint, config, preset)?;
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
            // A relay's key is another one.
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
            http,
            #[cfg(feature = "nats")]
            nats: options.nats,
            #[cfg(feature = "nats")]
            nats_secret,
            #[cfg(feature = "nostr")]
            relay,
            overruled,
            client: options.client,
            watched: SideWatch::default(),
        })
    }

    /// Whether it may listen: other machines need a token.
    pub(crate) fn may_listen(&self, config: &Config) -> Result<(), EndError> {
        match &self.at {
            At::Ws(address) if address.socket.is_some() => Ok(()),
            At::Ws(address) => {
                let at = address.listen_at()?;
                self.may_listen_with_token(address.secure, at, config.allow_remote)
            }
            #[cfg(feature = "http")]
            At::Http(address) | At::Exchange(address) => {
                let at = address.listen_at()?;
                self.may_listen_with_token(address.secure, at, config.allow_remote)
            }
            #[cfg(feature = "loro")]
            At::Loro(address) => {
                let at = address.listen_at()?;
                self.may_listen_with_token(address.secure, at, config.allow_remote)
            }
            #[cfg(feature = "process")]
            At::Socket(_) if config.per_address.proxy.is_some() => Err(EndError::NoProxyHeader),
            #[cfg(feature = "process")]
            At::Socket(address) => match address.listen_at()? {
                Some((host, port)) if !config.allow_remote => match open_to_others(host, port)? {
                    None => Ok(()),
                    Some(address) => Err(EndError::StreamOpenToOthers { address }),
                },
                _ => Ok(()),
            },
            // No arm for all others: a new transport that listens must be decided here.
            #[cfg(feature = "process")]
            At::Stdio | At::Exec(_) => Ok(()),
            #[cfg(feature = "nats")]
            At::Nats(_) => Ok(()),
            #[cfg(feature = "nostr")]
            At::Relays(_) => Ok(()),
        }
    }

    /// The same where clients know tokens, at this host and port.
    fn may_listen_with_token(
        &self,
        is_secure: bool,
        (host, port): (String, u16),
        allow_remote: bool,
    ) -> Result<(), EndError> {
        #[cfg(not(feature = "tls"))]
        let _ = is_secure;
        #[cfg(feature = "tls")]
        if is_secure && self.identity.is_none() {
            return Err(EndError::NoCertificate);
        }
        #[cfg(feature = "tls")]
        if self.client_authority.is_some() {
            return Ok(());
        }
        if self.token.is_some() || self.tokens.is_some() || allow_remote {
            return Ok(());
        }
        match open_to_others(host, port)? {
            None => Ok(()),
            Some(address) => Err(EndError::OpenToOthers { address }),
        }
    }

    /// Whether its token travels in clear text beyond this machine.
    pub(crate) fn shows_token(&self) -> bool {
        #[cfg(feature = "nats")]
        if let At::Nats(address) = &self.at {
            let has_secret = self.nats_secret.is_some() || address.credentials.is_some();
            return has_secret && !address.secure && !is_local(&address.server);
        }
        let (secure, authority) = match &self.at {
            At::Ws(address) if address.socket.is_some() => return false,
            At::Ws(address) => (address.secure, &address.authority),
            #[cfg(feature = "http")]
            At::Http(address) | At::Exchange(address) => (address.secure, &address.authority),
            #[cfg(feature = "loro")]
            At::Loro(address) => (address.secure, &address.authority),
            #[cfg(any(feature = "nats", feature = "process", feature = "nostr"))]
            _ => return false,
        };
        let has_token = self.token.is_some() || self.tokens.is_some();
        // A port alone is one of this machine.
        let is_port = authority.trim_start_matches(':').parse::<u16>().is_ok();
        has_token && !secure && !is_port && !is_local(authority)
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

#[cfg(all(test, feature = "process"))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::Plan;

    #[test]
    fn a_fragment_needs_no_preset_and_the_smaller_one_applies() {
        for (listen, config, expected) in [
            ("ws://0", None, Ok(ws::FRAGMENT)),
            ("ws://0", Some(4096), Ok(4096)),
            ("ws://0?fragment=8KiB", Some(4096), Ok(8192)),
            ("whole+ws://0", Some(4096), Ok(4096)),
            ("ws://0?preset=aws-api-gateway", None, Ok(32_000)),
            ("ws://0?preset=aws-api-gateway", Some(64_000), Ok(32_000)),
            (
                "ws://0?preset=aws-api-gateway&fragment=4KiB",
                None,
                Ok(4096),
            ),
            (
                "ws://0?fragment=10",
                None,
                Err("listen: a fragment of 10 bytes is too small; fragment must be at least 256"),
            ),
        ] {
            let config = Config::default().with(|it| it.fragment = config);
            let plan = Plan::new(listen.parse().unwrap(), "exec:cat".parse().unwrap(), config);
            let found = plan.map(|plan| plan.listen.fragment.unwrap());
            let found = found.map_err(|error| error.to_string());
            assert_eq!(found, expected.map_err(str::to_owned), "{listen}");
        }
    }
}

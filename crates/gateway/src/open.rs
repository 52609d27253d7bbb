//! Opens the ends of a plan, as ports of the pump.

#[cfg(feature = "http")]
pub(crate) mod exchange;
#[cfg(feature = "nats")]
pub(crate) mod nats;

use std::sync::Arc;

use breakbulk_link::{Carries, Config, Link};
use breakbulk_message::tunnel::TUNNEL;
#[cfg(feature = "loro")]
use breakbulk_net::http::Way;
#[cfg(feature = "process")]
use breakbulk_net::process::{self, SocketStream};
#[cfg(feature = "process")]
use breakbulk_net::tcp;
use breakbulk_net::ws::{self, ConnectOptions, WebSocket};
use breakbulk_net::{Connection, Transport, fresh_seed, tapped};
use breakbulk_wire::Loro;

#[cfg(feature = "process")]
use crate::endpoint::SocketAddress;
use crate::endpoint::{At, TunnelUse, WireKind, WsAddress};
use crate::error::OpenError;
#[cfg(feature = "loro")]
use crate::loro::{self, Bridge, LoroEnd};
#[cfg(feature = "loro")]
use crate::plan::Carried;
use crate::plan::{End, Plan};
#[cfg(feature = "process")]
use crate::pump::Skipped;
use crate::pump::{
    BothBoxes, ClientBox, Cutting, ForReceivers, HostBox, NoProcessId, Passing, Plain, Port, Raw,
    Tunnel, session_memory, whole_link,
};
#[cfg(feature = "nostr")]
use crate::relays;
use crate::tunnel::{Boxed, Dial, Line, Tunnelled, connect};

/// How long a TCP or Unix socket may take to be connected.
#[cfg(feature = "process")]
const DIAL: std::time::Duration = std::time::Duration::from_secs(10);

/// What the program at the other end of a connection speaks.
pub(crate) enum EndKind {
    /// JSON-RPC in whole messages.
    Whole,
    /// The tunnel between two gateways.
    Tunnel,
    /// AHP, maybe in segments.
    Ahp(Connection),
    /// Binary messages.
    Binary,
    /// The messages of loro-extended.
    #[cfg(feature = "loro")]
    Loro(LoroEnd),
}

impl EndKind {
    /// The name in log lines.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Whole => "whole messages",
            Self::Tunnel => "tunnel",
            Self::Ahp(_) => "AHP",
            Self::Binary => "binary messages",
            #[cfg(feature = "loro")]
            Self::Loro(_) => "loro",
        }
    }
}

/// An end that is connected, but has not sent anything yet.
pub(crate) struct Opened {
    pub(crate) kind: EndKind,
    pub(crate) port: Port,
    /// The address that a client connected to, as its own request names it: of a relay or proxy, if one is
    /// in between.
    pub(crate) reached_at: Option<String>,
}

impl Opened {
    pub(crate) fn new(kind: EndKind, port: Port) -> Self {
        Self {
            kind,
            port,
            reached_at: None,
        }
    }

    #[cfg(any(feature = "http", feature = "nostr"))]
    pub(crate) fn whole(port: Port) -> Self {
        Self::new(EndKind::Whole, port)
    }

    /// A stream of messages, text or bytes.
    #[cfg(feature = "process")]
    fn stream(end: &End, port: Port) -> Self {
        let kind = match end.carries {
            Carries::Text => EndKind::Whole,
            Carries::Binary => EndKind::Binary,
        };
        Self::new(kind, port)
    }

    /// Exchanges the greeting before the first message, where a protocol other than the tunnel has one.
    pub(crate) async fn greeted(self) -> Result<Self, OpenError> {
        #[cfg(feature = "loro")]
        if let EndKind::Loro(end) = &self.kind {
            loro::greet(end).await?;
        }
        Ok(self)
    }

    /// An end that is a tunnel.
    pub(crate) fn tunnel(tunnelled: Tunnelled) -> Self {
        Self::new(EndKind::Tunnel, tunnelled.port)
    }
}

/// The standard streams of this process.
#[cfg(feature = "process")]
pub(crate) fn stdio(end: &End) -> Result<Opened, OpenError> {
    let mut stdio = process::stdio(end.framing, end.max_message).map_err(OpenError::Stdio)?;
    let ends = stdio.ends();
    Ok(Opened::stream(end, stream(end, stdio, ends)?))
}

/// A TCP or Unix socket, accepted or dialed.
#[cfg(feature = "process")]
pub(crate) fn socket(end: &End, mut socket: SocketStream) -> Result<Opened, OpenError> {
    let ends = socket.ends();
    Ok(Opened::stream(end, stream(end, socket, ends)?))
}

#[cfg(feature = "process")]
async fn dial(end: &End, address: &SocketAddress) -> Result<Opened, OpenError> {
    let (framing, limit) = (end.framing, end.max_message);
    let dialed = match address {
        SocketAddress::Tcp(authority) => tcp::connect(authority, DIAL)
            .await
            .map(|stream| process::tcp_stream(stream, framing, limit)),
        #[cfg(unix)]
        SocketAddress::Unix(path) => tcp::connect_unix(path, DIAL)
            .await
            .map(|stream| process::unix_stream(stream, framing, limit)),
        #[cfg(not(unix))]
        SocketAddress::Unix(_) => Err(std::io::ErrorKind::Unsupported.into()),
    };
    let dialed = dialed.map_err(|error| OpenError::Unreachable {
        address: address.name(),
        error: error.into(),
    });
    socket(end, dialed?)
}

#[cfg(feature = "process")]
fn stream(end: &End, transport: impl Transport, ends: process::Ends) -> Result<Port, OpenError> {
    let skipped = Skipped::of(&ends);
    let connection = open(end, whole(end), transport)?;
    Ok(Port::with_ends(connection, ends).with_skipped(skipped))
}

/// A connection to the target.
pub(crate) async fn target(end: &End) -> Result<Opened, OpenError> {
    let opened = connected(end).await;
    opened.map_err(|error| error.expecting(expected(end)))
}

/// What a target is asked to be, and how to start one.
pub(crate) fn expected(end: &End) -> Option<&'static str> {
    match (&end.at, end.tunnel) {
        (At::Ws(_), TunnelUse::Auto) if end.wire == WireKind::Ahp => Some(
            "the other gateway (start one: breakbulk gateway --listen ws://PORT --to 'exec:SERVER') or an AHP host",
        ),
        (At::Ws(_), TunnelUse::Always) if end.wire == WireKind::Ahp => Some(
            "the other gateway (start one: breakbulk gateway --listen ws://PORT --to 'exec:SERVER')",
        ),
        (At::Ws(_), _) => Some("a WebSocket server"),
        #[cfg(feature = "http")]
        (At::Exchange(_), _) => Some(
            "the other gateway (start one: breakbulk gateway --listen ahp+http://PORT --to 'exec:SERVER')",
        ),
        #[cfg(feature = "http")]
        (At::Http(_), _) => Some(
            "an MCP server over HTTP (start one: breakbulk gateway --listen http://PORT --to 'exec:SERVER')",
        ),
        _ => None,
    }
}

async fn connected(end: &End) -> Result<Opened, OpenError> {
    match &end.at {
        #[cfg(feature = "process")]
        At::Stdio => stdio(end),
        #[cfg(feature = "process")]
        At::Exec(words) => {
            let program = process::Program::new(words).stderr(process::Stderr::Lines);
            let (mut exec, _) = program.start(end.framing, end.max_message)?;
            let (ends, lines) = (exec.ends(), exec.stderr_lines());
            let port = stream(end, exec, ends)?.until_exit();
            Ok(Opened::stream(end, port.ending_after(lines)))
        }
        #[cfg(feature = "process")]
        At::Socket(address) => dial(end, address).await,
        At::Ws(address) => {
            let dial = WsDial::new(end, address);
            let websocket = dial.connect().await?;
            if is_tunnel(end, &websocket) {
                let line = Line::new(websocket);
                let tunnelled = connect(line, Arc::new(dial), &end.tunnel_config()).await?;
                return Ok(Opened::tunnel(tunnelled));
            }
            if end.tunnel == TunnelUse::Always {
                return Err(dial.no_gateway());
            }
            web_socket(end, websocket, true)?.0.greeted().await
        }
        #[cfg(feature = "http")]
        At::Http(address) => crate::mcp::connect(end, address).await,
        #[cfg(feature = "http")]
        At::Exchange(address) => tunnel(end, exchange::ExchangeDial::new(end, address)).await,
        #[cfg(feature = "nats")]
        At::Nats(address) => tunnel(end, nats::NatsDial::new(end, address)).await,
        #[cfg(feature = "loro")]
        At::Loro(address) => loro::dial(end, address).await,
        #[cfg(feature = "nostr")]
        At::Relays(address) => relays::connect(end, address).await,
    }
}

/// How a WebSocket target is connected to.
pub(crate) fn connect_options(end: &End, address: &WsAddress) -> ConnectOptions {
    ConnectOptions {
        bearer: end.token.clone(),
        subprotocols: subprotocols(end),
        frame_limit: end.frame_limit(),
        fragment: end.fragment,
        #[cfg(feature = "tls")]
        roots: end.roots.clone(),
        #[cfg(feature = "tls")]
        identity: end.identity.clone(),
        #[cfg(unix)]
        unix_socket: address.socket.clone(),
        ..ConnectOptions::default()
    }
}

/// Opens a tunnel over a transport that carries nothing but tunnels.
#[cfg(any(feature = "http", feature = "nats"))]
async fn tunnel(end: &End, dial: impl Dial) -> Result<Opened, OpenError> {
    let line = dial.dial().await?;
    let tunnelled = connect(line, Arc::new(dial), &end.tunnel_config()).await?;
    Ok(Opened::tunnel(tunnelled))
}

/// The subprotocols that are offered, or understood.
pub(crate) fn subprotocols(end: &End) -> Vec<String> {
    match (end.wire, end.tunnel) {
        (WireKind::Ahp, TunnelUse::Auto | TunnelUse::Always) => vec![TUNNEL.to_owned()],
        _ => Vec::new(),
    }
}

/// Whether the other end of a WebSocket is a gateway.
pub(crate) fn is_tunnel(end: &End, websocket: &WebSocket) -> bool {
    end.wire == WireKind::Ahp && websocket.subprotocol() == Some(TUNNEL)
}

/// A WebSocket that is no tunnel, accepted or dialed, and its connection.
pub(crate) fn web_socket(
    end: &End,
    mut websocket: WebSocket,
    dialed: bool,
) -> Result<(Opened, Connection), OpenError> {
    // A listener that answers probes has accepted the WebSocket with the larger limit for probes: lower it.
    websocket.limit_frames(end.frame_limit());
    #[cfg(feature = "loro")]
    if end.carried == Carried::Loro {
        return loro::open(end, Way::WebSocket, dialed, websocket, end.options());
    }
    #[cfg(not(feature = "loro"))]
    let _ = dialed;
    let link = match end.wire {
        WireKind::Ahp => end.ahp_config().fresh_link(),
        WireKind::Loro => fragments(end),
        // ContextVM's transfers are in the events of relays, never directly on a WebSocket.
        WireKind::Whole | WireKind::Cep22 => whole(end),
    };
    let connection = open(end, link, websocket)?;
    let kind = match end.wire {
        _ if end.carries == Carries::Binary => EndKind::Binary,
        WireKind::Ahp => EndKind::Ahp(connection.clone()),
        _ => EndKind::Whole,
    };
    let cutting = match end.wire {
        WireKind::Whole | WireKind::Cep22 => Cutting::Never,
        WireKind::Ahp => Cutting::ThisGateway,
        WireKind::Loro => Cutting::BothGateways,
    };
    let port = Port::new(connection.clone()).with_cutting(cutting);
    Ok((Opened::new(kind, port), connection))
}

/// Opens WebSockets to a target.
struct WsDial {
    address: WsAddress,
    options: ConnectOptions,
}

impl WsDial {
    fn new(end: &End, address: &WsAddress) -> Self {
        let options = connect_options(end, address);
        let address = address.clone();
        Self { address, options }
    }

    async fn connect(&self) -> Result<WebSocket, OpenError> {
        Ok(ws::connect(&self.address.url(), &self.options).await?)
    }

    fn no_gateway(&self) -> OpenError {
        let authority = self.address.name();
        OpenError::NotGateway { authority }
    }
}

impl Dial for WsDial {
    fn dial(&self) -> Boxed<'_, Result<Line, OpenError>> {
        Box::pin(async {
            let websocket = self.connect().await?;
            match websocket.subprotocol() {
                Some(TUNNEL) => Ok(Line::new(websocket)),
                _ => Err(self.no_gateway()),
            }
        })
    }

    fn path(&self) -> String {
        self.address.path_name()
    }
}

pub(crate) fn open(
    end: &End,
    link: Link,
    transport: impl Transport,
) -> Result<Connection, OpenError> {
    let transport = tapped(transport, end.watched.tap());
    Ok(Connection::open(link, transport, end.options())?)
}

pub(crate) fn whole(end: &End) -> Link {
    whole_link(end.carries, end.cap(), end.max_message, end.budget.clone())
}

fn fragments(end: &End) -> Link {
    let mut config: Config = Loro::config();
    config.progress = 0;
    let limits = &mut config.limits;
    limits.frame = end.max_frame;
    limits.message = end.max_message;
    limits.pending_bytes = end.max_message;
    limits.memory = session_memory(end.max_message);
    limits.queued_bytes = end.max_message;
    let wire = Arc::new(Loro);
    let mut link = Link::new(wire.clone(), wire, config, end.budget.clone(), fresh_seed());
    link.set_cap(end.cap());
    link
}

/// How messages are edited between two such ends.
pub(crate) fn passing(plan: &Plan, listen: &Opened, to: &Opened) -> Box<dyn Passing> {
    let address = listen.reached_at.as_ref().or_else(|| plan.heard_at.get());
    let (listen, to) = (&listen.kind, &to.kind);
    let (hosts, clients) = plan.sessions.clone();
    let of_listen = || plan.listen.ahp_config();
    let of_to = || plan.to.ahp_config();
    let inner: Box<dyn Passing> = match (listen, to) {
        #[cfg(feature = "loro")]
        (EndKind::Loro(client), EndKind::Loro(server)) => {
            return Box::new(Bridge::new(client.clone(), server.clone()));
        }
        (EndKind::Binary, _) | (_, EndKind::Binary) => return Box::new(Raw),
        (EndKind::Ahp(client), EndKind::Ahp(host)) => {
            let boxes = BothBoxes::new(
                (client.clone(), of_listen(), clients),
                (host.clone(), of_to(), hosts),
            );
            Box::new(boxes.listening_at(address.cloned()))
        }
        (EndKind::Ahp(client), _) => {
            let host_box = HostBox::new(client.clone(), of_listen(), clients);
            Box::new(host_box.listening_at(address.cloned()))
        }
        (_, EndKind::Ahp(host)) => Box::new(ClientBox::new(host.clone(), of_to(), hosts)),
        _ => Box::new(ForReceivers {
            listen: plan.listen.receiver_limit(),
            to: plan.to.receiver_limit(),
            inner: Plain::default(),
        }),
    };
    let is_tunnel = |kind: &EndKind| matches!(kind, EndKind::Tunnel);
    let (listen, to) = (is_tunnel(listen), is_tunnel(to));
    let hides = plan.listen.hides_process_id() || plan.to.hides_process_id();
    match (listen || to, hides) {
        (false, _) => inner,
        (true, false) => Box::new(Tunnel { listen, to, inner }),
        (true, true) => Box::new(NoProcessId(Tunnel { listen, to, inner })),
    }
}

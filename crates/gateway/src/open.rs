//! From an end that was planned to a connection that the pump can use.

use crate::pump::{
    BothBoxes, ClientBox, HostBox, Passing, Plain, Port, Raw, Skipped, Tunnel, greet,
    session_memory, whole_link,
};
use breakbulk_link::{Carries, Config, Limits, Link};
use breakbulk_message::tunnel::TUNNEL;
use breakbulk_net::process;
use breakbulk_net::ws::{self, ConnectOptions, WebSocket};
use breakbulk_net::{Connection, Transport, fresh_seed};
use breakbulk_wire::Loro;

use crate::endpoint::{At, TunnelUse, WireKind};
use crate::error::OpenError;
use crate::plan::{End, Plan};
use crate::relays;

/// What an end turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Face {
    /// Whole messages of a program.
    Whole,
    /// Another gateway.
    Tunnel,
    /// An AHP program that may know segments.
    Ahp,
    /// Binary messages.
    Binary,
}

/// An end that is connected, but has not said anything yet.
pub(crate) struct Opened {
    pub(crate) face: Face,
    pub(crate) port: Port,
}

/// Our own standard streams.
pub(crate) fn stdio(end: &End) -> Result<Opened, OpenError> {
    let mut stdio = process::stdio(end.framing, end.max_message).map_err(OpenError::Stdio)?;
    let ends = stdio.ends();
    let skipped = Some(Skipped::of(&ends));
    let connection = connect(end, whole(end), stdio, false)?;
    Ok(Opened {
        face: Face::Whole,
        port: Port {
            skipped,
            ..Port::with_ends(connection, ends)
        },
    })
}

/// A connection to the target.
pub(crate) async fn target(end: &End) -> Result<Opened, OpenError> {
    match &end.at {
        At::Stdio => stdio(end),
        At::Exec(words) => {
            let program = end
                .hidden_variables
                .iter()
                .fold(process::Program::new(words), |program, name| {
                    program.env_remove(name)
                });
            let (mut exec, _) = program.start(end.framing, end.max_message)?;
            let ends = exec.ends();
            let skipped = Some(Skipped::of(&ends));
            let connection = connect(end, whole(end), exec, false)?;
            Ok(Opened {
                face: Face::Whole,
                port: Port {
                    // Its end is the end of the command, which closes the connection.
                    input_ended: None,
                    skipped,
                    ..Port::with_ends(connection, ends)
                },
            })
        }
        At::Ws(address) => {
            let options = ConnectOptions {
                bearer: end.token.clone(),
                subprotocols: subprotocols(end),
                frame_limit: end.frame_limit(),
                fragment: end.fragment,
                roots: end.roots.clone(),
                ..ConnectOptions::default()
            };
            let websocket = ws::connect(&address.url(), &options).await?;
            if end.tunnel == TunnelUse::Always && websocket.subprotocol() != Some(TUNNEL) {
                let authority = address.authority.clone();
                return Err(OpenError::NotGateway { authority });
            }
            Ok(web_socket(end, websocket)?.0)
        }
        At::Relays(address) => relays::connect(end, address).await,
    }
}

/// A connection whose frames are whole messages.
pub(crate) fn whole_messages(
    end: &End,
    transport: impl Transport,
) -> Result<Connection, OpenError> {
    connect(end, whole(end), transport, false)
}

/// The subprotocols that are offered, or understood.
pub(crate) fn subprotocols(end: &End) -> Vec<String> {
    match (end.wire, end.tunnel) {
        (WireKind::Ahp, TunnelUse::Auto | TunnelUse::Always) => vec![TUNNEL.to_owned()],
        _ => Vec::new(),
    }
}

/// A WebSocket, whichever end made it, and its connection.
pub(crate) fn web_socket(
    end: &End,
    websocket: WebSocket,
) -> Result<(Opened, Connection), OpenError> {
    let is_tunnel = websocket.subprotocol() == Some(TUNNEL);
    let (face, link) = match end.wire {
        WireKind::Ahp if is_tunnel => (Face::Tunnel, end.tunnel_settings().link(fresh_seed())),
        WireKind::Ahp => (Face::Ahp, end.ahp_settings().link()),
        WireKind::Loro => (Face::Binary, loro(end)),
        WireKind::Whole if end.carries == Carries::Binary => (Face::Binary, whole(end)),
        // Relays of events are no WebSockets here.
        WireKind::Whole | WireKind::Cep22 => (Face::Whole, whole(end)),
    };
    let connection = connect(end, link, websocket, is_tunnel)?;
    let port = Port::new(connection.clone());
    Ok((Opened { face, port }, connection))
}

fn connect(
    end: &End,
    link: Link,
    transport: impl Transport,
    tunnel: bool,
) -> Result<Connection, OpenError> {
    Ok(Connection::open(link, transport, end.options(tunnel))?)
}

fn whole(end: &End) -> Link {
    whole_link(end.carries, end.cap(), end.max_message, end.budget.clone())
}

fn loro(end: &End) -> Link {
    let mut config: Config = Loro::config();
    config.progress = 0;
    config.limits = Limits {
        frame: end.max_frame,
        message: end.max_message,
        pending_bytes: end.max_message,
        memory: session_memory(end.max_message),
        queued_bytes: end.max_message,
        ..config.limits
    };
    let wire = std::sync::Arc::new(Loro);
    let mut link = Link::new(wire.clone(), wire, config, end.budget.clone(), fresh_seed());
    link.set_cap(end.cap());
    link
}

impl Opened {
    /// Says what a tunnel says first, and hears the other's.
    pub(crate) async fn greeted(self, end: &End) -> Result<Self, OpenError> {
        match self.face {
            Face::Tunnel => {
                let connection = self.port.connection;
                let port = greet(connection, &end.tunnel_settings()).await?;
                Ok(Self { port, ..self })
            }
            _ => Ok(self),
        }
    }
}

/// What is done to messages between two such ends.
pub(crate) fn passing(plan: &Plan, listen: Face, to: Face) -> Box<dyn Passing> {
    let (hosts, clients) = plan.sessions.clone();
    let inner: Box<dyn Passing> = match (listen, to) {
        (Face::Binary, _) | (_, Face::Binary) => return Box::new(Raw),
        (Face::Ahp, Face::Ahp) => Box::new(BothBoxes::new(
            plan.listen.ahp_settings(),
            plan.to.ahp_settings(),
            clients,
            hosts,
        )),
        (Face::Ahp, _) => Box::new(HostBox::new(plan.listen.ahp_settings(), clients)),
        (_, Face::Ahp) => Box::new(ClientBox::new(plan.to.ahp_settings(), hosts)),
        _ => Box::new(Plain::default()),
    };
    let is_tunnel = |face| face == Face::Tunnel;
    if !is_tunnel(listen) && !is_tunnel(to) {
        return inner;
    }
    Box::new(Tunnel {
        listen: is_tunnel(listen),
        to: is_tunnel(to),
        inner,
    })
}

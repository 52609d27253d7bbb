//! The transports of loro-extended as ends of a gateway: WebSockets, event streams, polls and data
//! channels, bridged to each other.
//!
//! The messages are the same on all of them, in two forms: CBOR frames, in fragments where they are large,
//! and JSON, in which event streams and polls bring messages down. WebSockets have a few words beside the
//! messages, which each gateway says and answers itself: `ready`, `ping` and `pong`.

mod bridge;
mod listen;
mod tokens;

use std::sync::Arc;
use std::time::Duration;

use breakbulk_link::{Cap, Carries, Event, Link, PeerLimits, PeerSupport, Wire};
use breakbulk_loro::http::client_options;
use breakbulk_loro::machine::control::{PING, READY};
use breakbulk_net::http::Way;
use breakbulk_net::{Connection, Options, Transport, fresh_seed, poll, sse, tapped, ws};
use breakbulk_wire::{Loro, Whole};

pub(crate) use bridge::{Bridge, LoroEnd};
pub(crate) use listen::listen;
pub use tokens::TokenCheck;

use crate::endpoint::{LoroAddress, LoroWay};
use crate::error::OpenError;
use crate::open::{EndKind, Opened};
use crate::plan::End;
use crate::pump::{Port, session_memory};

/// How many messages are under way in pieces at once: a receiver drops the oldest of more than 32.
const TRANSFERS: usize = 16;

/// The pieces of loro-extended itself: in WebSockets, in POSTs and in data channels.
const SOCKET_PIECE: usize = 102_400;
const POST_PIECE: usize = 81_920;
const CHANNEL_PIECE: usize = 204_800;

/// How long a server may take to say that it is ready.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// The client of loro-extended throws if `ready` comes at once.
const READY_DELAY: Duration = Duration::from_millis(20);

/// A WebSocket is pinged when nothing arrived for the first time, and closed when nothing arrived for the
/// second.
const PING_AFTER: Duration = Duration::from_secs(10);
const LOST_AFTER: Duration = Duration::from_secs(30);

/// A connection to the target.
pub(crate) async fn dial(end: &End, address: &LoroAddress) -> Result<Opened, OpenError> {
    // Of two connections with one id the older one would be replaced, so each session has an id of its
    // own, whatever its client calls itself.
    let mut options = client_options(fresh_id());
    options.bearer = end.token.clone();
    options.roots = end.roots.clone();
    options.identity = end.identity.clone();
    let url = address.url();
    match address.way.unwrap_or(LoroWay::Sse) {
        LoroWay::Sse => {
            let transport = sse::connect(&url, &options).await?;
            Ok(open(end, Way::Sse, true, transport, Options::default())?.0)
        }
        LoroWay::Poll => {
            let transport = poll::connect(&url, &options).await?;
            Ok(open(end, Way::Poll, true, transport, Options::default())?.0)
        }
        #[cfg(feature = "webrtc")]
        LoroWay::DataChannel => {
            let channel = breakbulk_net::webrtc::ChannelOptions::default();
            let transport = breakbulk_net::webrtc::connect(&url, &options, &channel).await?;
            let options = Options {
                keepalive: None,
                silence: None,
                ..Options::default()
            };
            Ok(open(end, Way::DataChannel, true, transport, options)?.0)
        }
    }
}

/// An id of digits, as loro-extended has them.
pub(crate) fn fresh_id() -> String {
    let mut word = [0; 8];
    word.copy_from_slice(&fresh_seed()[..8]);
    (u64::from_be_bytes(word) >> 1).to_string()
}

/// A connection by one of the transports; `dialed`: to the target, not from a client.
pub(crate) fn open(
    end: &End,
    way: Way,
    dialed: bool,
    transport: impl Transport,
    mut options: Options,
) -> Result<(Opened, Connection), OpenError> {
    if way == Way::WebSocket {
        options.keepalive = Some(PING_AFTER);
        options.silence = Some(LOST_AFTER);
        options.ping_word = dialed.then_some(PING);
    }
    let transport = tapped(transport, end.watched.tap());
    let connection = Connection::open(link(end, way, dialed), transport, options)?;
    let port = Port::new(connection.clone());
    let kind = EndKind::Loro(LoroEnd {
        connection: connection.clone(),
        way,
        dialed,
    });
    Ok((Opened::new(kind, port), connection))
}

/// Says that this side is ready, or waits until the other side does; other transports have no such word.
pub(crate) async fn greet(end: &LoroEnd) -> Result<(), OpenError> {
    if end.way != Way::WebSocket {
        return Ok(());
    }
    if !end.dialed {
        tokio::time::sleep(READY_DELAY).await;
        // It fails if the client has left, which the pump sees next.
        let _ = end.connection.with(|link| link.send_control(READY));
        return Ok(());
    }
    let ready = async {
        loop {
            match end.connection.event().await {
                Some(Event::Control(word)) if word == READY => return Ok(()),
                Some(Event::Control(_)) => {}
                Some(Event::Closed(closed)) => return Err(OpenError::LoroClosed(closed)),
                Some(Event::Message(_)) => return Err(OpenError::LoroEarly),
                Some(_) => {}
                None => return Err(OpenError::LoroClosed(end.connection.closed().await)),
            }
        }
    };
    match tokio::time::timeout(READY_WITHIN, ready).await {
        Ok(ready) => ready,
        Err(_) => Err(OpenError::LoroSilent(READY_WITHIN)),
    }
}

/// The link of a connection: fragments both ways, but JSON down to the clients of event streams and polls.
fn link(end: &End, way: Way, dialed: bool) -> Link {
    let by_http = matches!(way, Way::Sse | Way::Poll);
    let mut config = Loro::config();
    if by_http {
        config.rules = match dialed {
            true => Whole::rules(),
            false => Loro::http_rules(),
        };
    }
    config.progress = 0;
    let json: Arc<dyn Wire> = Arc::new(Whole {
        carries: Carries::Text,
    });
    let loro: Arc<dyn Wire> = Arc::new(Loro);
    let (send, receive) = match (by_http, dialed) {
        (false, _) => (loro.clone(), loro),
        (true, false) => (json, loro),
        (true, true) => (loro, json),
    };
    // JSON is not cut, and has bytes in base64.
    let in_json = end.max_message / 3 * 4 + (1 << 20);
    let receives_json = by_http && dialed;
    let message = if receives_json {
        in_json
    } else {
        end.max_message
    };
    let limits = &mut config.limits;
    limits.frame = match receives_json {
        true => in_json,
        false => ws::FRAME_LIMIT,
    };
    limits.message = message;
    limits.memory = session_memory(message);
    limits.pending_bytes = limits.memory;
    limits.queued_bytes = in_json;
    let mut link = Link::new(send, receive, config, end.budget.clone(), fresh_seed());
    if !by_http || dialed {
        link.set_peer(PeerSupport::Yes(PeerLimits {
            transfers: TRANSFERS,
            ..PeerLimits::NONE
        }));
        link.set_cap(cap(end, way));
    }
    link
}

/// The largest frame: what was asked for, or what loro-extended's own clients send.
fn cap(end: &End, way: Way) -> Cap {
    match way {
        // An end over HTTP for which nothing was asked.
        Way::Sse | Way::Poll if end.max_frame == usize::MAX => Cap::piece(POST_PIECE),
        Way::DataChannel if end.max_frame == usize::MAX => Cap::piece(CHANNEL_PIECE),
        _ if end.max_frame == usize::MAX => Cap::piece(SOCKET_PIECE),
        _ => end.cap(),
    }
}

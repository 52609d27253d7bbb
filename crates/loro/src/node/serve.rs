//! One connection: opens it, passes its messages to the machine, and removes it at its end.

use std::net::IpAddr;
use std::sync::Arc;

use breakbulk_link::{Closed, Event, Fault, FaultKind, Message};
use breakbulk_message::loro::{
    ChannelMsg, DecodeError, Detail, WIRE_VERSION, decode_frame, from_json,
};
use breakbulk_net::http::{Way, refused_post};
use breakbulk_net::{Connection, Options, Refusal, Transport};
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::config::Form;
use super::core::{Core, QueueLength, TOO_LARGE};
use super::error::DialError;
use super::shares::Share;
use crate::machine::{ChannelId, Opening, control};

/// An open connection that is ready for messages.
pub(super) struct Joined {
    connection: Connection,
    form: Form,
    opening: Opening,
    /// Events that came before the server's `ready`.
    early: Vec<Event>,
    /// The memory of a client's address.
    share: Option<Share>,
}

/// Who dialed this node.
pub(super) struct Dialer {
    /// The name under which it connected.
    pub(super) claim: String,
    /// The name that it was authenticated with.
    pub(super) subject: Option<String>,
    pub(super) address: Option<IpAddr>,
}

/// Opens the connection of a peer that dialed this node.
pub(super) async fn accept<T: Transport>(
    core: &Core,
    way: Way,
    dialer: Dialer,
    transport: T,
    options: Options,
) -> Result<Joined, DialError> {
    let share = core.shares.of(dialer.address);
    let (link, form) = core.config.link(way, false, share.budget.clone());
    let is_websocket = way == Way::WebSocket;
    if is_websocket {
        tokio::time::sleep(core.config.ready_delay).await;
    }
    let options = keepalive(way, options);
    let connection = Connection::open(link, transport, options)?;
    if is_websocket {
        // Nothing else is queued on this link yet.
        let _ = connection.with(|link| link.send_control(control::READY));
    }
    Ok(Joined {
        connection,
        form,
        opening: Opening {
            claim: dialer.claim,
            subject: dialer.subject,
            dialed: false,
            sends_establish: way == Way::DataChannel,
        },
        early: Vec::new(),
        share: Some(share),
    })
}

/// Opens the connection to a peer that this node dialed.
pub(super) async fn join<T: Transport>(
    core: &Core,
    way: Way,
    transport: T,
    options: Options,
) -> Result<Joined, DialError> {
    let (link, form) = core.config.link(way, true, core.config.budget.clone());
    let mut options = keepalive(way, options);
    let mut early = Vec::new();
    let connection = if way == Way::WebSocket {
        options.ping_word = Some(control::PING);
        let connection = Connection::open(link, transport, options)?;
        let ready = tokio::time::timeout(super::READY_WITHIN, ready(&connection, &mut early));
        ready.await.map_err(|_| DialError::NotReady {
            within: super::READY_WITHIN,
        })??;
        connection
    } else {
        Connection::open(link, transport, options)?
    };
    Ok(Joined {
        connection,
        form,
        opening: Opening {
            claim: String::new(),
            subject: None,
            dialed: true,
            sends_establish: true,
        },
        early,
        share: None,
    })
}

/// How a connection is kept alive, by its transport.
fn keepalive(way: Way, options: Options) -> Options {
    match way {
        Way::WebSocket => Options {
            keepalive: options.keepalive.map(|_| super::PING_AFTER),
            silence: options.silence.map(|_| super::LOST_AFTER),
            ..options
        },
        // It has no pings of its own, and the transport below notices when the other end is gone.
        Way::DataChannel => Options {
            keepalive: None,
            silence: None,
            ..options
        },
        Way::Sse | Way::Poll | Way::Exchange => options,
    }
}

/// Waits for the server's `ready`.
async fn ready(connection: &Connection, early: &mut Vec<Event>) -> Result<(), DialError> {
    loop {
        match connection.event().await {
            Some(Event::Control(word)) if word == control::READY => return Ok(()),
            Some(Event::Control(_)) => {}
            Some(Event::Closed(closed)) => return Err(DialError::ClosedEarly(closed)),
            Some(event) => early.push(event),
            None => return Err(DialError::ClosedEarly(connection.closed().await)),
        }
    }
}

/// Serves a connection until its end; `begun` is called once with its channel.
pub(super) async fn run(
    core: &Arc<Core>,
    joined: Joined,
    begun: impl FnOnce(ChannelId, &Connection),
) -> Closed {
    let Joined {
        connection,
        form,
        opening,
        early,
        share: _share,
    } = joined;
    let answers = !opening.dialed;
    let channel = core.drive(|state, now| {
        if state.ended {
            return None;
        }
        let channel = state.hub.open(now, opening);
        let wanted = state.attach(now, channel, connection.clone(), (form, !answers));
        Some((channel, wanted))
    });
    let Some((channel, wanted)) = channel else {
        connection.close(1001, super::SHUTTING_DOWN);
        return connection.closed().await;
    };
    begun(channel, &connection);
    let detach_on_drop = DetachOnDrop {
        core: core.clone(),
        channel,
        connection: connection.clone(),
    };
    tokio::select! {
        () = handle_events(core, channel, &connection, form, answers, early) => {}
        () = report_queue(core, channel, &connection, wanted) => {}
    }
    drop(detach_on_drop);
    let closed = connection.closed().await;
    if !answers && let Some(refusal) = refusal(&connection, &closed) {
        core.drive(|state, _| state.refused(&refusal));
    }
    closed
}

/// What the peer refused, if that is why it ended the connection: it would refuse the same message over
/// the next connection too.
fn refusal(connection: &Connection, closed: &Closed) -> Option<control::Refusal> {
    let (status, error) = match refused_post(closed) {
        Some((status @ (400 | 403 | 413), error)) => (status, error),
        _ if closed.code == TOO_LARGE && connection.closed_by_peer() => (413, &*closed.reason),
        _ => return None,
    };
    Some(control::Refusal {
        status,
        doc: None,
        error: error.to_owned(),
    })
}

/// Tells the machine whenever the send queue is as short as it asked for.
async fn report_queue(
    core: &Core,
    channel: ChannelId,
    connection: &Connection,
    mut wanted: watch::Receiver<Option<QueueLength>>,
) {
    loop {
        let wanted = match wanted.wait_for(Option::is_some).await {
            Ok(wanted) => *wanted,
            Err(_) => None,
        };
        let Some((messages, bytes)) = wanted else {
            // The machine has removed the channel; its events say why.
            return std::future::pending().await;
        };
        let queue = connection.queued_at_most(messages, bytes).await;
        if connection.with(|link| link.closed().is_some()) {
            return std::future::pending().await;
        }
        core.drive(|state, _| state.report_queue(channel, queue));
    }
}

async fn handle_events(
    core: &Core,
    channel: ChannelId,
    connection: &Connection,
    form: Form,
    answers: bool,
    early: Vec<Event>,
) {
    let in_work = Arc::new(Semaphore::new(core.config.limits.in_work.max(1)));
    let mut early = early.into_iter();
    loop {
        let event = match early.next() {
            Some(event) => event,
            None => match connection.event().await {
                Some(event) => event,
                None => break,
            },
        };
        match event {
            Event::Control(word) if answers => {
                if let Some(word) = control::answer(&word) {
                    // Fails if the link is closed, or if a pong is queued already.
                    let _ = connection.with(|link| link.send_control(word));
                }
            }
            Event::Control(word) => {
                if let Some(refusal) = control::Refusal::parse(&word) {
                    core.drive(|state, _| state.refused(&refusal));
                }
            }
            Event::Message(message) => {
                let Ok(permit) = in_work.clone().acquire_owned().await else {
                    break;
                };
                handle_message(core, connection, (channel, form), message, permit);
            }
            Event::Fault(fault) | Event::TransferFailed(fault) => {
                handle_fault(core, (channel, form), &fault, answers);
            }
            Event::SendFailed { error, .. } => {
                connection.close(1009, &format!("a message does not fit: {error}"));
            }
            _ => {}
        }
    }
}

/// Handles an invalid frame, or a message that did not arrive. Its sender learns of it by the answer to its
/// POST, or else by the reason of the close, because the format has no error message; what is missing is
/// synced over the next connection.
fn handle_fault(core: &Core, (channel, form): (ChannelId, Form), fault: &Fault, answers: bool) {
    let by_post = form.sends_json;
    let lost = match &fault.kind {
        FaultKind::Busy => Some((
            1013,
            "the memory for messages of this connection is used up: reconnect and sync again"
                .to_owned(),
        )),
        kind @ (FaultKind::TimedOut { .. } | FaultKind::Evicted) => Some((1013, kind.to_string())),
        FaultKind::MessageTooLarge { size, limit } => {
            let text = format!("a message of {size} bytes is over the limit of {limit}");
            Some((
                TOO_LARGE,
                format!("{text}: raise --max-message of the receiver"),
            ))
        }
        // Not for the small limit on control texts.
        FaultKind::FrameTooLarge { limit, .. } if *limit >= 1 << 20 => {
            Some((TOO_LARGE, fault.kind.to_string()))
        }
        _ => None,
    };
    core.drive(|state, now| {
        if let (false, Some((TOO_LARGE, reason))) = (answers, &lost) {
            // Tells the application, which waits for what this message would have brought.
            state.refused(&control::Refusal {
                status: 413,
                doc: None,
                error: format!("a message of the peer is not accepted here: {reason}"),
            });
        }
        match lost {
            Some((code, reason)) if !by_post => state.hub.cut_off(channel, code, reason),
            // A shortage of memory or room on this side is no fault of the peer.
            Some((1013, _)) => {}
            _ => state.hub.fault(now, channel, &fault.to_string()),
        }
    });
}

/// Decodes a message and hands it to the machine; the permit is given back when its work is done.
fn handle_message(
    core: &Core,
    connection: &Connection,
    (channel, form): (ChannelId, Form),
    message: Message,
    permit: OwnedSemaphorePermit,
) {
    let id = message.id;
    let (bytes, charge) = message.into_parts();
    match decode(form, bytes) {
        Ok(messages) => core.drive(|state, now| {
            if let Some(token) = state.begin(channel, id, charge, permit) {
                state.hub.handle_frame(now, channel, token, messages);
            }
        }),
        Err(reason) => {
            connection.settle(id, Err(Refusal::new(400, reason.clone())));
            core.drive(|state, now| {
                state.tell_refused(channel, 400, &reason);
                state.hub.fault(now, channel, &reason);
            });
        }
    }
}

/// Removes the channel when the task that serves it ends, in whatever way.
struct DetachOnDrop {
    core: Arc<Core>,
    channel: ChannelId,
    connection: Connection,
}

impl Drop for DetachOnDrop {
    fn drop(&mut self) {
        // Only has an effect if this node ended the task; otherwise the connection is closed already.
        self.connection.close(1000, super::DISCONNECTING);
        self.core.drive(|state, _| state.detach(self.channel));
    }
}

fn decode(form: Form, bytes: Bytes) -> Result<Vec<ChannelMsg>, String> {
    if form.receives_json {
        let text = std::str::from_utf8(&bytes).map_err(|error| error.to_string())?;
        let message = from_json(text).map_err(|error| error.to_string())?;
        return Ok(vec![message]);
    }
    decode_frame(bytes).map_err(|error: DecodeError| match error.detail {
        // The original's text, for which its clients may look.
        Detail::Version { found } => {
            format!("Unsupported wire version: {found} (expected {WIRE_VERSION})")
        }
        _ => error.to_string(),
    })
}

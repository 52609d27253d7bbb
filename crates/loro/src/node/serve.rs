//! One connection: opens it, passes its messages to the machine, and removes it at its end.

use std::sync::Arc;

use breakbulk_link::{Closed, Event, FaultKind, Message};
use breakbulk_message::loro::{
    ChannelMsg, DecodeError, Detail, WIRE_VERSION, decode_frame, from_json,
};
use breakbulk_net::http::Way;
use breakbulk_net::{Connection, Options, Refusal, Transport};
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::config::Form;
use super::core::Core;
use super::error::DialError;
use crate::machine::{ChannelId, Opening, control};

/// An open connection that is ready for messages.
pub(super) struct Joined {
    connection: Connection,
    form: Form,
    opening: Opening,
    /// Events that came before the server's `ready`.
    early: Vec<Event>,
}

/// Opens the connection of a peer that dialed this node.
pub(super) async fn accept<T: Transport>(
    core: &Core,
    way: Way,
    claim: String,
    transport: T,
    options: Options,
) -> Result<Joined, DialError> {
    let (link, form) = core.config.link(way, false);
    let is_websocket = way == Way::WebSocket;
    if is_websocket {
        tokio::time::sleep(core.config.ready_delay).await;
    }
    let connection = Connection::open(link, transport, options)?;
    if is_websocket {
        // Nothing else is queued on this link yet.
        let _ = connection.with(|link| link.send_control(control::READY));
    }
    Ok(Joined {
        connection,
        form,
        opening: Opening {
            claim,
            dialed: false,
            sends_establish: way == Way::DataChannel,
        },
        early: Vec::new(),
    })
}

/// Opens the connection to a peer that this node dialed.
pub(super) async fn join<T: Transport>(
    core: &Core,
    way: Way,
    transport: T,
    mut options: Options,
) -> Result<Joined, DialError> {
    let (link, form) = core.config.link(way, true);
    let mut early = Vec::new();
    let connection = if way == Way::WebSocket {
        options.ping_word = Some(control::PING);
        options.keepalive = options.keepalive.map(|_| super::PING_EVERY);
        options.silence = options
            .silence
            .map(|silence| silence.max(super::PING_EVERY * 3));
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
            dialed: true,
            sends_establish: true,
        },
        early,
    })
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
    } = joined;
    let answers = !opening.dialed;
    let channel = core.drive(|state, now| {
        if state.ended {
            return None;
        }
        let channel = state.hub.open(now, opening);
        state.attach(channel, connection.clone(), form);
        Some(channel)
    });
    let Some(channel) = channel else {
        connection.close(1001, super::SHUTTING_DOWN);
        return connection.closed().await;
    };
    begun(channel, &connection);
    let detach_on_drop = DetachOnDrop {
        core: core.clone(),
        channel,
        connection: connection.clone(),
    };
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
            Event::Message(message) => {
                let Ok(permit) = in_work.clone().acquire_owned().await else {
                    break;
                };
                handle_message(core, &connection, (channel, form), message, permit);
            }
            // `Busy` is this node's shortage of memory, not the peer's fault.
            Event::Fault(fault) | Event::TransferFailed(fault)
                if !matches!(fault.kind, FaultKind::Busy) =>
            {
                let reason = fault.to_string();
                core.drive(|state, now| state.hub.fault(now, channel, &reason));
            }
            Event::SendFailed { error, .. } => {
                connection.close(1009, &format!("a message does not fit: {error}"));
            }
            _ => {}
        }
    }
    drop(detach_on_drop);
    connection.closed().await
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
            core.drive(|state, now| state.hub.fault(now, channel, &reason));
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
        // The original's text, which its clients may look for.
        Detail::Version { found } => {
            format!("Unsupported wire version: {found} (expected {WIRE_VERSION})")
        }
        _ => error.to_string(),
    })
}

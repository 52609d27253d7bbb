//! Drives an endpoint over a link's connection: each RPC message is one message of the link.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use breakbulk_link::{Event, Lane, Outgoing as LinkMessage, SendError};
use breakbulk_message::vscode::{Body, Header, Reply, RpcMessage, SerializedError, encode};
use tokio::time::sleep_until;

use super::engine::{Engine, Outgoing};
use super::inbox::now;
use super::status::Ended;
use crate::machine::Chunks;
use crate::machine::ipc::Payload;
use breakbulk_net::Connection;

/// Acknowledgements may overtake other messages; everything else, cancellations too, keeps its order.
const ACKNOWLEDGEMENTS: Lane = Lane(1);

/// What the endpoint's task woke up for.
enum Next {
    Event(Option<Event>),
    Worked,
    Sent(Result<(), String>),
}

type Sending = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Drives the endpoint until its session or the connection is over.
pub(super) async fn drive(mut engine: Engine, connection: Connection) {
    let mut sending: Option<Sending> = None;
    loop {
        while sending.is_none()
            && let Some(message) = engine.next()
        {
            sending = Some(Box::pin(send(connection.clone(), outgoing(&message))));
            // Usually there is room, and the future is ready at once.
            poll_fn(|context| {
                if let Some(future) = &mut sending
                    && let Poll::Ready(outcome) = future.as_mut().poll(context)
                {
                    sending = None;
                    if let Err(why) = outcome {
                        engine.end(Ended::Failed(why));
                    }
                }
                Poll::Ready(())
            })
            .await;
        }
        if sending.is_none() && engine.is_finished() {
            connection.drained().await;
            engine.end(Ended::Disposed);
        }
        if let Some(ended) = engine.ended() {
            let reason = ended.to_string();
            return connection.close(1000, &reason);
        }
        match next(&mut engine, &connection, &mut sending).await {
            Next::Worked => {}
            Next::Sent(outcome) => {
                sending = None;
                if let Err(why) = outcome {
                    engine.end(Ended::Failed(why));
                }
            }
            Next::Event(event) => handle(&mut engine, &connection, event).await,
        }
    }
}

async fn next(engine: &mut Engine, connection: &Connection, sending: &mut Option<Sending>) -> Next {
    let due = engine.poll_timeout();
    let reads = engine.wants_message();
    let due_at = due.unwrap_or_else(now).into();
    // While one message waits for room, the next ones must wait too.
    let stuck = sending.is_some();
    let sent = poll_fn(|context| match sending {
        Some(sending) => sending.as_mut().poll(context),
        None => Poll::Pending,
    });
    let worked = poll_fn(|context| {
        engine.work(now(), context);
        // Send what the engine produced before sleeping.
        let idle = stuck || !(engine.has_outgoing() || engine.is_finished());
        match engine.ended().is_none() && idle && engine.sleep(context) {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }
    });
    tokio::select! {
        biased;
        outcome = sent => Next::Sent(outcome),
        event = connection.event(), if reads => Next::Event(event),
        () = worked => Next::Worked,
        () = sleep_until(due_at), if due.is_some() => Next::Worked,
    }
}

async fn handle(engine: &mut Engine, connection: &Connection, event: Option<Event>) {
    match event {
        Some(Event::Message(message)) => {
            // From here on the session's own limits bound the memory.
            let (bytes, _charge) = message.into_parts();
            let mut bytes = Some(bytes);
            poll_fn(|context| {
                if let Some(bytes) = bytes.take() {
                    engine.receive(now(), bytes, context);
                }
                Poll::Ready(())
            })
            .await;
        }
        Some(Event::SendFailed {
            id, error, bytes, ..
        }) => {
            let replacement = match Header::read(&bytes) {
                Some(header) if header.message_type.is_reply() => error_reply(header.req, &error),
                Some(header) if header.message_type.is_request() => {
                    engine.fail_call(header.req, error.to_string());
                    None
                }
                _ => None,
            };
            connection.with(|link| link.replace(id, replacement));
        }
        // A lost message may be a reply that a call waits for, so the session cannot go on.
        Some(Event::TransferFailed(fault) | Event::Fault(fault)) => {
            engine.end(Ended::Failed(format!("a message was lost: {fault}")));
        }
        Some(Event::Closed(closed)) => match closed.code {
            // No code (1005) is an orderly close too.
            1000 | 1001 | 1005 => engine.end(Ended::Left),
            _ => engine.end(Ended::Lost(closed.to_string())),
        },
        None => engine.end(Ended::Left),
        Some(_) => {}
    }
}

fn outgoing(message: &Outgoing) -> LinkMessage {
    let mut bytes = Chunks::default();
    message.write(&mut bytes);
    let outgoing = LinkMessage::new(bytes.into_bytes());
    match message {
        Outgoing::Rpc(packet) if packet.message().body == Body::Acknowledged => {
            outgoing.in_lane(ACKNOWLEDGEMENTS)
        }
        _ => outgoing,
    }
}

async fn send(connection: Connection, message: LinkMessage) -> Result<(), String> {
    match connection.send_when_writable(message).await {
        Ok(_) => Ok(()),
        Err(rejected) => Err(rejected.error.to_string()),
    }
}

/// An error reply in place of one that cannot be sent.
fn error_reply(req: u32, error: &SendError) -> Option<LinkMessage> {
    let text = format!("the result cannot be sent: {error}");
    let reply = Reply::write_err(&SerializedError::new("Error", text).into()).ok()?;
    let body = Body::Reply(reply);
    let mut bytes = Vec::new();
    encode(&RpcMessage { req, body }, &mut bytes).ok()?;
    Some(LinkMessage::new(bytes))
}

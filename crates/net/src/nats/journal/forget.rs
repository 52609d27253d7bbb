//! Deletes messages that no reader needs any more.
//!
//! One by one, and never by a purge of their subject: a server of a cluster that was killed purges the whole
//! stream up to that moment when it replays the purge of a subject (nats-server 2.9.10), and so loses what
//! other topics have stored.

use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::Context;
use async_nats::jetstream::response::Response;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::NotForgotten;
use crate::nats::bus::with_causes;

/// How many messages are deleted at a time.
const AT_ONCE: usize = 8;

/// How long each may take: longer than the library waits for an answer.
const ANSWER: Duration = Duration::from_secs(15);

/// Deletes these messages of a stream, in this order.
pub(super) async fn delete(
    context: &Context,
    stream: &str,
    messages: &[u64],
) -> Result<(), NotForgotten> {
    let subject = format!("STREAM.MSG.DELETE.{stream}");
    let deleting = messages.iter().map(|at| delete_one(context, &subject, *at));
    let deleting: Vec<_> = deleting.collect();
    let mut deleting = stream::iter(deleting).buffered(AT_ONCE);
    let mut deleted = 0;
    while let Some(outcome) = deleting.next().await {
        if let Err(reason) = outcome {
            let messages = messages[deleted..].to_vec();
            return Err(NotForgotten { messages, reason });
        }
        deleted += 1;
    }
    Ok(())
}

async fn delete_one(context: &Context, subject: &str, message: u64) -> Result<(), String> {
    // `no_erase`: overwriting the message would cost a write of its block.
    let request = json!({ "seq": message, "no_erase": true });
    let answer = context.request::<_, _, Response<Value>>(subject.to_owned(), &request);
    // The library's own timeout begins only once there is room in its queue.
    let answer = timeout(ANSWER, answer).await;
    match answer.map_err(|_| "no server answers".to_owned())? {
        Ok(Response::Ok(_)) => Ok(()),
        Ok(Response::Err { error }) if is_gone(error.error_code()) => Ok(()),
        Ok(Response::Err { error }) => Err(error.to_string()),
        Err(error) => Err(with_causes(&error)),
    }
}

/// Whether the message was deleted before; if its block is gone as well, a server says that deleting failed.
fn is_gone(code: ErrorCode) -> bool {
    [
        ErrorCode::SEQUENCE_NOT_FOUND,
        ErrorCode::NO_MESSAGE_FOUND,
        ErrorCode::STREAM_MESSAGE_DELETE_FAILED,
    ]
    .contains(&code)
}

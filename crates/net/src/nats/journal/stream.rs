//! Finds or creates the stream of a journal.

use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{Context, CreateStreamErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};
use tokio::time::{Instant, sleep};

use super::{JournalError, JournalOptions, WhenFull};

/// How long JetStream may take to have a leader when a journal is opened.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// How long to wait before asking again.
const AGAIN: Duration = Duration::from_millis(200);

/// For how long JetStream recognises a message that is sent again.
const DUPLICATES: Duration = Duration::from_secs(120);

/// Makes sure that the stream exists. A stream that exists already is not changed.
pub(super) async fn open(context: &Context, options: &JournalOptions) -> Result<(), JournalError> {
    let unusable = |reason: String| JournalError::Stream {
        journal: options.name(),
        reason,
    };
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        let failed = match find_or_create(context, options).await {
            Ok(found) => return check(&found, options).map_err(unusable),
            Err(failed) => failed,
        };
        let (again, reason) = failed;
        if !again || Instant::now() > deadline {
            return Err(unusable(reason));
        }
        sleep(AGAIN).await;
    }
}

/// The configuration of the stream, or whether to try again and what went wrong.
async fn find_or_create(
    context: &Context,
    options: &JournalOptions,
) -> Result<Config, (bool, String)> {
    let error = match context.get_stream(&options.stream).await {
        Ok(found) => return Ok(found.cached_info().config.clone()),
        Err(error) => error,
    };
    match error.kind() {
        GetStreamErrorKind::JetStream(error)
            if error.error_code() == ErrorCode::STREAM_NOT_FOUND => {}
        GetStreamErrorKind::JetStream(error) => {
            return Err((error.code() == 503, error.to_string()));
        }
        _ => {
            let text = "; does this server have JetStream (nats-server -js)?";
            return Err((
                true,
                format!("{}{text}", super::super::bus::with_causes(&error)),
            ));
        }
    }
    let created = context.create_stream(config(options)).await;
    match created {
        Ok(created) => Ok(created.cached_info().config.clone()),
        Err(error) => match error.kind() {
            // Another program has created the stream in the meantime.
            CreateStreamErrorKind::JetStream(error)
                if error.error_code() == ErrorCode::STREAM_NAME_EXIST =>
            {
                Err((true, error.to_string()))
            }
            CreateStreamErrorKind::JetStream(error) => {
                let lacks_peers = error.error_code() == ErrorCode::CLUSTER_NO_PEERS;
                Err((error.code() == 503 || lacks_peers, error.to_string()))
            }
            _ => Err((true, error.to_string())),
        },
    }
}

fn config(options: &JournalOptions) -> Config {
    Config {
        name: options.stream.clone(),
        subjects: vec![format!("{}.>", options.stream)],
        max_bytes: options
            .max_bytes
            .map_or(-1, |bytes| i64::try_from(bytes).unwrap_or(i64::MAX)),
        max_messages: -1,
        max_messages_per_subject: -1,
        max_consumers: -1,
        max_message_size: -1,
        discard: match options.when_full {
            WhenFull::DropOldest => DiscardPolicy::Old,
            WhenFull::RefuseNew => DiscardPolicy::New,
        },
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        num_replicas: options.replicas,
        duplicate_window: DUPLICATES,
        description: Some("a journal of breakbulk".to_owned()),
        ..Config::default()
    }
}

/// Whether a stream that another program created keeps what is written to it.
fn check(found: &Config, options: &JournalOptions) -> Result<(), String> {
    let subject = format!("{}.>", options.stream);
    if !found.subjects.contains(&subject) {
        return Err(format!(
            "it does not have the subject {subject}: choose another name"
        ));
    }
    if found.retention != RetentionPolicy::Limits {
        return Err("it deletes what was read: create it with retention limits".to_owned());
    }
    if options.when_full == WhenFull::RefuseNew
        && (found.discard != DiscardPolicy::New || !found.max_age.is_zero())
    {
        let text = "it deletes what is old: create it with discard new and without a maximum age";
        return Err(text.to_owned());
    }
    if found.max_messages_per_subject > 0 {
        let text =
            "it keeps only some messages of a subject: create it with max-msgs-per-subject -1";
        return Err(text.to_owned());
    }
    Ok(())
}

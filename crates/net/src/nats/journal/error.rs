//! Why a journal cannot be opened or written.

use std::time::Duration;

use super::Place;
use crate::nats::NatsError;

/// Why a journal cannot be opened, and how to fix it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// There is no connection to NATS.
    #[error(transparent)]
    Nats(#[from] NatsError),
    /// The address of a journal cannot be read. It is not repeated, since it may contain a password.
    #[error(
        "{0}; write nats://HOST:PORT/STREAM, or tls://…, several hosts with commas between them"
    )]
    Address(String),
    /// The stream cannot be used.
    #[error("the JetStream stream {journal} cannot be used: {reason}")]
    Stream {
        /// Servers and stream.
        journal: String,
        /// Why, and what to do.
        reason: String,
    },
}

/// Why messages were not deleted.
#[derive(Debug, thiserror::Error)]
#[error("{} messages of a journal are not deleted: {reason}", messages.len())]
#[non_exhaustive]
pub struct NotForgotten {
    /// The messages that are still there.
    pub messages: Vec<u64>,
    /// What JetStream says.
    pub reason: String,
}

/// Why a record was not appended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The last record of the topic is another one than the writer knows of; the writer's is not stored.
    #[error("another program appended a record to {topic} after place {after}: read it first")]
    Overtaken {
        /// The topic.
        topic: String,
        /// What the writer knew of.
        after: Place,
    },
    /// The record is larger than the readers of this journal take.
    #[error("a record of {size} bytes is too large for the journal {journal}: {limit} are allowed")]
    TooLarge {
        /// Servers and stream.
        journal: String,
        /// Its bytes.
        size: usize,
        /// [`JournalOptions::max_record`](super::JournalOptions::max_record).
        limit: usize,
    },
    /// No topic can have this name.
    #[error("{topic:?} is no topic: {reason}")]
    Topic {
        /// The name.
        topic: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// JetStream refuses it.
    #[error("JetStream refuses to store in {journal}: {reason}")]
    Refused {
        /// Servers and stream.
        journal: String,
        /// What it says.
        reason: String,
    },
    /// The servers were away for too long. Whether the record is stored shows when they are back.
    #[error(
        "JetStream did not acknowledge a record in {journal} within {} s ({reason}): are most of its servers running?",
        after.as_secs_f64()
    )]
    Outage {
        /// Servers and stream.
        journal: String,
        /// How long it was tried.
        after: Duration,
        /// What the last attempt said.
        reason: String,
    },
}

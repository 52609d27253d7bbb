//! Why a session cannot be opened, or a listener fails.

use std::path::PathBuf;
use std::time::Duration;

/// Why something failed at a NATS server, and how to fix it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NatsError {
    /// The server cannot be reached.
    #[error(
        "no connection to the NATS server {server}: {reason}; is it running, and is this its port?"
    )]
    Unreachable {
        /// Host and port.
        server: String,
        /// What failed.
        reason: String,
    },
    /// The server wants other credentials.
    #[error(
        "the NATS server {server} refuses these credentials: {reason}; give others in the address or by creds"
    )]
    Unauthorized {
        /// Host and port.
        server: String,
        /// What it says.
        reason: String,
    },
    /// The file with credentials cannot be read.
    #[error("{file}: {reason}", file = .file.display())]
    Credentials {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] crate::ws::ConnectError),
    /// The user may not use a subject.
    #[error(
        "the NATS server {server} denies access: {reason}; allow this user the subject and its inbox"
    )]
    Denied {
        /// Host and port.
        server: String,
        /// What it says.
        reason: String,
    },
    /// No program listens at the subject.
    #[error(
        "nobody listens at the subject {subject} of the NATS server {server}; start the other side first, and check the subject"
    )]
    NobodyListens {
        /// Host and port.
        server: String,
        /// The subject.
        subject: String,
    },
    /// No program at the subject answered in time.
    #[error("nobody at the subject {subject} of the NATS server {server} answered within {} s", after.as_secs_f64())]
    Silent {
        /// Host and port.
        server: String,
        /// The subject.
        subject: String,
        /// How long was waited.
        after: Duration,
    },
    /// The program that listens refused the session.
    #[error("the other side at the subject {subject} takes no session: {reason}")]
    Refused {
        /// The subject.
        subject: String,
        /// What it says.
        reason: String,
    },
    /// Something else listens there.
    #[error(
        "what listens at the subject {subject} does not answer as expected: {reason}; check the subject"
    )]
    UnexpectedAnswer {
        /// The subject.
        subject: String,
        /// What is wrong with its answer.
        reason: String,
    },
    /// The subject is not one that sessions can be opened at.
    #[error("{subject:?} is no subject for sessions: {reason}")]
    Subject {
        /// What was given.
        subject: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Anything else.
    #[error("the NATS server {server}: {reason}")]
    Failed {
        /// Host and port.
        server: String,
        /// What failed.
        reason: String,
    },
}

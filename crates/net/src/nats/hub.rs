//! One connection to NATS for many sessions: those that this program opens, and those that others open
//! with it.

use bytes::Bytes;

use super::bus::{Bus, NatsOptions, bad_subject};
use super::dial::{open, unanswered};
use super::error::NatsError;
use super::line::NatsTransport;
use super::listen::NatsListener;

/// A connection to NATS that many sessions share. Clones share it too. When it is lost, all its sessions
/// end; it connects again by itself.
#[derive(Clone, Debug)]
pub struct NatsHub(Bus);

impl NatsHub {
    /// Connects.
    ///
    /// # Errors
    /// If the server cannot be reached, or refuses the credentials.
    pub async fn connect(options: &NatsOptions) -> Result<Self, NatsError> {
        Ok(Self(Bus::connect(options).await?))
    }

    /// Hears a subject at which others open sessions, of which at most `sessions` may be open.
    ///
    /// # Errors
    /// If the subject is none, or the connection is lost.
    pub async fn listen(&self, subject: &str, sessions: usize) -> Result<NatsListener, NatsError> {
        check(subject)?;
        NatsListener::at(self.0.clone(), subject, sessions).await
    }

    /// Opens a session with whoever hears a subject.
    ///
    /// # Errors
    /// [`NatsError::NobodyListens`] if nobody does; others if that cannot be known.
    pub async fn open(&self, subject: &str) -> Result<NatsTransport, NatsError> {
        check(subject)?;
        self.while_connected(open(&self.0, subject, false)).await
    }

    /// Whether somebody hears a subject.
    ///
    /// # Errors
    /// [`NatsError::NobodyListens`] if nobody does; others if that cannot be known.
    pub async fn ask_whether_there(&self, subject: &str) -> Result<(), NatsError> {
        check(subject)?;
        let asking = async {
            let asked = self.0.client.request(subject.to_owned(), Bytes::new());
            let answered = asked.await.map(drop);
            answered.map_err(|error| unanswered(&self.0, subject, &error))
        };
        self.while_connected(asking).await
    }

    /// Whether there is a connection to a server at the moment.
    pub fn is_connected(&self) -> bool {
        self.0.is_connected()
    }

    /// Ends what waits for an answer as soon as the connection is lost, or the server denies something.
    async fn while_connected<T>(
        &self,
        asking: impl Future<Output = Result<T, NatsError>>,
    ) -> Result<T, NatsError> {
        if !self.is_connected() {
            return Err(self.0.failed("there is no connection at the moment"));
        }
        tokio::select! {
            biased;
            answer = asking => answer,
            denied = self.0.denied() => Err(denied),
            () = self.0.lost_since(self.0.losses()) => {
                Err(self.0.failed("the connection was lost"))
            }
        }
    }
}

fn check(subject: &str) -> Result<(), NatsError> {
    match bad_subject(subject) {
        None => Ok(()),
        Some(reason) => Err(NatsError::Subject {
            subject: subject.to_owned(),
            reason,
        }),
    }
}

//! One connection to NATS for many sessions: those that this program opens, and those that others open
//! with it.

use bytes::Bytes;

use super::bus::{Bus, NatsOptions, bad_subject};
use super::dial::{open, unanswered};
use super::error::NatsError;
use super::line::NatsTransport;
use super::listen::NatsListener;

/// A connection to NATS that many sessions share, as clones of this do. When it is lost, all its sessions
/// end; it reconnects by itself.
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

    /// Listens at a subject at which other programs open sessions; at most `sessions` of them may be open.
    ///
    /// # Errors
    /// If this is not a valid subject, or the connection is lost.
    pub async fn listen(&self, subject: &str, sessions: usize) -> Result<NatsListener, NatsError> {
        check(subject)?;
        let denials = self.0.denials();
        let subject_alone = Some(subject.to_owned());
        NatsListener::at(self.0.clone(), subject, sessions, (denials, subject_alone)).await
    }

    /// Opens a session with a program that listens at a subject.
    ///
    /// # Errors
    /// [`NatsError::NobodyListens`] if no program does; another error if that cannot be found out.
    pub async fn open(&self, subject: &str) -> Result<NatsTransport, NatsError> {
        check(subject)?;
        self.while_connected(open(&self.0, subject, false)).await
    }

    /// Whether a program listens at a subject.
    ///
    /// # Errors
    /// [`NatsError::NobodyListens`] if no program does; another error if that cannot be found out.
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

    /// Waits for an answer, but fails if the connection is lost or the server has denied something.
    async fn while_connected<T>(
        &self,
        asking: impl Future<Output = Result<T, NatsError>>,
    ) -> Result<T, NatsError> {
        if !self.is_connected() {
            return Err(self.0.failed("there is no connection at the moment"));
        }
        let denials = self.0.denials();
        tokio::select! {
            biased;
            answer = asking => answer,
            denied = self.0.denied_since(denials, None) => Err(denied),
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

//! A request of the host, which is answered on the connection on which it arrived.

use std::fmt;
use std::ops::Deref;

use breakbulk_link::Outgoing;
use breakbulk_net::Connection;
use serde_json::value::RawValue;

use super::ClientError;
use super::shared::send;
use crate::Config;
use crate::machine::client::Question;

/// A request of the host. It is answered once; if dropped, it is answered with "method not found".
pub struct Request {
    question: Question,
    /// The connection on which it arrived, if that is still open.
    connection: Option<Connection>,
    config: Config,
    answered: bool,
}

impl Request {
    pub(super) fn new(question: Question, connection: Option<Connection>, config: Config) -> Self {
        Self {
            question,
            connection,
            config,
            answered: false,
        }
    }

    /// Answers the request. If the answer is too large for the host, the host and the caller get an error.
    pub async fn answer(self, result: &RawValue) -> Result<(), ClientError> {
        let (message, error) = self.question.answer(&self.config, result);
        self.send(message).await?;
        error.map_or(Ok(()), Err)
    }

    /// Answers the request with an error.
    pub async fn refuse(self, code: i32, words: &str) -> Result<(), ClientError> {
        let message = self.question.refuse(&self.config, code, words);
        self.send(message).await
    }

    async fn send(mut self, message: Outgoing) -> Result<(), ClientError> {
        self.answered = true;
        let connection = self.connection.as_ref();
        send(connection.ok_or(ClientError::NotConnected)?, message).await
    }
}

/// Gives access to the method and the params.
impl Deref for Request {
    type Target = Question;

    fn deref(&self) -> &Question {
        &self.question
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.as_ref().filter(|_| !self.answered)
            && let Err(rejected) = connection.send(self.question.ignore(&self.config))
        {
            tracing::debug!(method = self.method, error = %rejected.error, "a request of the host could not be answered");
        }
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Request").field(&self.question).finish()
    }
}

//! A request of the host, and the messages that answer it.

use breakbulk_link::Outgoing;
use breakbulk_message::ahp::Chunking;
use breakbulk_message::jsonrpc::{self, Kind};
use serde_json::value::RawValue;

use super::error::ClientError;
use super::text::Text;
use crate::Config;

/// JSON-RPC's "method not found".
const NOT_FOUND: i32 = -32601;

/// A request of the host. It is to be answered once, on the connection on which it arrived.
#[derive(Debug)]
pub struct Question {
    /// The method.
    pub method: String,
    /// The params, as JSON.
    pub params: Option<Text>,
    id: Text,
    /// The limits that the host advertised.
    pub(super) host: Option<Chunking>,
    /// The connection on which it arrived.
    pub(super) session: u64,
}

impl Question {
    pub(super) fn new(method: String, params: Option<Text>, id: Text) -> Self {
        Self {
            method,
            params,
            id,
            host: None,
            session: 0,
        }
    }

    /// The answer. If it is too large for the host, an error message for the host in its place, and the
    /// same error for the caller.
    pub fn answer(&self, config: &Config, result: &RawValue) -> (Outgoing, Option<ClientError>) {
        let (id, result) = (&*self.id, result.get());
        let text = jsonrpc::result(id, result);
        match fits(config, self.host.as_ref(), text.len(), true) {
            Ok(()) => (self.message(config, Kind::Result, text), None),
            Err(error) => {
                let too_large = config.too_large(text.len(), self.host.as_ref());
                // The id is part of a message that was parsed as JSON.
                let id = serde_json::from_str(&self.id).unwrap_or(RawValue::NULL);
                let text = too_large.response(id, config.too_large_code);
                (self.message(config, Kind::Error, text), Some(error))
            }
        }
    }

    /// Answers with an error.
    pub fn refuse(&self, config: &Config, code: i32, words: &str) -> Outgoing {
        let text = jsonrpc::error(Some(&self.id), code, words, None);
        self.message(config, Kind::Error, text)
    }

    /// Answers a request that the application did not answer.
    pub fn ignore(&self, config: &Config) -> Outgoing {
        self.refuse(config, NOT_FOUND, "the client does not answer this method")
    }

    fn message(&self, config: &Config, kind: Kind, text: String) -> Outgoing {
        Outgoing::text(text).in_lane(config.lane(kind, Some(&self.method)))
    }
}

/// Whether a message of this size can be sent, checked before it is queued.
pub(super) fn fits(
    config: &Config,
    host: Option<&Chunking>,
    size: usize,
    may_cut: bool,
) -> Result<(), ClientError> {
    use breakbulk_link::SendError::{FrameTooLarge, MessageTooLarge};
    let fits = config.fits(size, may_cut, host);
    fits.map_err(|error| match error {
        MessageTooLarge { .. } | FrameTooLarge { .. } => {
            ClientError::TooLarge(config.too_large(size, host))
        }
        error => ClientError::Send(error),
    })
}

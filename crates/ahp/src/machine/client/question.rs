//! A request of the host's, and what is sent for an answer.

use breakbulk_link::Outgoing;
use breakbulk_message::ahp::Chunking;
use breakbulk_message::jsonrpc::{self, Kind};
use serde_json::value::RawValue;

use super::error::ClientError;
use super::text::Text;
use crate::Config;

/// JSON-RPC's "method not found".
const NOT_FOUND: i32 = -32601;

/// The host asks something. It is to be answered once, on the connection that it came by.
#[derive(Debug)]
pub struct Question {
    /// What it asks.
    pub method: String,
    /// The params, as JSON.
    pub params: Option<Text>,
    id: Text,
    /// What the host takes.
    pub(super) host: Option<Chunking>,
    /// The connection that it came by.
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

    /// The answer; and where the host cannot take it, an error that says so in its place.
    pub fn answer(&self, config: &Config, result: &RawValue) -> (Outgoing, Option<ClientError>) {
        let (id, result) = (&*self.id, result.get());
        let text = jsonrpc::result(id, result);
        match fits(config, self.host.as_ref(), text.len(), true) {
            Ok(()) => (self.message(config, Kind::Result, text), None),
            Err(error) => {
                let too_large = config.too_large(text.len(), self.host.as_ref());
                // It was part of a message that was read as JSON.
                let id = serde_json::from_str(&self.id).unwrap_or(RawValue::NULL);
                let text = too_large.response(id, config.too_large_code);
                (self.message(config, Kind::Error, text), Some(error))
            }
        }
    }

    /// An error for an answer.
    pub fn refuse(&self, config: &Config, code: i32, words: &str) -> Outgoing {
        let text = jsonrpc::error(Some(&self.id), code, words, None);
        self.message(config, Kind::Error, text)
    }

    /// What the host is told of a question that nobody answers.
    pub fn ignore(&self, config: &Config) -> Outgoing {
        self.refuse(config, NOT_FOUND, "the client does not answer this")
    }

    fn message(&self, config: &Config, kind: Kind, text: String) -> Outgoing {
        Outgoing::text(text).in_lane(config.lane(kind, Some(&self.method)))
    }
}

/// Whether a message of this size may go out, so that its sender is told at once.
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

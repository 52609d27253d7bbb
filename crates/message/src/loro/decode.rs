//! Decodes messages from CBOR.
//!
//! The original implementation checks little: it parses all CBOR, fails where it cannot continue,
//! and accepts the rest. What it accepts although the format forbids it is *noted* here and refused
//! at the end, so that a frame that the original refuses gets the original's error code.

use bytes::Bytes;

use super::cbor::{self, Fields, MAX_SAFE_INTEGER, Value};
use super::message::{message_type, transmission_kind};
use super::{
    ChannelMsg, DecodeError, DecodeErrorCode, DeleteStatus, Detail, EphemeralStore,
    MAX_BATCH_DEPTH, PeerIdentity, PeerType, Transmission, VersionVector,
};

/// Limits on the memory that decoding a frame takes beyond the frame itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecodeLimits {
    /// The most CBOR items in one frame. An item of a single byte can take 100 bytes of memory.
    pub max_items: usize,
}

impl DecodeLimits {
    /// These limits after `change` was applied to them.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

impl Default for DecodeLimits {
    /// 262,144 items: as many document ids, or some 25,000 messages.
    fn default() -> Self {
        Self { max_items: 1 << 18 }
    }
}

/// Decodes one message from CBOR without a frame around it. Large binary fields share `payload`.
pub fn decode(payload: &Bytes) -> Result<ChannelMsg, DecodeError> {
    let value = parse(payload, DecodeLimits::default())?;
    let mut reader = Reader::new(payload);
    let message = reader.message(&value, 1)?;
    reader.finish(message)
}

/// Decodes the messages of a frame's payload: one, or an array of them.
pub(super) fn decode_payload(
    payload: &Bytes,
    is_batch: bool,
    limits: DecodeLimits,
) -> Result<Vec<ChannelMsg>, DecodeError> {
    let value = parse(payload, limits)?;
    let mut reader = Reader::new(payload);
    let messages = if is_batch {
        reader.messages(&value, "the batch", 1)?
    } else {
        vec![reader.message(&value, 1)?]
    };
    reader.finish(messages)
}

fn parse(payload: &Bytes, limits: DecodeLimits) -> Result<Value<'_>, DecodeError> {
    cbor::parse(payload, limits.max_items).map_err(invalid_cbor)
}

struct Reader<'a> {
    payload: &'a Bytes,
    /// The first error that the original would not have found.
    noted: Option<DecodeError>,
}

/// Methods return `Err` for what the original refuses; what only this implementation refuses is
/// noted, and a default value is returned.
impl<'a> Reader<'a> {
    fn new(payload: &'a Bytes) -> Self {
        let noted = None;
        Self { payload, noted }
    }

    fn finish<T>(self, decoded: T) -> Result<T, DecodeError> {
        self.noted.map_or(Ok(decoded), Err)
    }

    fn note(&mut self, error: DecodeError) {
        self.noted.get_or_insert(error);
    }

    /// Reads a message; `level` is its nesting level if it is a batch.
    fn message(&mut self, value: &Value<'_>, level: usize) -> Result<ChannelMsg, DecodeError> {
        let fields = match value {
            Value::Map(fields) => fields,
            // The original's JavaScript throws here, unlike for other values that are not maps.
            Value::Null | Value::Undefined => {
                return Err(invalid_cbor(wrong_type("the message", "a map", value)));
            }
            _ => {
                return Err(invalid_type(wrong_type("the message", "a map", value)));
            }
        };
        Ok(match small_number(fields.get("t")) {
            Some(message_type::ESTABLISH_REQUEST) => ChannelMsg::EstablishRequest {
                identity: self.identity(fields),
            },
            Some(message_type::ESTABLISH_RESPONSE) => ChannelMsg::EstablishResponse {
                identity: self.identity(fields),
            },
            Some(message_type::SYNC_REQUEST) => ChannelMsg::SyncRequest {
                doc_id: self.text(fields, "doc"),
                requester_doc_version: self.version(fields)?,
                bidirectional: self.optional_flag(fields, "bi"),
                ephemeral: self.optional_stores(fields, "e")?,
            },
            Some(message_type::SYNC_RESPONSE) => ChannelMsg::SyncResponse {
                doc_id: self.text(fields, "doc"),
                transmission: self.transmission(fields)?,
                ephemeral: self.optional_stores(fields, "e")?,
            },
            Some(message_type::UPDATE) => ChannelMsg::Update {
                doc_id: self.text(fields, "doc"),
                transmission: self.transmission(fields)?,
            },
            Some(message_type::DIRECTORY_REQUEST) => ChannelMsg::DirectoryRequest {
                doc_ids: match fields.get("docs") {
                    Value::Undefined | Value::Null => None,
                    _ => Some(self.texts(fields, "docs")),
                },
            },
            Some(message_type::DIRECTORY_RESPONSE) => ChannelMsg::DirectoryResponse {
                doc_ids: self.texts(fields, "docs"),
            },
            Some(message_type::NEW_DOC) => ChannelMsg::NewDoc {
                doc_ids: self.texts(fields, "docs"),
            },
            Some(message_type::DELETE_REQUEST) => ChannelMsg::DeleteRequest {
                doc_id: self.text(fields, "doc"),
            },
            Some(message_type::DELETE_RESPONSE) => ChannelMsg::DeleteResponse {
                doc_id: self.text(fields, "doc"),
                status: self.name(fields, "s", &DeleteStatus::ALL, DeleteStatus::as_str),
            },
            Some(message_type::EPHEMERAL) => ChannelMsg::Ephemeral {
                doc_id: self.text(fields, "doc"),
                hops_remaining: self.integer(fields, "h"),
                stores: self.stores(fields.get("st"), "st")?,
            },
            Some(message_type::BATCH) => {
                if level > MAX_BATCH_DEPTH {
                    self.note(invalid_type(Detail::BatchesTooDeep));
                }
                let messages = self.messages(fields.get("m"), "m", level + 1)?;
                ChannelMsg::Batch { messages }
            }
            _ => {
                let found = match fields.get("t") {
                    Value::Number(number) => number.to_string(),
                    other => other.kind().to_owned(),
                };
                return Err(invalid_type(Detail::UnknownMessage { found }));
            }
        })
    }

    fn messages(
        &mut self,
        value: &Value<'_>,
        field: &'static str,
        level: usize,
    ) -> Result<Vec<ChannelMsg>, DecodeError> {
        let items = items(value, field)?.iter();
        items.map(|item| self.message(item, level)).collect()
    }

    fn identity(&mut self, fields: &Fields<'_>) -> PeerIdentity {
        PeerIdentity {
            peer_id: self.text(fields, "id"),
            name: match fields.get("n") {
                Value::Undefined | Value::Null => None,
                _ => Some(self.text(fields, "n")),
            },
            kind: self.name(fields, "y", &PeerType::ALL, PeerType::as_str),
        }
    }

    fn transmission(&mut self, fields: &Fields<'_>) -> Result<Transmission, DecodeError> {
        let fields = match fields.get("tx") {
            Value::Map(fields) => fields,
            absent @ (Value::Undefined | Value::Null) => {
                return Err(invalid_cbor(wrong_type("tx", "a map", absent)));
            }
            other => {
                self.note(invalid_type(wrong_type("tx", "a map", other)));
                return Ok(Transmission::default());
            }
        };
        Ok(match small_number(fields.get("k")) {
            Some(transmission_kind::UP_TO_DATE) => Transmission::UpToDate {
                version: self.version(fields)?,
            },
            Some(transmission_kind::SNAPSHOT) => Transmission::Snapshot {
                data: self.bytes(fields, "d"),
                version: self.version(fields)?,
            },
            Some(transmission_kind::UPDATE) => Transmission::Update {
                data: self.bytes(fields, "d"),
                version: self.version(fields)?,
            },
            Some(transmission_kind::UNAVAILABLE) => Transmission::Unavailable,
            _ => {
                self.note(match fields.get("k") {
                    Value::Number(number) => invalid_type(Detail::UnknownValue {
                        field: "k",
                        found: number.to_string(),
                    }),
                    other => unfit("k", "a number", other),
                });
                Transmission::default()
            }
        })
    }

    fn version(&mut self, fields: &Fields<'_>) -> Result<VersionVector, DecodeError> {
        let value = fields.get("v");
        if let Value::Bytes(bytes) = value {
            return VersionVector::decode(bytes).map_err(|error| invalid_cbor(error.into()));
        }
        let wrong = wrong_type("v", "bytes", value);
        if VersionVector::decode(&as_javascript_bytes(value)).is_err() {
            return Err(invalid_cbor(wrong));
        }
        self.note(invalid_type(wrong));
        Ok(VersionVector::new())
    }

    fn optional_stores(
        &mut self,
        fields: &Fields<'_>,
        name: &'static str,
    ) -> Result<Option<Vec<EphemeralStore>>, DecodeError> {
        match fields.get(name) {
            Value::Undefined | Value::Null => Ok(None),
            value => self.stores(value, name).map(Some),
        }
    }

    fn stores(
        &mut self,
        value: &Value<'_>,
        field: &'static str,
    ) -> Result<Vec<EphemeralStore>, DecodeError> {
        let mut stores = Vec::new();
        for item in items(value, field)? {
            match item {
                Value::Map(fields) => stores.push(EphemeralStore {
                    peer_id: self.text(fields, "p"),
                    data: self.bytes(fields, "d"),
                    namespace: self.text(fields, "ns"),
                }),
                Value::Undefined | Value::Null => {
                    return Err(invalid_cbor(wrong_type("a store", "a map", item)));
                }
                _ => self.note(invalid_type(wrong_type("a store", "a map", item))),
            }
        }
        Ok(stores)
    }

    fn text(&mut self, fields: &Fields<'_>, name: &'static str) -> String {
        self.text_of(fields.get(name), name)
    }

    fn texts(&mut self, fields: &Fields<'_>, name: &'static str) -> Vec<String> {
        match fields.get(name) {
            Value::Array(items) => items.iter().map(|item| self.text_of(item, name)).collect(),
            other => {
                self.note(unfit(name, "an array", other));
                Vec::new()
            }
        }
    }

    fn text_of(&mut self, value: &Value<'_>, field: &'static str) -> String {
        match value {
            Value::Text(text) => match std::str::from_utf8(text) {
                Ok(text) => return text.to_owned(),
                Err(error) => self.note(invalid_cbor(Detail::NotUtf8 {
                    field,
                    valid: error.valid_up_to(),
                    len: text.len(),
                })),
            },
            other => self.note(unfit(field, "text", other)),
        }
        String::new()
    }

    /// Reads a text field that must be one of a set of names.
    fn name<T: Copy + Default>(
        &mut self,
        fields: &Fields<'_>,
        name: &'static str,
        all: &[T],
        as_str: fn(T) -> &'static str,
    ) -> T {
        let found = match fields.get(name) {
            Value::Text(text) => String::from_utf8_lossy(text),
            other => {
                self.note(unfit(name, "text", other));
                return T::default();
            }
        };
        let known = all.iter().copied().find(|word| as_str(*word) == found);
        known.unwrap_or_else(|| {
            let found = format!("{:?}", found.chars().take(20).collect::<String>());
            self.note(invalid_type(Detail::UnknownValue { field: name, found }));
            T::default()
        })
    }

    fn integer(&mut self, fields: &Fields<'_>, name: &'static str) -> i64 {
        match fields.get(name) {
            // A float without a fraction counts as an integer, as in JavaScript.
            Value::Number(number)
                if number.fract() == 0.0 && number.abs() <= MAX_SAFE_INTEGER as f64 =>
            {
                *number as i64
            }
            Value::Number(number) => {
                let found = number.to_string();
                self.note(invalid_type(Detail::UnknownValue { field: name, found }));
                0
            }
            other => {
                self.note(unfit(name, "an integer", other));
                0
            }
        }
    }

    fn optional_flag(&mut self, fields: &Fields<'_>, name: &'static str) -> Option<bool> {
        match fields.get(name) {
            Value::Undefined | Value::Null => None,
            Value::Bool(flag) => Some(*flag),
            other => {
                self.note(invalid_type(wrong_type(name, "a boolean", other)));
                None
            }
        }
    }

    fn bytes(&mut self, fields: &Fields<'_>, name: &'static str) -> Bytes {
        match fields.get(name) {
            // Copied, so that a few bytes do not keep a whole frame in memory.
            Value::Bytes(bytes) if bytes.len() < SHARED_FROM => Bytes::copy_from_slice(bytes),
            Value::Bytes(bytes) => self.payload.slice_ref(bytes),
            other => {
                self.note(unfit(name, "bytes", other));
                Bytes::new()
            }
        }
    }
}

/// A binary field of at least this size shares the frame's memory instead of being copied.
const SHARED_FROM: usize = 4096;

/// The items of a value on which the original calls `map`: only arrays and byte strings have that
/// method.
fn items<'v, 'a>(
    value: &'v Value<'a>,
    field: &'static str,
) -> Result<&'v [Value<'a>], DecodeError> {
    let wrong = wrong_type(field, "an array", value);
    match value {
        Value::Array(items) => Ok(items),
        Value::Bytes(_) => Err(invalid_type(wrong)),
        _ => Err(invalid_cbor(wrong)),
    }
}

/// A number that may be a type or kind. In JavaScript 48 and 48.0 are equal, but a big integer is not.
fn small_number(value: &Value<'_>) -> Option<u8> {
    match value {
        Value::Number(number) => (0..=u8::MAX).find(|small| f64::from(*small) == *number),
        _ => None,
    }
}

/// The bytes that the original makes of another value where it expects a version vector: an array's
/// numbers, a text's digits, or nothing. It fails only if those bytes are no version vector.
fn as_javascript_bytes(value: &Value<'_>) -> Vec<u8> {
    match value {
        Value::Array(items) => items
            .iter()
            .map(|item| match item {
                Value::Number(number) => (*number as i64) as u8,
                Value::Bool(flag) => u8::from(*flag),
                _ => 0,
            })
            .collect(),
        Value::Text(text) => String::from_utf8_lossy(text)
            .encode_utf16()
            .map(|unit| match u8::try_from(unit) {
                Ok(digit @ b'0'..=b'9') => digit - b'0',
                _ => 0,
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// The error for a required field that the original does not check.
fn unfit(field: &'static str, expected: &'static str, value: &Value<'_>) -> DecodeError {
    match value {
        Value::Undefined => {
            DecodeError::new(DecodeErrorCode::MissingField, Detail::Missing { field })
        }
        _ => invalid_type(wrong_type(field, expected, value)),
    }
}

fn wrong_type(field: &'static str, expected: &'static str, value: &Value<'_>) -> Detail {
    match value {
        Value::Undefined => Detail::Missing { field },
        _ => Detail::WrongType {
            field,
            expected,
            found: value.kind(),
        },
    }
}

fn invalid_cbor(detail: Detail) -> DecodeError {
    DecodeError::new(DecodeErrorCode::InvalidCbor, detail)
}

fn invalid_type(detail: Detail) -> DecodeError {
    DecodeError::new(DecodeErrorCode::InvalidType, detail)
}

#[cfg(test)]
mod tests;

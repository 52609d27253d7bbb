//! loro-extended's recorded messages: encoded, decoded, and as JSON, each in both directions.

use breakbulk_message::loro::{
    ChannelMsg, DecodeError, DecodeErrorCode, Detail, EphemeralStore, PeerIdentity, PeerType,
    Transmission, VersionVector, decode, decode_frame, encode, encode_batch_frame, encode_frame,
    from_json, to_json,
};
use bytes::Bytes;
use serde_json::Value;

use super::{Rule, Tally, Verdict, loro_frames};

const MISSING: Rule = Rule {
    name: "missing_field",
    reason: "a required field that the original decodes to undefined is refused",
};
const TYPES: Rule = Rule {
    name: "types",
    reason: "a value of a wrong type, an unknown kind and nesting beyond any use, which the \
             original lets pass, are refused",
};
const PEER_TYPE: Rule = Rule {
    name: "peer_type",
    reason: "a peer is a user, a bot or a service",
};
const HOPS: Rule = Rule {
    name: "hops",
    reason: "hops are counted in integers",
};
const UTF8: Rule = Rule {
    name: "utf8",
    reason: "text is UTF-8 both ways: the original reads other bytes as replacement characters, \
             and writes a wrong length for non-ASCII text",
};

pub(crate) const RULES: &[Rule] = &[
    MISSING,
    TYPES,
    PEER_TYPE,
    HOPS,
    UTF8,
    loro_frames::OVERRUN_AT_ONCE,
    loro_frames::EMPTY_UNCUT,
    loro_frames::VIEW_QUIRK,
];

pub(crate) fn run(file: &str, value: &Value, tally: &mut Tally) -> Option<()> {
    let check: fn(&Value) -> Verdict = match file {
        "messages.json" => message,
        "batch_frames.json" => batch_frame,
        "decode_errors.json" => decoding,
        "version_vectors.json" => version_vector,
        "loro_payloads.json" => return leave(value.as_object()?.len(), tally),
        _ if file.starts_with("transcript_") => return leave(value.as_array()?.len(), tally),
        _ => return loro_frames::run(file, value, tally),
    };
    for case in value.as_array()? {
        let name = case["name"].as_str().unwrap_or("a case without a name");
        tally.check(file, name, check(case));
    }
    Some(())
}

fn leave(cases: usize, tally: &mut Tally) -> Option<()> {
    tally.leave_to_tests(cases);
    Some(())
}

/// `{message, t, cbor, frame, complete, decoded, json_text}`
fn message(case: &Value) -> Verdict {
    let (cbor, frame) = (hex(&case["cbor"])?, hex(&case["frame"])?);
    let json_text = text(&case["json_text"])?;
    let message = match build(&case["message"]) {
        Ok(message) => message,
        Err(Unlike::Rule(rule)) => return refused_everywhere(&cbor, &frame, json_text, rule),
        Err(Unlike::Record(why)) => return Err(why),
    };

    let ours = Bytes::from(encode(&message).map_err(|error| error.to_string())?);
    let our_frame = encode_frame(&message).map_err(|error| error.to_string())?;
    let complete = [&[0], &our_frame[..]].concat();
    same(
        "decoding our own",
        &decode_frame(our_frame.clone()),
        &Ok(vec![message.clone()]),
    )?;
    json(&message, json_text)?;

    if ours != cbor && !json_text.is_ascii() {
        // The original wrote invalid UTF-8 here, which nobody can decode, so its `decoded` says nothing.
        return Ok(Some(&UTF8));
    }
    same("cbor", &ours, &cbor)?;
    same("frame", &our_frame, &frame)?;
    same("complete", &Bytes::from(complete), &hex(&case["complete"])?)?;
    let t = ours.iter().skip(3).copied().find(|byte| *byte != 0x18);
    same("t", &t.map(u64::from), &case["t"].as_u64())?;
    same("decoded", &decode(&cbor), &Ok(message))?;
    same(
        "decoded frame",
        &decode_frame(frame),
        &Ok(build_all(&case["decoded"])?),
    )?;
    Ok(None)
}

/// A recorded message that this project has no type for must be refused in every form.
fn refused_everywhere(
    cbor: &Bytes,
    frame: &Bytes,
    json_text: &str,
    rule: &'static Rule,
) -> Verdict {
    let framed = decode_frame(frame.clone()).map(|_| "a frame");
    let bare = decode(cbor).map(|_| "CBOR");
    let json = from_json(json_text).map(|_| "JSON");
    match framed.ok().or(bare.ok()).or(json.ok()) {
        Some(door) => Err(format!("{}: ours takes it as {door}", rule.name)),
        None => Ok(Some(rule)),
    }
}

/// Reads the text and writes it again: its version vector has the order of a hash table, which reading keeps.
fn json(message: &ChannelMsg, json_text: &str) -> Result<(), String> {
    let read = from_json(json_text).map_err(|error| format!("{json_text}: {error}"))?;
    same(
        "from_json",
        &read,
        &without_empty_ephemeral(message.clone()),
    )?;
    same("to_json", &to_json(&read).as_str(), &json_text)?;
    let same_keys = |text: &str| serde_json::from_str::<Value>(text).ok();
    same(
        "to_json",
        &same_keys(&to_json(message)),
        &same_keys(json_text),
    )
}

/// JSON leaves an empty `ephemeral` out.
fn without_empty_ephemeral(mut message: ChannelMsg) -> ChannelMsg {
    match &mut message {
        ChannelMsg::SyncRequest { ephemeral, .. } | ChannelMsg::SyncResponse { ephemeral, .. } => {
            ephemeral.take_if(|stores| stores.is_empty());
        }
        ChannelMsg::Batch { messages } => {
            let inner = std::mem::take(messages).into_iter();
            *messages = inner.map(without_empty_ephemeral).collect();
        }
        _ => {}
    }
    message
}

/// `{messages, frame, decoded}`
fn batch_frame(case: &Value) -> Verdict {
    let frame = hex(&case["frame"])?;
    let messages = match build_all(&case["messages"]) {
        Ok(messages) => messages,
        Err(Unlike::Rule(rule)) => {
            return match decode_frame(frame) {
                Ok(_) => Err(format!("{}: ours takes it", rule.name)),
                Err(_) => Ok(Some(rule)),
            };
        }
        Err(Unlike::Record(why)) => return Err(why),
    };
    let ours = encode_batch_frame(&messages).map_err(|error| error.to_string())?;
    same(
        "decoding our own",
        &decode_frame(ours.clone()),
        &Ok(messages.clone()),
    )?;
    if ours != frame && !case["messages"].to_string().is_ascii() {
        return Ok(Some(&UTF8));
    }
    same("frame", &ours, &frame)?;
    same(
        "decoded",
        &decode_frame(frame),
        &Ok(build_all(&case["decoded"])?),
    )?;
    Ok(None)
}

/// `{frame, ok: true, decoded}` or `{frame, ok: false, code}`
fn decoding(case: &Value) -> Verdict {
    let ours = decode_frame(hex(&case["frame"])?);
    match (case["ok"].as_bool(), ours) {
        (Some(true), Ok(ours)) => {
            same("decoded", &ours, &build_all(&case["decoded"])?)?;
            // A message that was read from an unusual form is written in the regular one.
            let again = encode_batch_frame(&ours).map_err(|error| error.to_string())?;
            same("decoded again", &decode_frame(again), &Ok(ours))?;
            Ok(None)
        }
        (Some(true), Err(error)) => stricter(&error, &case["decoded"]).map(Some),
        (Some(false), Ok(ours)) => Err(format!("ours takes it: {ours:?}")),
        (Some(false), Err(error)) => {
            same(
                &error.to_string(),
                &error.code.as_str(),
                &text(&case["code"])?,
            )?;
            Ok(None)
        }
        (None, _) => Err("no ok in the record".into()),
    }
}

/// The rule by which this project refuses what the original decoded.
fn stricter(error: &DecodeError, decoded: &Value) -> Result<&'static Rule, String> {
    let has_undefined = decoded.to_string().contains("$undefined");
    match (error.code, &error.detail) {
        (DecodeErrorCode::MissingField, Detail::Missing { .. }) if has_undefined => Ok(&MISSING),
        (DecodeErrorCode::InvalidCbor, Detail::NotUtf8 { .. }) => Ok(&UTF8),
        (DecodeErrorCode::InvalidType, Detail::UnknownValue { field: "y", .. }) => Ok(&PEER_TYPE),
        (DecodeErrorCode::InvalidType, Detail::UnknownValue { field: "h", .. }) => Ok(&HOPS),
        (
            DecodeErrorCode::InvalidType,
            Detail::UnknownValue { .. } | Detail::WrongType { .. } | Detail::BatchesTooDeep,
        ) => Ok(&TYPES),
        (
            DecodeErrorCode::InvalidCbor,
            Detail::NestsTooDeep { .. } | Detail::TooManyItems { .. },
        ) => Ok(&TYPES),
        _ => Err(format!("recorded {decoded}, ours {error}")),
    }
}

/// `{json, hex, roundtrip}`; the bytes have the order of a hash table, which this project's decoder keeps.
fn version_vector(case: &Value) -> Verdict {
    let bytes = hex(&case["hex"])?;
    let version = VersionVector::decode(&bytes).map_err(|error| error.to_string())?;
    same("encoded", &Bytes::from(version.encode()), &bytes)?;
    for form in ["json", "roundtrip"] {
        same(form, &version, &build_version(&case[form])?)?;
        let ours = serde_json::to_value(&version).map_err(|error| error.to_string())?;
        same(form, &ours, &case[form])?;
    }
    Ok(None)
}

/// Why a recorded message cannot be built.
enum Unlike {
    /// This project differs on purpose.
    Rule(&'static Rule),
    /// The record has an unexpected form.
    Record(String),
}

impl From<String> for Unlike {
    fn from(why: String) -> Self {
        Self::Record(why)
    }
}

impl From<Unlike> for String {
    fn from(unlike: Unlike) -> Self {
        match unlike {
            Unlike::Rule(rule) => format!("rule {} does not belong here", rule.name),
            Unlike::Record(why) => why,
        }
    }
}

fn build_all(record: &Value) -> Result<Vec<ChannelMsg>, Unlike> {
    list(record)?.iter().map(build).collect()
}

/// A message from a record's notation: `{"$hex"}`, `{"$vv","$hex"}`, `{"$undefined":true}`.
fn build(record: &Value) -> Result<ChannelMsg, Unlike> {
    let doc_id = || required(text(&record["docId"])).map(str::to_owned);
    let transmission = || transmission(&record["transmission"]);
    let doc_ids = || required(texts(&record["docIds"]));
    let identity = || identity(&record["identity"]);
    Ok(match required(text(&record["type"]))? {
        "channel/establish-request" => ChannelMsg::EstablishRequest {
            identity: identity()?,
        },
        "channel/establish-response" => ChannelMsg::EstablishResponse {
            identity: identity()?,
        },
        "channel/sync-request" => ChannelMsg::SyncRequest {
            doc_id: doc_id()?,
            requester_doc_version: build_version(&record["requesterDocVersion"])?,
            bidirectional: match present(&record["bidirectional"]) {
                Some(flag) => Some(flag.as_bool().ok_or(Unlike::Rule(&TYPES))?),
                None => None,
            },
            ephemeral: present(&record["ephemeral"]).map(stores).transpose()?,
        },
        "channel/sync-response" => ChannelMsg::SyncResponse {
            doc_id: doc_id()?,
            transmission: transmission()?,
            ephemeral: present(&record["ephemeral"]).map(stores).transpose()?,
        },
        "channel/update" => ChannelMsg::Update {
            doc_id: doc_id()?,
            transmission: transmission()?,
        },
        "channel/directory-request" => ChannelMsg::DirectoryRequest {
            doc_ids: present(&record["docIds"]).map(|_| doc_ids()).transpose()?,
        },
        "channel/directory-response" => ChannelMsg::DirectoryResponse {
            doc_ids: doc_ids()?,
        },
        "channel/new-doc" => ChannelMsg::NewDoc {
            doc_ids: doc_ids()?,
        },
        "channel/delete-request" => ChannelMsg::DeleteRequest { doc_id: doc_id()? },
        "channel/delete-response" => ChannelMsg::DeleteResponse {
            doc_id: doc_id()?,
            status: serde_json::from_value(record["status"].clone())
                .map_err(|_| Unlike::Rule(&TYPES))?,
        },
        "channel/ephemeral" => ChannelMsg::Ephemeral {
            doc_id: doc_id()?,
            hops_remaining: record["hopsRemaining"]
                .as_i64()
                .ok_or(Unlike::Rule(&HOPS))?,
            stores: stores(&record["stores"])?,
        },
        "channel/batch" => ChannelMsg::Batch {
            messages: build_all(&record["messages"])?,
        },
        other => return Err(Unlike::Record(format!("no message type {other}"))),
    })
}

fn identity(record: &Value) -> Result<PeerIdentity, Unlike> {
    let kind = required(text(&record["type"]))?;
    let known = PeerType::ALL
        .into_iter()
        .find(|known| known.as_str() == kind);
    Ok(PeerIdentity {
        peer_id: required(text(&record["peerId"]))?.to_owned(),
        name: match present(&record["name"]) {
            Some(name) => Some(required(text(name))?.to_owned()),
            None => None,
        },
        kind: known.ok_or(Unlike::Rule(&PEER_TYPE))?,
    })
}

fn transmission(record: &Value) -> Result<Transmission, Unlike> {
    let version = || build_version(&record["version"]);
    let data = || required(hex(&record["data"]["$hex"]));
    Ok(match required(text(&record["type"]))? {
        "up-to-date" => Transmission::UpToDate {
            version: version()?,
        },
        "snapshot" => Transmission::Snapshot {
            data: data()?,
            version: version()?,
        },
        "update" => Transmission::Update {
            data: data()?,
            version: version()?,
        },
        "unavailable" => Transmission::Unavailable,
        _ => return Err(Unlike::Rule(&TYPES)),
    })
}

fn stores(record: &Value) -> Result<Vec<EphemeralStore>, Unlike> {
    let store = |record: &Value| {
        Ok(EphemeralStore {
            peer_id: required(text(&record["peerId"]))?.to_owned(),
            data: required(hex(&record["data"]["$hex"]))?,
            namespace: required(text(&record["namespace"]))?.to_owned(),
        })
    };
    list(record)?.iter().map(store).collect()
}

/// Uses the bytes where a record has them, since they have the order; checks them against the entries.
fn build_version(record: &Value) -> Result<VersionVector, Unlike> {
    let entries = record.get("$vv").unwrap_or(record);
    let entries = entries.as_object().ok_or(Unlike::Rule(&TYPES))?;
    let entry = |(peer, counter): (&String, &Value)| {
        let counter = i32::try_from(counter.as_i64()?).ok()?;
        Some((peer.parse().ok()?, counter))
    };
    let listed: Option<VersionVector> = entries.iter().map(entry).collect();
    let listed = listed.ok_or_else(|| format!("no version vector: {record}"))?;
    let Some(bytes) = record.get("$hex") else {
        return Ok(listed);
    };
    let version = VersionVector::decode(&hex(bytes)?).map_err(|error| error.to_string())?;
    same("$hex of a version vector", &version, &listed)?;
    Ok(version)
}

/// The value of an optional member: neither absent, nor undefined, nor null.
fn present(value: &Value) -> Option<&Value> {
    let undefined = value.get("$undefined").is_some();
    (!value.is_null() && !undefined).then_some(value)
}

/// A member of a recorded message that this project requires, of the required type.
fn required<T>(field: Result<T, String>) -> Result<T, Unlike> {
    field.map_err(|_| Unlike::Rule(&TYPES))
}

fn list(value: &Value) -> Result<&Vec<Value>, String> {
    value.as_array().ok_or_else(|| format!("no list: {value}"))
}

fn texts(value: &Value) -> Result<Vec<String>, String> {
    let owned = |item| text(item).map(str::to_owned);
    list(value)?.iter().map(owned).collect()
}

fn text(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| format!("no text: {value}"))
}

fn hex(value: &Value) -> Result<Bytes, String> {
    let digits = text(value)?;
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok()
    };
    let bytes: Option<Bytes> = digits.as_bytes().chunks(2).map(byte).collect();
    bytes.ok_or_else(|| format!("no hex: {digits}"))
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, ours: &T, recorded: &T) -> Result<(), String> {
    if ours == recorded {
        Ok(())
    } else {
        Err(format!("{what}: recorded {recorded:?}, ours {ours:?}"))
    }
}

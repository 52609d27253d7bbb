//! The content of a document, in a form that Rust and JavaScript can compare.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use breakbulk::loro::Doc;
use loro::{LoroDoc, ToJson, VersionVector};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::time::timeout;

/// The time limit for a document to arrive.
const PATIENCE: Duration = Duration::from_secs(90);

/// Digest and version of a document.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct State {
    /// Bytes of its JSON with sorted keys.
    pub bytes: usize,
    /// SHA-256 of that JSON, in hex.
    pub sha256: String,
    /// The document's version.
    pub version: Version,
}

/// How many operations of each peer a document has.
pub type Version = BTreeMap<String, i32>;

impl State {
    /// The current state of a document.
    pub fn of(doc: &LoroDoc) -> Self {
        let json = sorted(doc.get_deep_value().to_json_value()).to_string();
        let hash = Sha256::digest(&json);
        Self {
            bytes: json.len(),
            sha256: hash.iter().map(|byte| format!("{byte:02x}")).collect(),
            version: version_of(doc),
        }
    }
}

/// The current version of a document.
pub fn version_of(doc: &LoroDoc) -> Version {
    let version = doc.oplog_vv();
    let entry = |(peer, counter): (&u64, &i32)| (peer.to_string(), *counter);
    version.iter().map(entry).collect()
}

/// Waits until a document of this process has all of a version, and returns its state.
pub async fn until(doc: &Doc, version: &Version) -> Result<State> {
    let mut wanted = VersionVector::new();
    for (peer, counter) in version {
        wanted.insert(peer.parse().with_context(|| peer.clone())?, *counter);
    }
    let mut seen = doc.watch();
    let arrives = async {
        loop {
            seen.mark_unchanged();
            if doc.loro().oplog_vv().includes_vv(&wanted) {
                return Ok(State::of(&doc.loro()));
            }
            seen.changed().await?;
        }
    };
    timeout(PATIENCE, arrives).await.with_context(|| {
        let has = version_of(&doc.loro());
        format!(
            "{} has {has:?} and not {version:?} after {PATIENCE:?}",
            doc.id()
        )
    })?
}

/// The same value with its keys in order, whatever order maps are kept in.
fn sorted(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(sorted).collect(),
        Value::Object(entries) => {
            let entries: BTreeMap<_, _> = entries.into_iter().collect();
            let sorted = entries.into_iter().map(|(key, inner)| (key, sorted(inner)));
            Value::Object(sorted.collect())
        }
        // A counter is a floating-point number, and JavaScript writes whole ones without a decimal point.
        Value::Number(number) if number.as_f64().is_some_and(is_whole) && !number.is_i64() => {
            Value::from(number.as_f64().unwrap_or_default() as i64)
        }
        other => other,
    }
}

/// Whether a number is whole, and small enough that it is written out in digits.
fn is_whole(number: f64) -> bool {
    number.fract() == 0.0 && number.abs() < 9e15
}

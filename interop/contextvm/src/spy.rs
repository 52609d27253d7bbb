//! An observer that has an endpoint's secret key, and so sees all frames that are sent to the endpoint.

use std::time::Duration;

use anyhow::{Context, Result};
use breakbulk::contextvm::envelope::open;
use breakbulk::contextvm::{Keys, Seal};
use breakbulk::net::nostr::{RelayOptions, Relays};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::timeout;

/// The time limit for a frame.
const PATIENCE: Duration = Duration::from_secs(60);

/// A frame of an oversized transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// `start`, `accept`, `chunk`, `end` or `abort`.
    pub kind: String,
    /// The transfer's token.
    pub token: String,
    /// The frame's `progress` number.
    pub progress: u64,
}

/// Subscribes with an endpoint's key, and collects the frames.
pub struct Spy {
    seen: watch::Receiver<Vec<Seen>>,
    _relays: Relays,
}

impl Spy {
    /// Starts to listen at this relay.
    pub async fn listen(relay: &str, keys: &Keys) -> Result<Self> {
        let options = RelayOptions {
            limits: Duration::ZERO,
            ..RelayOptions::default()
        };
        let kinds = [Seal::Plain, Seal::Persistent, Seal::Ephemeral].map(Seal::kind);
        let urls = [relay.to_owned()];
        let opened = Relays::open(&urls, keys.as_nostr(), kinds, &options);
        let (relays, mut batches) = opened.await?;
        let (tell, seen) = watch::channel(Vec::new());
        let keys = keys.clone();
        tokio::spawn(async move {
            while let Some(batch) = batches.recv().await {
                for event in batch.events {
                    if let Ok(opened) = open(&keys, event)
                        && let Some(frame) = frame(&opened.content)
                    {
                        tell.send_modify(|seen| seen.push(frame));
                    }
                }
            }
        });
        Ok(Self {
            seen,
            _relays: relays,
        })
    }

    /// Waits for a frame of this kind, and returns all frames so far.
    pub async fn frames_with(&mut self, kind: &str) -> Result<Vec<Seen>> {
        let there = |seen: &Vec<Seen>| seen.iter().any(|seen| seen.kind == kind);
        let seen = timeout(PATIENCE, self.seen.wait_for(there)).await;
        let seen = seen.with_context(|| format!("no {kind}"))??;
        Ok(seen.clone())
    }
}

fn frame(text: &str) -> Option<Seen> {
    let message: Value = serde_json::from_str(text).ok()?;
    let params = &message["params"];
    Some(Seen {
        kind: params["cvm"]["frameType"].as_str()?.to_owned(),
        token: params["progressToken"].as_str()?.to_owned(),
        progress: params["progress"].as_u64()?,
    })
}

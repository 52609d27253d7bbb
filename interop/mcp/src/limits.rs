//! The largest message that a program takes by default, and one byte more.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::sdk::Sdk;
use crate::told::{Reach, lines};

/// The code of the error for a message that is too large.
const TOO_LARGE: i64 = -32011;

/// Which message of a call has the size of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Large {
    /// The request.
    Argument,
    /// The answer.
    Result,
}

/// Calls with a message of exactly `limit` bytes, which passes, with one of a byte more, which is answered with the
/// error that names it, and with a small one, which passes again.
pub async fn check(client: Sdk, reach: &Reach, large: Large, limit: u64) -> Result<()> {
    // A message that is too large shows how many bytes it has besides the text.
    let many = limit + 1;
    let told = calls(client, reach, large, &[many]).await?;
    let [first] = &told[..] else {
        anyhow::bail!("not one answer: {told:?}");
    };
    let beside = refused(first)?
        .checked_sub(many)
        .context("smaller than its text")?;
    let most = limit - beside;
    let told = calls(client, reach, large, &[most, most + 1, 1]).await?;
    let [largest, larger, small] = &told[..] else {
        anyhow::bail!("not three answers: {told:?}");
    };
    for (call, size) in [(largest, most), (small, 1)] {
        let text = match large {
            Large::Argument => &call["heard"],
            Large::Result => &call["text"],
        };
        ensure!(text["bytes"] == size, "a text of {size}: {call}");
    }
    let size = refused(larger)?;
    ensure!(size == limit + 1, "{size} bytes were refused: {larger}");
    Ok(())
}

/// The size that the error names.
fn refused(call: &Value) -> Result<u64> {
    let error = &call["error"];
    let size = error["data"]["messageBytes"].as_u64();
    let named = error["code"] == TOO_LARGE && error["data"]["reason"] == "messageTooLarge";
    ensure!(named, "not refused as too large: {call}");
    size.with_context(|| format!("no size: {call}"))
}

/// The outcomes of calls whose texts have these many letters.
async fn calls(client: Sdk, reach: &Reach, large: Large, sizes: &[u64]) -> Result<Vec<Value>> {
    let call = |size: &u64| match large {
        Large::Argument => json!({"up": size, "down": 1, "unit": "x"}),
        Large::Result => json!({"up": 1, "down": size, "unit": "x"}),
    };
    let mut plan = reach.plan()?;
    plan["calls"] = sizes.iter().map(call).collect();
    // The client's default.
    plan["maxBuffer"] = json!(10 << 20);
    let mut told = lines(client, &plan).await?;
    ensure!(!told.is_empty(), "nothing was told");
    told.remove(0);
    Ok(told)
}

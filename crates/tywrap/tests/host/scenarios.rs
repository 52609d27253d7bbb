//! What the original host was seen to do with a misbehaving bridge, and where this project's host does
//! better. Shared by the tests of the host and by the runner of recorded cases.

use std::time::Duration;

use breakbulk_net::process::Program;
use breakbulk_tywrap::{Breach, CallError, Config, Host, Returned};
use serde_json::Value;

/// An intended difference: its name and its reason. It names a kind of case, never one case.
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    pub(crate) reason: &'static str,
}

pub(crate) const EXITED: Rule = Rule {
    name: "exited-bridges-return",
    reason: "a bridge that ended is started again for the next call",
};
pub(crate) const UNNAMED: Rule = Rule {
    name: "unnamed-errors",
    reason: "an error without an id is the only waiting call's, who need not wait for a timeout",
};
pub(crate) const FRAME_IDS: Rule = Rule {
    name: "frame-ids",
    reason: "frames with one id that hold an answer with another are refused: nothing real writes them",
};
pub(crate) const NESTED: Rule = Rule {
    name: "nested-frames",
    reason: "a frame within frames is no answer: nothing real writes one",
};
pub(crate) const SURROGATES: Rule = Rule {
    name: "host-lone-surrogates",
    reason: "half a character in a frame cannot be kept, and is FRAME_INVALID_UTF8",
};
pub(crate) const RAW_UTF8: Rule = Rule {
    name: "raw-utf8",
    reason: "raw characters arrive as they were written, wherever the pipe cuts them",
};

type Outcome = Result<Returned, CallError>;

/// Returns the rules by which this project's host differs in one scenario, or what is wrong.
pub(crate) async fn judge(case: &Value) -> Result<Vec<&'static str>, String> {
    let name = case["scenario"].as_str().ok_or("no name")?;
    let config = Config::default().with(|config| {
        config.limits.frame = 200;
        config.limits.line = Some(1424);
        config.timeout = Some(Duration::from_secs(20));
        config.grace = Duration::from_millis(500);
    });
    let program = Program::new(["python3", "-c", include_str!("bridge.py")]);
    let host = Host::new(program, config);
    host.start().await.map_err(|error| error.to_string())?;
    // The bridge sends its late answers once this file exists.
    let flag = format!("breakbulk-{}-{name}", std::process::id());
    let flag = std::env::temp_dir().join(flag);
    let is_late = ["silent", "late_frames", "late_plain"].contains(&name);
    let limit = Duration::from_millis(if is_late { 300 } else { 20_000 });
    let first = host
        .call_within(Some(limit), "t", name, format!("[{flag:?}]"), None)
        .await;
    std::fs::write(&flag, "").map_err(|error| error.to_string())?;
    let second = host.call("t", "pid", "[]", None).await;
    // The file may be gone already.
    let _ = std::fs::remove_file(&flag);
    let mut used = Vec::new();
    used.extend(compare_first(&case["first"], &first)?);
    used.extend(compare_second(&case["second"], &host, &first, &second)?);
    Ok(used)
}

fn compare_first(recorded: &Value, ours: &Outcome) -> Result<Option<&'static str>, String> {
    match (ours, &recorded["resolved"]) {
        (Ok(returned), resolved) if !resolved.is_null() => same_value(resolved, returned),
        (Ok(returned), _) => Err(format!("resolved to {returned:?}, recorded {recorded}")),
        (Err(error), _) => same_failure(recorded, error),
    }
}

fn same_value(resolved: &Value, returned: &Returned) -> Result<Option<&'static str>, String> {
    let value: Value = serde_json::from_str(returned.json()).map_err(|error| error.to_string())?;
    if let Some(text) = resolved.as_str() {
        let text: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        // Process ids differ from run to run.
        let is_same = value == text["result"] || value["pid"].is_number();
        return is_same
            .then_some(None)
            .ok_or_else(|| format!("resolved to {value}"));
    }
    let text = value.as_str().unwrap_or_default();
    if text.contains('\u{fffd}') {
        return Err("characters are lost".to_owned());
    }
    let around = r#"{"id":1,"protocol":"tywrap/1","result":""}"#.len() as u64;
    let length = text.chars().count() as u64 + around;
    match resolved["replacementChars"].as_u64() {
        Some(0) if resolved["length"] == length => Ok(None),
        // The recorded length is of damaged text, so it cannot be compared.
        Some(1..) if text.chars().all(|c| c == '中') => Ok(Some(RAW_UTF8.name)),
        _ => Err(format!("resolved to {length} characters")),
    }
}

fn same_failure(recorded: &Value, error: &CallError) -> Result<Option<&'static str>, String> {
    let breach = match error {
        CallError::Breach { breach, .. } => Some(breach),
        _ => None,
    };
    match (recorded["rejected"].as_str(), error) {
        (Some("BridgeTimeoutError"), CallError::TimedOut { .. }) => Ok(None),
        (Some("BridgeTimeoutError"), CallError::Raised(_)) => Ok(Some(UNNAMED.name)),
        (Some("BridgeProtocolError"), CallError::Breach { .. } | CallError::Exited { .. }) => {
            // Error texts differ, but what the bridge printed must be in both or in neither.
            let theirs = recorded["message"].as_str().unwrap_or_default();
            let ours = error.to_string();
            for said in ["dying now", "hello from print"] {
                if ours.contains(said) != theirs.contains(said) {
                    return Err(format!("it says {ours:?}"));
                }
            }
            Ok(None)
        }
        (None, _) => match breach {
            Some(Breach::IdsDiffer { .. }) => Ok(Some(FRAME_IDS.name)),
            Some(Breach::Unreadable { .. }) => Ok(Some(NESTED.name)),
            Some(Breach::Frame { code, .. }) if *code == "FRAME_INVALID_UTF8" => {
                Ok(Some(SURROGATES.name))
            }
            _ => Err(format!("failed with {error}")),
        },
        _ => Err(format!("failed with {error}")),
    }
}

fn compare_second(
    recorded: &Value,
    host: &Host,
    first: &Outcome,
    second: &Outcome,
) -> Result<Option<&'static str>, String> {
    let returned = match second {
        Ok(returned) => returned,
        Err(error) => return Err(format!("the second call failed with {error}")),
    };
    let value: Value = serde_json::from_str(returned.json()).map_err(|error| error.to_string())?;
    if !value["pid"].is_number() {
        return Err(format!("the second call resolved to {value}"));
    }
    match (recorded["restarted"].as_bool(), host.starts() > 1) {
        (Some(theirs), ours) if theirs == ours => Ok(None),
        // A host that refuses what the original accepted restarts the bridge, as for any other breach.
        (Some(false), true) if matches!(first, Err(CallError::Breach { .. })) => Ok(None),
        (None, true) => Ok(Some(EXITED.name)),
        (None, false) => Ok(Some(UNNAMED.name)),
        (Some(_), ours) => Err(format!("restarted: {ours}")),
    }
}

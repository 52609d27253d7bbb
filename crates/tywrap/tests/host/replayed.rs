//! Replays the recorded output of the original bridge to this project's host, and checks each call's end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use breakbulk_net::process::Program;
use breakbulk_tywrap::{Breach, CallError, Config, Host, Returned};
use serde_json::{Value, json};

use super::scenarios::Rule;

const NOBODY_ASKED: Rule = Rule {
    name: "nobody-asked",
    reason: "an answer to a call that nobody made fails all that wait: no host makes such a call",
};
const UNNAMED_REPLY: Rule = Rule {
    name: "unnamed-reply",
    reason: "an error without an id is the only waiting call's; the original's host lets it time out",
};

#[tokio::test]
async fn each_call_ends_as_the_original_bridge_told_it() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/tywrap");
    let text = std::fs::read_to_string(format!("{folder}/bridge_transcripts.json")).unwrap();
    let recorded: Value = serde_json::from_str(&text).unwrap();
    let scenarios = recorded["scenarios"].as_array().unwrap();
    let probe = |scenario: &&Value| scenario["name"] == "meta_with_08_env_vars_ignored_by_0.10";
    let meta = scenarios.iter().find(probe).unwrap()["stdout"][0].clone();
    let mut used = BTreeSet::new();
    for scenario in scenarios {
        match replay(scenario, &meta).await {
            Ok(rules) => used.extend(rules),
            Err(why) => panic!("{}: {why}", scenario["name"]),
        }
    }
    for rule in [NOBODY_ASKED, UNNAMED_REPLY] {
        let Rule { name, reason } = rule;
        assert!(used.contains(name), "no case needs {name}: {reason}");
    }
}

/// Returns the rules by which the calls end differently, or what is wrong.
async fn replay(scenario: &Value, meta: &Value) -> Result<Vec<&'static str>, String> {
    let calls = asked(scenario);
    let lines = lines(scenario);
    let script = json!({
        "calls": calls, "meta": meta, "stdout": lines, "stderr": scenario["stderr"], "rc": scenario["rc"],
    });
    let frame = scenario["argv"][1]
        .as_str()
        .and_then(|word| word.parse().ok());
    let config = Config::default().with(|config| {
        config.limits.frame = frame.filter(|frame| *frame >= 4).unwrap_or(1000);
        config.timeout = Some(Duration::from_secs(60));
    });
    let program = Program::new(["python3", "-c", include_str!("replay.py")])
        .env("REPLAY", script.to_string());
    let host = Host::new(program, config);
    let replies = replies(&lines)?;
    let started = host.start().await;
    if calls.contains(&-1) {
        return told(scenario, replies.first(), started);
    }
    started.map_err(|error| error.to_string())?;
    let mut waiting = Vec::new();
    for id in 1..=calls.last().copied().unwrap_or(1) {
        let host = host.clone();
        let call = async move { host.call("t", "f", "[]", None).await };
        if calls.contains(&id) {
            waiting.push((id, tokio::spawn(call)));
            // Ids are assigned in the order of the calls.
            tokio::task::yield_now().await;
        } else {
            let filled = call.await;
            filled.map_err(|error| format!("call {id}: {error}"))?;
        }
    }
    let mut used = Vec::new();
    for (id, call) in waiting {
        let outcome = call.await.map_err(|error| error.to_string())?;
        let rule = ended(id, scenario, &replies, &outcome);
        used.extend(rule.map_err(|why| format!("call {id}: {why}"))?);
    }
    Ok(used)
}

/// Checks a scenario that consists of the `meta` request alone.
fn told(
    scenario: &Value,
    reply: Option<&Value>,
    started: Result<breakbulk_tywrap::About, CallError>,
) -> Result<Vec<&'static str>, String> {
    match (reply, started) {
        (Some(reply), Ok(about)) => {
            let meta = about.meta.ok_or("it is not told what the bridge is")?;
            let version = &reply["result"]["pythonVersion"];
            (*version == *meta.python_version)
                .then(Vec::new)
                .ok_or(format!("recorded {version}, ours {}", meta.python_version))
        }
        (None, Err(error)) if error.to_string().contains(last_word(scenario)) => Ok(Vec::new()),
        (reply, started) => Err(format!("recorded {reply:?}, ours {started:?}")),
    }
}

/// Compares how one call ended with the recorded reply.
fn ended(
    id: i64,
    scenario: &Value,
    replies: &[Value],
    outcome: &Result<Returned, CallError>,
) -> Result<Option<&'static str>, String> {
    let reply = replies.iter().find(|reply| reply["id"] == id);
    let unnamed = replies.iter().find(|reply| reply["id"] == -1);
    let differ = || Err(format!("recorded {replies:?}, ours {outcome:?}"));
    match (reply, unnamed, outcome) {
        (_, Some(unnamed), Err(CallError::Raised(raised))) => {
            let is_same = unnamed["error"]["type"] == *raised.kind
                && unnamed["error"]["message"] == *raised.message;
            is_same
                .then_some(Some(UNNAMED_REPLY.name))
                .map_or_else(differ, Ok)
        }
        (Some(reply), None, Ok(returned)) => {
            let value: Value = serde_json::from_str(returned.json()).unwrap_or_default();
            (reply.get("result") == Some(&value))
                .then_some(None)
                .map_or_else(differ, Ok)
        }
        (Some(reply), None, Err(CallError::Raised(raised))) => {
            let error = &reply["error"];
            let is_same = error["type"] == *raised.kind
                && error["message"] == *raised.message
                && error["traceback"].as_str() == raised.traceback.as_deref();
            is_same.then_some(None).map_or_else(differ, Ok)
        }
        (
            None,
            None,
            Err(CallError::Breach {
                breach: Breach::UnknownId { .. },
                ..
            }),
        ) if !replies.is_empty() => Ok(Some(NOBODY_ASKED.name)),
        // There is no reply to the call: it fails when the bridge exits, with the end of its standard error.
        (None, None, Err(CallError::Exited { stderr, .. }))
            if stderr.contains(last_word(scenario)) =>
        {
            Ok(None)
        }
        _ => differ(),
    }
}

/// The ids of the calls; a scenario with nothing but broken lines counts as one call.
fn asked(scenario: &Value) -> BTreeSet<i64> {
    let lines = scenario["stdin"].as_array().into_iter().flatten();
    let ids: BTreeSet<i64> = lines
        .filter_map(|line| serde_json::from_str::<Value>(line.as_str()?).ok()?["id"].as_i64())
        .collect();
    if ids.is_empty() {
        BTreeSet::from([1])
    } else {
        ids
    }
}

/// The recorded lines; where paths in frames were replaced, the declared size is corrected.
fn lines(scenario: &Value) -> Vec<String> {
    let lines = scenario["stdout"].as_array().into_iter().flatten();
    let lines: Vec<String> = lines
        .filter_map(|line| Some(line.as_str()?.to_owned()))
        .collect();
    let frames: Vec<Value> = lines
        .iter()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let data = || frames.iter().filter_map(|frame| frame["data"].as_str());
    if !data().any(|data| data.contains("PATH")) {
        return lines;
    }
    let total: usize = data().map(str::len).sum();
    let resized = frames.iter().cloned().map(|mut frame| {
        frame["totalBytes"] = total.into();
        frame.to_string()
    });
    resized.collect()
}

/// The replies, with their frames joined.
fn replies(lines: &[String]) -> Result<Vec<Value>, String> {
    let mut framed: BTreeMap<i64, String> = BTreeMap::new();
    let mut replies = Vec::new();
    for line in lines {
        let value: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let (Some(data), Some(id)) = (value["data"].as_str(), value["id"].as_i64()) else {
            replies.push(value);
            continue;
        };
        framed.entry(id).or_default().push_str(data);
    }
    for text in framed.values() {
        replies.push(serde_json::from_str(text).map_err(|error| error.to_string())?);
    }
    Ok(replies)
}

/// The last word of the bridge's standard error, which an error must contain.
fn last_word(scenario: &Value) -> &str {
    let stderr = scenario["stderr"].as_str().unwrap_or_default();
    stderr.split_whitespace().last().unwrap_or_default()
}

//! Tests of this project's host with the recorded scenarios of the original host.

use std::collections::BTreeSet;

use breakbulk_testkit::log::{Level, Log};
use serde_json::Value;

use super::scenarios::{EXITED, FRAME_IDS, NESTED, RAW_UTF8, SURROGATES, UNNAMED, judge};

#[tokio::test]
async fn a_misbehaving_bridge_is_met_as_recorded_or_better() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/tywrap");
    let text = std::fs::read_to_string(format!("{folder}/ts_host_behaviour.json")).unwrap();
    let recorded: Value = serde_json::from_str(&text).unwrap();
    let mut used = BTreeSet::new();
    let log = Log::capture();
    for case in recorded["scenarios"].as_array().unwrap() {
        match judge(case).await {
            Ok(rules) => used.extend(rules),
            Err(why) => panic!("{}: {why}", case["scenario"]),
        }
    }
    for rule in [EXITED, UNNAMED, FRAME_IDS, NESTED, SURROGATES, RAW_UTF8] {
        assert!(
            used.contains(rule.name),
            "no case needs {}: {}",
            rule.name,
            rule.reason
        );
    }
    let warning =
        "the bridge broke the protocol: its open calls fail, and it is restarted at the next call";
    for breach in ["piece 0 came twice", "cannot be read", "hold an answer to"] {
        log.assert_line(Level::WARN, &[warning, breach, "calls=1"]);
    }
}

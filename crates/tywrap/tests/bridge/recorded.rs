//! Both bridges give the same replies as the recorded original, or differ by a named rule. A rule that no
//! scenario needs any more is a failure.

use breakbulk_testkit::log::Log;
use serde_json::Value;

use super::python_runs::in_python;
use super::runs::{Run, in_rust};
use super::transcripts::{
    BOTH_HANDSHAKES, NO_CRASH, NOT_UTF8, OWN_TRACEBACK, OWN_WORDS, Rule, Scenario, TABLE, Used,
};

const PYTHON: &[Rule] = &[
    OWN_WORDS,
    BOTH_HANDSHAKES,
    NO_CRASH,
    NOT_UTF8,
    OWN_TRACEBACK,
];

const RUST: &[Rule] = &[
    OWN_WORDS,
    BOTH_HANDSHAKES,
    NO_CRASH,
    NOT_UTF8,
    OWN_TRACEBACK,
    TABLE,
];

#[tokio::test]
async fn the_rust_bridge_answers_as_recorded() {
    let mut used = Used::new();
    for scenario in scenarios() {
        let log = Log::capture();
        let run = in_rust(&scenario.input).await;
        if is_over_the_codecs_limit(&run) {
            log.assert_quiet();
        }
        note(&scenario, scenario.compare(&run, false), &mut used);
    }
    all_used(RUST, &used);
}

#[test]
fn the_python_bridge_answers_as_recorded() {
    let mut used = Used::new();
    for scenario in scenarios() {
        let run = in_python(&scenario.input);
        if is_over_the_codecs_limit(&run) {
            assert_eq!(run.stderr, "", "{}", scenario.name);
        }
        note(&scenario, scenario.compare(&run, true), &mut used);
    }
    all_used(PYTHON, &used);
}

/// Whether `TYWRAP_CODEC_MAX_BYTES` refused a result: only the caller is told, nothing is logged.
fn is_over_the_codecs_limit(run: &Run) -> bool {
    let refusal = "PayloadTooLargeError";
    run.lines.iter().any(|line| line.contains(refusal))
}

fn note(scenario: &Scenario, compared: Result<Used, String>, used: &mut Used) {
    used.extend(compared.unwrap_or_else(|why| panic!("{}: {why}", scenario.name)));
}

fn all_used(rules: &[Rule], used: &Used) {
    let known: Used = rules.iter().map(|rule| rule.name).collect();
    assert_eq!(
        *used, known,
        "rules that are used, and rules that there are"
    );
    assert!(rules.iter().all(|rule| !rule.reason.is_empty()));
}

fn scenarios() -> Vec<Scenario> {
    let path = "/../../vectors/tywrap/bridge_transcripts.json";
    let path = format!("{}{path}", env!("CARGO_MANIFEST_DIR"));
    let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let scenarios = file["scenarios"].as_array().unwrap();
    scenarios
        .iter()
        .map(|scenario| Scenario::read(scenario).unwrap())
        .collect()
}

//! Replays recorded runs of the original bridge to the bridge in Rust. The code that reads, runs and compares
//! them is shared with the tests of the bridges, which also replay them to the bridge in Python.

#[path = "../../../../../crates/tywrap/tests/bridge/replies.rs"]
mod replies;
#[path = "../../../../../crates/tywrap/tests/bridge/runs.rs"]
mod runs;
#[path = "../../../../../crates/tywrap/tests/bridge/transcripts.rs"]
mod transcripts;

use serde_json::Value;

use super::super::{Rule, Tally};
use transcripts::{Scenario, Used};

const fn rule(rule: transcripts::Rule) -> Rule {
    Rule {
        name: rule.name,
        reason: rule.reason,
    }
}

pub(super) const OWN_WORDS: Rule = rule(transcripts::OWN_WORDS);
pub(super) const BOTH_HANDSHAKES: Rule = rule(transcripts::BOTH_HANDSHAKES);
pub(super) const NO_CRASH: Rule = rule(transcripts::NO_CRASH);
pub(super) const NOT_UTF8: Rule = rule(transcripts::NOT_UTF8);
pub(super) const OWN_TRACEBACK: Rule = rule(transcripts::OWN_TRACEBACK);
pub(super) const TABLE: Rule = rule(transcripts::TABLE);

pub(super) fn run(file: &str, value: &Value, tally: &mut Tally) -> Option<()> {
    for scenario in value["scenarios"].as_array()? {
        let scenario = Scenario::read(scenario)?;
        let verdict = compare(&scenario).map(|used| {
            // One scenario may differ by several rules.
            tally.used.extend(used);
            None
        });
        tally.check(file, &scenario.name, verdict);
    }
    Some(())
}

fn compare(scenario: &Scenario) -> Result<Used, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .map_err(|error| error.to_string())?;
    let run = runtime.block_on(runs::in_rust(&scenario.input));
    scenario.compare(&run, false)
}

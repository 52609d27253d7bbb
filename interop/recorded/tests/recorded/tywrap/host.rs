//! Replays recorded sessions of the original host with a misbehaving bridge to this project's host. The
//! code that runs and compares them is shared with the tests of the host.

#[path = "../../../../../crates/tywrap/tests/host/scenarios.rs"]
mod scenarios;

use serde_json::Value;

use super::super::{Rule, Tally};

const fn rule(rule: scenarios::Rule) -> Rule {
    Rule {
        name: rule.name,
        reason: rule.reason,
    }
}

pub(super) const EXITED: Rule = rule(scenarios::EXITED);
pub(super) const UNNAMED: Rule = rule(scenarios::UNNAMED);
pub(super) const FRAME_IDS: Rule = rule(scenarios::FRAME_IDS);
pub(super) const NESTED: Rule = rule(scenarios::NESTED);
pub(super) const SURROGATES: Rule = rule(scenarios::SURROGATES);
pub(super) const RAW_UTF8: Rule = rule(scenarios::RAW_UTF8);

pub(super) fn run(file: &str, value: &Value, tally: &mut Tally) -> Option<()> {
    for case in value["scenarios"].as_array()? {
        let verdict = judge(case).map(|used| {
            // One scenario may differ by several rules.
            tally.used.extend(used);
            None
        });
        tally.check(file, case["scenario"].as_str()?, verdict);
    }
    Some(())
}

fn judge(case: &Value) -> Result<Vec<&'static str>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(scenarios::judge(case))
}

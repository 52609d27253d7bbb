//! Recorded runs of the original bridge, and the rules by which this project's bridges may differ.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::replies::messages;
use super::runs::{End, Input, Run};

/// An intended difference: a kind of case, and its reason.
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    pub(crate) reason: &'static str,
}

pub(crate) const OWN_WORDS: Rule = Rule {
    name: "own-words",
    reason: "an error's text is ours: it names the limit, the size and the remedy; its class and id are as recorded",
};
pub(crate) const BOTH_HANDSHAKES: Rule = Rule {
    name: "both-handshakes",
    reason: "a host of 0.8 is answered by `transport` and in frames of the size it asked for; 0.10 ignores it",
};
pub(crate) const NO_CRASH: Rule = Rule {
    name: "no-crash",
    reason: "what made the original fall over ends the bridge with a frame error, which says what is wrong",
};
pub(crate) const NOT_UTF8: Rule = Rule {
    name: "not-utf8",
    reason: "a line that is no UTF-8 is answered with id -1 where the original falls over without a word",
};
pub(crate) const OWN_TRACEBACK: Rule = Rule {
    name: "own-traceback",
    reason: "a traceback shows the code that was called and leaves out the bridge; errors in Rust have none",
};
/// A rule for the bridge in Rust only.
pub(crate) const TABLE: Rule = Rule {
    name: "table",
    reason: "what may be called is what is in the table: there are no private names to refuse",
};

/// The names of the rules that a scenario differs by.
pub(crate) type Used = BTreeSet<&'static str>;

/// One recorded run.
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) input: Input,
    recorded: Run,
}

impl Scenario {
    /// Reads one scenario of the file; `None` if it is malformed.
    pub(crate) fn read(scenario: &Value) -> Option<Self> {
        let stdin = match scenario["stdinHex"].as_str() {
            Some(hex) => unhex(hex)?,
            None => (words(&scenario["stdin"])?.iter())
                .flat_map(|line| format!("{line}\n").into_bytes())
                .collect(),
        };
        let stderr = scenario["stderr"].as_str()?.to_owned();
        let end = match scenario["rc"].as_i64()? {
            0 if stderr.contains("Request frame error") => End::FrameError,
            0 => End::Served,
            1 if stderr.contains("CodecConfigError") => End::BadConfig,
            _ => End::Crashed,
        };
        let variable =
            |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.into()));
        let env: Option<BTreeMap<_, _>> =
            scenario["env"].as_object()?.iter().map(variable).collect();
        Some(Self {
            name: scenario["name"].as_str()?.to_owned(),
            input: Input {
                argv: words(&scenario["argv"])?,
                env: env?,
                stdin,
            },
            recorded: Run {
                lines: words(&scenario["stdout"])?,
                stderr,
                end,
            },
        })
    }

    /// Compares a run of this project's bridge; returns the rules by which it differs, an error if none
    /// applies. With `same_bytes` replies without a difference must be equal to the byte.
    pub(crate) fn compare(&self, run: &Run, same_bytes: bool) -> Result<Used, String> {
        let mut used = Used::new();
        match (self.recorded.end, run.end) {
            (recorded, ours) if recorded == ours => {}
            (End::Crashed, End::FrameError) => drop(used.insert(NO_CRASH.name)),
            (End::Crashed, End::Unreadable | End::Served) => drop(used.insert(NOT_UTF8.name)),
            (recorded, ours) => {
                return Err(format!(
                    "recorded {recorded:?}, ours {ours:?}: {}",
                    run.stderr
                ));
            }
        }
        let (argument, variable) = self.frames();
        let ours = messages(&run.lines, variable.into_iter().chain(argument).min())?;
        let recorded = if self.recorded.lines.iter().any(|line| line.contains("PATH")) {
            // The recording replaced paths within the frames, so their declared sizes are wrong.
            self.without_paths(argument)?
        } else {
            messages(&self.recorded.lines, argument)?
        };
        if used.contains(NOT_UTF8.name) {
            return match (recorded.as_slice(), ours.as_slice()) {
                ([], [only]) if only["id"] == -1 => Ok(used),
                _ => Err(format!("recorded {recorded:?}, ours {ours:?}")),
            };
        }
        if recorded.len() != ours.len() {
            return Err(format!("recorded {recorded:?}, ours {ours:?}"));
        }
        let mut has_facts = false;
        for (recorded, ours) in recorded.iter().zip(&ours) {
            has_facts |= recorded["result"].get("pid").is_some();
            reply(recorded, ours, &mut used)?;
        }
        match same_bytes && used.is_empty() && !has_facts && self.recorded.lines != run.lines {
            true => Err(format!(
                "recorded {:?}, ours {:?}",
                self.recorded.lines, run.lines
            )),
            false => Ok(used),
        }
    }

    /// The frame size in the arguments, and the one in the environment.
    fn frames(&self) -> (Option<usize>, Option<usize>) {
        let argument = self.input.argv.get(1).and_then(|word| word.parse().ok());
        let variable = self.input.env.get("TYWRAP_TRANSPORT_MAX_FRAME_BYTES");
        (argument, variable.and_then(|word| word.parse().ok()))
    }

    /// The recorded replies; frames with replaced paths are joined without checks.
    fn without_paths(&self, frame: Option<usize>) -> Result<Vec<Value>, String> {
        let parse = |line: &String| serde_json::from_str(line).map_err(|error| error.to_string());
        let lines: Vec<Value> = self
            .recorded
            .lines
            .iter()
            .map(parse)
            .collect::<Result<_, _>>()?;
        if lines.iter().all(|line| line.get("data").is_none()) {
            return messages(&self.recorded.lines, frame);
        }
        let whole: String = lines
            .iter()
            .filter_map(|line| line["data"].as_str())
            .collect();
        Ok(vec![parse(&whole)?])
    }
}

/// Compares one reply.
fn reply(recorded: &Value, ours: &Value, used: &mut Used) -> Result<(), String> {
    let differ = || Err(format!("recorded {recorded}, ours {ours}"));
    if (&recorded["id"], &recorded["protocol"]) != (&ours["id"], &ours["protocol"]) {
        return differ();
    }
    let (theirs, error) = match (recorded.get("error"), ours.get("error")) {
        (Some(theirs), Some(error)) => (theirs, error),
        (None, None) => {
            let (mut theirs, mut result) = (recorded["result"].clone(), ours["result"].clone());
            // These differ from machine to machine.
            for meta in [&mut theirs, &mut result]
                .into_iter()
                .filter_map(Value::as_object_mut)
            {
                meta.remove("pid");
                meta.remove("pythonVersion");
            }
            if let Some(meta) = result.as_object_mut()
                && theirs.get("transport").is_none()
                && meta.remove("transport").is_some()
            {
                used.insert(BOTH_HANDSHAKES.name);
            }
            return if theirs == result { Ok(()) } else { differ() };
        }
        _ => return differ(),
    };
    match (theirs["type"].as_str(), error["type"].as_str()) {
        (Some(theirs), Some(ours)) if theirs == ours => {}
        (Some("AttributeNotAllowedError"), Some("AttributeError")) => drop(used.insert(TABLE.name)),
        _ => return differ(),
    }
    if theirs["message"] != error["message"] {
        used.insert(OWN_WORDS.name);
    }
    match (theirs.get("traceback"), error.get("traceback")) {
        (theirs, ours) if theirs == ours => {}
        (Some(_), _) => drop(used.insert(OWN_TRACEBACK.name)),
        (None, _) => return differ(),
    }
    Ok(())
}

fn words(value: &Value) -> Option<Vec<String>> {
    let word = |word: &Value| Some(word.as_str()?.to_owned());
    value.as_array()?.iter().map(word).collect()
}

fn unhex(hex: &str) -> Option<Vec<u8>> {
    let byte = |at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
    (0..hex.len()).step_by(2).map(byte).collect()
}

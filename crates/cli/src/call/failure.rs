//! Why a call has no result, in the words of the command line: its options instead of the library's
//! names, and no more text than fits a screen or two.

use breakbulk::link::{FaultKind, SendError};
use breakbulk::tywrap::{Breach, CallError, Raised, StartError};

use super::Call;
use crate::failure::Failure;
use crate::size;

/// Characters of an error's text that are shown.
const TEXT: usize = 4000;

/// Characters of a traceback that are shown: its end, which says most.
const TRACEBACK: usize = 8000;

/// The variables and options of the bridge that this program sets, and its options that set them.
const OPTIONS: [(&str, &str); 4] = [
    ("TYWRAP_REQUEST_MAX_BYTES", "--max-message"),
    ("TYWRAP_CODEC_MAX_BYTES", "--max-message"),
    ("TYWRAP_TRANSPORT_MAX_FRAME_BYTES", "--max-frame"),
    ("--tywrap-max-frame-bytes", "--max-frame"),
];

/// The failure of a call. What the bridge wrote to its standard error was shown already.
pub(super) fn explained(error: CallError, call: &Call) -> Failure {
    match error {
        CallError::Start(StartError::Exec(error)) => Failure::Usage(error.to_string()),
        CallError::Start(StartError::Failed(error)) => match explained(*error, call) {
            Failure::Session(text) => {
                Failure::Session(format!("the bridge cannot be started: {text}"))
            }
            other => other,
        },
        CallError::BadArguments(_) if call.args_from.is_some() => Failure::Usage(
            "--args-from: the file must hold one JSON array, as in [1, \"two\"]".to_owned(),
        ),
        CallError::BadArguments(why) => Failure::Usage(why.to_string()),
        CallError::RequestTooLarge { size, limit } => Failure::Usage(format!(
            "the request has {}, over the limit of {}; raise --max-message",
            size::show(size),
            size::show(limit)
        )),
        CallError::TimedOut { after, .. } => Failure::TimedOut(format!(
            "{}.{} did not answer within {} s; raise --timeout",
            call.object,
            call.function,
            after.as_secs_f64(),
        )),
        CallError::Raised(raised) => Failure::Session(told(&raised)),
        CallError::NotSent(SendError::MessageTooLarge { size, limit }) => {
            Failure::Session(format!(
                "the request has {}, and the bridge takes {}; raise the bridge's own limit, or send less",
                size::show(size),
                size::show(limit)
            ))
        }
        CallError::NotSent(SendError::FrameTooLarge { size, limit, uncut }) => {
            Failure::Session(format!(
                "the request needs a line of {}, over the limit of {}, and cannot be cut: {uncut}",
                size::show(size),
                size::show(limit)
            ))
        }
        CallError::Breach { breach, .. } => Failure::Session(broken(&breach)),
        CallError::Exited { how, .. } => Failure::Session(format!(
            "the bridge ended before there was an answer ({})",
            with_options(&how)
        )),
        error => Failure::Session(with_options(&error.to_string())),
    }
}

/// How the bridge broke the protocol. An answer that is too large names the option.
fn broken(breach: &Breach) -> String {
    match breach {
        Breach::Frame { fault, .. } => match fault.kind {
            FaultKind::MessageTooLarge { size, limit } => format!(
                "the answer has {}, over the limit of {}; raise --max-message, or ask for less",
                shown(size),
                shown(limit)
            ),
            _ => with_options(&breach.to_string()),
        },
        breach => with_options(&breach.to_string()),
    }
}

fn shown(bytes: u64) -> String {
    size::show(usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// The exception, with the options in place of variables where the bridge itself raised it.
fn told(raised: &Raised) -> String {
    let is_limit = ["TooLargeError", "FrameError"]
        .iter()
        .any(|end| raised.kind.ends_with(end));
    let message = match is_limit {
        true => with_options(&raised.message),
        false => beginning(&raised.message, TEXT),
    };
    let shown = Raised {
        kind: beginning(&raised.kind, 200),
        message,
        traceback: raised.traceback.as_deref().map(|it| ending(it, TRACEBACK)),
        stderr: String::new(),
    };
    shown.to_string()
}

fn with_options(text: &str) -> String {
    let text = beginning(text, TEXT);
    OPTIONS
        .iter()
        .fold(text, |text, (name, option)| text.replace(name, option))
}

fn beginning(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}

fn ending(text: &str, characters: usize) -> String {
    match text.char_indices().rev().nth(characters) {
        Some((before, c)) => format!("…{}", &text[before + c.len_utf8()..]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_shortened_where_they_say_least() {
        for (text, first, last) in [
            ("", "", ""),
            ("abc", "abc", "abc"),
            ("aé中x", "aé中… (7 bytes)", "…é中x"),
        ] {
            assert_eq!(beginning(text, 3), first);
            assert_eq!(ending(text, 3), last);
        }
    }

    #[test]
    fn an_answer_that_is_too_large_names_the_option() {
        let breach = Breach::Frame {
            code: "FRAME_PAYLOAD_TOO_LARGE",
            fault: Box::new(
                FaultKind::MessageTooLarge {
                    size: 2_500_000,
                    limit: 1_000_000,
                }
                .into(),
            ),
        };
        let words = "the answer has 2.50 MB, over the limit of 1.00 MB; raise --max-message, or ask for less";
        assert_eq!(broken(&breach), words);
    }

    #[test]
    fn options_stand_for_what_they_set() {
        let raised = |kind: &str| Raised {
            kind: kind.to_owned(),
            message: "9 bytes is over TYWRAP_CODEC_MAX_BYTES=5".to_owned(),
            traceback: None,
            stderr: String::new(),
        };
        for (kind, expected) in [
            ("PayloadTooLargeError", "9 bytes is over --max-message=5"),
            // An exception of the called code keeps its own words.
            ("ValueError", "9 bytes is over TYWRAP_CODEC_MAX_BYTES=5"),
        ] {
            assert_eq!(told(&raised(kind)), format!("{kind}: {expected}"));
        }
    }
}

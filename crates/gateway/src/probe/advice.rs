//! What to do with what a probe found: which rows of the table fit, and which options keep a gateway within
//! the limits. Does no IO.

use breakbulk_link::Preset;

use super::course::{Limits, Way};

/// The rows of the table that fit, and the options to give.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advice {
    /// The rows whose limits are those that were found.
    pub rows: Vec<&'static str>,
    /// The largest frame of a gateway (`--max-frame`); `None` if no cap was found.
    pub max_frame: Option<usize>,
    /// The largest WebSocket fragment (`--fragment`); `None` if no cap was found.
    pub fragment: Option<usize>,
    /// The preset of a path that fits.
    pub preset: Option<&'static str>,
}

impl Advice {
    /// For what was found in both directions. A gateway tells the other one its limit and the smaller one
    /// applies both ways, so the smaller one counts here.
    pub(super) fn new(up: &Way, down: &Way) -> Self {
        let text = [&up.text, &down.text];
        let message = text.iter().filter_map(|limits| limits.message.cap()).min();
        let frame = text.iter().filter_map(|limits| frame_cap(limits)).min();
        let rows: Vec<_> = Preset::ALL
            .iter()
            .filter(|row| text.iter().any(|limits| fits(row, limits)))
            .collect();
        let path = rows.iter().find(|row| row.is_path());
        // A preset that allows more than was found would not help.
        let allowed = message.or(frame).unwrap_or(usize::MAX);
        let preset = path.filter(|row| row.cap().max <= allowed);
        Self {
            rows: rows.iter().map(|row| row.name).collect(),
            // If only frames are capped, a message of the gateway may travel in several.
            max_frame: message,
            fragment: frame,
            preset: preset.map(|row| row.name),
        }
    }

    /// The options of `breakbulk gateway`, as they are written; empty if none is needed.
    pub fn options(&self) -> String {
        let size = |name, bytes: Option<usize>| bytes.map(|bytes| format!("--{name} {bytes}"));
        let options = [
            size("max-frame", self.max_frame),
            size("fragment", self.fragment),
        ];
        options.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}

fn frame_cap(limits: &Limits) -> Option<usize> {
    limits.frame.as_ref().and_then(|frame| frame.cap())
}

/// Whether the limits are those of a row. A source that says KB may mean 1,024, so a twentieth more fits as
/// well.
fn fits(row: &Preset, limits: &Limits) -> bool {
    let near = |known: usize, found: Option<usize>| {
        found.is_some_and(|found| found >= known && found - known <= known / 20)
    };
    let (message, frame) = (limits.message.cap(), frame_cap(limits));
    match (row.message, row.fragment) {
        (None, None) => false,
        (Some(known), None) => near(known, message) && frame.is_none(),
        // The row has a limit of frames alone: all that a probe sees of it may be that a message is refused.
        (None, Some(known)) => near(known, frame) || near(known, message) && frame.is_none(),
        (Some(known), Some(known_frame)) if known == known_frame => {
            near(known, message) && frame.is_none()
        }
        (Some(known), Some(known_frame)) => near(known, message) && near(known_frame, frame),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::outcome::Refusal;
    use crate::probe::search::Finding;

    fn way(message: Option<usize>, frame: Option<usize>) -> Way {
        let finding = |bytes| Finding::Cap {
            bytes,
            refusal: Refusal::Silence,
        };
        Way {
            text: Limits {
                message: message.map_or(Finding::NoCap { tried: 16 << 20 }, finding),
                frame: frame.map(finding),
            },
            binary: None,
        }
    }

    #[test]
    fn rows_that_fit_and_options_that_help() {
        let none = (None, None);
        for (up, down, rows, preset, options) in [
            (none, none, &[][..], None, ""),
            (
                (Some(131_072), Some(32_768)),
                (Some(131_072), Some(32_768)),
                &["aws-api-gateway"],
                Some("aws-api-gateway"),
                "--max-frame 131072 --fragment 32768",
            ),
            (
                (Some(1_048_576), None),
                none,
                &[
                    "azure-web-pubsub",
                    "kong",
                    "nats",
                    "mcp-python-sse",
                    "python-websockets",
                    "engine.io",
                ],
                Some("azure-web-pubsub"),
                "--max-frame 1048576",
            ),
            (
                (Some(100_003), None),
                (Some(10_000), None),
                &["pusher", "supergateway"],
                Some("pusher"),
                "--max-frame 10000",
            ),
            (
                (Some(100_003), None),
                (Some(9000), None),
                &["supergateway"],
                None,
                "--max-frame 9000",
            ),
            (
                (None, Some(65_535)),
                none,
                &["apisix"],
                Some("apisix"),
                "--fragment 65535",
            ),
        ] {
            let advice = Advice::new(&way(up.0, up.1), &way(down.0, down.1));
            assert_eq!(advice.rows, rows, "{up:?} {down:?}");
            assert_eq!(advice.preset, preset, "{up:?} {down:?}");
            assert_eq!(advice.options(), options, "{up:?} {down:?}");
        }
    }
}

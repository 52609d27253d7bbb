//! The largest message, frame and WebSocket fragment of an end: what was asked for it, and what its path and
//! its receiver are known to take.

use breakbulk_link::Preset;
use breakbulk_net::ws;

use super::Config;
use crate::endpoint::{Endpoint, WireKind};
use crate::error::EndError;

/// AHP's proposal names this frame size for a path with a relay in it.
const DEFAULT_FRAME: usize = 900_000;

/// AHP's proposal names this message size.
const DEFAULT_MESSAGE: usize = 32 << 20;

/// The smallest frame that has room for a segment.
const LEAST_FRAME: usize = 256;

/// The smallest event that has room for a chunk of useful size.
#[cfg(feature = "nostr")]
const LEAST_EVENT: usize = 4096;

/// A max-frame that does not apply, since the path takes less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "max-frame {asked} is over the {max_frame} bytes of the preset {preset}: the smaller one applies; leave the preset out if the path lets more through"
)]
pub struct Overruled {
    /// What was asked for.
    pub asked: usize,
    /// What applies.
    pub max_frame: usize,
    /// The path's name.
    pub preset: &'static str,
}

/// The largest message that an end takes.
pub(super) fn max_message(endpoint: &Endpoint, config: &Config) -> Result<usize, EndError> {
    let asked = endpoint.options.max_message.or(config.max_message);
    match asked.unwrap_or(DEFAULT_MESSAGE) {
        max_message if max_message < LEAST_FRAME => Err(EndError::MessageTooSmall {
            max_message,
            least: LEAST_FRAME,
        }),
        max_message => Ok(max_message),
    }
}

/// The largest frame of an end, and the one that was asked for if the preset allows only less.
pub(super) fn max_frame(
    endpoint: &Endpoint,
    config: &Config,
    preset: Option<Preset>,
    max_message: usize,
) -> Result<(usize, Option<Overruled>), EndError> {
    let of_path = preset.map(|preset| preset.cap().max);
    let (usual, least) = match endpoint.wire {
        #[cfg(feature = "nostr")]
        WireKind::Cep22 => (breakbulk_contextvm::EVENT_MAX, LEAST_EVENT),
        _ if !endpoint.at.has_frames() => (usize::MAX, LEAST_FRAME),
        WireKind::Whole => (max_message, LEAST_FRAME),
        _ => (of_path.unwrap_or(DEFAULT_FRAME), LEAST_FRAME),
    };
    let asked = endpoint.options.max_frame;
    let asked = asked.or(config
        .max_frame
        .filter(|_| endpoint.wire != WireKind::Whole));
    let max_frame = asked.unwrap_or(usual).min(of_path.unwrap_or(usize::MAX));
    if max_frame < least {
        return Err(EndError::FrameTooSmall { max_frame, least });
    }
    let overruled = match (asked, preset) {
        (Some(asked), Some(preset)) if asked > max_frame => Some(Overruled {
            asked,
            max_frame,
            preset: preset.name,
        }),
        _ => None,
    };
    Ok((max_frame, overruled))
}

/// The largest WebSocket fragment of an end: the smallest of what was asked for, the path's and the
/// receiver's.
pub(super) fn fragment(
    endpoint: &Endpoint,
    config: &Config,
    preset: Option<Preset>,
) -> Result<usize, EndError> {
    let asked = endpoint.options.fragment.or(config.fragment);
    let known = [preset, endpoint.options.client].into_iter().flatten();
    let known = known.filter_map(|preset| preset.fragment);
    let fragment = asked.into_iter().chain(known).min();
    match fragment.unwrap_or(ws::FRAGMENT) {
        fragment if fragment < LEAST_FRAME => Err(EndError::FragmentTooSmall {
            fragment,
            least: LEAST_FRAME,
        }),
        fragment => Ok(fragment),
    }
}

#[cfg(all(test, feature = "process"))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::Plan;

    #[test]
    fn a_fragment_needs_no_preset_and_the_smaller_one_applies() {
        for (listen, config, expected) in [
            ("ws://0", None, Ok(ws::FRAGMENT)),
            ("ws://0", Some(4096), Ok(4096)),
            ("ws://0?fragment=8KiB", Some(4096), Ok(8192)),
            ("whole+ws://0", Some(4096), Ok(4096)),
            ("ws://0?preset=aws-api-gateway", None, Ok(32_000)),
            ("ws://0?preset=aws-api-gateway", Some(64_000), Ok(32_000)),
            (
                "ws://0?preset=aws-api-gateway&fragment=4KiB",
                None,
                Ok(4096),
            ),
            (
                "ws://0?fragment=10",
                None,
                Err(
                    "listen: a fragment of 10 bytes is too small; fragment must be at least 256 bytes",
                ),
            ),
        ] {
            let config = Config::default().with(|it| it.fragment = config);
            let plan = Plan::new(listen.parse().unwrap(), "exec:cat".parse().unwrap(), config);
            let found = plan.map(|plan| plan.listen.fragment.unwrap());
            let found = found.map_err(|error| error.to_string());
            assert_eq!(found, expected.map_err(str::to_owned), "{listen}");
        }
    }
}

//! A bridge's answer to `meta`, and the frame size that follows from it.

use std::collections::BTreeMap;

use breakbulk_message::tywrap::Meta;
use serde_json::value::RawValue;

use super::Returned;

/// What a bridge answered to `meta` when it was started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// Its description; `None` if it gave none that can be read.
    pub meta: Option<Meta<'static>>,
    /// Bytes of data in a frame sent to it; `None`: it does not accept frames, so a request is sent as one
    /// line.
    pub frame: Option<usize>,
}

impl About {
    /// Reads the answer to `meta`. Bridges of version 0.8 announce frames in a `transport` block; later
    /// ones announce nothing and accept frames of the size given by an argument.
    pub fn read(result: &Returned, ours: usize) -> Self {
        let Some(meta) = Self::meta(result) else {
            return Self::default();
        };
        let members: Option<BTreeMap<String, &RawValue>> = serde_json::from_str(result.json()).ok();
        let is_offered = members.is_some_and(|members| members.contains_key("transport"));
        let frame = match meta.max_frame_bytes {
            Some(theirs) => Some(usize::try_from(theirs).map_or(ours, |theirs| theirs.min(ours))),
            None => (!is_offered).then_some(ours),
        };
        Self {
            meta: Some(meta),
            frame,
        }
    }

    /// Parses the answer to `meta`.
    pub fn meta(result: &Returned) -> Option<Meta<'static>> {
        let raw: &RawValue = serde_json::from_str(result.json()).ok()?;
        let meta = Meta::read(raw).ok()?;
        Some(Meta {
            python_version: meta.python_version.into_owned().into(),
            codec_fallback: meta.codec_fallback.into_owned().into(),
            ..meta
        })
    }
}

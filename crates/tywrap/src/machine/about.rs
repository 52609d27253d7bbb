//! What a bridge says of itself.

use std::collections::BTreeMap;

use breakbulk_message::tywrap::Meta;
use serde_json::value::RawValue;

use super::Returned;

/// What a bridge said of itself when it was started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// What it is; `None` if it did not say, or nothing that can be read.
    pub meta: Option<Meta<'static>>,
    /// Bytes of data in a frame that goes to it; `None`: it takes no frames, and a request goes out in
    /// one line.
    pub frame: Option<usize>,
}

impl About {
    /// What a bridge says of itself, and the frames that follow from it. Version 0.8 offers them in a
    /// block of its own; later ones frame without a word, as they were told by an argument.
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

    /// The answer to `meta`.
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

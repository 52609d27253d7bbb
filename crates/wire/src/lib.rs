//! The formats for frames: AHP, tywrap, CEP-22, loro, and whole messages. They have settings but no
//! state.
//!
//! Each file has the [`Wire`](breakbulk_link::Wire) of one format, and the
//! [`Rules`](breakbulk_link::Rules) that make a link behave as the format requires.

#![forbid(unsafe_code)]

mod ahp;
mod cep22;
pub mod json_text;
mod loro;
mod shape;
mod text_segments;
mod tywrap;
mod whole;

pub use ahp::Ahp;
pub use cep22::{Cep22, Layout, nostr_cap};
pub use loro::Loro;
pub use shape::shape_of;
pub use text_segments::TextSegments;
pub use tywrap::{Stream, Style, Tywrap};
pub use whole::Whole;

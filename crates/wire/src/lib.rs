//! How one frame looks, in the formats that people speak. Stateless: settings, no state.
//!
//! Each format is a file: its [`Wire`](breakbulk_link::Wire), and the
//! [`Rules`](breakbulk_link::Rules) by which a link behaves as that format wants.

#![forbid(unsafe_code)]

mod ahp;
mod cep22;
pub mod json_text;
mod loro;
mod shape;
mod tywrap;
mod whole;

pub use ahp::Ahp;
pub use cep22::{Cep22, Layout, nostr_cap};
pub use loro::Loro;
pub use shape::shape_of;
pub use tywrap::{Stream, Style, Tywrap};
pub use whole::Whole;

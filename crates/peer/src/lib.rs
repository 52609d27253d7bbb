#![doc = include_str!("../../../README.md")]
#![forbid(unsafe_code)]

#[cfg(feature = "ahp")]
pub mod ahp;
#[cfg(feature = "contextvm")]
pub mod contextvm;
#[cfg(feature = "loro")]
pub mod loro;
#[cfg(feature = "ahp")]
pub mod relay;
#[cfg(feature = "tywrap")]
pub mod tywrap;
#[cfg(feature = "vscode")]
pub mod vscode;

pub use breakbulk_link as link;
pub use breakbulk_message as message;
pub use breakbulk_net as net;
pub use breakbulk_wire as wire;

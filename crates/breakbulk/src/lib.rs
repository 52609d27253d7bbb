#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[cfg(feature = "ahp")]
pub use breakbulk_ahp as ahp;
#[cfg(feature = "contextvm")]
pub use breakbulk_contextvm as contextvm;
#[cfg(feature = "gateway")]
pub use breakbulk_gateway as gateway;
#[cfg(feature = "loro")]
pub use breakbulk_loro as loro;
#[cfg(feature = "tywrap")]
pub use breakbulk_tywrap as tywrap;
#[cfg(feature = "vscode")]
pub use breakbulk_vscode as vscode;

pub use breakbulk_link as link;
pub use breakbulk_message as message;
#[cfg(feature = "net")]
pub use breakbulk_net as net;
pub use breakbulk_wire as wire;

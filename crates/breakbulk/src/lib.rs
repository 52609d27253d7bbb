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

/// The features that this library was built with, for a program's `--version`.
pub const FEATURES: &[&str] = &[
    #[cfg(feature = "ahp")]
    "ahp",
    #[cfg(feature = "ahp-client")]
    "ahp-client",
    #[cfg(feature = "contextvm")]
    "contextvm",
    #[cfg(feature = "gateway")]
    "gateway",
    #[cfg(feature = "gateway-admin")]
    "gateway-admin",
    #[cfg(feature = "gateway-loro")]
    "gateway-loro",
    #[cfg(feature = "gateway-nostr")]
    "gateway-nostr",
    #[cfg(feature = "gateway-otlp")]
    "gateway-otlp",
    #[cfg(feature = "http")]
    "http",
    #[cfg(feature = "jetstream")]
    "jetstream",
    #[cfg(feature = "loro")]
    "loro",
    #[cfg(feature = "nats")]
    "nats",
    #[cfg(feature = "net")]
    "net",
    #[cfg(feature = "process")]
    "process",
    #[cfg(feature = "redb")]
    "redb",
    #[cfg(feature = "rmcp")]
    "rmcp",
    #[cfg(feature = "tls")]
    "tls",
    #[cfg(feature = "tywrap")]
    "tywrap",
    #[cfg(feature = "vscode")]
    "vscode",
    #[cfg(feature = "webrtc")]
    "webrtc",
    #[cfg(feature = "ws")]
    "ws",
];

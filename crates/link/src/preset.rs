//! The message size limits of well-known relays and gateways, by name.
//!
//! Where a service writes KB or MB and does not say which, the smaller reading (1,000s) is taken: a
//! message that is cut a little early still arrives, one that is a little too long ends the
//! connection.

use crate::Cap;

/// The largest frame that our own endpoints accept by default.
const OWN_LIMIT: usize = 16 << 20;

/// The limits of one service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Preset {
    /// The name to select it by.
    pub name: &'static str,
    /// The largest message, in bytes; `None` if the service has no limit of its own.
    pub message: Option<usize>,
    /// The largest WebSocket frame, in bytes: a larger message must travel in fragments.
    pub fragment: Option<usize>,
    /// Whether the service passes binary messages.
    pub binary: bool,
    /// The service and its limits, for a person.
    pub about: &'static str,
}

impl Preset {
    /// No relay, or one without limits.
    pub const NONE: Self = Self {
        name: "none",
        message: None,
        fragment: None,
        binary: true,
        about: "no limit but our own ends' (16 MiB frames)",
    };

    /// Azure Web PubSub. Its page on the service's internals, read in 2026: text, binary and JSON
    /// messages of at most 1 MB.
    pub const AZURE_WEB_PUBSUB: Self = Self {
        name: "azure-web-pubsub",
        message: Some(1_000_000),
        fragment: None,
        binary: true,
        about: "Azure Web PubSub: messages of 1 MB",
    };

    /// WebSocket APIs of Amazon API Gateway. Its quotas, read in 2026: messages of 128 KB in frames
    /// of 32 KB, above either it closes with 1009; a client's binary frame it closes with 1003.
    pub const AWS_API_GATEWAY: Self = Self {
        name: "aws-api-gateway",
        message: Some(128_000),
        fragment: Some(32_000),
        binary: false,
        about: "Amazon API Gateway: text messages of 128 KB in frames of 32 KB",
    };

    /// Cloudflare Workers and Durable Objects. The limits of Durable Objects, read in 2026: messages
    /// that one receives may have 32 MiB (1 MiB until October 2025); a longer one closes with 1009.
    /// Of its proxy before other servers no limit of messages was found.
    pub const CLOUDFLARE: Self = Self {
        name: "cloudflare",
        message: Some(32 << 20),
        fragment: None,
        binary: true,
        about: "Cloudflare Workers: messages of 32 MiB (1 MiB before October 2025)",
    };

    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::NONE,
        Self::AZURE_WEB_PUBSUB,
        Self::AWS_API_GATEWAY,
        Self::CLOUDFLARE,
    ];

    /// The preset of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|preset| preset.name == name)
    }

    /// The cap for a link: the service's limit, or our own endpoints' default if that is smaller.
    pub fn cap(&self) -> Cap {
        Cap::frame(
            self.message
                .map_or(OWN_LIMIT, |message| message.min(OWN_LIMIT)),
        )
    }
}

impl From<Preset> for Cap {
    fn from(preset: Preset) -> Self {
        preset.cap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_found_by_its_name_and_caps_what_it_says() {
        for (name, cap, fragment, binary) in [
            ("none", 16_777_216, None, true),
            ("azure-web-pubsub", 1_000_000, None, true),
            ("aws-api-gateway", 128_000, Some(32_000), false),
            ("cloudflare", 16_777_216, None, true),
        ] {
            let preset = Preset::by_name(name).unwrap();
            assert_eq!(preset.cap(), Cap::frame(cap), "{name}");
            assert_eq!(preset.fragment, fragment, "{name}");
            assert_eq!(preset.binary, binary, "{name}");
        }
        assert_eq!(Preset::ALL.len(), 4);
        assert_eq!(Preset::by_name("azure"), None);
    }
}

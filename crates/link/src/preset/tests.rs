//! Compares the rows of the table with the verified values, which are written here a second time by hand.

use super::*;

#[test]
fn sizes_are_told_exactly() {
    for (bytes, text) in [
        (0, "0"),
        (999, "999"),
        (1000, "1 KB"),
        (1024, "1 KiB"),
        (65_535, "65535"),
        (128_000, "128 KB"),
        (10_485_760, "10 MiB"),
        (3_000_000, "3 MB"),
    ] {
        assert_eq!(exact_size(bytes), text);
    }
}

/// Name, message, frame, binary, what happens above.
type Cells = (
    &'static str,
    Option<usize>,
    Option<usize>,
    Option<bool>,
    Option<&'static str>,
);

const PATHS: [Cells; 21] = [
    ("none", None, None, Some(true), None),
    ("azure-web-pubsub", None, Some(1_000_000), Some(true), None),
    (
        "aws-api-gateway",
        Some(128_000),
        Some(32_000),
        Some(false),
        Some("close 1009"),
    ),
    (
        "cloudflare",
        Some(33_554_432),
        None,
        Some(true),
        Some("close 1009"),
    ),
    (
        "ably",
        Some(64_000),
        None,
        Some(true),
        Some("error 40009, or HTTP 413"),
    ),
    ("pusher", Some(10_000), None, None, None),
    ("pubnub", Some(32_768), None, Some(false), Some("error")),
    (
        "supabase-realtime",
        Some(256_000),
        None,
        None,
        Some("error"),
    ),
    (
        "supabase-realtime-paid",
        Some(3_000_000),
        None,
        None,
        Some("error"),
    ),
    ("signalr", Some(32_000), None, None, Some("closes")),
    ("kong", Some(1_048_576), None, None, Some("close 1009")),
    (
        "kong-upstream",
        Some(16_777_216),
        None,
        None,
        Some("close 1009"),
    ),
    ("apisix", None, Some(65_535), None, Some("closes")),
    ("nats", Some(1_048_576), None, Some(true), Some("closes")),
    (
        "aws-iot",
        None,
        None,
        Some(true),
        Some("PAYLOAD_LIMIT_EXCEEDED"),
    ),
    ("strfry", Some(131_072), None, Some(false), None),
    (
        "nostr-rs-relay",
        Some(131_072),
        Some(131_072),
        Some(false),
        None,
    ),
    ("khatru", Some(512_000), None, Some(false), None),
    (
        "nostr",
        None,
        None,
        Some(false),
        Some("OK false, or NOTICE"),
    ),
    ("supergateway", Some(100_000), None, None, Some("HTTP 413")),
    ("mcp-proxy", Some(10_485_760), None, None, Some("HTTP 413")),
];

const RECEIVERS: [Cells; 18] = [
    (
        "mcp-typescript",
        Some(10_485_760),
        None,
        None,
        Some("throws"),
    ),
    ("mcp-http", Some(4_194_304), None, None, Some("HTTP 413")),
    ("rmcp", Some(16_777_216), None, None, Some("dropped")),
    ("rmcp-sse", Some(16_777_216), None, None, Some("dropped")),
    (
        "mcp-python-sse",
        Some(1_048_576),
        None,
        None,
        Some("\"stream ended\""),
    ),
    ("ws", Some(104_857_600), None, None, Some("close 1009")),
    ("bun", Some(16_777_216), None, None, Some("close 1009")),
    ("uwebsockets", Some(16_384), None, None, None),
    (
        "tungstenite",
        Some(67_108_864),
        Some(16_777_216),
        None,
        Some("read error"),
    ),
    (
        "python-websockets",
        Some(1_048_576),
        None,
        None,
        Some("close 1009"),
    ),
    ("aiohttp", Some(4_194_304), None, None, Some("close 1009")),
    ("tornado", Some(10_485_760), None, None, Some("close 1009")),
    ("uvicorn", Some(16_777_216), None, None, None),
    ("engine.io", Some(1_000_000), None, None, None),
    (
        "coder-websocket",
        Some(32_768),
        None,
        None,
        Some("close 1009"),
    ),
    ("jetty", Some(65_536), Some(65_536), None, None),
    ("vertx", Some(262_144), Some(65_536), None, None),
    ("bandit", Some(8_000_000), Some(8_000_000), None, None),
];

fn cells(preset: &Preset) -> Cells {
    let Preset {
        name,
        message,
        fragment,
        binary,
        above,
        ..
    } = *preset;
    (name, message, fragment, binary, above)
}

#[test]
fn the_rows_are_the_verified_cells_and_nothing_else() {
    let (paths, receivers): (Vec<_>, Vec<_>) =
        Preset::ALL.iter().partition(|preset| preset.is_path());
    let found = |rows: Vec<&Preset>| rows.into_iter().map(cells).collect::<Vec<_>>();
    assert_eq!(found(paths), PATHS);
    assert_eq!(found(receivers), RECEIVERS);
}

#[test]
fn every_row_has_a_source_a_date_and_a_name_of_its_own() {
    for preset in Preset::ALL {
        assert_eq!(Preset::by_name(preset.name), Some(*preset));
        assert!(!preset.source.is_empty(), "{}", preset.name);
        assert_eq!(preset.read_on.len(), 10, "{}", preset.name);
        if let PresetKind::Receiver(carriers) = preset.kind {
            assert!(!carriers.is_empty(), "{}", preset.name);
        }
    }
    assert_eq!(Preset::by_name("azure"), None);
}

#[test]
fn a_cap_is_what_the_path_takes_and_at_most_what_our_ends_take() {
    for (name, cap, about) in [
        (
            "none",
            16_777_216,
            "no path, or one without limits: our own ends take frames of 16 MiB",
        ),
        (
            "azure-web-pubsub",
            1_000_000,
            "Azure Web PubSub: frames of 1 MB",
        ),
        (
            "aws-api-gateway",
            128_000,
            "Amazon API Gateway, WebSocket APIs: messages of 128 KB in frames of 32 KB",
        ),
        (
            "cloudflare",
            16_777_216,
            "Cloudflare Workers and Durable Objects: messages of 32 MiB",
        ),
        ("apisix", 65_535, "Apache APISIX: frames of 65535"),
    ] {
        let preset = Preset::by_name(name).unwrap();
        assert_eq!(preset.cap(), Cap::frame(cap), "{name}");
        assert_eq!(preset.about(), about);
    }
}

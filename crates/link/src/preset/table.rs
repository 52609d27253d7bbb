//! The rows: only what was read in a released package, in its project's source or in official documentation.
//!
//! A cell that nobody has verified stays empty. Reports that were not verified are named in
//! `docs/CAPS.md`.

use super::{Carrier, Evidence, Preset, PresetKind};

/// The day on which the sources were last read.
const READ_ON: &str = "2026-11-15";

const LINES: &[Carrier] = &[Carrier::Lines];
const WEB_SOCKET: &[Carrier] = &[Carrier::WebSocket];
const POST: &[Carrier] = &[Carrier::Post];
const EVENTS: &[Carrier] = &[Carrier::EventStream];

const MIB: usize = 1 << 20;
const KIB: usize = 1 << 10;

const fn path(name: &'static str, title: &'static str) -> Preset {
    Preset {
        name,
        title,
        kind: PresetKind::Path,
        message: None,
        fragment: None,
        binary: None,
        above: None,
        note: "",
        source: "",
        evidence: Evidence::Documentation,
        read_on: READ_ON,
    }
}

const fn receiver(
    name: &'static str,
    title: &'static str,
    carriers: &'static [Carrier],
    message: usize,
) -> Preset {
    Preset {
        kind: PresetKind::Receiver(carriers),
        ..path(name, title)
    }
    .message(message)
}

impl Preset {
    const fn message(mut self, bytes: usize) -> Self {
        self.message = Some(bytes);
        self
    }

    const fn frame(mut self, bytes: usize) -> Self {
        self.fragment = Some(bytes);
        self
    }

    const fn binary(mut self, passes: bool) -> Self {
        self.binary = Some(passes);
        self
    }

    const fn above(mut self, what: &'static str) -> Self {
        self.above = Some(what);
        self
    }

    const fn note(mut self, note: &'static str) -> Self {
        self.note = note;
        self
    }

    const fn documented(mut self, source: &'static str) -> Self {
        self.source = source;
        self
    }

    const fn packaged(mut self, source: &'static str) -> Self {
        self.source = source;
        self.evidence = Evidence::Package;
        self
    }
}

impl Preset {
    /// No relay, or one without limits.
    pub const NONE: Self = path(
        "none",
        "no path, or one without limits: our own ends take frames of 16 MiB",
    )
    .binary(true)
    .documented("this program");

    /// Azure Web PubSub. Its documentation limits a frame and is silent about messages.
    pub const AZURE_WEB_PUBSUB: Self = path("azure-web-pubsub", "Azure Web PubSub")
        .frame(1_000_000)
        .binary(true)
        .documented("Azure's documentation of Web PubSub");

    /// WebSocket APIs of Amazon API Gateway.
    pub const AWS_API_GATEWAY: Self = path("aws-api-gateway", "Amazon API Gateway, WebSocket APIs")
        .message(128_000)
        .frame(32_000)
        .binary(false)
        .above("close 1009")
        .note("a connection lives 2 hours, and 10 minutes without a message")
        .documented("AWS: quotas of API Gateway");

    /// Cloudflare Workers and Durable Objects.
    pub const CLOUDFLARE: Self = path("cloudflare", "Cloudflare Workers and Durable Objects")
        .message(32 * MIB)
        .binary(true)
        .above("close 1009")
        .note("the limit is for messages that a Worker receives")
        .documented("Cloudflare's documentation: limits");

    /// All rows: paths first, then receivers.
    pub const ALL: &'static [Self] = &[
        Self::NONE,
        Self::AZURE_WEB_PUBSUB,
        Self::AWS_API_GATEWAY,
        Self::CLOUDFLARE,
        path("ably", "Ably")
            .message(64_000)
            .binary(true)
            .above("error 40009, or HTTP 413")
            .note("for each publish; the limit depends on the account")
            .documented("Ably's documentation: limits"),
        path("pusher", "Pusher Channels")
            .message(10_000)
            .documented("Pusher's documentation"),
        path("pubnub", "PubNub")
            .message(32 * KIB)
            .binary(false)
            .above("error")
            .note("messages are JSON")
            .documented("PubNub's documentation"),
        path("supabase-realtime", "Supabase Realtime, free plan")
            .message(256_000)
            .above("error")
            .documented("Supabase's documentation: limits"),
        path("supabase-realtime-paid", "Supabase Realtime, paid plans")
            .message(3_000_000)
            .above("error")
            .documented("Supabase's documentation: limits"),
        path("signalr", "SignalR hub")
            .message(32_000)
            .above("closes")
            .note("MaximumReceiveMessageSize of the hub")
            .documented("ASP.NET Core's documentation"),
        path("kong", "Kong, messages of clients")
            .message(MIB)
            .above("close 1009")
            .documented("Kong's documentation: websocket-size-limit"),
        path("kong-upstream", "Kong, messages of the upstream")
            .message(16 * MIB)
            .above("close 1009")
            .documented("Kong's documentation: websocket-size-limit"),
        path("apisix", "Apache APISIX")
            .frame(65_535)
            .above("closes")
            .documented("APISIX's documentation"),
        path("nats", "NATS")
            .message(MIB)
            .binary(true)
            .above("closes")
            .note("max_payload; headers count; the server's INFO tells it")
            .documented("NATS's documentation"),
        path("aws-iot", "AWS IoT Core")
            .binary(true)
            .above("PAYLOAD_LIMIT_EXCEEDED")
            .documented("AWS's documentation of IoT Core"),
        path("strfry", "strfry (Nostr relay)")
            .message(131_072)
            .binary(false)
            .note("an event at most 65,536")
            .documented("strfry's default configuration"),
        path("nostr-rs-relay", "nostr-rs-relay (Nostr relay)")
            .message(131_072)
            .frame(131_072)
            .binary(false)
            .documented("nostr-rs-relay's default configuration"),
        path("khatru", "khatru (Nostr relay)")
            .message(512_000)
            .binary(false)
            .documented("khatru's source"),
        path("nostr", "any Nostr relay")
            .binary(false)
            .above("OK false, or NOTICE")
            .note("a relay tells its limit by NIP-11: limitation.max_message_length")
            .documented("NIP-11"),
        path("supergateway", "supergateway 4.0, HTTP bodies")
            .message(100_000)
            .above("HTTP 413")
            .packaged("npm: supergateway 4.0"),
        path("mcp-proxy", "mcp-proxy, HTTP bodies")
            .message(10 * MIB)
            .above("HTTP 413")
            .packaged("npm: mcp-proxy"),
        receiver(
            "mcp-typescript",
            "MCP TypeScript SDK 1.30 and later, stdio",
            LINES,
            10 * MIB,
        )
        .above("throws")
        .note("the limit is that of a read buffer: the line break and what is read together with it count; a client of one's own can raise it (maxBufferSize of StdioClientTransport)")
        .packaged("npm: @modelcontextprotocol/sdk"),
        receiver(
            "mcp-http",
            "MCP servers over HTTP (TypeScript, Python, rmcp)",
            POST,
            4 * MIB,
        )
        .above("HTTP 413")
        .packaged("npm: @modelcontextprotocol/sdk; PyPI: mcp; crates.io: rmcp"),
        receiver("rmcp", "rmcp 3.8, stdio", LINES, 16 * MIB)
            .above("dropped")
            .packaged("crates.io: rmcp 3.8"),
        receiver(
            "rmcp-sse",
            "rmcp 3.8, an event of a stream",
            EVENTS,
            16 * MIB,
        )
        .above("dropped")
        .packaged("crates.io: rmcp 3.8"),
        receiver(
            "mcp-python-sse",
            "MCP Python SDK 2.0 to 2.1 (httpx2 2.10), an event of a stream",
            EVENTS,
            MIB,
        )
        .above("\"stream ended\"")
        .packaged("PyPI: mcp 2.0 and 2.1"),
        receiver("ws", "ws 8.22 (node)", WEB_SOCKET, 100 * MIB)
            .above("close 1009")
            .note("a message of at most 16,384 fragments")
            .packaged("npm: ws 8.22"),
        receiver("bun", "Bun", WEB_SOCKET, 16 * MIB)
            .above("close 1009")
            .packaged("Bun"),
        receiver("uwebsockets", "uWebSockets", WEB_SOCKET, 16 * KIB)
            .documented("uWebSockets' source"),
        receiver(
            "tungstenite",
            "tungstenite 0.30, axum",
            WEB_SOCKET,
            64 * MIB,
        )
        .frame(16 * MIB)
        .above("read error")
        .packaged("crates.io: tungstenite 0.30"),
        receiver("python-websockets", "Python websockets 17", WEB_SOCKET, MIB)
            .above("close 1009")
            .packaged("PyPI: websockets 17"),
        receiver("aiohttp", "aiohttp", WEB_SOCKET, 4 * MIB)
            .above("close 1009")
            .packaged("PyPI: aiohttp"),
        receiver("tornado", "tornado", WEB_SOCKET, 10 * MIB)
            .above("close 1009")
            .packaged("PyPI: tornado"),
        receiver("uvicorn", "uvicorn", WEB_SOCKET, 16 * MIB).packaged("PyPI: uvicorn"),
        receiver("engine.io", "engine.io", WEB_SOCKET, 1_000_000).packaged("npm: engine.io"),
        receiver(
            "coder-websocket",
            "coder/websocket (Go)",
            WEB_SOCKET,
            32 * KIB,
        )
        .above("close 1009")
        .documented("coder/websocket's documentation"),
        receiver("jetty", "Jetty 12", WEB_SOCKET, 64 * KIB)
            .frame(64 * KIB)
            .documented("Jetty's documentation"),
        receiver("vertx", "Vert.x", WEB_SOCKET, 256 * KIB)
            .frame(64 * KIB)
            .documented("Vert.x's documentation"),
        receiver(
            "bandit",
            "Bandit 1.11 and later (Elixir)",
            WEB_SOCKET,
            8_000_000,
        )
        .frame(8_000_000)
        .note("refuses empty continuation frames that are not final")
        .documented("Bandit's documentation"),
    ];
}

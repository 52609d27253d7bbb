//! An MCP server and client of the crate `rmcp`, over a Nostr relay that takes 64 KiB an event:
//! `cargo run --release --features rmcp --example rmcp_over_relay`

use breakbulk_contextvm::rmcp::{ClientTransport, serve};
use breakbulk_contextvm::{Client, ClientConfig, Keys, Server, ServerConfig};
use breakbulk_testkit::bad_relay::{BadRelay, Weather};
use rmcp::model::{CallToolRequestParams as Call, CallToolResponse, CallToolResult, ContentBlock};
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};

type Context = rmcp::service::RequestContext<RoleServer>;

struct Blob;

impl ServerHandler for Blob {
    async fn call_tool(&self, _: Call, _: Context) -> Result<CallToolResponse, ErrorData> {
        let megabyte = ContentBlock::text("x".repeat(1_000_000));
        Ok(CallToolResult::success(vec![megabyte]).into())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let relay = BadRelay::start(Weather::default()).await?; // in production: wss://…
    let relays = vec![relay.url().to_owned()];
    let server = Server::bind(ServerConfig::new(Keys::generate(), relays.clone())).await?;
    let key = server.public_key();
    tokio::spawn(async move { serve(&server, |_| Blob).await });

    let config = ClientConfig::new(Keys::generate(), key, relays);
    let service = ().serve(ClientTransport::new(Client::connect(config).await?)).await?;
    let answer = service.call_tool(Call::new("blob")).await?;
    let size = answer.content[0].as_text().map_or(0, |it| it.text.len());
    println!(
        "{size} bytes in {} events, none over {} bytes",
        relay.events(),
        relay.largest()
    );
    Ok(())
}

//! Programs written with the crate `rmcp`, of which only the transport is changed.

use breakbulk_contextvm::rmcp::{ClientTransport, serve};
use breakbulk_contextvm::{Config, Keys, Server, ServerConfig as Setup};
use breakbulk_testkit::bad_relay::{BadRelay, Weather};
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ContentBlock, ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, serve_directly};
use rmcp::{ErrorData, RoleClient, RoleServer, ServerHandler, ServiceExt};

use super::{connect, relay_options, text};

#[derive(Clone)]
struct Blobs;

impl ServerHandler for Blobs {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<rmcp::model::CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let size = arguments["size"].as_u64().unwrap() as usize;
        let heard = arguments["data"].as_str().unwrap().len();
        let texts = [text(1, size), heard.to_string()];
        Ok(CallToolResult::success(texts.map(ContentBlock::text).to_vec()).into())
    }
}

fn call(data: usize, size: usize) -> CallToolRequestParams {
    let mut arguments = serde_json::Map::new();
    arguments.insert("data".to_owned(), text(0, data).into());
    arguments.insert("size".to_owned(), size.into());
    CallToolRequestParams::new("blob").with_arguments(arguments)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_rmcp_program_over_nostr() {
    let relay = BadRelay::start(Weather::default()).await.unwrap();
    let mut setup = Setup::new(Keys::generate(), vec![relay.url().to_owned()]);
    setup.relay_options = relay_options();
    let server = Server::bind(setup).await.unwrap();
    let serving = server.clone();
    tokio::spawn(async move { serve(&serving, |_| Blobs).await });
    for stateful in [true, false] {
        let client = connect(&server, &[relay.url()], Config::default()).await;
        let transport = ClientTransport::new(client);
        let service = if stateful {
            ().serve(transport).await.unwrap()
        } else {
            serve_directly::<RoleClient, _, _, _, _>((), transport, None)
        };
        for (data, size) in [(10, 10), (200_000, 10), (10, 300_000), (300_000, 1_000_000)] {
            let result = service.call_tool(call(data, size)).await.unwrap();
            let texts: Vec<_> = result
                .content
                .iter()
                .map(|block| block.as_text().unwrap().text.clone())
                .collect();
            assert!(texts[0] == text(1, size), "{data} {size}");
            assert_eq!(texts[1], text(0, data).len().to_string());
        }
        service.cancel().await.unwrap();
    }
}

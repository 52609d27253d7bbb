//! The client of the crate `ahp`, unchanged, over a capped path (features `ahp-client`): below_ahp

use breakbulk_ahp::host::{Applied, Call, State};
use breakbulk_ahp::{Application, Config, Host, HostConfig, RpcError, foreign::Sessions};
use breakbulk_ahp::{log::MemoryLog, transport::Segmenting};
use breakbulk_link::Cap;
use serde_json::value::RawValue;

struct Echo;

impl Application for Echo {
    fn snapshot(&self, _: &str) -> Option<State> {
        Some(State::none())
    }
    fn apply(&self, _: &Applied<'_>) {}
    async fn request(&self, _: &Host<Self>, call: Call) -> Result<Box<RawValue>, RpcError> {
        let failed = |error: serde_json::Error| RpcError::new(-32603, error.to_string());
        RawValue::from_string(call.params().to_owned()).map_err(failed)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = Config::default().with(|config| config.cap = Cap::frame(128_000));
    let host = HostConfig::default().with(|host| host.connection = config.clone());
    let host = Host::new(Echo, MemoryLog::default(), host);
    let (near, far) = breakbulk_net::memory::pair(8); // in earnest: a WebSocket
    tokio::spawn(host.serve(far));

    let transport = Segmenting::over(near, config, Sessions::default())?;
    let client = ahp::Client::connect(transport, ahp::ClientConfig::default()).await?;
    let versions = vec!["1.0.0".to_owned()];
    client.initialize("me".to_owned(), versions, vec![]).await?;
    let long = vec!["x".repeat(3_000_000)];
    let echo: Vec<String> = client.request("echo", long).await?;
    println!("{} bytes came back", echo[0].len());
    Ok(())
}

//! 24 MB of state over a path that ends a connection at 1 MB (features `ws`): ahp_host_and_client

use breakbulk_ahp::host::{Applied, State};
use breakbulk_ahp::{Application, Client, ClientConfig, Host, HostConfig, log::MemoryLog};
use breakbulk_link::Cap;
use breakbulk_net::ws::{self, ConnectOptions, ListenOptions, Listener};
use breakbulk_testkit::bad_path::{BadPath, Weather};
use serde_json::value::RawValue;

struct Notes(Box<RawValue>);

impl Application for Notes {
    fn snapshot(&self, channel: &str) -> Option<State> {
        (channel == "ahp-root://").then(|| State::new(self.0.clone()))
    }
    fn apply(&self, _: &Applied<'_>) {}
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let notes = RawValue::from_string(format!("{:?}", "x".repeat(24_000_000)))?;
    let mut config = HostConfig::default();
    config.connection.cap = Cap::frame(900_000); // what goes out fits the path
    let host = Host::new(Notes(notes), MemoryLog::default(), config);
    let mut listener = Listener::bind("127.0.0.1:0", ListenOptions::default()).await?;
    let path = BadPath::start(listener.local_addr(), Weather::capped(1_000_000)).await?;
    let url = format!("ws://{}", path.address()); // in earnest: a relay's
    let socket = tokio::spawn(async move { ws::connect(&url, &ConnectOptions::default()).await });
    tokio::spawn(host.serve(listener.accept().await?.websocket));

    let client = Client::new(ClientConfig::new("me"));
    let (socket, channels) = (socket.await??, ["ahp-root://"]);
    let answer = client.initialize(socket, &channels).await?;
    for notes in answer.snapshots.iter() {
        println!("{} bytes of state came", notes.state.len());
    }
    Ok(())
}

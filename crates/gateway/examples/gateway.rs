//! One JSON-RPC message goes through a gateway between a WebSocket and `cat`, and comes back.

use std::error::Error;

use breakbulk_gateway::{Config, Event, Plan, Stop, whole_link};
use breakbulk_link::{Budget, Cap, Carries, Outgoing};
use breakbulk_net::{Connection, Options, ws};
use tokio::sync::mpsc;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Port 0 is any free one. Each client gets a `cat` of its own, which sends every message back.
    let (listen, to) = ("whole+ws://127.0.0.1:0".parse()?, "exec:cat".parse()?);
    let plan = Plan::new(listen, to, Config::default())?;
    let (stop, (tell, mut events)) = (Stop::new(), mpsc::unbounded_channel());
    let client = async {
        if let Some(Event::Listening(address)) = events.recv().await {
            ping(&address).await?;
        }
        stop.stop();
        Ok::<_, Box<dyn Error>>(())
    };
    let gateway = plan.run(&stop, move |event| drop(tell.send(event)));
    tokio::try_join!(async { Ok(gateway.await?) }, client).map(drop)
}

async fn ping(address: &str) -> Result<(), Box<dyn Error>> {
    let websocket = ws::connect(address, &Default::default()).await?;
    let (cap, budget) = (Cap::frame(1 << 20), Budget::unlimited());
    let link = whole_link(Carries::Text, cap, 1 << 20, budget);
    let connection = Connection::open(link, websocket, Options::default())?;
    connection.send(Outgoing::new(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#))?;
    while let Some(event) = connection.event().await {
        if let breakbulk_link::Event::Message(message) = event {
            println!("back from {address}: {:?}", message.bytes);
            break;
        }
    }
    Ok(())
}

//! The rows for endpoints of the library.

use breakbulk::ahp::host::{Applied, State};
use breakbulk::ahp::{Application, Client, ClientConfig, Host, HostConfig, log::MemoryLog};
use breakbulk::message::vscode::{RpcId, Thrown};
use breakbulk::net::ws::{self, ConnectOptions, ListenOptions, Listener};
use breakbulk::vscode::{Actor, Actors, Config, Endpoint};
use serde_json::value::RawValue;
use tokio::net::{TcpListener, TcpStream};

use crate::{SIZE, crossed, path};

pub(crate) struct Notes(pub(crate) Box<RawValue>);

impl Application for Notes {
    fn snapshot(&self, channel: &str) -> Option<State> {
        (channel == "ahp-root://").then(|| State::new(self.0.clone()))
    }

    fn apply(&self, _: &Applied<'_>) {}
}

/// A host's state for a client that connects.
pub(crate) async fn ahp() {
    let notes = RawValue::from_string(format!("{:?}", "x".repeat(SIZE))).unwrap();
    let host = Host::new(Notes(notes), MemoryLog::default(), HostConfig::default());
    let mut listener = Listener::bind("127.0.0.1:0", ListenOptions::default())
        .await
        .unwrap();
    let path = path(listener.local_addr(), true).await;
    let url = format!("ws://{}", path.address());
    let options = ConnectOptions::default();
    let (socket, accepted) = tokio::join!(ws::connect(&url, &options), listener.accept());
    tokio::spawn(host.serve(accepted.unwrap().websocket));
    let client = Client::new(ClientConfig::new("me"));
    let answer = client.initialize(socket.unwrap(), &["ahp-root://"]).await;
    let sizes: Vec<_> = answer
        .unwrap()
        .snapshots
        .iter()
        .map(|it| it.state.len())
        .collect();
    assert_eq!(sizes, [SIZE + 2]);
    crossed(&path, 1);
}

/// A call with one large argument.
pub(crate) async fn vscode() {
    let id = RpcId::new(3).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let path = path(listener.local_addr().unwrap(), false).await;
    let (near, far) = tokio::join!(TcpStream::connect(path.address()), listener.accept());
    let count = Actor::new().typed("$count", |(text,): (String,)| async move {
        Ok::<_, Thrown>(text.len())
    });
    let config = Config::default().with(|it| it.actors = Actors::new().add(id, "Documents", count));
    let _far = Endpoint::over_stream(far.unwrap().0, config);
    let near = Endpoint::over_stream(near.unwrap(), Config::default());
    let call = near.remote(id).call("$count", &("x".repeat(SIZE),)).await;
    assert_eq!(call.unwrap().typed::<usize>().unwrap(), SIZE);
    crossed(&path, 1);
}

//! Two ends that call each other's actors: `cargo run --release --example vscode_actors`

use breakbulk_message::vscode::{RpcId, Thrown};
use breakbulk_vscode::{Actor, Actors, Config, Endpoint};
use tokio::net::{TcpListener, TcpStream};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (commands, documents) = (RpcId::new(2)?, RpcId::new(3)?);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let near = TcpStream::connect(listener.local_addr()?).await?;
    let (far, _) = listener.accept().await?;

    // One side adds numbers, the other counts letters; either could be VSCode's own RPCProtocol.
    let add = Actor::new().typed("$add", |(a, b): (i64, i64)| async move {
        Ok::<_, Thrown>(a + b)
    });
    let count = Actor::new().typed("$count", |(text,): (String,)| async move {
        Ok::<_, Thrown>(text.chars().count())
    });
    let options = |id, name, actor| {
        Config::default().with(|config| config.actors = Actors::new().add(id, name, actor))
    };
    let main = Endpoint::over_stream(far, options(commands, "MainThreadCommands", add));
    let host = Endpoint::over_stream(near, options(documents, "ExtHostDocuments", count));

    let sum: i64 = host.remote(commands).call("$add", &(4, 1)).await?.typed()?;
    let text = "piece by piece".repeat(100_000);
    let letters: usize = main
        .remote(documents)
        .call("$count", &(text,))
        .await?
        .typed()?;
    println!("4 + 1 = {sum}; {letters} letters in one call");
    Ok(())
}

//! A sync server in an axum application, and a client of it:
//! `cargo run --release --example loro_server_and_client`

use breakbulk_loro::http::serve_options;
use breakbulk_loro::store::MemoryStore;
use breakbulk_loro::{Config, Dial, Node};
use breakbulk_net::http::router;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The server: its routes are nested into an axum application.
    let server = Node::new(Config::server("server"), MemoryStore::new())?;
    let (routes, arrivals) = router(serve_options());
    server.serve(arrivals);
    let app = axum::Router::new().nest("/sync", routes);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("ws://{}/sync/ws", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, app).await });

    // Two clients of one document.
    let client = |name| Node::new(Config::client(name), MemoryStore::new());
    let (ann, bob) = (client("ann")?, client("bob")?);
    let _calls = (ann.dial(Dial::new(&url)), bob.dial(Dial::new(&url)));
    let (hers, his) = (ann.open("notes").await?, bob.open("notes").await?);
    hers.loro().get_text("text").insert(0, "hello from Ann")?;
    hers.sync().await?; // returns once the server has stored it

    let mut seen = his.watch();
    while his.loro().get_text("text").to_string().is_empty() {
        seen.changed().await?;
    }
    println!("Bob reads: {}", his.loro().get_text("text").to_string());
    Ok(())
}

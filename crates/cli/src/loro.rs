//! `breakbulk loro`: a sync server for loro documents, and a client for one document.

mod client;
mod content;
mod serve;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::failure::Failure;
use crate::size::Size;

#[derive(Args)]
pub(crate) struct Loro {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve documents over WebSocket, SSE, polling and WebRTC data channels on one port
    Serve(serve::Serve),
    /// Fetch a document
    Pull(Client),
    /// Push a file into a document: a snapshot is merged, JSON replaces the content of the roots it names
    Push(Client),
    /// Fetch a document again whenever it changes, until stopped
    Watch(Client),
}

#[derive(Args)]
#[command(after_help = "\
URL is ws://HOST:PORT/ws or wss://… for a WebSocket, or http://HOST:PORT or https://… with
?transport=sse (the default), ?transport=poll or ?transport=webrtc.

FILE is a snapshot, or JSON if its name ends in .json; without one JSON goes to standard output, or
comes from standard input. In JSON each member of the object is one root of the document: an object is
a map, an array a list, a string a text.

A WebSocket on which nothing came for 10 s is pinged, and given up after 30 s; an event stream is given up
after 60 s, a poll after 40 s. Then the client connects again.

BREAKBULK_TOKEN in the environment is sent as the token.")]
struct Client {
    /// The server's address
    url: String,
    /// The document
    doc: String,
    /// The file to read or write
    file: Option<PathBuf>,
    /// How long syncing may take, in seconds; 0 is for ever
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u64,
    /// The largest message
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    max_message: Size,
    /// The largest WebSocket message, POST body or data channel message to send [default: cut as
    /// loro-extended does]
    #[arg(long, value_name = "SIZE")]
    max_frame: Option<Size>,
}

impl Client {
    fn timeout(&self) -> Option<Duration> {
        (self.timeout > 0).then(|| Duration::from_secs(self.timeout))
    }
}

impl Loro {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::Io("the runtime".to_owned(), error))?;
        let outcome = runtime.block_on(async {
            match self.command {
                Command::Serve(serve) => serve.run().await,
                Command::Pull(client) => client::pull(&client).await,
                Command::Push(client) => client::push(&client).await,
                Command::Watch(client) => client::watch(&client).await,
            }
        });
        runtime.shutdown_background();
        outcome
    }
}

//! `breakbulk loro`: a sync server for loro documents, and a client for one of them.

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
    /// Serve documents by WebSocket, SSE, polling and WebRTC data channels on one port
    Serve(serve::Serve),
    /// Fetch a document
    Pull(Client),
    /// Bring a document what a file has: a snapshot is merged, JSON becomes what the document says
    Push(Client),
    /// Fetch a document again whenever it changes, until this is stopped
    Watch(Client),
}

#[derive(Args)]
#[command(after_help = "\
URL is ws://HOST:PORT/ws or wss://… for a WebSocket, or http://HOST:PORT or https://… with
?transport=sse (the default), ?transport=poll or ?transport=webrtc.

FILE is a snapshot, or JSON if its name ends in .json; without one JSON goes to standard output, or
comes from standard input. In JSON each member of the object is one root of the document: an object is
a map, an array a list, a string a text.

BREAKBULK_TOKEN in the environment is sent as the token.")]
struct Client {
    /// Where the server is
    url: String,
    /// The document
    doc: String,
    /// What is read or written
    file: Option<PathBuf>,
    /// How long it may take until all is there, in seconds; 0 is for ever
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u64,
    /// The largest message
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    max_message: Size,
    /// No WebSocket message, POST body or data channel message that goes out is larger than this
    /// [default: as loro-extended cuts]
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

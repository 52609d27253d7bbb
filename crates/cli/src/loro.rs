//! `breakbulk loro`: a sync server for loro documents, and commands of its clients.

mod client;
mod content;
mod serve;
mod session;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::failure::Failure;
use crate::number;
use crate::size::Size;

#[derive(Args)]
pub(crate) struct Loro {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve documents over WebSocket, SSE, polling and WebRTC data channels on one port
    Serve(Box<serve::Serve>),
    /// Fetch a document
    Pull(Client),
    /// Push a file into a document: a snapshot is merged, JSON replaces the content of the roots it names
    Push(Client),
    /// Fetch a document again whenever it changes, until stopped; a server that is away is waited for
    Watch(Client),
    /// Print the names of the documents that the server shows, one in each line
    List(Listing),
    /// Delete a document; the server must allow it (serve --right delete:PREFIX)
    Delete(Deletion),
}

const URL_HELP: &str = "\
URL is ws://HOST:PORT/ws or wss://… for a WebSocket, or http://HOST:PORT or
https://… with ?transport=sse (the default), ?transport=poll or
?transport=webrtc.

BREAKBULK_TOKEN in the environment is sent as the token.";

const CLIENT_HELP: &str = "\
URL is ws://HOST:PORT/ws or wss://… for a WebSocket, or http://HOST:PORT or
https://… with ?transport=sse (the default), ?transport=poll or
?transport=webrtc.

FILE is a snapshot, or JSON if its name ends in .json; without one JSON goes to
standard output, or comes from standard input. In JSON each member of the object
is one root of the document: an object is a map, an array a list, a string a
text. What the document has keeps its kind: a movable list stays one, a counter
is a number; trees and bytes are shown, and a push that would change them is
refused.

A WebSocket on which nothing came for 10 s is pinged, and given up after 30 s;
an event stream is given up after 60 s, a poll after 40 s. Then the client
connects again.

BREAKBULK_TOKEN in the environment is sent as the token.";

#[derive(Args)]
#[command(after_help = CLIENT_HELP)]
struct Client {
    #[command(flatten)]
    server: Server,
    /// The document
    doc: String,
    /// The file to read or write
    file: Option<PathBuf>,
}

#[derive(Args)]
#[command(after_help = URL_HELP)]
struct Listing {
    #[command(flatten)]
    server: Server,
}

#[derive(Args)]
#[command(after_help = URL_HELP)]
struct Deletion {
    #[command(flatten)]
    server: Server,
    /// The document
    doc: String,
}

/// The server that a command connects to.
#[derive(Args)]
struct Server {
    /// The server's address
    url: String,
    /// How long fetching, pushing, listing or deleting may take, in seconds; 0 is for ever
    #[arg(long, value_name = "SECONDS", value_parser = number::seconds, default_value_t = 60.0)]
    timeout: f64,
    /// The largest message
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    max_message: Size,
    /// The largest WebSocket message, POST body or data channel message to send [default: cut as
    /// loro-extended does]
    #[arg(long, value_name = "SIZE")]
    max_frame: Option<Size>,
    /// Trust only servers with a certificate that this authority signed [default: the system's]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The certificate to show to a server that asks for one
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// The certificate's key
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
}

impl Server {
    fn timeout(&self) -> Option<Duration> {
        number::time_limit(self.timeout)
    }
}

impl Loro {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::Io("cannot start threads".to_owned(), error))?;
        let outcome = runtime.block_on(async {
            match self.command {
                Command::Serve(serve) => serve.run().await,
                Command::Pull(client) => client::pull(&client).await,
                Command::Push(client) => client::push(&client).await,
                Command::Watch(client) => client::watch(&client).await,
                Command::List(listing) => client::list(&listing.server).await,
                Command::Delete(deletion) => client::delete(&deletion.server, &deletion.doc).await,
            }
        });
        runtime.shutdown_background();
        outcome
    }
}

//! Calls with texts of all kinds and sizes between a published SDK and this project, in either role.

use anyhow::{Result, ensure};
use breakbulk::contextvm::{Config, Encryption, Keys};
use breakbulk_testkit::bad_relay::{BadRelay, Weather};
use serde_json::json;

use crate::call::Call;
use crate::ours::{self, Caller};
use crate::peer::{Peer, Sdk};
use crate::text::Text;

/// The largest event that a relay takes.
pub const EVENT_MAX: usize = 64 << 10;

/// 5 MB, the largest text of these tests.
pub const LARGE: usize = 5_000_000;

/// Bytes of the request's text and of the answer's.
pub const SIZES: [(usize, usize); 5] = [
    (10, 100),
    (10, 200_000),
    (200_000, 10),
    (10, LARGE),
    (LARGE, 10),
];

/// Which of the two ends the SDK is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Theirs {
    /// Its client asks our server.
    Client,
    /// Its server answers our client.
    Server,
}

/// A pair of client and server, and the calls between them.
#[derive(Clone, Debug)]
pub struct Matrix<'a> {
    /// The SDK.
    pub sdk: Sdk,
    /// The SDK's role.
    pub theirs: Theirs,
    /// The encryption setting of the client; the server keeps its default.
    pub encryption: Encryption,
    /// The SDK's chunk size, where it is not the SDK's default.
    pub chunk: Option<usize>,
    /// The kinds of texts.
    pub texts: &'a [Text],
    /// Their sizes: bytes of the request's text and of the answer's.
    pub sizes: &'a [(usize, usize)],
}

enum Asking {
    Theirs(Box<Peer>),
    Ours(Caller),
}

impl Matrix<'_> {
    /// Makes all calls over one relay, checks every text, and prints a line for each call.
    pub async fn run(&self) -> Result<()> {
        let relay = BadRelay::start(Weather::default()).await?;
        let config = Config::default().with(|config| config.encryption = self.encryption);
        let encryption = match self.encryption {
            Encryption::Disabled => "disabled",
            Encryption::Optional => "optional",
            Encryption::Required => "required",
        };
        let mut plan = json!({"relay": relay.url()});
        if let Some(chunk) = self.chunk {
            plan["chunk"] = chunk.into();
        }
        let (mut asking, server, peer) = match self.theirs {
            Theirs::Client => {
                let keys = Keys::generate();
                let server = ours::serve(relay.url(), keys, Config::default()).await?;
                plan["encryption"] = encryption.into();
                let client = Peer::client(self.sdk, &server.public_key(), &plan).await?;
                (Asking::Theirs(Box::new(client)), Some(server), None)
            }
            Theirs::Server => {
                let peer = Peer::server(self.sdk, &plan).await?;
                let keys = Keys::generate();
                let client = Caller::connect(relay.url(), keys, peer.key, config).await?;
                (Asking::Ours(client), None, Some(peer))
            }
        };
        for &text in self.texts {
            for &(up, down) in self.sizes {
                let call = Call::new(text, up, down);
                relay.reset();
                let outcome = match &mut asking {
                    Asking::Theirs(client) => client.call(call).await?,
                    Asking::Ours(client) => client.call(call).await?,
                };
                let answer = outcome.whole(call)?;
                println!(
                    "{:?} {:?} {encryption:<8} {:<11} {up:>7} up {down:>7} down: {:>4} events, largest {:>5}, {:.2} s",
                    self.sdk,
                    self.theirs,
                    text.name(),
                    relay.events(),
                    relay.largest(),
                    answer.seconds,
                );
                ensure!(relay.largest() <= EVENT_MAX, "{} bytes", relay.largest());
                ensure!(relay.refused() == 0, "{} were refused", relay.refused());
            }
        }
        let stats = match (&asking, &server) {
            (Asking::Ours(client), _) => {
                client.client.drained().await;
                client.client.stats()
            }
            (_, Some(server)) => {
                server.drained().await;
                server.stats()
            }
            _ => return Ok(()),
        };
        let left = (stats.memory, stats.transfers, stats.asked, stats.served);
        ensure!(left == (0, 0, 0, 0), "something stays behind: {stats:?}");
        for peer in peer.into_iter().chain(match asking {
            Asking::Theirs(client) => Some(*client),
            Asking::Ours(_) => None,
        }) {
            ensure!(peer.failures().is_empty(), "{:?}", peer.failures());
            peer.stop().await?;
        }
        Ok(())
    }
}

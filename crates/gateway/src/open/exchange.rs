//! A target that is a gateway behind a path of plain HTTP.

use std::time::Duration;

use breakbulk_net::exchange::{self, FRAME_HEAD};
use breakbulk_net::http::{ClientOptions, Dialect, PostErrors};

use crate::endpoint::{Down, WsAddress};
use crate::error::OpenError;
use crate::plan::End;
use crate::tunnel::{Boxed, Dial, Line};

/// How long a poll waits: less than the 30 s after which proxies cut idle requests.
pub(crate) const POLL: Duration = Duration::from_secs(20);

/// The paths and names of the requests between two gateways.
pub(crate) fn dialect() -> Dialect {
    const NO_SESSION: &str = "the header breakbulk-session is required";
    let usual = Dialect::default();
    Dialect {
        peer_header: "breakbulk-session",
        poll_posts: PostErrors {
            no_peer: NO_SESSION,
            ..usual.poll_posts
        },
        ..usual
    }
}

/// A line whose frames fit in bodies of `max_frame` bytes.
pub(crate) fn line(transport: impl breakbulk_net::Transport, max_frame: usize) -> Line {
    Line::new(transport)
        .capped(max_frame - FRAME_HEAD)
        .without_pings()
}

/// Opens sessions at a gateway.
pub(super) struct ExchangeDial {
    address: WsAddress,
    options: ClientOptions,
}

impl ExchangeDial {
    pub(super) fn new(end: &End, address: &WsAddress) -> Self {
        let mut options = ClientOptions::new("");
        options.dialect = dialect();
        options.bearer = end.token.clone();
        options.wait = POLL;
        options.body_max = end.max_frame;
        if end.down == Down::Poll {
            options.event_streams = None;
        }
        options.roots = end.roots.clone();
        options.identity = end.identity.clone();
        let address = address.clone();
        Self { address, options }
    }
}

impl Dial for ExchangeDial {
    fn dial(&self) -> Boxed<'_, Result<Line, OpenError>> {
        Box::pin(async {
            let transport = exchange::connect(&self.address.url(), &self.options).await?;
            Ok(line(transport, self.options.body_max))
        })
    }

    fn path(&self) -> String {
        self.address.path_name()
    }
}

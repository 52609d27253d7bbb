//! WebSockets to an end that answers probes.

use breakbulk_net::Transport;
use breakbulk_net::ws::{self, ConnectOptions, Ending, WsSink, WsSource};

use super::ProbeError;
use super::connected::{Connect, Sends, Tells};
use super::words::PROBE;

/// A path of WebSockets.
pub(super) struct WebSockets {
    url: String,
    options: ConnectOptions,
}

impl WebSockets {
    pub(super) fn new(url: String, options: ConnectOptions, most: usize) -> Self {
        let options = ConnectOptions {
            subprotocols: vec![PROBE.to_owned()],
            // An answer that is larger than what was asked for is none that a probe may get.
            frame_limit: most.saturating_add(1),
            fragment: None,
            ..options
        };
        Self { url, options }
    }
}

impl Connect for WebSockets {
    type Source = WsSource;
    type Sink = WsSink;

    async fn connect(&self) -> Result<(WsSource, WsSink), ProbeError> {
        let websocket = ws::connect(&self.url, &self.options).await?;
        match websocket.subprotocol() {
            Some(PROBE) => Ok(websocket.split()),
            _ => Err(ProbeError::NoEcho),
        }
    }
}

impl Tells for WsSource {
    fn ending(&self) -> Option<Ending> {
        self.ending()
    }
}

impl Sends for WsSink {
    fn set_fragment(&mut self, fragment: Option<usize>) {
        self.set_fragment(fragment);
    }
}

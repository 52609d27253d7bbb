//! Sessions at NATS with an end that answers probes.

use breakbulk_net::Transport;
use breakbulk_net::nats::{self, NatsOptions, NatsSink, NatsSource};

use super::ProbeError;
use super::connected::{Connect, Sends, Tells};

/// A path of sessions at a subject.
pub(super) struct Sessions(pub(super) NatsOptions);

impl Connect for Sessions {
    type Source = NatsSource;
    type Sink = NatsSink;

    async fn connect(&self) -> Result<(NatsSource, NatsSink), ProbeError> {
        let session = nats::connect_probe(&self.0).await;
        Ok(session.map_err(ProbeError::Nats)?.split())
    }
}

impl Tells for NatsSource {}

impl Sends for NatsSink {
    fn most(&self) -> usize {
        self.max_frame()
    }
}

//! The listener for other gateways that connect over NATS.

use std::sync::Arc;

use breakbulk_net::nats::{NatsError, NatsListener, NatsTransport};
use breakbulk_net::{Sink, Transport};
use tokio::task::JoinSet;
use tracing::Instrument;

use super::{Arrival, Door, Entered, Tell, check_target};
use crate::endpoint::NatsAddress;
use crate::error::RunError;
use crate::open::nats;
use crate::plan::Plan;
use crate::probe::{Echo, EchoLimits};
use crate::stop::Stop;
use crate::tunnel::Caller;

/// What a probe is told by a gateway that answers none.
const NO_PROBES: &str = "this gateway answers no probes (--no-probe)";

/// A session for each gateway that NATS sends here.
pub(super) async fn listen(
    plan: Arc<Plan>,
    address: &NatsAddress,
    stop: &Stop,
    tell: Tell<'_>,
) -> Result<(), RunError> {
    check_target(&plan).await?;
    let options = nats::options(&plan.listen, address);
    // A session that is resumed has two connections for a while, since the lost one may still have its place.
    let places = plan.max_sessions.saturating_mul(2);
    let listener = NatsListener::bind(&options, places).await;
    let listener = listener.map_err(RunError::ListenNats)?;
    let budget = plan.listen.budget.share(0);
    let door = NatsDoor {
        listener,
        echo: plan.probes.then(|| Echo::new(EchoLimits::GATEWAY, budget)),
        probes: JoinSet::new(),
    };
    super::listen(plan, door, address.name(), stop, tell).await
}

/// Accepts gateways that NATS sends here, and answers probes, which get no session.
struct NatsDoor {
    listener: NatsListener,
    echo: Option<Arc<Echo>>,
    probes: JoinSet<()>,
}

impl NatsDoor {
    /// The next session that is no probe.
    async fn next(&mut self) -> Result<NatsTransport, NatsError> {
        loop {
            let session = self.listener.accept().await?;
            if !session.is_probe() {
                return Ok(session);
            }
            while self.probes.try_join_next().is_some() {}
            let echo = self.echo.clone();
            let span = tracing::error_span!("probe", peer = %session.name());
            let probe = async move {
                match echo {
                    Some(echo) => echo.serve_session(session).await,
                    None => session.split().1.close(1008, NO_PROBES).await,
                }
            };
            self.probes.spawn(probe.instrument(span));
        }
    }
}

impl Door for NatsDoor {
    async fn accept(&mut self) -> Result<Arrival, RunError> {
        let transport = self.next().await.map_err(RunError::Nats)?;
        Ok(Arrival {
            name: transport.name(),
            // NATS does not tell who the client is.
            caller: Caller::default(),
            open: Box::new(move |_| Ok(Entered::Line(nats::line(transport)))),
        })
    }

    async fn close(&mut self) {
        self.listener.close().await;
    }

    async fn finish(self) {}
}

//! Gateways that come by NATS.

use std::sync::Arc;

use breakbulk_net::nats::NatsListener;

use super::{Arrival, Door, Entered, Tell, check_target};
use crate::endpoint::NatsAddress;
use crate::error::RunError;
use crate::open::nats;
use crate::plan::Plan;
use crate::stop::Stop;
use crate::tunnel::Caller;

/// A session for each gateway that NATS sends here.
pub(super) async fn listen(
    plan: Arc<Plan>,
    address: &NatsAddress,
    stop: &Stop,
    tell: Tell<'_>,
) -> Result<(), RunError> {
    check_target(&plan).await?;
    let options = nats::options(&plan.listen, address);
    // A line that goes on with a session comes while the lost one may still have its place.
    let places = plan.max_sessions.saturating_mul(2);
    let listener = NatsListener::bind(&options, places).await;
    let listener = listener.map_err(RunError::ListenNats)?;
    super::listen(plan, listener, address.name(), stop, tell).await
}

impl Door for NatsListener {
    async fn accept(&mut self) -> Result<Arrival, RunError> {
        let transport = NatsListener::accept(self).await.map_err(RunError::Nats)?;
        Ok(Arrival {
            name: transport.name(),
            // NATS tells nothing of who it is.
            caller: Caller::default(),
            open: Box::new(move |_| Ok(Entered::Line(nats::line(transport)))),
        })
    }

    async fn close(&mut self) {
        NatsListener::close(self).await;
    }

    async fn finish(self) {}
}

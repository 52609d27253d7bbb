//! The handle by which a program ends a gateway.

use tokio::sync::watch;

/// Ends a gateway that runs. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Stop(watch::Sender<bool>);

impl Stop {
    /// A handle that has not fired.
    pub fn new() -> Self {
        Self::default()
    }

    /// Stops the gateway: no new session begins, and what is queued in the others is still sent.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    /// Completes once [`stop`](Self::stop) was called.
    pub fn stopped(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut stopped = self.0.subscribe();
        let keep = self.0.clone();
        async move {
            // Cannot fail while the sender exists.
            let _ = stopped.wait_for(|stopped| *stopped).await;
            drop(keep);
        }
    }
}

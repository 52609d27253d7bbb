//! The handle by which a program ends a gateway.

use tokio::sync::watch;

/// Ends a gateway that runs. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Stop(watch::Sender<bool>);

impl Stop {
    /// A handle that nobody has used yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for the end: no new session begins, and what is queued in the others still goes out.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    /// Done once somebody asked for the end.
    pub fn stopped(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut stopped = self.0.subscribe();
        let keep = self.0.clone();
        async move {
            // The sender is kept, so that this cannot fail.
            let _ = stopped.wait_for(|stopped| *stopped).await;
            drop(keep);
        }
    }
}

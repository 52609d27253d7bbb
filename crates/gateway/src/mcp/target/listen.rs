//! The stream for messages of the server's own, in the session era: opened once the session has begun,
//! and opened again for as long as it lasts.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::TargetState;
use super::post::Post;
use super::resume::Place;
use crate::mcp::errors::Failure;

/// How long the next message waits until the stream is open.
const OPENED: Duration = Duration::from_secs(5);

impl TargetState {
    /// Opens the stream, if it is not open, and waits until the server has answered: what it says by
    /// itself while no stream is open is lost with most servers.
    pub(super) async fn listen(self: &Arc<Self>) {
        let is_open = std::mem::replace(&mut self.session().is_listening, true);
        if is_open {
            return;
        }
        let (state, mut over) = (self.clone(), self.over.subscribe());
        let (tell, opened) = oneshot::channel();
        tokio::spawn(async move {
            tokio::select! {
                () = state.stay_open(tell) => {}
                _ = over.wait_for(|over| *over) => {}
            }
            state.session().is_listening = false;
        });
        // An error says that the stream has ended.
        let _ = timeout(OPENED, opened).await;
    }

    async fn stay_open(&self, tell: oneshot::Sender<()>) {
        let mut tell = Some(tell);
        let mut place = Place::default();
        let mut none = Post::new(None, 0);
        loop {
            let opened = self.reopen(&place).await;
            if let Some(tell) = tell.take() {
                let _ = tell.send(());
            }
            match opened {
                Ok(response) => {
                    // It is no request, so that nothing of it can fail but memory.
                    if let Err(failure) = self.events(&mut none, response, &mut place).await {
                        tracing::warn!("the stream of the target broke off: {}", failure.words(0));
                    }
                }
                Err(Failure::SessionGone) => return self.session_gone().await,
                Err(Failure::Unreachable(error)) => {
                    tracing::debug!(error, "the stream of the target could not be opened");
                }
                // Many servers have no messages of their own, and say so with 405.
                Err(failure) => {
                    return tracing::debug!("the target has no stream: {}", failure.words(0));
                }
            }
            let pause = place.pause();
            place.attempts += 1;
            sleep(pause).await;
        }
    }
}

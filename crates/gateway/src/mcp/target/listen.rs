//! The stream for messages of the server's own, in the session era: opened once the session has begun,
//! and opened again for as long as it lasts.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};

use super::TargetState;
use super::post::Post;
use super::resume::Place;
use super::upload::{Stage, Upload, no_upload};
use crate::mcp::errors::Failure;

/// How long the next message waits until the request for the stream is written, and then until the server
/// has answered it: some servers do that only with the first event.
const WRITTEN: Duration = Duration::from_secs(5);
const ANSWERED: Duration = Duration::from_millis(100);

impl TargetState {
    /// Opens the stream, if it is not open, and waits until the server has been asked for it: what it says
    /// by itself while no stream is open is lost with most servers.
    pub(super) async fn listen(self: &Arc<Self>) {
        let is_open = std::mem::replace(&mut self.session().is_listening, true);
        if is_open {
            return;
        }
        let (state, mut over) = (self.clone(), self.over.subscribe());
        let (tell, answered) = oneshot::channel();
        let stage = Arc::new(watch::Sender::new(Stage::Posting));
        let mut reached = stage.subscribe();
        let written = no_upload(stage);
        tokio::spawn(async move {
            tokio::select! {
                () = state.stay_open(tell, written) => {}
                _ = over.wait_for(|over| *over) => {}
            }
            state.session().is_listening = false;
        });
        // Errors say that the stream has ended.
        let _ = timeout(WRITTEN, reached.wait_for(|stage| *stage >= Stage::Written)).await;
        let _ = timeout(ANSWERED, answered).await;
    }

    async fn stay_open(&self, tell: oneshot::Sender<()>, written: Upload) {
        let (mut tell, mut written) = (Some(tell), Some(written));
        let mut place = Place::default();
        let mut none = Post::new(None, 0);
        loop {
            let opened = self.reopen(&place, written.take()).await;
            if let Some(tell) = tell.take() {
                let _ = tell.send(());
            }
            match opened {
                Ok(response) => {
                    // The stream answers no request, so only a lack of memory can fail it.
                    if let Err(failure) = self.events(&mut none, response, &mut place).await {
                        tracing::warn!(
                            "the event stream of the target was given up and is asked for again: {}",
                            failure.stream_words()
                        );
                    }
                }
                Err(Failure::SessionGone) => return self.session_gone().await,
                Err(Failure::Unreachable(error)) => {
                    tracing::debug!(
                        error,
                        "the target could not be asked for its event stream; trying again"
                    );
                }
                // Many servers have no messages of their own, and say so with 405.
                Err(failure) => {
                    return tracing::debug!(
                        "the target has no event stream for messages of its own: {}",
                        failure.stream_words()
                    );
                }
            }
            let pause = place.pause();
            place.attempts += 1;
            sleep(pause).await;
        }
    }
}

//! What is done for one client beside its connection: the application's answers, and replays that
//! are read from a disk. It ends with the client.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use tokio::task::{self, JoinSet};

use super::RpcError;
use crate::machine::host::{Answer, RequestId};

/// The tasks of one client.
#[derive(Default)]
pub(super) struct Tasks {
    running: JoinSet<Done>,
    /// Which request each answers: one that panics leaves nothing else.
    requests: HashMap<task::Id, RequestId>,
}

/// What a task came to.
pub(super) enum Done {
    /// A request is answered.
    Answered(RequestId, Answer),
    /// An answer is written.
    Written(Option<Vec<u8>>),
}

type Request = Pin<Box<dyn Future<Output = Answer> + Send>>;

impl Tasks {
    /// Begins a request at once, so that requests and actions begin in the order they came. `Some`: it
    /// is answered already.
    pub(super) async fn call(&mut self, id: RequestId, mut request: Request) -> Option<Answer> {
        match poll_fn(|context| Poll::Ready(request.as_mut().poll(context))).await {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => {
                let answer = async move { Done::Answered(id, request.await) };
                let task = self.running.spawn(answer);
                self.requests.insert(task.id(), id);
                None
            }
        }
    }

    /// Writes an answer on a thread that may wait for a disk.
    pub(super) fn write(&mut self, work: impl FnOnce() -> Option<Vec<u8>> + Send + 'static) {
        self.running.spawn_blocking(|| Done::Written(work()));
    }

    /// The next one that is done; `None` while there are none. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Done> {
        match self.running.join_next_with_id().await? {
            Ok((task, done)) => {
                self.requests.remove(&task);
                Some(done)
            }
            Err(error) => {
                tracing::error!(%error, "a request was not finished");
                let failed = RpcError::new(RpcError::INTERNAL_ERROR, "the request failed");
                Some(match self.requests.remove(&error.id()) {
                    Some(request) => Done::Answered(request, Err(failed)),
                    None => Done::Written(None),
                })
            }
        }
    }
}

//! The tasks of one client: requests that the application works on, and replays that are read from a
//! disk. They are dropped with the client.

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
    /// The request of each task, to answer it if the task panics.
    requests: HashMap<task::Id, RequestId>,
}

/// The result of a task.
pub(super) enum Done {
    /// A request is answered.
    Answered(RequestId, Answer),
    /// An answer is written.
    Written(Option<Vec<u8>>),
}

type Request = Pin<Box<dyn Future<Output = Answer> + Send>>;

impl Tasks {
    /// Polls a request once, so that requests and actions begin in the order in which they arrived, and
    /// spawns a task for it if it is not done. `Some`: it is answered already.
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

    /// The result of the next task that ends; `None` if there are no tasks. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Done> {
        match self.running.join_next_with_id().await? {
            Ok((task, done)) => {
                self.requests.remove(&task);
                Some(done)
            }
            Err(error) => {
                tracing::error!(%error, "a task of a client panicked or was cancelled; its request is answered with an error");
                let failed = RpcError::new(RpcError::INTERNAL_ERROR, "the request failed");
                Some(match self.requests.remove(&error.id()) {
                    Some(request) => Done::Answered(request, Err(failed)),
                    None => Done::Written(None),
                })
            }
        }
    }
}

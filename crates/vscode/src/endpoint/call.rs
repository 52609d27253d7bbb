//! A call to the peer, as a future of its reply.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use breakbulk_link::lock;
use breakbulk_message::vscode::{DecodeError, Reply, Request, Thrown};

use super::answer::{Answer, AnswerError};
use super::inbox::{NotQueued, Shared};
use super::status::Ended;
use crate::machine::rpc::{CallFailed, Refused};

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The call was cancelled before it was sent, or this side ended the session.
    #[error("Canceled")]
    Canceled,
    /// The callee threw an error.
    #[error("{}", thrown_text(.0))]
    Thrown(Thrown),
    /// The session ended before the reply came.
    #[error("no reply: {0}")]
    Ended(Ended),
    /// The call could not be sent.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// serde could not serialize the arguments.
    #[error("the arguments cannot be written: {0}")]
    Serialize(String),
    /// The arguments must be an array, such as a tuple or a list.
    #[error("the arguments are not an array; pass a tuple or a list")]
    ArgsNotArray,
    /// The reply cannot be decoded.
    #[error("the reply cannot be read: {0}")]
    Undecodable(DecodeError),
    /// The thrown error cannot be read.
    #[error(transparent)]
    Read(#[from] AnswerError),
}

fn thrown_text(thrown: &Thrown) -> String {
    match thrown {
        Thrown::Error(error) => format!(
            "{}: {}",
            error.name.as_deref().unwrap_or("Error"),
            error.message.as_deref().unwrap_or_default()
        ),
        Thrown::Other(value) => match value.to_json() {
            Ok(json) => format!("threw {json}"),
            Err(_) => "threw a value that nests too deep".to_owned(),
        },
    }
}

/// A call. Await it for its result. Dropped before it is sent, it is never sent; dropped later, its reply
/// is ignored, and if the call is cancellable the callee is sent a cancellation.
#[must_use = "a call that is dropped is cancelled"]
pub struct Call {
    state: State,
}

enum State {
    /// Waits for room in the queue.
    Waiting(Arc<Shared>, Box<Request>, Option<u64>),
    Made(Arc<Shared>, Arc<Slot>),
    Failed(CallError),
    Over,
}

impl Call {
    pub(super) fn begin(shared: Arc<Shared>, request: Request) -> Self {
        let state = match shared.call(request, None) {
            Ok(slot) => State::Made(shared, slot),
            Err(NotQueued::Full(request)) => State::Waiting(shared, request, None),
            Err(NotQueued::Failed(error)) => State::Failed(error),
        };
        Self { state }
    }

    pub(super) fn failed(error: CallError) -> Self {
        Self {
            state: State::Failed(error),
        }
    }

    /// Sends a cancellation to the callee, which still replies. A call that was not sent yet never is.
    pub fn cancel(&mut self) {
        match &self.state {
            State::Waiting(..) => self.state = State::Failed(CallError::Canceled),
            State::Made(shared, slot) => {
                slot.lock().cancelled = true;
                shared.cancel(slot.clone());
            }
            State::Failed(_) | State::Over => {}
        }
    }
}

impl Future for Call {
    type Output = Result<Answer, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match std::mem::replace(&mut self.state, State::Over) {
                State::Waiting(shared, request, mut ticket) => {
                    let waker = (&mut ticket, context.waker());
                    self.state = match shared.call(*request, Some(waker)) {
                        Ok(slot) => State::Made(shared, slot),
                        Err(NotQueued::Failed(error)) => State::Failed(error),
                        Err(NotQueued::Full(request)) => {
                            self.state = State::Waiting(shared, request, ticket);
                            return Poll::Pending;
                        }
                    };
                }
                State::Made(shared, slot) => {
                    let mut inner = slot.lock();
                    let Some(outcome) = inner.outcome.take() else {
                        match &mut inner.waker {
                            Some(waker) => waker.clone_from(context.waker()),
                            none => *none = Some(context.waker().clone()),
                        }
                        drop(inner);
                        self.state = State::Made(shared, slot);
                        return Poll::Pending;
                    };
                    drop(inner);
                    return Poll::Ready(read(&shared, outcome));
                }
                State::Failed(error) => return Poll::Ready(Err(error)),
                // Polled again after its end.
                State::Over => return Poll::Ready(Err(CallError::Canceled)),
            }
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let State::Made(shared, slot) = &self.state {
            let mut inner = slot.lock();
            if inner.outcome.is_none() {
                inner.cancelled = true;
                inner.forgotten = true;
                drop(inner);
                shared.cancel(slot.clone());
            }
        }
    }
}

fn read(shared: &Shared, outcome: Outcome) -> Result<Answer, CallError> {
    let reply = outcome?;
    match &reply {
        Reply::ErrError(_) | Reply::ErrEmpty => {
            let read = reply
                .read(shared.uris.as_deref())
                .map_err(AnswerError::Json)?;
            match read {
                Err(thrown) => Err(CallError::Thrown(thrown)),
                Ok(_) => Err(CallError::Canceled),
            }
        }
        _ => Ok(Answer {
            reply,
            uris: shared.uris.clone(),
        }),
    }
}

pub(super) type Outcome = Result<Reply, CallError>;

/// The state that a call shares with the endpoint's task.
#[derive(Debug, Default)]
pub(super) struct Slot(Mutex<SlotState>);

#[derive(Debug, Default)]
pub(super) struct SlotState {
    /// The call's number, once it is sent.
    pub(super) req: Option<u32>,
    pub(super) cancelled: bool,
    pub(super) forgotten: bool,
    outcome: Option<Outcome>,
    waker: Option<Waker>,
}

impl Slot {
    pub(super) fn lock(&self) -> MutexGuard<'_, SlotState> {
        lock(&self.0)
    }

    pub(super) fn end(&self, outcome: Outcome) {
        let mut inner = self.lock();
        if inner.outcome.is_none() {
            inner.outcome = Some(outcome);
        }
        let waker = inner.waker.take();
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl From<CallFailed> for CallError {
    fn from(failed: CallFailed) -> Self {
        match failed {
            CallFailed::Canceled => Self::Canceled,
            CallFailed::Undecodable(error) => Self::Undecodable(error),
        }
    }
}

//! What the handles and the endpoint's task share: a list of wishes, locked for moments.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::Instant;

use breakbulk_message::vscode::{Request, UriTransformer, request_len};
use tokio::sync::watch;

use super::call::{CallError, Slot};
use super::status::{Ended, Status};
use super::{Options, Stream};
use crate::machine::handshake::Role;

/// The time, which a test may have paused.
pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

pub(super) struct Shared {
    inbox: Mutex<Inbox>,
    pub(super) status: watch::Sender<Status>,
    pub(super) uris: Option<Arc<dyn UriTransformer>>,
    /// How many calls and bytes of them may wait here.
    calls: usize,
    bytes: usize,
}

/// What the task is to do.
#[derive(Default)]
pub(super) struct Wishes {
    pub(super) calls: Vec<(Request, Arc<Slot>)>,
    pub(super) cancels: Vec<Arc<Slot>>,
    pub(super) stream: Option<(u64, Box<dyn Stream>)>,
    pub(super) terminate: bool,
    pub(super) finish: bool,
    pub(super) dispose: bool,
}

#[derive(Default)]
struct Inbox {
    wishes: Wishes,
    bytes: usize,
    /// The task, while it sleeps.
    task: Option<Waker>,
    /// Calls that wait for room, by the ticket that each drew.
    waiting: BTreeMap<u64, Waker>,
    last_ticket: u64,
    /// Streams given after the first.
    resumed: u64,
    /// No more calls are taken.
    finishing: bool,
    closed: Option<Ended>,
}

/// Why a call was not taken.
pub(super) enum NotTaken {
    Full(Box<Request>),
    Failed(CallError),
}

impl Shared {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            inbox: Mutex::default(),
            status: watch::Sender::new(Status {
                responsive: true,
                connected: true,
                stream: 1,
                initialized: options.handshake == Role::None,
                init_data: None,
                ended: None,
            }),
            uris: options.uris.clone(),
            calls: options.rpc.pending_calls,
            bytes: options.rpc.queued_bytes,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a call, or hands it back where there is no room; `waker` is woken when there is.
    pub(super) fn call(
        &self,
        request: Request,
        waker: Option<(&mut Option<u64>, &Waker)>,
    ) -> Result<Arc<Slot>, NotTaken> {
        let len = match request_len(&request) {
            Ok(len) => len,
            Err(error) => return Err(NotTaken::Failed(CallError::Refused(error.into()))),
        };
        let slot = Arc::new(Slot::default());
        let mut inbox = self.lock();
        if let Some(ended) = &inbox.closed {
            return Err(NotTaken::Failed(error_of(ended)));
        }
        if inbox.finishing {
            return Err(NotTaken::Failed(CallError::Canceled));
        }
        if inbox.wishes.calls.len() >= self.calls || inbox.bytes >= self.bytes {
            if let Some((ticket, waker)) = waker {
                let ticket = *ticket.get_or_insert_with(|| {
                    inbox.last_ticket += 1;
                    inbox.last_ticket
                });
                inbox.waiting.insert(ticket, waker.clone());
            }
            return Err(NotTaken::Full(Box::new(request)));
        }
        inbox.bytes += len;
        inbox.wishes.calls.push((request, slot.clone()));
        wake(inbox);
        Ok(slot)
    }

    pub(super) fn cancel(&self, slot: Arc<Slot>) {
        let mut inbox = self.lock();
        if inbox.closed.is_none() {
            inbox.wishes.cancels.push(slot);
            wake(inbox);
        }
    }

    /// The number of the stream, if the session goes on.
    pub(super) fn resume(&self, stream: Box<dyn Stream>) -> u64 {
        let mut inbox = self.lock();
        inbox.resumed += 1;
        let number = inbox.resumed + 1;
        if inbox.closed.is_none() {
            inbox.wishes.stream = Some((number, stream));
            wake(inbox);
        }
        number
    }

    pub(super) fn terminate(&self) {
        let mut inbox = self.lock();
        inbox.wishes.terminate = true;
        wake(inbox);
    }

    pub(super) fn finish(&self) {
        let mut inbox = self.lock();
        inbox.finishing = true;
        inbox.wishes.finish = true;
        wake(inbox);
    }

    pub(super) fn dispose(&self) {
        let mut inbox = self.lock();
        inbox.wishes.dispose = true;
        wake(inbox);
    }

    /// Takes what is wished. Calls are left where they are if there is no room for them.
    pub(super) fn take(&self, with_calls: bool, into: &mut Wishes) {
        let mut inbox = self.lock();
        inbox.task = None;
        if with_calls {
            std::mem::swap(&mut inbox.wishes, into);
            inbox.bytes = 0;
        } else {
            let calls = std::mem::take(&mut inbox.wishes.calls);
            *into = std::mem::replace(
                &mut inbox.wishes,
                Wishes {
                    calls,
                    ..Wishes::default()
                },
            );
            return;
        }
        if inbox.waiting.is_empty() {
            return;
        }
        let waiting = std::mem::take(&mut inbox.waiting);
        drop(inbox);
        waiting.into_values().for_each(Waker::wake);
    }

    /// Sleeps until something is wished. False if something is already.
    pub(super) fn sleep(&self, with_calls: bool, context: &Context<'_>) -> bool {
        let mut inbox = self.lock();
        let wishes = &inbox.wishes;
        let idle = (wishes.calls.is_empty() || !with_calls)
            && wishes.cancels.is_empty()
            && wishes.stream.is_none()
            && !wishes.terminate
            && !wishes.finish
            && !wishes.dispose;
        if idle {
            inbox.task = Some(context.waker().clone());
        }
        idle
    }

    /// Nothing more is done: what is wished now and later fails.
    pub(super) fn close(&self, ended: &Ended) {
        let mut inbox = self.lock();
        if inbox.closed.is_none() {
            inbox.closed = Some(ended.clone());
        }
        let wishes = std::mem::take(&mut inbox.wishes);
        let waiting = std::mem::take(&mut inbox.waiting);
        drop(inbox);
        for (_, slot) in wishes.calls {
            slot.end(Err(error_of(ended)));
        }
        waiting.into_values().for_each(Waker::wake);
        self.status.send_if_modified(|status| {
            let first = status.ended.is_none();
            if first {
                status.ended = Some(ended.clone());
                status.connected = false;
            }
            first
        });
    }
}

/// What a call is told about an end.
pub(super) fn error_of(ended: &Ended) -> CallError {
    match ended {
        Ended::Disposed => CallError::Canceled,
        ended => CallError::Ended(ended.clone()),
    }
}

fn wake(mut inbox: MutexGuard<'_, Inbox>) {
    let task = inbox.task.take();
    drop(inbox);
    if let Some(task) = task {
        task.wake();
    }
}

//! The command queue from the handles to the endpoint's task.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Waker};

use breakbulk_link::lock;
use breakbulk_message::vscode::{Request, UriTransformer, request_len};
pub(super) use breakbulk_net::now;
use tokio::sync::watch;

use super::call::{CallError, Slot};
use super::status::{Ended, Status};
use super::{Config, Stream};
use crate::machine::handshake::Role;

pub(super) struct Shared {
    inbox: Mutex<Inbox>,
    pub(super) status: watch::Sender<Status>,
    pub(super) uris: Option<Arc<dyn UriTransformer>>,
    /// The limits on queued calls and their bytes.
    calls: usize,
    bytes: usize,
}

/// Commands for the task.
#[derive(Default)]
pub(super) struct Commands {
    pub(super) calls: Vec<(Request, Arc<Slot>)>,
    pub(super) cancels: Vec<Arc<Slot>>,
    pub(super) stream: Option<(u64, Box<dyn Stream>)>,
    pub(super) terminate: bool,
    pub(super) finish: bool,
    pub(super) dispose: bool,
}

#[derive(Default)]
struct Inbox {
    commands: Commands,
    bytes: usize,
    /// The waker of the task, while it sleeps.
    task: Option<Waker>,
    /// Calls that wait for room, in the order of their tickets.
    waiting: BTreeMap<u64, Waker>,
    last_ticket: u64,
    /// The number of streams after the first.
    resumed: u64,
    /// No more calls are accepted.
    finishing: bool,
    closed: Option<Ended>,
}

/// Why a call was not queued.
pub(super) enum NotQueued {
    Full(Box<Request>),
    Failed(CallError),
}

impl Shared {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            inbox: Mutex::default(),
            status: watch::Sender::new(Status {
                responsive: true,
                connected: true,
                stream: 1,
                initialized: config.handshake == Role::None,
                init_data: None,
                ended: None,
            }),
            uris: config.uris.clone(),
            calls: config.rpc.pending_calls,
            bytes: config.rpc.queued_bytes,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inbox> {
        lock(&self.inbox)
    }

    /// Queues a call, or hands it back if there is no room; `waker` is woken when there is.
    pub(super) fn call(
        &self,
        request: Request,
        waker: Option<(&mut Option<u64>, &Waker)>,
    ) -> Result<Arc<Slot>, NotQueued> {
        let len = match request_len(&request) {
            Ok(len) => len,
            Err(error) => return Err(NotQueued::Failed(CallError::Refused(error.into()))),
        };
        let slot = Arc::new(Slot::default());
        let mut inbox = self.lock();
        if let Some(ended) = &inbox.closed {
            return Err(NotQueued::Failed(error_of(ended)));
        }
        if inbox.finishing {
            return Err(NotQueued::Failed(CallError::Canceled));
        }
        if inbox.commands.calls.len() >= self.calls || inbox.bytes >= self.bytes {
            if let Some((ticket, waker)) = waker {
                let ticket = *ticket.get_or_insert_with(|| {
                    inbox.last_ticket += 1;
                    inbox.last_ticket
                });
                inbox.waiting.insert(ticket, waker.clone());
            }
            return Err(NotQueued::Full(Box::new(request)));
        }
        inbox.bytes += len;
        inbox.commands.calls.push((request, slot.clone()));
        wake(inbox);
        Ok(slot)
    }

    pub(super) fn cancel(&self, slot: Arc<Slot>) {
        let mut inbox = self.lock();
        if inbox.closed.is_none() {
            inbox.commands.cancels.push(slot);
            wake(inbox);
        }
    }

    /// Passes a new stream to the task; returns its number.
    pub(super) fn resume(&self, stream: Box<dyn Stream>) -> u64 {
        let mut inbox = self.lock();
        inbox.resumed += 1;
        let number = inbox.resumed + 1;
        if inbox.closed.is_none() {
            inbox.commands.stream = Some((number, stream));
            wake(inbox);
        }
        number
    }

    pub(super) fn terminate(&self) {
        let mut inbox = self.lock();
        inbox.commands.terminate = true;
        wake(inbox);
    }

    pub(super) fn finish(&self) {
        let mut inbox = self.lock();
        inbox.finishing = true;
        inbox.commands.finish = true;
        wake(inbox);
    }

    pub(super) fn dispose(&self) {
        let mut inbox = self.lock();
        inbox.commands.dispose = true;
        wake(inbox);
    }

    /// Takes the queued commands; without `with_calls`, calls stay queued.
    pub(super) fn take(&self, with_calls: bool, into: &mut Commands) {
        let mut inbox = self.lock();
        inbox.task = None;
        if with_calls {
            std::mem::swap(&mut inbox.commands, into);
            inbox.bytes = 0;
        } else {
            let calls = std::mem::take(&mut inbox.commands.calls);
            *into = std::mem::replace(
                &mut inbox.commands,
                Commands {
                    calls,
                    ..Commands::default()
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

    /// Registers the task to be woken by a command. False if there is one already.
    pub(super) fn sleep(&self, with_calls: bool, context: &Context<'_>) -> bool {
        let mut inbox = self.lock();
        let commands = &inbox.commands;
        let idle = (commands.calls.is_empty() || !with_calls)
            && commands.cancels.is_empty()
            && commands.stream.is_none()
            && !commands.terminate
            && !commands.finish
            && !commands.dispose;
        if idle {
            inbox.task = Some(context.waker().clone());
        }
        idle
    }

    /// Closes the queue: calls queued now and later fail.
    pub(super) fn close(&self, ended: &Ended) {
        let mut inbox = self.lock();
        if inbox.closed.is_none() {
            inbox.closed = Some(ended.clone());
        }
        let commands = std::mem::take(&mut inbox.commands);
        let waiting = std::mem::take(&mut inbox.waiting);
        drop(inbox);
        for (_, slot) in commands.calls {
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

/// The error of a call when the session ends.
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

//! A host: starts a bridge process and calls functions in it.
//!
//! Arguments and results are JSON text, and may be larger than a line: they are sent in frames if the
//! bridge accepts them. A bridge that exited or broke the protocol is replaced before the next call.
//! **Nothing is sent twice**: a call that may have reached a bridge that exited fails.

mod line_watch;
mod session;
mod start;

use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use breakbulk_link::lock;
use breakbulk_message::tywrap::Meta;
use breakbulk_net::process::Program;
use bytes::Bytes;
use tokio::sync::{Semaphore, watch};

use session::{Reply, Session};

use crate::machine::{About, Breach, Call, Config, Returned, excerpt, meta_request};
use crate::{CallError, StartError, python};

/// How many bridges a call tries, as long as none of them has received any of it.
const ATTEMPTS: usize = 3;

/// KiB of requests that may be open at once; further calls wait.
const WAITING_KIB: u32 = 256 << 10;

/// A host of one bridge. Clones share it; dropping the last one ends the bridge.
#[derive(Clone)]
pub struct Host {
    shared: Arc<Shared>,
}

struct Shared {
    startup: Arc<Startup>,
    phase: Mutex<Phase>,
    next_id: AtomicI64,
    room: Semaphore,
    starts: AtomicU64,
}

struct Startup {
    program: Program,
    config: Config,
    progress: watch::Sender<Progress>,
    /// Whether the host was stopped: a bridge that is starting is ended, too.
    stopped: watch::Sender<bool>,
}

/// The progress of the last large message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Whether it is received rather than sent.
    pub incoming: bool,
    /// Bytes sent or received so far.
    pub done: usize,
    /// Bytes in all, where known.
    pub total: Option<u64>,
}

enum Phase {
    Down,
    Starting(watch::Receiver<Option<Started>>),
    Up(Arc<Session>),
    Stopped,
}

type Started = Result<Arc<Session>, StartError>;

impl Host {
    /// A host of this program, which is started at the first call. The arguments and environment
    /// variables that negotiate frames are added.
    pub fn new(program: Program, config: Config) -> Self {
        Self {
            shared: Arc::new(Shared {
                startup: Arc::new(Startup {
                    program,
                    config,
                    progress: watch::Sender::default(),
                    stopped: watch::Sender::default(),
                }),
                phase: Mutex::new(Phase::Down),
                // The original never uses the id 0.
                next_id: AtomicI64::new(1),
                room: Semaphore::new(WAITING_KIB as usize),
                starts: AtomicU64::new(0),
            }),
        }
    }

    /// A host of this Python interpreter, with the bridge that is part of this crate.
    pub fn python(interpreter: &Path, config: Config) -> Self {
        Self::new(python::program(interpreter), config)
    }

    /// Starts the bridge unless a usable one runs.
    pub async fn start(&self) -> Result<About, CallError> {
        let session = self.shared.ready().await?;
        let about = lock(&session.about).clone();
        Ok(about)
    }

    /// Calls a function. `args` is the text of a JSON array, `kwargs` of a JSON object. Dropping the
    /// future gives the call up: the rest of the request is not written, and a late answer is dropped.
    pub async fn call(
        &self,
        module: &str,
        function: &str,
        args: impl Into<Bytes>,
        kwargs: Option<Bytes>,
    ) -> Result<Returned, CallError> {
        let limit = self.config().timeout;
        self.call_within(limit, module, function, args, kwargs)
            .await
    }

    /// The same with its own time limit; `None`: for ever. The limit includes starting the bridge,
    /// writing, execution and reading.
    pub async fn call_within(
        &self,
        limit: Option<Duration>,
        module: &str,
        function: &str,
        args: impl Into<Bytes>,
        kwargs: Option<Bytes>,
    ) -> Result<Returned, CallError> {
        let call = Call::new(module, function, args, kwargs)?;
        // Checked before a bridge is started.
        self.fits(call.min_size())?;
        let write = |id| {
            let request = call.write(id);
            self.fits(request.len())?;
            Ok(request)
        };
        self.within(limit, || call.name(), self.request(call.min_size(), write))
            .await
    }

    /// Asks the bridge to describe itself.
    pub async fn meta(&self) -> Result<Meta<'static>, CallError> {
        let write = |id| Ok(meta_request(id));
        let limit = self.config().timeout;
        let name = || "meta".to_owned();
        let result = self.within(limit, name, self.request(0, write)).await?;
        About::meta(&result).ok_or_else(|| CallError::Breach {
            breach: Breach::Unreadable {
                why: breakbulk_message::tywrap::DecodeErrorKind::Missing { member: "bridge" },
                line: excerpt(result.json().as_bytes()),
            },
            stderr: self.stderr(),
        })
    }

    /// The limits and timeouts.
    pub fn config(&self) -> &Config {
        &self.shared.startup.config
    }

    /// The progress of messages in frames, about once per MiB.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.shared.startup.progress.subscribe()
    }

    /// The end of the bridge's standard error.
    pub fn stderr(&self) -> String {
        let session = self.session();
        session.map(|session| session.stderr()).unwrap_or_default()
    }

    /// How many times a bridge was started.
    pub fn starts(&self) -> u64 {
        self.shared.starts.load(Ordering::Relaxed)
    }

    /// Whether a usable bridge runs.
    pub fn is_up(&self) -> bool {
        self.session().is_some_and(|session| session.is_usable())
    }

    /// Whether the bridge still runs a call that was given up: the next call would wait for it.
    pub fn is_busy(&self) -> bool {
        let session = self.session();
        session.is_some_and(|session| session.is_usable() && *session.still_running().borrow() > 0)
    }

    /// Waits until the bridge runs no call that was given up, or has exited.
    pub async fn settled(&self) {
        if let Some(session) = self.session() {
            // An error means that the bridge has exited.
            let _ = session
                .still_running()
                .wait_for(|running| *running == 0)
                .await;
        }
    }

    /// Ends the bridge: open calls fail, and the next call starts another bridge.
    pub fn restart(&self) {
        if let Some(session) = self.session() {
            session.terminate();
        }
    }

    /// Ends the bridge and waits until it has exited: closes its input, then sends SIGTERM, then kills it
    /// with its child processes. One that is still starting gets SIGTERM at once. Later calls fail.
    pub async fn stop(&self) {
        let phase = std::mem::replace(&mut *self.shared.phase(), Phase::Stopped);
        self.shared.startup.stopped.send_replace(true);
        match phase {
            Phase::Up(session) => session.stop().await,
            Phase::Starting(mut started) => {
                // The task that starts the bridge ends it.
                let _ = started.wait_for(Option::is_some).await;
            }
            Phase::Down | Phase::Stopped => {}
        }
    }

    fn session(&self) -> Option<Arc<Session>> {
        match &*self.shared.phase() {
            Phase::Up(session) => Some(session.clone()),
            _ => None,
        }
    }

    fn fits(&self, size: usize) -> Result<(), CallError> {
        let limit = self.config().limits.message;
        match size > limit {
            true => Err(CallError::RequestTooLarge { size, limit }),
            false => Ok(()),
        }
    }

    async fn within(
        &self,
        limit: Option<Duration>,
        name: impl FnOnce() -> String,
        asked: impl Future<Output = Result<Returned, CallError>>,
    ) -> Result<Returned, CallError> {
        let Some(after) = limit else {
            return asked.await;
        };
        match tokio::time::timeout(after, asked).await {
            Ok(outcome) => outcome,
            Err(_) => Err(CallError::TimedOut {
                call: name(),
                after,
                stderr: self.stderr(),
            }),
        }
    }

    /// Sends a request to the bridge, and to another one if the first received none of it.
    async fn request(
        &self,
        size: usize,
        write: impl Fn(i64) -> Result<Bytes, CallError>,
    ) -> Result<Returned, CallError> {
        let permits =
            u32::try_from(size >> 10).map_or(WAITING_KIB, |kib| (kib + 1).min(WAITING_KIB));
        // The semaphore is never closed.
        let _room = self.shared.room.acquire_many(permits).await;
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let session = self.shared.ready().await?;
            let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
            match session.exchange(id, write(id)?).await {
                Reply::Done(outcome) => return outcome,
                Reply::TryAnother => last = Some(session),
            }
        }
        let last = last.map(|session| {
            (
                session.connection.with(|link| link.closed().cloned()),
                session,
            )
        });
        let (how, stderr) = match last {
            Some((closed, session)) => (
                closed.map_or_else(String::new, |closed| closed.reason),
                session.stderr(),
            ),
            None => Default::default(),
        };
        Err(CallError::Exited { how, stderr })
    }
}

impl Shared {
    fn phase(&self) -> MutexGuard<'_, Phase> {
        lock(&self.phase)
    }

    /// A usable bridge: the one that runs, or a new one. A start goes on even if the caller that waits
    /// for it gives up.
    async fn ready(self: &Arc<Self>) -> Result<Arc<Session>, CallError> {
        let mut started = {
            let mut phase = self.phase();
            match &*phase {
                Phase::Stopped => return Err(CallError::Stopped),
                Phase::Up(session) if session.is_usable() => return Ok(session.clone()),
                Phase::Starting(started) => started.clone(),
                Phase::Up(_) | Phase::Down => {
                    let (tell, started) = watch::channel(None);
                    let old = std::mem::replace(&mut *phase, Phase::Starting(started.clone()));
                    let (weak, startup) = (Arc::downgrade(self), self.startup.clone());
                    tokio::spawn(replace(weak, startup, old, tell));
                    self.starts.fetch_add(1, Ordering::Relaxed);
                    started
                }
            }
        };
        let started = started.wait_for(Option::is_some).await;
        let started = started.ok().and_then(|started| started.clone());
        started
            .unwrap_or(Err(StartError::Stopped))
            .map_err(CallError::Start)
    }
}

/// Ends the old bridge, starts another, and notifies all callers that wait.
async fn replace(
    shared: Weak<Shared>,
    startup: Arc<Startup>,
    old: Phase,
    tell: watch::Sender<Option<Started>>,
) {
    if let Phase::Up(old) = old {
        old.terminate_and_wait().await;
    }
    let mut started = start::start(&startup).await;
    let unwanted = {
        let shared = shared.upgrade();
        let phase = shared.as_ref().map(|shared| shared.phase());
        match (phase, &started) {
            (Some(mut phase), _) if !matches!(*phase, Phase::Stopped) => {
                *phase = match &started {
                    Ok(session) => Phase::Up(session.clone()),
                    Err(_) => Phase::Down,
                };
                None
            }
            (_, Ok(session)) => Some(session.clone()),
            (_, Err(_)) => None,
        }
    };
    if let Some(session) = unwanted {
        session.stop().await;
        started = Err(StartError::Stopped);
    }
    tell.send_replace(Some(started));
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.startup.stopped.send_replace(true);
        if let Phase::Up(session) = &*self.phase() {
            session.connection.close(1000, "the host is gone");
        }
    }
}

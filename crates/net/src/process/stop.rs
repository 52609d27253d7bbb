//! Signals to a command and to all that it started.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::process::Child;

/// Ends a command from elsewhere, with all of its process group. Clones are the same.
///
/// Once the command is gone this does nothing: its number may be somebody else's by then. Where a
/// system has no process groups it does nothing either, and the command ends with its connection.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<Mutex<Option<u32>>>);

impl Stopper {
    pub(super) fn new(child: &Child) -> Self {
        Self(Arc::new(Mutex::new(child.id())))
    }

    /// Asks it to end: SIGTERM.
    pub fn terminate(&self) {
        self.signal(Signal::Terminate);
    }

    /// Ends it: SIGKILL.
    pub fn kill(&self) {
        self.signal(Signal::Kill);
    }

    /// From now on the number means nothing.
    pub(super) fn let_go(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn signal(&self, signal: Signal) {
        let group = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(group) = *group {
            send(group, signal);
        }
    }
}

#[derive(Clone, Copy)]
enum Signal {
    Terminate,
    Kill,
}

#[cfg(unix)]
fn send(group: u32, signal: Signal) {
    use rustix::process::{self, Pid};
    let signal = match signal {
        Signal::Terminate => process::Signal::TERM,
        Signal::Kill => process::Signal::KILL,
    };
    if let Some(pid) = i32::try_from(group).ok().and_then(Pid::from_raw) {
        // Whoever has left already cannot be told.
        let _ = process::kill_process_group(pid, signal);
    }
}

#[cfg(not(unix))]
fn send(_group: u32, _signal: Signal) {}

/// Holds a command: it does not outlive this.
pub(super) struct Leash {
    pub(super) child: Child,
    pub(super) stopper: Stopper,
    /// Whether what it started goes with it even where it ends by itself.
    sweeps: bool,
    reaped: bool,
}

impl Leash {
    pub(super) fn new(child: Child, sweeps: bool) -> Self {
        Self {
            stopper: Stopper::new(&child),
            child,
            sweeps,
            reaped: false,
        }
    }

    /// Waits for its end. Cancel-safe.
    pub(super) async fn wait(&mut self) -> std::io::Result<std::process::ExitStatus> {
        let status = self.child.wait().await?;
        if !self.reaped {
            self.reaped = true;
            // At once, while nobody else can have the number.
            if self.sweeps {
                self.stopper.kill();
            }
            self.stopper.let_go();
        }
        Ok(status)
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        if !self.reaped {
            self.stopper.kill();
        }
        self.stopper.let_go();
    }
}

//! Ends a child process and its process group by signals.

use std::sync::{Arc, Mutex};

use breakbulk_link::lock;
use tokio::process::Child;

use super::supervisor;

/// Sends signals to a command's process group. Clones share one handle.
///
/// After the command has exited this does nothing, since its process id may have been reused. On
/// systems without process groups it does nothing either, and the command ends with its connection.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<Mutex<Option<u32>>>);

impl Stopper {
    pub(super) fn new(child: &Child) -> Self {
        if let Some(group) = child.id() {
            supervisor::started(group);
        }
        Self(Arc::new(Mutex::new(child.id())))
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        self.signal(Signal::Terminate);
    }

    /// Sends SIGKILL.
    pub fn kill(&self) {
        self.signal(Signal::Kill);
    }

    /// Forgets the process id: it may be reused from now on.
    pub(super) fn disarm(&self) {
        if let Some(group) = lock(&self.0).take() {
            supervisor::ended(group);
        }
    }

    fn signal(&self, signal: Signal) {
        let group = lock(&self.0);
        if let Some(group) = *group {
            send(group, signal);
        }
    }
}

#[derive(Clone, Copy)]
pub(super) enum Signal {
    Terminate,
    Kill,
}

#[cfg(unix)]
pub(super) fn send(group: u32, signal: Signal) {
    use rustix::process::{self, Pid};
    let signal = match signal {
        Signal::Terminate => process::Signal::TERM,
        Signal::Kill => process::Signal::KILL,
    };
    if let Some(pid) = i32::try_from(group).ok().and_then(Pid::from_raw) {
        // An error means that the group has ended already.
        let _ = process::kill_process_group(pid, signal);
    }
}

#[cfg(not(unix))]
pub(super) fn send(_group: u32, _signal: Signal) {}

/// Owns a child process and kills its group when dropped.
pub(super) struct ChildGuard {
    pub(super) child: Child,
    pub(super) stopper: Stopper,
    /// Whether its group is killed even if the command exits by itself.
    kill_group_on_exit: bool,
    reaped: bool,
}

impl ChildGuard {
    pub(super) fn new(child: Child, kill_group_on_exit: bool) -> Self {
        Self {
            stopper: Stopper::new(&child),
            child,
            kill_group_on_exit,
            reaped: false,
        }
    }

    /// Waits until the command has exited. Cancel-safe.
    pub(super) async fn wait(&mut self) -> std::io::Result<std::process::ExitStatus> {
        let status = self.child.wait().await?;
        if !self.reaped {
            self.reaped = true;
            // Immediately, before the process id can be reused.
            if self.kill_group_on_exit {
                self.stopper.kill();
            }
            self.stopper.disarm();
        }
        Ok(status)
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        if !self.reaped {
            self.stopper.kill();
        }
        self.stopper.disarm();
    }
}

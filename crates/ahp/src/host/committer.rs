//! The task that writes actions to the log and then makes them visible to clients. Where several hosts
//! share the log, it also makes the actions visible that the other hosts wrote.

use std::sync::Arc;

use tokio::task::spawn_blocking;

use super::application::Application;
use super::{Inner, PublishError, Visible, lock};
use crate::log::{Entry, LogError, ReplayLog};
use crate::machine::host::{self as machine, Next, Published};

type Log = Box<dyn ReplayLog>;

/// Runs until the host ends, and returns the log unless it was lost in a panic.
pub(super) async fn commit<A: Application>(inner: Arc<Inner<A>>, log: Log) -> Option<Log> {
    let ending = Ending(inner.clone());
    let mut log = Some(log);
    loop {
        let next = lock(&inner.pending).poll_append();
        let batch = match next {
            Next::Append(batch) => Some(batch),
            Next::Wait => None,
            Next::End => break,
        };
        let stored = match batch {
            Some(batch) => store(&inner, &mut log, batch).await,
            None => tokio::select! {
                () = inner.wake.notified() => Ok(()),
                others = others(&mut log) => inner.show_others(others),
            },
        };
        if let Err(reason) = stored {
            inner.fail(&reason, machine::Host::handle_log_failed);
            break;
        }
        // Let the writers of all connections run between two batches.
        tokio::task::yield_now().await;
    }
    drop(ending);
    log
}

/// Stores a batch and makes it visible. If another host appended first, makes that host's actions visible.
async fn store<A: Application>(
    inner: &Inner<A>,
    log: &mut Option<Log>,
    batch: Vec<Published>,
) -> Result<(), String> {
    match append(log, &batch).await? {
        Ok(()) => show(inner, &batch),
        Err(LogError::Overtaken { .. }) => {
            tracing::debug!(
                actions = batch.len(),
                "another host appended to the log first: these actions are numbered after its own"
            );
            lock(&inner.pending).put_back(batch);
            inner.show_others(others(log).await)?;
        }
        Err(error) => return Err(error.to_string()),
    }
    Ok(())
}

/// Waits for actions that other hosts append to the log.
async fn others(log: &mut Option<Log>) -> Result<Vec<Entry>, LogError> {
    match log {
        Some(log) => log.others().await,
        None => std::future::pending().await,
    }
}

/// Appends a batch to the log. The outer error means that the log itself was lost in a panic.
async fn append(
    log: &mut Option<Log>,
    batch: &[Published],
) -> Result<Result<(), LogError>, String> {
    let entries: Vec<Entry> = batch.iter().map(Published::entry).collect();
    let Some(mut own) = log.take() else {
        return Err("the replay log is lost".to_owned());
    };
    let appended = if own.blocks() {
        let writing = spawn_blocking(move || {
            let outcome = own.append(&entries);
            (own, outcome)
        });
        let (own, outcome) = writing
            .await
            .map_err(|error| format!("the replay log failed: {error}"))?;
        *log = Some(own);
        outcome
    } else {
        let outcome = own.append(&entries);
        *log = Some(own);
        outcome
    };
    Ok(appended)
}

fn show<A: Application>(inner: &Inner<A>, batch: &[Published]) {
    for published in batch {
        // One at a time, so that a client that subscribes waits for one action, not for the batch.
        inner.drive(|machine| machine.handle_committed(published, inner));
        lock(&inner.pending).settle(published);
    }
    inner.drive(|machine| machine.handle_room(inner));
    if let Some(last) = batch.last() {
        inner
            .visible
            .send_modify(|visible| visible.seq = last.seq());
    }
}

impl<A: Application> Inner<A> {
    /// Makes the actions of another host visible.
    fn show_others(&self, entries: Result<Vec<Entry>, LogError>) -> Result<(), String> {
        let entries = entries.map_err(|error| error.to_string())?;
        for entry in &entries {
            let seq = entry.seq;
            let published = Published::of_another_host(entry).ok_or_else(|| {
                format!("another host stored something else than an action as {seq}")
            })?;
            let passed = lock(&self.pending).pass(seq);
            passed.map_err(|used| {
                format!("another host stored an action as {seq}, and this one begins after {used}: start all hosts of a log with the same numbers")
            })?;
            self.drive(|machine| machine.handle_committed(&published, self));
        }
        if let Some(last) = entries.last() {
            self.visible.send_modify(|visible| visible.seq = last.seq);
        }
        Ok(())
    }

    /// Ends the host with an error: no further action becomes visible.
    pub(super) fn fail(&self, reason: &str, tell: impl FnOnce(&mut machine::Host)) {
        tracing::error!(
            reason,
            "the host has failed: no further action is accepted or sent"
        );
        let why = PublishError::Failed {
            reason: reason.into(),
        };
        self.end(why);
        self.drive(tell);
    }
}

/// Wakes all who wait for an action to become visible when the committer ends, even by a panic of the
/// application.
struct Ending<A: Application>(Arc<Inner<A>>);

impl<A: Application> Drop for Ending<A> {
    fn drop(&mut self) {
        let inner = &self.0;
        if lock(&inner.pending).ended().is_none() {
            let reason = "the application panicked while it applied an action";
            inner.fail(reason, machine::Host::handle_log_failed);
        }
        let ended = lock(&inner.pending).ended().cloned();
        inner.visible.send_modify(|visible: &mut Visible| {
            visible.ended = Some(ended.unwrap_or(PublishError::ShutDown));
        });
    }
}

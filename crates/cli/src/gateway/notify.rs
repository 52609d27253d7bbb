//! What systemd is told, if it started us (`sd_notify(3)`).

use std::time::Duration;

#[cfg(target_os = "linux")]
use sd_notify::NotifyState;

/// All routes listen.
pub(super) fn ready(status: &str) {
    #[cfg(target_os = "linux")]
    send(&[NotifyState::Ready, NotifyState::Status(status)]);
    #[cfg(not(target_os = "linux"))]
    let _ = status;
}

/// The file is being read again. [`ready`] follows, whatever comes of it.
pub(super) fn reloading() {
    #[cfg(target_os = "linux")]
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        send(&[NotifyState::Reloading, now]);
    }
}

/// No new session begins.
pub(super) fn stopping(status: &str) {
    #[cfg(target_os = "linux")]
    send(&[NotifyState::Stopping, NotifyState::Status(status)]);
    #[cfg(not(target_os = "linux"))]
    let _ = status;
}

/// We are still alive.
pub(super) fn alive() {
    #[cfg(target_os = "linux")]
    send(&[NotifyState::Watchdog]);
}

/// How often systemd wants to hear that, if it does: twice in the time that it waits.
pub(super) fn alive_every() -> Option<Duration> {
    #[cfg(target_os = "linux")]
    return sd_notify::watchdog_enabled().map(|time| (time / 2).max(Duration::from_millis(1)));
    #[cfg(not(target_os = "linux"))]
    None
}

/// Without `NOTIFY_SOCKET` nothing is sent.
#[cfg(target_os = "linux")]
fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "systemd cannot be told of the state of this program");
    }
}

//! This process's standard output, without a detour for what is small.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncWrite, Stdout};

/// The standard output. An asynchronous write to it is two journeys to another thread (measured: 54 µs
/// a line instead of 6), since nobody knows whether it would block; for a small one the system can say.
pub(super) struct Output {
    elsewhere: Stdout,
    /// Something went the long way and may not be out yet: nothing may overtake it.
    behind: bool,
}

impl Output {
    pub(super) fn new() -> Self {
        Self {
            elsewhere: tokio::io::stdout(),
            behind: false,
        }
    }
}

impl AsyncWrite for Output {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if !self.behind
            && let Some(written) = write_now(bytes)
        {
            return Poll::Ready(written);
        }
        self.behind = true;
        Pin::new(&mut self.elsewhere).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.behind {
            ready!(Pin::new(&mut self.elsewhere).poll_flush(context))?;
            self.behind = false;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.elsewhere).poll_shutdown(context)
    }
}

/// Writes what certainly does not block; `None` if it might.
#[cfg(unix)]
fn write_now(bytes: &[u8]) -> Option<io::Result<usize>> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    // A pipe that can be written to takes at least so much.
    const ATOMIC: usize = 4096;
    if bytes.len() > ATOMIC {
        return None;
    }
    let output = rustix::stdio::stdout();
    let mut waiting = [PollFd::new(&output, PollFlags::OUT)];
    poll(&mut waiting, Some(&Timespec::default())).ok()?;
    if waiting[0].revents() != PollFlags::OUT {
        return None;
    }
    match rustix::io::write(output, bytes) {
        // The long way waits, or tells what is wrong.
        Err(_) => None,
        Ok(written) => Some(Ok(written)),
    }
}

#[cfg(not(unix))]
fn write_now(_bytes: &[u8]) -> Option<io::Result<usize>> {
    None
}

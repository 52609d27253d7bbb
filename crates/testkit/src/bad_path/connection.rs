//! One connection through the proxy, from its start to its end.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{self, Either};
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use super::close::{Violation, close_and_drain};
use super::frames::Scanner;
use super::pump::{BothDirections, Pump, Stop};
use super::weather::{Direction, How};
use super::{Shared, lock, sockets};

/// How long connecting to the target may take.
const CONNECT: Duration = Duration::from_secs(10);

/// How long the other direction may take to finish its frame, and how long closing may take.
const LINGER: Duration = Duration::from_secs(2);

/// An entry in the table of open connections, removed on drop.
#[derive(Debug)]
pub(super) struct ConnectionGuard {
    shared: Arc<Shared>,
    number: u64,
}

impl ConnectionGuard {
    pub(super) fn new(shared: Arc<Shared>) -> (Self, oneshot::Receiver<How>) {
        let (cut, cut_now) = oneshot::channel();
        let mut number = 0;
        shared.counts.send_modify(|counts| {
            counts.accepted += 1;
            counts.open += 1;
            number = counts.accepted;
            // Inserted while the count changes, so that a test that sees the count can cut the
            // connection.
            lock(&shared.open).insert(number, cut);
        });
        (Self { shared, number }, cut_now)
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        lock(&self.shared.open).remove(&self.number);
        self.shared.counts.send_modify(|counts| counts.open -= 1);
    }
}

/// How a connection ends.
#[derive(Debug)]
enum End {
    /// Both sides ended it.
    Done,
    /// A side broke off, or sent an HTTP head that was too long.
    Broken,
    Cut(How),
    /// A frame violated a rule, and nobody is told so.
    Refused(How),
    /// A frame violated a rule. A side gets a Close frame unless it is in the middle of another frame.
    Violated {
        code: u16,
        to_client: Option<Violation>,
        to_target: Option<Violation>,
    },
}

pub(super) async fn serve(
    guard: ConnectionGuard,
    mut client: TcpStream,
    mut cut_now: oneshot::Receiver<How>,
) {
    let shared = &*guard.shared;
    let weather = shared.settings.borrow().weather;
    let reached = tokio::select! {
        reached = timeout(CONNECT, sockets::connect(&shared.target, &weather)) => reached,
        Ok(_) = &mut cut_now => {
            shared.counts.send_modify(|counts| counts.cuts += 1);
            return sockets::reset(client);
        }
    };
    let Ok(Ok(mut target)) = reached else {
        tracing::debug!(
            target = shared.target,
            "the relay cannot connect to its target"
        );
        shared.counts.send_modify(|counts| counts.unreachable += 1);
        return sockets::reset(client);
    };
    let _ = client.set_nodelay(true);
    let _ = target.set_nodelay(true);

    let end = tokio::select! {
        biased;
        Ok(how) = &mut cut_now => End::Cut(how),
        end = carry(shared, &mut client, &mut target) => end,
    };
    tracing::debug!(
        connection = guard.number,
        ?end,
        "the relay ends a connection"
    );
    let (code, to_client, to_target) = match end {
        End::Done => return,
        End::Broken | End::Cut(How::Reset) | End::Refused(How::Reset) => {
            sockets::reset(client);
            sockets::reset(target);
            if matches!(end, End::Cut(_)) {
                shared.counts.send_modify(|counts| counts.cuts += 1);
            }
            return;
        }
        End::Cut(How::End) => {
            shared.counts.send_modify(|counts| counts.cuts += 1);
            (0, None, None)
        }
        End::Refused(How::End) => (0, None, None),
        End::Violated {
            code,
            to_client,
            to_target,
        } => (code, to_client, to_target),
    };
    let close_frame = |violation: Option<Violation>, direction| {
        violation.map_or_else(Vec::new, |violation| violation.frame(code, direction))
    };
    let to_client = close_frame(to_client, Direction::FromTarget);
    let to_target = close_frame(to_target, Direction::FromClient);
    let closing = future::join(
        close_and_drain(&mut client, &to_client),
        close_and_drain(&mut target, &to_target),
    );
    let _ = timeout(LINGER, closing).await;
}

/// Runs both directions until the connection is to end.
async fn carry(shared: &Shared, client: &mut TcpStream, target: &mut TcpStream) -> End {
    let both = Mutex::new(BothDirections::default());
    let stop_request = watch::Sender::new(false);
    let [from_client, from_target] = Scanner::pair(shared.websocket);
    let pump = |direction, scanner| Pump {
        shared,
        both: &both,
        direction,
        scanner,
        settings: shared.settings.subscribe(),
        stop_requested: stop_request.subscribe(),
    };
    let (client_reads, client_writes) = client.split();
    let (target_reads, target_writes) = target.split();
    let up = pin!(pump(Direction::FromClient, from_client).run(client_reads, target_writes));
    let down = pin!(pump(Direction::FromTarget, from_target).run(target_reads, client_writes));
    match future::select(up, down).await {
        Either::Left((first, rest)) => {
            finish(shared, first, rest, &stop_request, Direction::FromClient)
        }
        Either::Right((first, rest)) => {
            finish(shared, first, rest, &stop_request, Direction::FromTarget)
        }
    }
    .await
}

/// Handles the other direction after the `first` one has stopped.
async fn finish(
    shared: &Shared,
    first: Stop,
    rest: impl Future<Output = Stop>,
    stop_request: &watch::Sender<bool>,
    direction: Direction,
) -> End {
    let last = match first {
        Stop::Violation(violation, code) => {
            stop_request.send_replace(true);
            let other = match timeout(LINGER, rest).await {
                Ok(Stop::Requested | Stop::Violation(..)) => Some(violation),
                Ok(Stop::Cut(how)) => return End::Cut(how),
                // In the middle of a frame, or ended: a Close frame cannot be inserted.
                _ => None,
            };
            return violated(direction, code, violation, other);
        }
        Stop::End => rest.await,
        // One side is gone. The other may not read until its own data is read, so waiting for it is
        // limited.
        Stop::Unwritable => timeout(LINGER, rest).await.unwrap_or(Stop::Lost),
        first => first,
    };
    match last {
        Stop::End | Stop::Unwritable | Stop::Requested => End::Done,
        Stop::Lost => End::Broken,
        Stop::LongHead => {
            shared.counts.send_modify(|counts| counts.long_heads += 1);
            End::Broken
        }
        Stop::Cut(how) => End::Cut(how),
        Stop::Refused(how) => End::Refused(how),
        Stop::Violation(violation, code) => match direction {
            Direction::FromClient => violated(Direction::FromTarget, code, violation, None),
            Direction::FromTarget => violated(Direction::FromClient, code, violation, None),
        },
    }
}

fn violated(direction: Direction, code: u16, own: Violation, other: Option<Violation>) -> End {
    match direction {
        Direction::FromClient => End::Violated {
            code,
            to_client: other,
            to_target: Some(own),
        },
        Direction::FromTarget => End::Violated {
            code,
            to_client: Some(own),
            to_target: other,
        },
    }
}

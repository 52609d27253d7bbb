//! One connection through the path, from its admission to its end.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{self, Either};
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use super::close::{Strike, part};
use super::frames::Scanner;
use super::pump::{Both, Pump, Stop};
use super::weather::{Direction, How};
use super::{Shared, lock, sockets};

/// How long a target may take to be reached.
const CONNECT: Duration = Duration::from_secs(10);

/// How long the other direction may take to come to the end of its frame, and how long the ends may
/// take to part.
const LINGER: Duration = Duration::from_secs(2);

/// A place among the open connections, given back on drop.
#[derive(Debug)]
pub(super) struct Ticket {
    shared: Arc<Shared>,
    number: u64,
}

impl Ticket {
    pub(super) fn take(shared: Arc<Shared>) -> (Self, oneshot::Receiver<How>) {
        let (cut, cut_now) = oneshot::channel();
        let mut number = 0;
        shared.counts.send_modify(|counts| {
            counts.accepted += 1;
            counts.open += 1;
            number = counts.accepted;
            // Whoever sees the count can cut the connection.
            lock(&shared.open).insert(number, cut);
        });
        (Self { shared, number }, cut_now)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        lock(&self.shared.open).remove(&self.number);
        self.shared.counts.send_modify(|counts| counts.open -= 1);
    }
}

/// How a connection ends.
#[derive(Debug)]
enum End {
    /// Both ends ended it.
    Done,
    /// One end broke off, or sent no end of an HTTP head.
    Broken,
    Cut(How),
    /// A Close frame for the client and for the target, where there is a place for it.
    Struck {
        to_client: Option<Strike>,
        to_target: Option<Strike>,
    },
}

pub(super) async fn serve(
    ticket: Ticket,
    mut client: TcpStream,
    mut cut_now: oneshot::Receiver<How>,
) {
    let shared = &*ticket.shared;
    let weather = shared.settings.borrow().weather;
    let reached = tokio::select! {
        reached = timeout(CONNECT, sockets::connect(&shared.target, &weather)) => reached,
        Ok(_) = &mut cut_now => {
            shared.counts.send_modify(|counts| counts.cuts += 1);
            return sockets::reset(client);
        }
    };
    let Ok(Ok(mut target)) = reached else {
        tracing::debug!(target = shared.target, "bad path cannot reach its target");
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
        connection = ticket.number,
        ?end,
        "bad path ends a connection"
    );
    let (to_client, to_target) = match end {
        End::Done => return,
        End::Broken | End::Cut(How::Reset) => {
            sockets::reset(client);
            sockets::reset(target);
            if matches!(end, End::Cut(_)) {
                shared.counts.send_modify(|counts| counts.cuts += 1);
            }
            return;
        }
        End::Cut(How::End) => {
            shared.counts.send_modify(|counts| counts.cuts += 1);
            (None, None)
        }
        End::Struck {
            to_client,
            to_target,
        } => (to_client, to_target),
    };
    let words = |strike: Option<Strike>, direction| {
        strike.map_or_else(Vec::new, |strike| strike.frame(direction))
    };
    let to_client = words(to_client, Direction::FromTarget);
    let to_target = words(to_target, Direction::FromClient);
    let parting = future::join(part(&mut client, &to_client), part(&mut target, &to_target));
    let _ = timeout(LINGER, parting).await;
}

/// Runs both directions until the connection is to end.
async fn carry(shared: &Shared, client: &mut TcpStream, target: &mut TcpStream) -> End {
    let both = Mutex::new(Both::default());
    let ask = watch::Sender::new(false);
    let [from_client, from_target] = Scanner::pair(shared.websocket);
    let pump = |direction, scanner| Pump {
        shared,
        both: &both,
        direction,
        scanner,
        settings: shared.settings.subscribe(),
        asked: ask.subscribe(),
    };
    let (client_reads, client_writes) = client.split();
    let (target_reads, target_writes) = target.split();
    let up = pin!(pump(Direction::FromClient, from_client).run(client_reads, target_writes));
    let down = pin!(pump(Direction::FromTarget, from_target).run(target_reads, client_writes));
    match future::select(up, down).await {
        Either::Left((first, rest)) => finish(shared, first, rest, &ask, Direction::FromClient),
        Either::Right((first, rest)) => finish(shared, first, rest, &ask, Direction::FromTarget),
    }
    .await
}

/// Sees to the other direction after the `first` one stopped.
async fn finish(
    shared: &Shared,
    first: Stop,
    rest: impl Future<Output = Stop>,
    ask: &watch::Sender<bool>,
    direction: Direction,
) -> End {
    let last = match first {
        Stop::Strike(strike) => {
            ask.send_replace(true);
            let other = match timeout(LINGER, rest).await {
                Ok(Stop::Asked | Stop::Strike(_)) => Some(strike),
                Ok(Stop::Cut(how)) => return End::Cut(how),
                // In the middle of a frame, or ended: there is no place for a Close.
                _ => None,
            };
            return struck(direction, strike, other);
        }
        Stop::End => rest.await,
        // One end is gone; the other may wait to be read before it reads, so this is bounded.
        Stop::Unwritable => timeout(LINGER, rest).await.unwrap_or(Stop::Lost),
        first => first,
    };
    match last {
        Stop::End | Stop::Unwritable | Stop::Asked => End::Done,
        Stop::Lost => End::Broken,
        Stop::LongHead => {
            shared.counts.send_modify(|counts| counts.long_heads += 1);
            End::Broken
        }
        Stop::Cut(how) => End::Cut(how),
        Stop::Strike(strike) => match direction {
            Direction::FromClient => struck(Direction::FromTarget, strike, None),
            Direction::FromTarget => struck(Direction::FromClient, strike, None),
        },
    }
}

fn struck(direction: Direction, own: Strike, other: Option<Strike>) -> End {
    match direction {
        Direction::FromClient => End::Struck {
            to_client: other,
            to_target: Some(own),
        },
        Direction::FromTarget => End::Struck {
            to_client: Some(own),
            to_target: other,
        },
    }
}

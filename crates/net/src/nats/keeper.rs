//! The task of a session: reads its messages as fast as they come, checks their numbers, and sends heartbeats
//! and acknowledgements.

use std::sync::Arc;

use async_nats::Subscriber;
use breakbulk_link::{Closed, Frame, Held};
use futures_util::StreamExt;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::line::Line;
use super::message::{Message, cost};
use super::{HEARTBEAT, SILENCE};

/// An acknowledgement is sent whenever one part in this many of the window was taken.
const TELL: u64 = 4;

/// The close code of a session with a frame that is too large for a message.
pub(super) const TOO_LARGE: u16 = 1009;

/// What came in, for the source.
#[derive(Debug)]
pub(super) enum Arrived {
    /// A frame, and its charge while it waits.
    Frame(Frame, Option<Held>),
    Alive,
}

pub(super) struct Keeper {
    line: Arc<Line>,
    subscriber: Subscriber,
    out: mpsc::Sender<Arrived>,
    /// How often the connection had been lost when the session began.
    losses: u64,
    inbound: Inbound,
}

/// Counts what came in, to notice gaps and to enforce the window.
#[derive(Debug)]
struct Inbound {
    /// The number of the last frame.
    number: u64,
    /// What all frames together count in the window.
    cost: u64,
    /// How much of that may wait to be taken.
    window: u64,
}

impl Inbound {
    fn new(window: u64) -> Self {
        Self {
            number: 0,
            cost: 0,
            window,
        }
    }

    /// Checks the number of a frame, and that the other side keeps to the window.
    fn frame(&mut self, number: u64, frame: &Frame, taken: u64) -> Result<(), Closed> {
        self.expects(number)?;
        let window = self.window;
        if self.cost.saturating_sub(taken) >= window {
            let reason = format!("the other side sent more than the window of {window} bytes");
            return Err(closed(1008, reason));
        }
        self.number = number;
        self.cost += cost(frame);
        Ok(())
    }

    /// Checks that nothing is missing before this number.
    fn expects(&self, number: u64) -> Result<(), Closed> {
        let expected = self.number + 1;
        match number {
            _ if number == expected => Ok(()),
            _ if number > expected => Err(lost(number - expected)),
            _ => {
                let reason = format!("message {number} came twice, or in the wrong place");
                Err(closed(1002, reason))
            }
        }
    }

    /// Checks that all frames have come that the other side says it has sent.
    fn sent(&self, sent: u64) -> Result<(), Closed> {
        match sent.saturating_sub(self.number) {
            0 => Ok(()),
            missing => Err(lost(missing)),
        }
    }
}

fn lost(count: u64) -> Closed {
    let reason =
        format!("NATS lost {count} messages: a connection broke, or a reader was too slow");
    closed(1006, reason)
}

fn closed(code: u16, reason: String) -> Closed {
    Closed { code, reason }
}

impl Keeper {
    pub(super) fn new(line: Arc<Line>, subscriber: Subscriber, out: mpsc::Sender<Arrived>) -> Self {
        Self {
            losses: line.bus.losses(),
            inbound: Inbound::new(line.bus.options.window),
            line,
            subscriber,
            out,
        }
    }

    /// Runs until the session ends; the source still gets the frames that wait, and then the end.
    pub(super) async fn run(mut self) {
        let ended = self.keep().await;
        self.line.end(ended);
        let _ = self.subscriber.unsubscribe().await;
    }

    async fn keep(&mut self) -> Closed {
        let line = self.line.clone();
        let mut taken = line.taken_here.subscribe();
        let tell = self.inbound.window.div_ceil(TELL);
        let (mut told, mut said, mut heard) = (0, Instant::now(), Instant::now());
        loop {
            tokio::select! {
                biased;
                ended = line.ended() => {
                    // The other side does not know yet: a frame of this side was too large for a message.
                    if ended.code == TOO_LARGE {
                        line.say_close(1001, "the other side has gone").await;
                    }
                    return ended;
                }
                () = line.bus.lost_since(self.losses) => {
                    return closed(1006, "the connection to the NATS server was lost".to_owned());
                }
                message = self.subscriber.next() => {
                    let Some(message) = message else {
                        return closed(1006, "the NATS server ended the subscription".to_owned());
                    };
                    heard = Instant::now();
                    if let Err(ended) = self.hear(message.payload) {
                        return ended;
                    }
                    continue;
                }
                () = async { drop(taken.wait_for(|taken| *taken >= told + tell).await) } => {}
                () = sleep_until(said + HEARTBEAT) => {}
                () = sleep_until(heard + SILENCE) => {
                    let seconds = SILENCE.as_secs();
                    let reason = format!("nothing received from the other end for {seconds} s");
                    return closed(1006, reason);
                }
                () = self.out.closed() => {
                    line.say_close(1001, "the other side has gone").await;
                    return closed(1006, "the session was dropped".to_owned());
                }
            }
            told = *line.taken_here.borrow();
            said = Instant::now();
            if let Err(lost) = line.say_here().await {
                return closed(1006, lost.0);
            }
        }
    }

    fn hear(&mut self, payload: bytes::Bytes) -> Result<(), Closed> {
        let message = Message::read(payload);
        let message = message.ok_or_else(|| closed(1002, "a message is malformed".to_owned()))?;
        match message {
            Message::Frame(number, frame) => {
                let taken = *self.line.taken_here.borrow();
                self.inbound.frame(number, &frame, taken)?;
                // The window bounds the frames that wait, so this channel is never full.
                let limit = self.out.max_capacity();
                let full = |_| {
                    closed(
                        1008,
                        format!("{limit} messages wait to be read, which is the limit"),
                    )
                };
                let budget = self.line.budget.get();
                let size = usize::try_from(cost(&frame)).unwrap_or(usize::MAX);
                let held = budget.map(|budget| budget.charge_allocated(size));
                self.out.try_send(Arrived::Frame(frame, held)).map_err(full)
            }
            Message::Here { sent, taken } => {
                self.inbound.sent(sent)?;
                self.line.taken_there.send_if_modified(|known| {
                    let more = taken > *known;
                    *known = taken.max(*known);
                    more
                });
                // If there is no room for it, the frames in the channel are signs of life, too.
                let _ = self.out.try_send(Arrived::Alive);
                Ok(())
            }
            Message::Close(number, ended) => {
                self.inbound.expects(number)?;
                Err(ended)
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use bytes::Bytes;

    use super::super::WINDOW;
    use super::*;

    // LINE-4
    #[test]
    fn a_gap_a_repetition_and_a_full_window_end_the_session() {
        let small = Frame::Binary(Bytes::from_static(b"x"));
        let large = Frame::Binary(Bytes::from(vec![0; WINDOW as usize]));
        let mut inbound = Inbound::new(WINDOW);
        inbound.frame(1, &small, 0).unwrap();
        inbound.sent(1).unwrap();
        inbound.sent(0).unwrap();
        let ended = |outcome: Result<(), Closed>| outcome.unwrap_err();
        assert_eq!(ended(inbound.sent(3)), lost(2));
        assert_eq!(ended(inbound.frame(4, &small, 0)), lost(2));
        assert_eq!(ended(inbound.frame(1, &small, 0)).code, 1002);
        // One frame more than the window is allowed, and no other before something was taken.
        inbound.frame(2, &large, 0).unwrap();
        assert_eq!(ended(inbound.frame(3, &small, 0)).code, 1008);
        inbound.frame(3, &small, inbound.cost).unwrap();
    }
}

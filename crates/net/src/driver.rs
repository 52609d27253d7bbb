//! The one loop over every transport: a reader, a writer and a clock in one task.

use std::sync::Arc;
use std::time::Duration;

use breakbulk_link::{Closed, Frame};
use tokio::time::{sleep_until, timeout};

use crate::connection::{Next, Shared, State, now};
use crate::transport::{Incoming, Lost, Sink, Source};

/// After so many bytes the reader lets the writer have its turn, and the other way round.
const TURN: usize = 256 << 10;

/// What a frame counts in a turn beside its bytes.
const FRAME_TURN: usize = 4 << 10;

/// A frame of at most so many bytes may go out with the next one.
const SMALL: usize = 2 << 10;

/// How a connection is kept alive, and how long its end may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Sends a ping after this much time in which nothing came in.
    pub keepalive: Option<Duration>,
    /// After so long in which nothing came in the connection counts as lost.
    pub silence: Option<Duration>,
    /// How long the end may take: the frame under way, the close, its answer.
    pub grace: Duration,
    /// What the protocol pings with, as a control word of the link; `None`: the transport's own ping.
    pub ping_word: Option<&'static str>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            keepalive: Some(Duration::from_secs(20)),
            silence: Some(Duration::from_secs(60)),
            grace: Duration::from_secs(5),
            ping_word: None,
        }
    }
}

/// Drives the link until it is closed and the last words are out.
pub(crate) async fn drive(
    shared: Arc<Shared>,
    mut source: impl Source,
    mut sink: impl Sink,
    options: Options,
) {
    tokio::join!(
        read(&shared, &mut source, options.grace),
        write(&shared, &mut sink, options.grace),
        watch(&shared, &options),
    );
    // The transport goes before anybody is told that it is gone.
    drop((source, sink));
    shared.update(|state| {
        state.receipts.clear();
        state.ended = true;
    });
}

async fn read(shared: &Shared, source: &mut impl Source, grace: Duration) {
    let mut turn = 0;
    while shared.readable().await {
        let incoming = tokio::select! {
            biased;
            incoming = source.next() => incoming,
            () = shared.until(State::is_closed) => break,
        };
        match incoming {
            Incoming::Frame(frame) => {
                turn += frame_len(&frame) + FRAME_TURN;
                shared.update(|state| {
                    let now = now();
                    state.heard = now;
                    state.link.handle_frame(now, frame);
                });
            }
            Incoming::Posted(frame, receipt) => {
                turn += frame_len(&frame) + FRAME_TURN;
                shared.update(|state| {
                    let now = now();
                    state.heard = now;
                    // What a closed link does not look at is not taken: its sender hears of the end.
                    let open = !state.is_closed();
                    let received = state.link.handle_frame(now, frame);
                    if open {
                        state.receipts.received(received, receipt);
                    }
                });
            }
            Incoming::Life => shared.update(|state| state.heard = now()),
            Incoming::Closed(closed) => return closed_by_peer(shared, &closed),
            Incoming::Broken(closed) => {
                shared.with(|link| link.close(closed.code, &closed.reason));
            }
        }
        if turn > TURN {
            turn = 0;
            tokio::task::yield_now().await;
        }
    }
    // This side closed. What still comes is dropped, until the other end has answered.
    let answer = async { while !matches!(source.next().await, Incoming::Closed(_)) {} };
    let _ = timeout(grace, answer).await;
}

async fn write(shared: &Arc<Shared>, sink: &mut impl Sink, grace: Duration) {
    let (mut turn, mut holds) = (0, false);
    // Frames that the link wants to hear of once they are out.
    let mut unconfirmed = Vec::new();
    loop {
        match shared.next(holds) {
            Next::Wait if holds => {
                holds = false;
                if !handed_over(shared, sink.flush(), grace).await {
                    shared.update(|state| state.broke_off = true);
                    return;
                }
                shared.handed_over(&mut unconfirmed);
            }
            Next::Wait => shared.outbound.notified().await,
            Next::Frame(id, mut frame) => {
                unconfirmed.extend(id);
                turn += frame_len(&frame) + FRAME_TURN;
                if frame_len(&frame) <= SMALL && turn <= TURN && shared.has_more() {
                    match sink.hold(frame) {
                        None => {
                            holds = true;
                            continue;
                        }
                        Some(back) => frame = back,
                    }
                }
                holds = false;
                if !handed_over(shared, sink.send(frame), grace).await {
                    shared.update(|state| state.broke_off = true);
                    return;
                }
                shared.handed_over(&mut unconfirmed);
            }
            Next::Ping => {
                if !handed_over(shared, sink.ping(), grace).await {
                    return;
                }
            }
            Next::Close(closed) => {
                let _ = timeout(grace, sink.close(closed.code, &closed.reason)).await;
                return;
            }
        }
        if turn > TURN {
            turn = 0;
            tokio::task::yield_now().await;
        }
    }
}

/// Waits for the transport. False: it failed, or takes nothing although this side has closed.
async fn handed_over(
    shared: &Shared,
    handing: impl Future<Output = Result<(), Lost>>,
    grace: Duration,
) -> bool {
    let too_long = async {
        shared.until(State::is_closed).await;
        tokio::time::sleep(grace).await;
    };
    tokio::select! {
        biased;
        outcome = handing => match outcome {
            Ok(()) => true,
            Err(lost) => {
                closed_by_peer(shared, &Closed { code: 1006, reason: lost.to_string() });
                false
            }
        },
        () = too_long => false,
    }
}

/// The link's deadlines and signs of life.
async fn watch(shared: &Shared, options: &Options) {
    loop {
        let next = shared.update(|state| {
            state.armed = None;
            if state.is_closed() {
                return None;
            }
            let now = now();
            state.link.handle_timeout(now);
            state.armed = check_life(state, options)
                .into_iter()
                .chain(state.link.poll_timeout().map(|(at, _)| at))
                .min();
            Some(state.armed)
        });
        match next {
            None => return,
            Some(None) => shared.deadline.notified().await,
            Some(Some(at)) => tokio::select! {
                () = sleep_until(at.into()) => {}
                () = shared.deadline.notified() => {}
            },
        }
    }
}

/// Asks for a word or gives the connection up; when to look again.
fn check_life(state: &mut State, options: &Options) -> Option<std::time::Instant> {
    let now = now();
    if state.is_paused() {
        state.heard = now;
    }
    let lost_at = options.silence.map(|silence| state.heard + silence);
    if let (Some(at), Some(silence)) = (lost_at, options.silence)
        && now >= at
    {
        let reason = format!("no word from the other end for {} s", silence.as_secs_f64());
        state.by_peer = true;
        state.link.close(1006, &reason);
        return None;
    }
    let ask_at = options.keepalive.map(|keepalive| {
        // While the application keeps us from reading, nothing is heard and no question answered: our
        // own questions tell the other end that we live.
        let last = if state.is_paused() {
            state.asked
        } else {
            state.heard.max(state.asked)
        };
        let at = last + keepalive;
        if now < at {
            return at;
        }
        match options.ping_word {
            // One that waits already is as good as another.
            Some(word) => drop(state.link.send_control(word)),
            None => state.ping_due = true,
        }
        state.asked = now;
        now + keepalive
    });
    lost_at.into_iter().chain(ask_at).min()
}

fn closed_by_peer(shared: &Shared, closed: &Closed) {
    shared.update(|state| {
        state.by_peer |= !state.is_closed();
        state.link.close(closed.code, &closed.reason);
    });
}

fn frame_len(frame: &Frame) -> usize {
    match frame {
        Frame::Text(bytes) | Frame::Binary(bytes) => bytes.len(),
    }
}

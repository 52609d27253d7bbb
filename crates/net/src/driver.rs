//! The task that drives a link over any transport: a read loop, a write loop and a timer loop.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use breakbulk_link::{Closed, Event, Frame, lock};
use tokio::time::{sleep_until, timeout};

use crate::connection::{Next, NextFrame, Shared, State, Wakes, now};
use crate::transport::{Incoming, Lost, Sink, Source};

/// After this many bytes the read loop yields to the write loop, and the other way round.
const TURN: usize = 256 << 10;

/// What each frame counts towards [`TURN`] in addition to its bytes.
const FRAME_TURN: usize = 4 << 10;

/// A frame of at most this many bytes may share a write with the next one ([`Sink::hold`]).
const SMALL: usize = 2 << 10;

/// A reader that takes this many bytes per second is fast enough.
const BYTES_A_SECOND: u64 = 1 << 10;

/// How a connection is kept alive, and how long its end may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Sends a ping after this much time in which nothing came in.
    pub keepalive: Option<Duration>,
    /// Closes the connection as lost after this much time in which nothing came in.
    pub silence: Option<Duration>,
    /// How long one frame may take to be written, plus a second for each KiB; a slower reader is cut
    /// off. `None` sets no limit: the application of the other end may pause for any time.
    pub write_time: Option<Duration>,
    /// How long closing may take: finishing the current frame, sending the close, receiving its answer.
    pub grace: Duration,
    /// The control message that the protocol uses as a ping; `None` sends the transport's own ping.
    pub ping_word: Option<&'static str>,
}

impl Options {
    /// The [`write_time`](Self::write_time) for peers that are not trusted.
    pub const WRITE_TIME: Duration = Duration::from_secs(60);
}

impl Default for Options {
    fn default() -> Self {
        Self {
            keepalive: Some(Duration::from_secs(20)),
            silence: Some(Duration::from_secs(60)),
            write_time: None,
            grace: Duration::from_secs(5),
            ping_word: None,
        }
    }
}

/// Drives the link until it is closed and the close was sent.
pub(crate) async fn drive(
    shared: Arc<Shared>,
    mut source: impl Source,
    mut sink: impl Sink,
    options: Options,
    handler: impl Handler,
) {
    tokio::join!(
        read(&shared, &mut source, options.grace, &handler),
        write(&shared, &mut sink, &options, &handler),
        run_timers(&shared, &options),
        handler.run(&shared),
    );
    // Dropped before `ended` is set: a task that waits for it may rely on the transport being gone.
    drop((source, sink));
    shared.update(|state| {
        state.receipts.clear();
        state.ended = true;
    });
}

/// How the events of a connection get to the application.
pub(crate) trait Handler: Send + Sync + 'static {
    /// Whether the driver task handles the events itself.
    const INLINE: bool;

    /// Handles all events.
    fn handle(&self, _shared: &Shared) {}

    /// Handles the events that another task caused, until the link is closed.
    fn run(&self, _shared: &Shared) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// The application takes the events by [`Connection::event`](crate::Connection::event).
pub(crate) struct ByOthers;

impl Handler for ByOthers {
    const INLINE: bool = false;
}

/// The driver task calls a function with each event.
pub(crate) struct Inline<F>(Mutex<F>);

impl<F> Inline<F> {
    pub(crate) fn new(handler: F) -> Self {
        Self(Mutex::new(handler))
    }
}

impl<F: FnMut(Event) + Send + 'static> Handler for Inline<F> {
    const INLINE: bool = true;

    fn handle(&self, shared: &Shared) {
        while let Some(event) = shared.take_event() {
            lock(&self.0)(event);
        }
    }

    async fn run(&self, shared: &Shared) {
        while shared.has_event().await {
            self.handle(shared);
        }
    }
}

async fn read<H: Handler>(shared: &Shared, source: &mut impl Source, grace: Duration, handler: &H) {
    let wakes = Wakes {
        writer: true,
        events: !H::INLINE,
    };
    let mut turn = 0;
    while readable(shared, source).await {
        let incoming = tokio::select! {
            biased;
            incoming = source.next() => incoming,
            () = shared.until_closed() => break,
        };
        match incoming {
            Incoming::Frame(frame) => {
                turn += frame_len(&frame) + FRAME_TURN;
                shared.change(wakes, |state| {
                    let now = now();
                    state.last_received = now;
                    state.link.handle_frame(now, frame);
                });
                handler.handle(shared);
            }
            Incoming::Posted(frame, receipt) => {
                turn += frame_len(&frame) + FRAME_TURN;
                shared.update(|state| {
                    let now = now();
                    state.last_received = now;
                    // A closed link ignores the frame, so its receipt is dropped and the POST is
                    // answered that the connection ended.
                    let open = !state.is_closed();
                    let received = state.link.handle_frame(now, frame);
                    if open {
                        state.receipts.received(received, receipt);
                    }
                });
            }
            Incoming::Alive => shared.update(|state| state.last_received = now()),
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
    // This side closed. Frames that still come are dropped until the other end answers the close.
    let answer = async { while !matches!(source.next().await, Incoming::Closed(_)) {} };
    let _ = timeout(grace, answer).await;
}

/// Waits until the link wants a frame; returns false once it is closed.
async fn readable(shared: &Shared, source: &mut impl Source) -> bool {
    tokio::select! {
        biased;
        readable = shared.readable() => readable,
        never = source.read_ahead() => match never {},
    }
}

async fn write<H: Handler>(
    shared: &Arc<Shared>,
    sink: &mut impl Sink,
    options: &Options,
    handler: &H,
) {
    let grace = options.grace;
    let (mut turn, mut holds) = (0, false);
    // Frames that are reported to the link once they are sent.
    let mut unconfirmed = Vec::new();
    loop {
        let next = shared.next(holds, !H::INLINE);
        handler.handle(shared);
        match next {
            Next::Wait if holds => {
                holds = false;
                if let Err(why) = wait_for_sink(shared, sink.flush(), 0, options).await {
                    shared.update(|state| state.broke_off = Some(why));
                    return;
                }
                shared.confirm_sent(&mut unconfirmed);
            }
            Next::Wait => shared.outbound.notified().await,
            Next::Frame(next) => {
                let NextFrame {
                    mut frame,
                    id,
                    charge,
                    more,
                } = next;
                unconfirmed.extend(id);
                turn += frame_len(&frame) + FRAME_TURN;
                if frame_len(&frame) <= SMALL && turn <= TURN && more {
                    match sink.hold(frame) {
                        None => {
                            holds = true;
                            continue;
                        }
                        Some(back) => frame = back,
                    }
                }
                holds = false;
                let size = frame_len(&frame);
                if let Err(why) = wait_for_sink(shared, sink.send(frame), size, options).await {
                    shared.update(|state| state.broke_off = Some(why));
                    return;
                }
                drop(charge);
                shared.confirm_sent(&mut unconfirmed);
            }
            Next::Ping => {
                let pinged = wait_for_sink(shared, sink.ping(), 0, options).await;
                if pinged.is_err() {
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

/// Waits until the sink has written `size` bytes. Returns why not, if it failed, if the other end took too
/// long to read them, or if that did not finish within the grace period after this side closed.
async fn wait_for_sink(
    shared: &Shared,
    operation: impl Future<Output = Result<(), Lost>>,
    size: usize,
    options: &Options,
) -> Result<(), String> {
    let too_long = async {
        shared.until_closed().await;
        tokio::time::sleep(options.grace).await;
    };
    let operation = async {
        let Some(write_time) = options.write_time else {
            return operation.await;
        };
        let limit = write_time + Duration::from_secs(size as u64 / BYTES_A_SECOND);
        let written = timeout(limit, operation).await;
        let seconds = limit.as_secs_f64();
        written.unwrap_or_else(|_| {
            Err(Lost(format!(
                "the other end reads too slowly: {size} bytes were not taken in {seconds} s"
            )))
        })
    };
    tokio::select! {
        biased;
        outcome = operation => match outcome {
            Ok(()) => Ok(()),
            Err(lost) => {
                let reason = lost.to_string();
                closed_by_peer(shared, &Closed { code: 1006, reason: reason.clone() });
                Err(reason)
            }
        },
        () = too_long => {
            let seconds = options.grace.as_secs_f64();
            Err(format!("the other end did not read a frame within {seconds} s after the close"))
        }
    }
}

/// Runs the link's deadlines and the keepalive.
async fn run_timers(shared: &Shared, options: &Options) {
    loop {
        let next = shared.update(|state| {
            state.timer_set_for = None;
            if state.is_closed() {
                return None;
            }
            let now = now();
            state.link.handle_timeout(now);
            state.timer_set_for = check_keepalive(state, options)
                .into_iter()
                .chain(state.link.poll_timeout().map(|(at, _)| at))
                .min();
            Some(state.timer_set_for)
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

/// Sends a ping if one is due, or closes a connection on which nothing came in for too long. Returns
/// when to check again.
fn check_keepalive(state: &mut State, options: &Options) -> Option<std::time::Instant> {
    let now = now();
    if state.is_paused() {
        state.last_received = now;
    }
    let lost_at = options.silence.map(|silence| state.last_received + silence);
    if let (Some(at), Some(silence)) = (lost_at, options.silence)
        && now >= at
    {
        let reason = format!(
            "nothing received from the other end for {} s",
            silence.as_secs_f64()
        );
        state.by_peer = true;
        state.link.close(1006, &reason);
        return None;
    }
    let ping_at = options.keepalive.map(|keepalive| {
        // While the application is not taking messages, nothing is read and no ping is answered: this
        // side's own pings tell the other end that it is alive.
        let last = if state.is_paused() {
            state.last_ping
        } else {
            state.last_received.max(state.last_ping)
        };
        let at = last + keepalive;
        if now < at {
            return at;
        }
        match options.ping_word {
            // An error means that one is queued already, which is enough.
            Some(word) => drop(state.link.send_control(word)),
            None => state.ping_due = true,
        }
        state.last_ping = now;
        now + keepalive
    });
    lost_at.into_iter().chain(ping_at).min()
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

//! A transport in memory that delays frames and breaks after a number of them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use breakbulk_link::{Carries, Closed, Frame};
use breakbulk_net::memory::{Memory, MemorySink, MemorySource, pair};
use breakbulk_net::{Incoming, Lost, Sink, Source, Transport};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::random::Random;

/// How the transport behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    /// Every frame is under way for a time up to this.
    pub(crate) delay: Duration,
    /// The transport breaks once this many frames were handed on, both ways together.
    pub(crate) cut_after: Option<u64>,
    /// Frames that wait in the pipe.
    pub(crate) depth: usize,
}

/// A handle to the transport between two ends.
#[derive(Clone)]
pub(crate) struct Line {
    cut: watch::Sender<bool>,
    frames: Arc<AtomicU64>,
}

impl Line {
    /// Breaks the transport now.
    pub(crate) fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// Frames that were handed on so far.
    pub(crate) fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }
}

/// The two ends of a transport.
pub(crate) fn line(weather: Weather, seed: u64) -> (Rough, Rough, Line) {
    let (left, right) = pair(weather.depth);
    let line = Line {
        cut: watch::Sender::new(false),
        frames: Arc::default(),
    };
    let end = |memory: Memory, salt: u64| Rough {
        memory,
        line: line.clone(),
        weather,
        random: Random::new(seed ^ salt),
    };
    (end(left, 1), end(right, 2), line.clone())
}

pub(crate) struct Rough {
    memory: Memory,
    line: Line,
    weather: Weather,
    random: Random,
}

impl Transport for Rough {
    type Source = RoughSource;
    type Sink = RoughSink;

    fn carries(&self, carries: Carries) -> bool {
        self.memory.carries(carries)
    }

    fn split(self) -> (RoughSource, RoughSink) {
        let (source, sink) = self.memory.split();
        (
            RoughSource {
                source,
                cut: self.line.cut.subscribe(),
                line: self.line.clone(),
                weather: self.weather,
                random: self.random,
                under_way: VecDeque::new(),
                last: Instant::now(),
            },
            RoughSink {
                sink,
                cut: self.line.cut.subscribe(),
            },
        )
    }
}

pub(crate) struct RoughSource {
    source: MemorySource,
    cut: watch::Receiver<bool>,
    line: Line,
    weather: Weather,
    random: Random,
    /// The frames under way, and when each arrives.
    under_way: VecDeque<(Instant, Incoming)>,
    last: Instant,
}

impl Source for RoughSource {
    async fn next(&mut self) -> Incoming {
        loop {
            let arrives = self.under_way.front().map(|(at, _)| *at);
            let arrival = async {
                match arrives {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            // With a depth of 1 the next frame is taken only when this one has arrived.
            let full = self.under_way.len() >= self.weather.depth;
            tokio::select! {
                biased;
                _ = self.cut.wait_for(|cut| *cut) => return broken(),
                () = arrival => {
                    let Some((_, incoming)) = self.under_way.pop_front() else { continue };
                    if matches!(incoming, Incoming::Frame(_)) {
                        let count = self.line.frames.fetch_add(1, Ordering::Relaxed) + 1;
                        if self.weather.cut_after == Some(count) {
                            // This frame still arrives, and none after it.
                            self.line.cut();
                        }
                    }
                    return incoming;
                }
                incoming = self.source.next(), if !full => {
                    let delay = self.random.up_to(self.weather.delay);
                    // Frames keep their order.
                    self.last = self.last.max(Instant::now() + delay);
                    self.under_way.push_back((self.last, incoming));
                }
            }
        }
    }
}

pub(crate) struct RoughSink {
    sink: MemorySink,
    cut: watch::Receiver<bool>,
}

impl Sink for RoughSink {
    async fn send(&mut self, frame: Frame) -> Result<(), Lost> {
        tokio::select! {
            biased;
            _ = self.cut.wait_for(|cut| *cut) => Err(Lost("the line is cut".to_owned())),
            outcome = self.sink.send(frame) => outcome,
        }
    }

    async fn ping(&mut self) -> Result<(), Lost> {
        tokio::select! {
            biased;
            _ = self.cut.wait_for(|cut| *cut) => Err(Lost("the line is cut".to_owned())),
            outcome = self.sink.ping() => outcome,
        }
    }

    async fn close(&mut self, code: u16, reason: &str) {
        if !*self.cut.borrow() {
            self.sink.close(code, reason).await;
        }
    }
}

fn broken() -> Incoming {
    Incoming::Closed(Closed {
        code: 1006,
        reason: "the line is cut".to_owned(),
    })
}

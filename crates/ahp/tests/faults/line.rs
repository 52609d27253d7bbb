//! A simulated connection between two links: it holds few frames, delays them, and breaks after a number.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use breakbulk_ahp::machine::client::Direction;
use breakbulk_ahp::machine::host::ClientId;
use breakbulk_link::{Closed, Frame, Link};

/// One connection. `near` is the client's link, `far` the host's.
pub(crate) struct Line {
    /// The number by which the host knows the connection.
    pub(crate) id: ClientId,
    pub(crate) near: Link,
    pub(crate) far: Link,
    /// Whether the host has answered the handshake.
    pub(crate) negotiated: bool,
    /// Frames that have arrived, both ways together.
    pub(crate) frames: u64,
    up: Pipe,
    down: Pipe,
    cut_after: Option<u64>,
    depth: usize,
}

/// One direction: the frames under way, and when each arrives. Frames keep their order.
#[derive(Default)]
struct Pipe {
    under_way: VecDeque<(Instant, Result<Frame, Closed>)>,
    closed: bool,
}

impl Line {
    pub(crate) fn new(
        id: ClientId,
        near: Link,
        far: Link,
        cut_after: Option<u64>,
        depth: usize,
    ) -> Self {
        Self {
            id,
            near,
            far,
            negotiated: false,
            frames: 0,
            up: Pipe::default(),
            down: Pipe::default(),
            cut_after,
            depth,
        }
    }

    /// When something happens next: a frame arrives where it is wanted, or a link has a deadline.
    pub(crate) fn next(&self) -> Option<Instant> {
        let up = self.up.next().filter(|_| self.far.wants_frame());
        let down = self.down.next().filter(|_| self.near.wants_frame());
        let links = [&self.near, &self.far].map(|link| link.poll_timeout());
        let timers = links.into_iter().flatten().map(|(at, _)| at);
        up.into_iter().chain(down).chain(timers).min()
    }

    /// Whether both ends know that the connection has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.near.closed().is_some() && self.far.closed().is_some()
    }

    /// Takes frames from the sender's link, as far as there is room.
    pub(crate) fn fill(
        &mut self,
        direction: Direction,
        now: Instant,
        mut delay: impl FnMut() -> Duration,
    ) -> bool {
        let (from, pipe) = match direction {
            Direction::Out => (&mut self.near, &mut self.up),
            Direction::In => (&mut self.far, &mut self.down),
        };
        let mut moved = false;
        while pipe.under_way.len() < self.depth
            && let Some(next) = pipe.take(from, now)
        {
            let last = pipe.under_way.back().map_or(now, |(at, _)| *at);
            pipe.under_way.push_back((last.max(now + delay()), next));
            moved = true;
        }
        moved
    }

    /// Hands over the frames that have arrived, as far as the receiver's link wants them.
    pub(crate) fn drain(&mut self, direction: Direction, now: Instant) -> bool {
        let mut moved = false;
        loop {
            let (to, pipe) = match direction {
                Direction::Out => (&mut self.far, &mut self.up),
                Direction::In => (&mut self.near, &mut self.down),
            };
            if pipe.next().is_none_or(|at| at > now) || !to.wants_frame() {
                return moved;
            }
            moved = true;
            match pipe.under_way.pop_front() {
                Some((_, Ok(frame))) => {
                    to.handle_frame(now, frame);
                    self.frames += 1;
                    if self.cut_after == Some(self.frames) {
                        // This frame still arrives, and none after it.
                        self.cut();
                    }
                }
                Some((_, Err(closed))) => to.close(closed.code, &closed.reason),
                None => {}
            }
        }
    }

    /// Breaks the connection at both ends.
    pub(crate) fn cut(&mut self) {
        for link in [&mut self.near, &mut self.far] {
            link.close(1006, "the line is cut");
        }
        self.up = Pipe::default();
        self.down = Pipe::default();
    }
}

impl Pipe {
    fn next(&self) -> Option<Instant> {
        self.under_way.front().map(|(at, _)| *at)
    }

    /// The next output of a link: a frame, or the end of the connection.
    fn take(&mut self, from: &mut Link, now: Instant) -> Option<Result<Frame, Closed>> {
        if let Some(closed) = from.closed() {
            let told = std::mem::replace(&mut self.closed, true);
            return (!told).then(|| Err(closed.clone()));
        }
        let mut frame = Vec::new();
        from.poll_transmit(now, &mut frame)?;
        Some(Ok(Frame::Text(frame.into())))
    }
}

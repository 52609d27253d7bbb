//! This side of the session: calls, handlers, a clock, and a socket that is lost and replaced.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use breakbulk_message::vscode::{Args, Limits, Reply, Request, RpcId};
use breakbulk_vscode::machine::ipc::{PersistentEvent, Received};
use breakbulk_vscode::machine::rpc::{Config, Event, Ignored, RequestId, Rpc};
use bytes::Bytes;

use super::framing::{Framing, start};

fn config() -> Config {
    Config::default().with(|config| {
        config.received = Limits::default().with(|limits| {
            limits.message = 4096;
            limits.args = 8;
            limits.text = 1024;
            limits.buffers = 8;
            limits.nesting = 16;
        });
        config.sent_message = 2048;
        config.pending_calls = 4;
        config.running = 4;
        config.running_bytes = 4096;
        config.queued_bytes = 4096;
        config.unread_bytes = 16_384;
        config.unresponsive_after = Duration::from_secs(3);
        config.check_every = Duration::from_secs(1);
    })
}

/// All that the session did and reported.
#[derive(Debug, PartialEq)]
pub(super) struct Outcome {
    events: Vec<Event>,
    told: Vec<PersistentEvent>,
    written: Vec<u8>,
    ignored: Ignored,
}

pub(super) struct Session {
    framing: Framing,
    rpc: Rpc,
    now: Instant,
    /// Whether there is a stream to read from.
    connected: bool,
    /// Whether reading has ended for good.
    over: bool,
    /// Requests that run, the oldest first.
    requests: VecDeque<RequestId>,
    /// Calls whose reply is awaited.
    calls: BTreeSet<u32>,
    outcome: Outcome,
}

impl Session {
    pub(super) fn new(framing: Framing) -> Self {
        Self {
            framing,
            rpc: Rpc::new(config()),
            now: start(),
            connected: true,
            over: false,
            requests: VecDeque::new(),
            calls: BTreeSet::new(),
            outcome: Outcome {
                events: Vec::new(),
                told: Vec::new(),
                written: Vec::new(),
                ignored: Ignored::default(),
            },
        }
    }

    /// Handles a read. False if nothing more of this stream can be read.
    pub(super) fn read(&mut self, mut input: Bytes) -> bool {
        while self.connected && !self.over {
            self.make_room();
            match self.framing.read(self.now, &mut input) {
                Ok(Some(Received::Message(message))) => {
                    self.rpc.handle_message(self.now, message);
                }
                Ok(Some(Received::Disconnect)) => self.over = true,
                Ok(Some(Received::Control(_) | Received::Nothing)) => {}
                Ok(None) => {
                    assert!(input.is_empty());
                    return true;
                }
                Err(()) => self.lose(),
            }
            self.look();
        }
        false
    }

    /// Does one action of this side.
    pub(super) fn step(&mut self, what: u8) {
        let size = usize::from(what >> 4);
        match what & 15 {
            0 => self.pass(Duration::from_millis(250)),
            1 => self.pass(Duration::from_secs(1) * u32::from(what >> 4)),
            2 | 3 => self.call(what & 1 == 1, size),
            4 => {
                if let Some(&req) = self.calls.last() {
                    self.rpc.cancel(req);
                }
            }
            5 => {
                if let Some(req) = self.calls.pop_first() {
                    self.rpc.cancel(req);
                    self.rpc.forget(req);
                }
            }
            6 => {
                if let Some(req) = self.calls.pop_first() {
                    self.rpc.lost(req);
                }
            }
            7 => {
                if let Some(&id) = self.requests.front() {
                    self.rpc.acknowledge(id);
                }
            }
            8 | 9 => self.reply(size),
            10 => self.lose(),
            11 => {
                if !self.over && self.framing.resume(self.now) {
                    self.connected = true;
                }
            }
            12 => self.hand_over(),
            13 => self.flush(size),
            14 => self.flush(usize::MAX),
            _ => self.rpc.dispose(),
        }
        self.look();
    }

    /// Ends the session: no call may be left waiting.
    pub(super) fn end(mut self) -> Outcome {
        self.rpc.dispose();
        self.look();
        assert!(
            self.calls.is_empty(),
            "calls without an end: {:?}",
            self.calls
        );
        assert_eq!(
            (self.rpc.pending_calls(), self.rpc.running_requests()),
            (0, 0)
        );
        assert_eq!(self.rpc.queued_bytes(), 0);
        assert_eq!(self.rpc.poll_transmit(), None);
        self.outcome.ignored = self.rpc.ignored();
        self.outcome
    }

    fn call(&mut self, cancellation: bool, size: usize) {
        let request = Request {
            rpc_id: RpcId::new(1).expect("it is one"),
            method: "$m".into(),
            args: Args::Json(format!("[\"{}\"]", "x".repeat(size * 160)).into()),
            cancellation,
        };
        let room = self.rpc.has_room();
        match self.rpc.call(self.now, request) {
            Ok(req) => assert!(room && self.calls.insert(req), "{req} is in use"),
            Err(_) => assert!(!room || size * 160 + 64 > config().sent_message),
        }
    }

    fn reply(&mut self, size: usize) {
        if let Some(id) = self.requests.pop_front() {
            // The largest reply is over the limit, and is replaced by an error.
            let reply = Reply::OkBuffer(vec![7; size * 160].into());
            let _ = self.rpc.reply(id, reply);
        }
    }

    /// Like a driver: while no message is wanted, lets handlers end and writes what is queued.
    fn make_room(&mut self) {
        while !self.rpc.wants_message() {
            if self.requests.is_empty() {
                while self.rpc.poll_transmit().is_some() {}
                self.look();
                assert!(!self.requests.is_empty() || self.rpc.wants_message());
            }
            self.reply(1);
            self.look();
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        for event in self.framing.timeout(self.now) {
            match event {
                PersistentEvent::StreamTimeout { .. } => self.lose(),
                PersistentEvent::Failed(_) => self.over = true,
            }
            self.outcome.told.push(event);
        }
        for look in 0.. {
            match self.rpc.poll_timeout() {
                Some((at, _)) if self.now >= at => self.rpc.handle_timeout(self.now),
                _ => break,
            }
            assert!(
                look < 100,
                "due again and again: {:?}",
                self.rpc.poll_timeout()
            );
        }
    }

    fn lose(&mut self) {
        self.connected = false;
        if !self.framing.lost() {
            self.over = true;
        }
    }

    /// Passes messages to the framing, as long as it has room.
    fn hand_over(&mut self) {
        while !self.over
            && self.framing.has_room()
            && let Some(packet) = self.rpc.poll_transmit()
        {
            assert!(packet.len() <= config().sent_message);
            self.framing.send(self.now, &packet);
        }
    }

    fn flush(&mut self, max: usize) {
        self.hand_over();
        if self.connected {
            self.framing.write(self.now, max, &mut self.outcome.written);
        }
    }

    /// Takes the events, and checks that every limit holds.
    fn look(&mut self) {
        while let Some(event) = self.rpc.poll_event() {
            match &event {
                Event::Request { id, .. } => self.requests.push_back(*id),
                Event::Reply { req, .. } => {
                    assert!(self.calls.remove(req), "{req} ended twice, or nobody waits");
                }
                Event::Failed(_) => self.over = true,
                Event::Cancelled { .. } | Event::Responsive | Event::Unresponsive => {}
            }
            self.outcome.events.push(event);
        }
        if self.rpc.is_disposed() {
            self.requests.clear();
        }
        assert!(self.rpc.pending_calls() <= config().pending_calls);
        assert!(self.rpc.running_requests() <= config().running);
        assert!(self.requests.len() <= config().running);
        assert!(self.rpc.queued_bytes() <= config().unread_bytes);
        self.framing.check(config().sent_message);
    }
}

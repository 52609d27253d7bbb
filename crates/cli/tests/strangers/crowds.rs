//! Crowds of clients that never read, drip, come and go, or announce more than there is, while an honest
//! client asks: every request is answered right, and memory stays within `--memory`.
//!
//! `BREAKBULK_PEERS` is the size of a crowd: 200 here, 1,000 in the long form. That one also prints how long an
//! honest client waits while a crowd acts steadily, and for what (`steady.rs`).

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use self::listeners::Listener;
use crate::common::Server;

mod listeners;
mod steady;

/// What a server may take beyond `--memory`.
const BEYOND: usize = 64 << 20;

/// `--memory` for each client. A quarter of it is reserved for its session, which is what an honest client
/// can count on.
const MEMORY_EACH: usize = 320 << 10;

/// The largest request of the honest client: it fits into what is reserved.
const LARGE: usize = 50_000;

/// Requests of the honest client, before the crowd has come and while it acts.
const REQUESTS: usize = 100;

fn peers() -> usize {
    let asked = std::env::var("BREAKBULK_PEERS").ok();
    asked.map_or(200, |asked| asked.parse().expect("it is a number"))
}

/// What each client of a crowd does, again and again.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Habit {
    /// Sends requests and reads no answer.
    NeverReads,
    /// The same, but nobody sends before all have come: then all send at once.
    SendsAtOnce,
    /// Sends a byte of a message at a time.
    Drips,
    /// Leaves in the middle of a message, and comes again.
    Leaves,
    /// Sends the head of a frame of a terabyte, or pieces without an end, and comes again when it is cut off.
    Bombs,
}

/// One of 250 addresses.
fn address(number: usize) -> String {
    format!("203.0.113.{}", number % 250)
}

struct Member {
    number: usize,
    listener: Listener,
    habit: Habit,
    socket: Option<TcpStream>,
    sent: usize,
}

impl Member {
    fn connect(&mut self, server: &Server) {
        self.sent = 0;
        self.socket = self.listener.connect(server, &address(self.number));
        if let Some(socket) = &self.socket {
            socket.set_nonblocking(true).unwrap();
        }
    }

    /// Does once what its habit is.
    fn act(&mut self, server: &Server) {
        if self.habit == Habit::Leaves || self.socket.is_none() {
            self.connect(server);
        }
        let Some(socket) = &mut self.socket else {
            return;
        };
        let even = self.number.is_multiple_of(2);
        let address = address(self.number);
        let bytes = self.listener.attack(self.habit, &address, even, self.sent);
        let chosen = match self.habit {
            Habit::Drips => &bytes[self.sent % bytes.len()..][..1],
            Habit::Leaves => &bytes[..bytes.len() / 2],
            Habit::NeverReads | Habit::SendsAtOnce | Habit::Bombs => {
                &bytes[self.sent % bytes.len()..]
            }
        };
        match socket.write(chosen) {
            Ok(written) => self.sent += written,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => self.socket = None,
        }
    }
}

/// The times of so many requests of the honest client, sorted. Each is answered by itself.
fn ask(
    listener: Listener,
    server: &Server,
    requests: usize,
    mut between: impl FnMut(usize),
) -> Vec<Duration> {
    let mut honest = listener.honest(server);
    let mut times: Vec<Duration> = (1..=requests)
        .map(|id| {
            between(id);
            let asked = Instant::now();
            honest(id, if id % 10 == 0 { LARGE } else { 1_000 });
            asked.elapsed()
        })
        .collect();
    times.sort();
    times
}

fn p99(times: &[Duration]) -> Duration {
    times[times.len() * 99 / 100]
}

fn crowds_come_to(listener: Listener) {
    let count = peers();
    let measures = std::env::var_os("BREAKBULK_PEERS").is_some();
    for habit in [
        Habit::NeverReads,
        Habit::SendsAtOnce,
        Habit::Drips,
        Habit::Leaves,
        Habit::Bombs,
    ] {
        let memory = MEMORY_EACH * (count + 8);
        let server = listener.start(count + 8, memory);
        let quiet = match measures {
            true => steady::ask(listener, &server),
            false => ask(listener, &server, REQUESTS, |_| ()),
        };
        let mut crowd: Vec<Member> = (0..count)
            .map(|number| Member {
                number,
                listener,
                habit,
                socket: None,
                sent: 0,
            })
            .collect();
        if habit == Habit::SendsAtOnce {
            crowd.iter_mut().for_each(|member| member.connect(&server));
        }
        for member in &mut crowd {
            member.act(&server);
        }
        // Every member acts ten times while the honest client asks.
        let share = count.div_ceil(REQUESTS / 10);
        let busy = ask(listener, &server, REQUESTS, |id| {
            for at in 0..share {
                crowd[(id * share + at) % count].act(&server);
            }
        });
        let peak = server.peak_memory();
        println!(
            "{listener:?}, {habit:?}, {count} clients: {} MB resident at most; p99 {:?} without them, {:?} where each request is behind {share} of them",
            peak >> 20,
            p99(&quiet),
            p99(&busy),
        );
        if measures {
            steady::measure(&mut crowd, &server, &quiet);
        }
        assert!(
            peak < memory + BEYOND,
            "{listener:?}, {habit:?}: {peak} bytes resident"
        );
    }
}

#[test]
fn crowds_keep_within_the_memory_and_let_others_be_served() {
    crowds_come_to(Listener::WebSocket);
}

#[test]
fn crowds_at_a_stream_keep_within_the_memory_and_let_others_be_served() {
    crowds_come_to(Listener::Stream);
}

#[test]
fn crowds_at_an_mcp_listener_keep_within_the_memory_and_let_others_be_served() {
    crowds_come_to(Listener::Http);
}

#[test]
fn crowds_at_a_sync_server_keep_within_the_memory_and_let_others_be_served() {
    crowds_come_to(Listener::Documents);
}

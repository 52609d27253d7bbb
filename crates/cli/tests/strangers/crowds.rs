//! Crowds of clients that never read, drip, come and go, or announce more than there is, while an honest
//! client asks: every request is answered right, and memory stays within `--memory`.
//!
//! `BREAKBULK_PEERS` is the size of a crowd: 200 here, 1,000 in the long form, which also prints how long
//! the honest client waits.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::common::{Server, program};
use crate::raw::{frame, read_frame, request, skip_head};

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
    /// Sends a byte of a message at a time.
    Drips,
    /// Leaves in the middle of a message, and comes again.
    Leaves,
    /// Sends the head of a frame of a terabyte, or pieces without an end, and comes again when it is cut off.
    Bombs,
}

struct Member {
    number: usize,
    socket: Option<TcpStream>,
    sent: usize,
}

impl Member {
    /// A handshake from one of 250 addresses.
    fn connect(&mut self, server: &Server) {
        let address = format!("X-Forwarded-For: 203.0.113.{}\r\n", self.number % 250);
        let (status, mut socket) = server.web_socket("/", &address);
        self.sent = 0;
        self.socket = None;
        if status == 101 {
            skip_head(&mut socket);
            socket.set_nonblocking(true).unwrap();
            self.socket = Some(socket);
        }
    }

    /// Does what it does once.
    fn act(&mut self, habit: Habit, server: &Server) {
        if habit == Habit::Leaves || self.socket.is_none() {
            self.connect(server);
        }
        let bytes = match habit {
            Habit::NeverReads => frame(&request(0, 200_000)),
            Habit::Drips | Habit::Leaves => frame(&request(0, 5_000)),
            Habit::Bombs if self.number.is_multiple_of(2) => [
                &[0x81, 0x80 | 127],
                &(1_u64 << 40).to_be_bytes()[..],
                &[0; 64],
            ]
            .concat(),
            // A fragment that is not the last one, and never will be.
            Habit::Bombs => {
                let first = if self.sent == 0 { 0x01 } else { 0x00 };
                [&[first, 0x80 | 126, 0xff, 0xff][..], &[0; 4 + 65_535]].concat()
            }
        };
        let chosen = match habit {
            Habit::Drips => &bytes[self.sent % bytes.len()..][..1],
            Habit::Leaves => &bytes[..bytes.len() / 2],
            Habit::NeverReads | Habit::Bombs => &bytes[self.sent % bytes.len()..],
        };
        let Some(socket) = &mut self.socket else {
            return;
        };
        match socket.write(chosen) {
            Ok(written) => self.sent += written,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => self.socket = None,
        }
    }
}

/// The times of the honest client's requests, sorted. Each is answered by itself.
fn ask(server: &Server, mut between: impl FnMut(usize)) -> Vec<Duration> {
    let (status, mut socket) = server.web_socket("/", "X-Forwarded-For: 198.51.100.1\r\n");
    assert_eq!(status, 101, "{}", server.log());
    skip_head(&mut socket);
    let mut times: Vec<Duration> = (0..REQUESTS)
        .map(|id| {
            between(id);
            let text = request(id, if id % 10 == 0 { LARGE } else { 1_000 });
            let asked = Instant::now();
            socket.write_all(&frame(&text)).unwrap();
            assert!(read_frame(&mut socket) == text.as_bytes(), "request {id}");
            asked.elapsed()
        })
        .collect();
    times.sort();
    times
}

#[test]
fn crowds_keep_within_the_memory_and_let_others_be_served() {
    let count = peers();
    for habit in [Habit::NeverReads, Habit::Drips, Habit::Leaves, Habit::Bombs] {
        let arguments = ["gateway", "--listen", "whole+ws://0", "--to", "exec:cat"];
        let memory = MEMORY_EACH * (count + 8);
        let (memory_text, sessions) = (memory.to_string(), (count + 8).to_string());
        let mut limits = vec!["--memory", &memory_text, "--max-message", "1MiB"];
        limits.extend(["--max-sessions", &sessions]);
        limits.extend([
            "--trust-proxy",
            "x-forwarded-for",
            "--rate-per-address",
            "1000",
        ]);
        let server = Server::start(&mut program(&arguments, &limits));
        let quiet = ask(&server, |_| ());
        let mut crowd: Vec<Member> = (0..count)
            .map(|number| Member {
                number,
                socket: None,
                sent: 0,
            })
            .collect();
        for member in &mut crowd {
            member.act(habit, &server);
        }
        // Every member acts ten times while the honest client asks.
        let share = count.div_ceil(REQUESTS / 10);
        let busy = ask(&server, |id| {
            for at in 0..share {
                crowd[(id * share + at) % count].act(habit, &server);
            }
        });
        let p99 = |times: &[Duration]| times[times.len() * 99 / 100];
        let peak = server.peak_memory();
        println!(
            "{habit:?}, {count} clients: {} MB resident at most; p50 {:?} and p99 {:?} without them, {:?} and {:?} with them",
            peak >> 20,
            quiet[REQUESTS / 2],
            p99(&quiet),
            busy[REQUESTS / 2],
            p99(&busy),
        );
        assert!(peak < memory + BEYOND, "{habit:?}: {peak} bytes resident");
    }
}

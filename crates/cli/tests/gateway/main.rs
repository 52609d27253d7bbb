//! `breakbulk gateway` as programs and people meet it: the real program, real pipes, real sockets.

#![cfg(unix)]
#![allow(clippy::unwrap_used)]

mod admin;
mod admission;
mod carry;
mod common;
mod ends;
mod fleet;
mod http;
mod lines;
mod logs;
mod loro;
mod losses;
mod matrix;
mod mend;
mod nats_server;
mod nostr;
mod operate;
mod probes;
mod record;
mod resume;
mod sizes;
mod streams;
mod traces;
mod web_sockets;

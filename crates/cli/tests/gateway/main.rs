//! `breakbulk gateway` as programs and people meet it: the real program, real pipes, real sockets.

#![cfg(unix)]
#![allow(clippy::unwrap_used)]

mod admission;
mod carry;
mod common;
mod ends;
mod lines;
mod losses;
mod mend;
mod nostr;
mod resume;
mod sizes;
mod web_sockets;

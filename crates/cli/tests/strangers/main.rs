//! The listeners of the program as strangers meet them: the real program, raw sockets.

#![cfg(unix)]
#![allow(clippy::unwrap_used)]

mod addresses;
mod common;
#[cfg(target_os = "linux")]
mod crowds;
mod drain;
mod files;
mod offers;
mod pages;
mod raw;
mod shares;
mod silent;
mod words;

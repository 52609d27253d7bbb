//! A bare link, without tokio: frames go through a channel between threads: bare_link

use breakbulk::link::{Budget, Cap, Event, Frame, Link, Outgoing, PeerLimits, PeerSupport};
use breakbulk::wire::Loro;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

fn link() -> Link {
    let (wire, budget) = (Arc::new(Loro), Budget::new(64 << 20));
    let mut link = Link::new(wire.clone(), wire, Loro::config(), budget, [7; 32]);
    link.set_cap(Cap::frame(1000)); // what the transport lets through
    link.set_peer(PeerSupport::Yes(PeerLimits::NONE));
    link
}

fn receive(frames: &mpsc::Receiver<Vec<u8>>) -> usize {
    let mut link = link();
    loop {
        // Timeouts: the link says when it wants to be called again.
        let due = link.poll_timeout().map(|(at, _)| at - Instant::now());
        match frames.recv_timeout(due.unwrap_or(Duration::from_secs(10))) {
            Ok(frame) => drop(link.handle_frame(Instant::now(), Frame::Binary(frame.into()))),
            Err(_) => link.handle_timeout(Instant::now()),
        }
        if let Some(Event::Message(message)) = link.poll_event() {
            return message.bytes.len();
        }
    }
}

fn main() {
    let (send, frames) = mpsc::sync_channel(4); // backpressure: a full channel holds up its sender
    let receiver = std::thread::spawn(move || receive(&frames));
    let (mut link, mut frame) = (link(), Vec::new());
    drop(link.send(Instant::now(), Outgoing::new(vec![7; 100_000])));
    while link.poll_transmit(Instant::now(), &mut frame).is_some() {
        drop(send.send(std::mem::take(&mut frame)));
    }
    println!("{:?} bytes in frames of 1,000", receiver.join());
}

//! A link over your own transport, here a channel between threads: `cargo run --example own_transport`

use breakbulk::link::{Budget, Cap, Event, Frame, Link, Outgoing, PeerLimits, PeerSupport};
use breakbulk::wire::Loro;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

fn link() -> Link {
    let (wire, budget) = (Arc::new(Loro), Budget::new(64 << 20));
    let mut link = Link::new(wire.clone(), wire, Loro::config(), budget, [7; 32]);
    link.set_cap(Cap::frame(1000)); // the largest frame of the transport
    link.set_peer(PeerSupport::Yes(PeerLimits::NONE));
    link
}

fn receive(frames: &mpsc::Receiver<Vec<u8>>) -> usize {
    let mut link = link();
    loop {
        // The link says when `handle_timeout` is due.
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

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (send, frames) = mpsc::sync_channel(4); // backpressure: sending blocks while the channel is full
    let receiver = std::thread::spawn(move || receive(&frames));
    let (mut link, mut frame) = (link(), Vec::new());
    link.send(Instant::now(), Outgoing::new(vec![7; 100_000]))?;
    while link.poll_transmit(Instant::now(), &mut frame).is_some() {
        send.send(std::mem::take(&mut frame))?;
    }
    Ok(println!("{:?} bytes in frames of 1,000", receiver.join()))
}

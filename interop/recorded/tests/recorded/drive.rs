//! Helpers that run links for recorded cases: make a link, take all its frames, compare.

use std::sync::Arc;
use std::time::Instant;

use breakbulk_link::{
    Budget, Cap, Config, Event, Key, Link, Outgoing, PeerSupport, SendError, Wire,
};

pub(crate) fn link(
    send: impl Wire + 'static,
    receive: impl Wire + 'static,
    config: Config,
    budget: Budget,
) -> Link {
    Link::new(Arc::new(send), Arc::new(receive), config, budget, [7; 32])
}

/// All frames of one message, or why there are none.
pub(crate) fn frames(
    link: &mut Link,
    message: &[u8],
    key: Option<Key>,
    peer: PeerSupport,
    cap: Cap,
) -> Result<Vec<Vec<u8>>, SendError> {
    let now = Instant::now();
    link.set_peer(peer);
    link.set_cap(cap);
    let mut outgoing = Outgoing::new(message.to_vec());
    outgoing.key = key;
    link.send(now, outgoing)
        .map_err(|rejected| rejected.error)?;
    let mut frames = Vec::new();
    loop {
        let mut frame = Vec::new();
        match link.poll_transmit(now, &mut frame) {
            Some(_) => frames.push(frame),
            None => break,
        }
    }
    while let Some(event) = link.poll_event() {
        if let Event::SendFailed { error, .. } = event {
            return Err(error);
        }
    }
    Ok(frames)
}

/// An error that shows both values if they differ.
pub(crate) fn expect<T: PartialEq + std::fmt::Debug>(expected: T, got: T) -> Result<(), String> {
    if expected == got {
        return Ok(());
    }
    let shorten = |value: &T| format!("{value:?}").chars().take(300).collect::<String>();
    Err(format!(
        "expected {} but got {}",
        shorten(&expected),
        shorten(&got)
    ))
}

pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok())
        .collect()
}

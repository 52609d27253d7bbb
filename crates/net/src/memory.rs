//! Frames from one link to another in the same process, without a queue between them.

use std::time::Instant;

use breakbulk_link::{Carries, Frame, Link, Transmit};

/// Hands every frame that `from` may send now to `to`, one at a time; `look` sees each on its way.
///
/// It stops early when `to` wants its messages taken, or is closed.
pub fn carry(from: &mut Link, to: &mut Link, now: Instant, mut look: impl FnMut(&Transmit, &[u8])) {
    let mut buffer = Vec::new();
    while to.wants_frame() {
        let Some(transmit) = from.poll_transmit(now, &mut buffer) else {
            break;
        };
        look(&transmit, &buffer);
        let bytes = bytes::Bytes::from(std::mem::take(&mut buffer));
        let frame = match transmit.carries {
            Carries::Text => Frame::Text(bytes.clone()),
            Carries::Binary => Frame::Binary(bytes.clone()),
        };
        to.handle_frame(now, frame);
        // Where the receiver kept nothing of the frame its memory serves for the next one.
        if let Ok(reclaimed) = bytes.try_into_mut() {
            buffer = Vec::from(reclaimed);
            buffer.clear();
        }
    }
}

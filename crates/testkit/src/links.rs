//! Two links, a clock and an unreliable network, for the tests of several crates.
//!
//! There are no threads, the real clock is read only once, and all randomness comes from a seed: a
//! failing run can be repeated by its seed.
//!
//! ```
//! # use breakbulk_testkit::links::{Pair, Weather};
//! # fn example(left: breakbulk_link::Link, right: breakbulk_link::Link, message: breakbulk_link::Outgoing) {
//! let mut pair = Pair::new(left, right);
//! pair.weather(Weather::bad(), 7);
//! let now = pair.clock.now();
//! pair.left.link.send(now, message).expect("the queue is empty");
//! pair.run();
//! for message in pair.right.messages() {
//!     println!("{} bytes", message.len());
//! }
//! # }
//! ```

mod clock;
mod network;
mod pair;

pub use clock::Clock;
pub use network::{Network, Weather};
pub use pair::{Confirms, Pair, Side};

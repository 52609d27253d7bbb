//! Two links, a clock and a bad network, for the tests of this and other crates.
//!
//! Nothing here has a thread or looks at a real clock but for one base instant, and all chance
//! comes from a seed: a failing run is replayed by its number.
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

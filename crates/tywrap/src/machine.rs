//! The pure part of a host: what a call looks like, who waits for which answer, and what a line of the
//! bridge's means for whom. No process, no clock, no runtime.
//!
//! A host of one's own has a [`Link`](breakbulk_link::Link) from [`Settings::link`], writes each
//! [`Call`] as a message of that link, and gives every message that comes back to [`Calls::hear`].
//!
//! ```
//! use breakbulk_tywrap::Settings;
//! use breakbulk_tywrap::machine::{Call, Calls, Verdict};
//!
//! let mut calls = Calls::new(&Settings::default());
//! let call = Call::new("math", "sqrt", "[16]", None)?;
//! calls.begin(1, "whoever waits");
//! println!("to the bridge: {:?}", call.write(1));
//! let answer = r#"{"id":1,"protocol":"tywrap/1","result":4.0}"#;
//! let Verdict::Answer(who, result) = calls.hear(answer, None) else { panic!("no answer") };
//! assert_eq!((who, &answer[result]), ("whoever waits", "4.0"));
//! # Ok::<(), breakbulk_tywrap::machine::BadCall>(())
//! ```

mod about;
mod breach;
mod calls;
mod request;
mod returned;
mod settings;

pub use about::About;
pub use breach::{Breach, Raised};
pub use calls::{Calls, Verdict, excerpt, key_id};
pub use request::{BadCall, Call, meta_request};
pub use returned::Returned;
pub use settings::Settings;

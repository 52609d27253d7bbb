//! The pure part of a host: writes calls, matches the bridge's answers to them, and decides which calls
//! fail when the bridge breaks the protocol. No process, no clock, no runtime.
//!
//! To write another host, make a [`Link`](breakbulk_link::Link) with [`Config::link`], send each
//! [`Call`] as a message of that link, and pass every message received to [`Calls::handle_message`].
//!
//! ```
//! use breakbulk_tywrap::Config;
//! use breakbulk_tywrap::machine::{Call, Calls, Verdict};
//!
//! let mut calls = Calls::new(&Config::default());
//! let call = Call::new("math", "sqrt", "[16]", None)?;
//! calls.begin(1, "the caller");
//! println!("to the bridge: {:?}", call.write(1));
//! let answer = r#"{"id":1,"protocol":"tywrap/1","result":4.0}"#;
//! let Verdict::Answer(caller, result) = calls.handle_message(answer, None) else { panic!("no answer") };
//! assert_eq!((caller, &answer[result]), ("the caller", "4.0"));
//! # Ok::<(), breakbulk_tywrap::machine::BadCall>(())
//! ```

mod about;
mod breach;
mod calls;
mod config;
mod request;
mod returned;

pub use about::About;
pub use breach::{Breach, Raised};
pub use calls::{Calls, Verdict, excerpt, key_id};
pub use config::Config;
pub use request::{BadCall, Call, meta_request};
pub use returned::Returned;

#![no_main]

use breakbulk_fuzz::{Input, tunnel};
use libfuzzer_sys::fuzz_target;

// A gateway between a program and a tunnel, and messages from both.
fuzz_target!(|bytes: &[u8]| tunnel::check(Input::new(bytes)));

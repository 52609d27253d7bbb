#![no_main]

use breakbulk_fuzz::{Input, routes};
use libfuzzer_sys::fuzz_target;

// Requests, bodies and readers, one step after the other.
fuzz_target!(|bytes: &[u8]| routes::check(Input::new(bytes)));

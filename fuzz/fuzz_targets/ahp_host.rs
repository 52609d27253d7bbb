#![no_main]

use breakbulk_fuzz::{Input, ahp_host};
use libfuzzer_sys::fuzz_target;

// What clients of a host do and send, what is published, and time.
fuzz_target!(|bytes: &[u8]| ahp_host::check(Input::new(bytes)));

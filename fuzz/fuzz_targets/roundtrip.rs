#![no_main]

use breakbulk_fuzz::{Input, roundtrip};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| roundtrip::check(Input::new(bytes)));

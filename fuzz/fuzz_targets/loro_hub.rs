#![no_main]

use breakbulk_fuzz::{Input, hub};
use libfuzzer_sys::fuzz_target;

// What peers, the application and the disk do, one step after the other.
fuzz_target!(|bytes: &[u8]| hub::check(Input::new(bytes)));

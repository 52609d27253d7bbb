#![no_main]

use breakbulk_fuzz::{Input, contextvm_server};
use libfuzzer_sys::fuzz_target;

// Events from several keys, outcomes of publications, answers, and time.
fuzz_target!(|bytes: &[u8]| contextvm_server::check(Input::new(bytes)));

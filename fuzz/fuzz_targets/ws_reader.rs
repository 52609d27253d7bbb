#![no_main]

use breakbulk_fuzz::{Input, websocket};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| websocket::check(Input::new(bytes)));

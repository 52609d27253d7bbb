#![no_main]

use breakbulk_fuzz::{Input, machines};
use libfuzzer_sys::fuzz_target;

// A framing, the lengths of reads, actions between parts of the stream, and the stream.
fuzz_target!(|bytes: &[u8]| machines::check(Input::new(bytes)));

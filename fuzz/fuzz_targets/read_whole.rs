#![no_main]

use breakbulk_fuzz::read;
use breakbulk_wire::Whole;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    read::check(&Whole::TEXT, bytes);
    read::check(&Whole::BINARY, bytes);
});

#![no_main]

use breakbulk_fuzz::read;
use breakbulk_wire::Loro;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| read::check(&Loro, bytes));

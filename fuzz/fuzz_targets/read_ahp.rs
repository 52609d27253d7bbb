#![no_main]

use breakbulk_fuzz::read;
use breakbulk_wire::Ahp;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| read::check(&Ahp, bytes));

#![no_main]

use breakbulk_fuzz::mcp;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| mcp::body(bytes));

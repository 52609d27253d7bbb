#![no_main]

use breakbulk_fuzz::{Input, mcp};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| mcp::streams(Input::new(bytes)));

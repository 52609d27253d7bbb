#![no_main]

use breakbulk_fuzz::record;
use libfuzzer_sys::fuzz_target;

// The first byte says whether the rest is a record file or a frame to be named.
fuzz_target!(|bytes: &[u8]| match bytes.split_first() {
    Some((0, frame)) => record::name(frame),
    Some((_, file)) => record::read(file),
    None => {}
});

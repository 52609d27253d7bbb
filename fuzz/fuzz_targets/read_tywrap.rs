#![no_main]

use breakbulk_fuzz::read;
use breakbulk_wire::{Stream, Tywrap};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for expects in [None, Some(Stream::Response)] {
        let wire = Tywrap {
            expects,
            ..Tywrap::default()
        };
        read::check(&wire, bytes);
    }
});

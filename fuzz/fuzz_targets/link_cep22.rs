#![no_main]

use breakbulk_fuzz::Input;
use breakbulk_fuzz::links::{self, Format};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| links::run(Format::Cep22, Input::new(bytes)));

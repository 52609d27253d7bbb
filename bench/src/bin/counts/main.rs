//! A short fixed set of work whose instructions are counted by callgrind: `cargo xtask test` compares the
//! counts with those of `bench/instructions.txt`.
//!
//! Run without callgrind it prints the names of the cases in their order. Only calls of [`counted`] are
//! counted, and each call is a profile of its own.

use breakbulk::wire::json_text;
use breakbulk_bench::carried;
use breakbulk_bench::payload::Content;
use sha2::{Digest, Sha256};

/// The sizes of messages, their names, and how many are carried.
const SIZES: [(usize, &str, usize); 3] = [
    (256, "256 B", 64),
    (1000, "1 KB", 64),
    (1 << 20, "1 MiB", 1),
];

const TEXT: usize = 64 << 10;

fn main() {
    for setting in carried::settings() {
        for content in setting.contents() {
            for (size, size_name, times) in SIZES {
                let message = content.message(size);
                let mut carry = setting.carry(&message);
                // Allocations that only the first message needs are not counted.
                carry();
                let name = format!("{} {} {size_name}", setting.name, content.name());
                count(&name, times, &mut carry);
            }
        }
    }
    for content in [Content::Ascii, Content::Cjk, Content::Quotes] {
        let text = content.message(TEXT);
        let (mut escaped, mut back) = (Vec::new(), Vec::new());
        json_text::escape(&text, &mut escaped);
        count(&format!("escape {} 64 KiB", content.name()), 1, &mut || {
            escaped.clear();
            json_text::escape(&text, &mut escaped);
        });
        back.reserve(text.len());
        count(
            &format!("unescape {} 64 KiB", content.name()),
            1,
            &mut || {
                back.clear();
                json_text::unescape(&escaped, &mut back).expect("it was just escaped");
            },
        );
        assert_eq!(text, back);
    }
    // Valgrind has no SHA instructions: the digests of cep22 are subtracted.
    let message = Content::Ascii.message(1 << 20);
    count("digest 1 MiB", 1, &mut || {
        std::hint::black_box(Sha256::digest(&message));
    });
}

fn count(name: &str, times: usize, work: &mut dyn FnMut()) {
    println!("{name}\t{times}");
    counted(times, work);
}

/// The function whose calls callgrind counts.
#[inline(never)]
fn counted(times: usize, work: &mut dyn FnMut()) {
    for _ in 0..times {
        work();
    }
    // Keeps this a function with a frame of its own, without a tail call of the last work.
    std::hint::black_box(times);
}

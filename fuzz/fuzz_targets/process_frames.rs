#![no_main]

use breakbulk_fuzz::Input;
use breakbulk_fuzz::streams::Cuts;
use breakbulk_net::process::{Decoder, Framing, Unreadable};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

/// Bytes of a frame.
const LIMIT: usize = 300;

/// What the decoder may hold in addition to a frame: bytes read ahead, and headers.
const BESIDE: usize = 72 << 10;

// The first byte is the mode, the next ones give the lengths of reads, repeated over and over.
fuzz_target!(|bytes: &[u8]| {
    let mut input = Input::new(bytes);
    let mode = input.byte();
    let framing = if mode & 1 == 0 {
        Framing::Lines
    } else {
        Framing::ContentLength
    };
    let skips = mode & 2 == 2;
    let cuts = Cuts::new(&mut input);
    if mode & 4 == 4 {
        written(framing, &cuts, input);
        return;
    }
    let stream = input.rest();
    let whole = read(framing, skips, &[stream]);
    assert_eq!(read(framing, skips, &cuts.of(stream)), whole);
    // Whether frames over the limit are skipped changes nothing before the first of them.
    let before = whole.iter().take_while(|found| found.is_ok());
    let plain = read(framing, false, &[stream]);
    assert!(before.eq(plain.iter().take_while(|found| found.is_ok())));
    for found in &whole {
        match found {
            Ok(frame) => {
                assert!(!frame.is_empty() && frame.len() <= LIMIT);
                assert!(std::str::from_utf8(frame).is_ok());
                assert!(framing != Framing::Lines || !frame.contains(&b'\n'));
            }
            Err(Unreadable::Oversized { size, limit, .. }) => {
                assert!(skips && *limit == LIMIT && *size > LIMIT as u64);
                assert!(*size <= stream.len() as u64);
            }
            // The error is shown to people, whatever the peer wrote.
            Err(error) => assert!(!error.closed().reason.is_empty()),
        }
    }
});

/// Frames written by the rule of the framing are read back unchanged.
fn written(framing: Framing, cuts: &Cuts, mut input: Input<'_>) {
    let (mut stream, mut frames) = (Vec::new(), Vec::new());
    while !input.is_empty() {
        let text: String = String::from_utf8_lossy(input.slice())
            .chars()
            .filter(|char| !char.is_control())
            .take(80)
            .collect();
        // A JSON string is not a header, and is complete.
        let frame = format!("\"{text}\"");
        let (before, after) = framing.around(frame.len());
        stream.extend([before.as_bytes(), frame.as_bytes(), after.as_bytes()].concat());
        frames.push(frame);
    }
    let found = read(framing, false, &cuts.of(&stream));
    let expected = frames.into_iter().map(|frame| Ok(Bytes::from(frame)));
    assert_eq!(found, expected.collect::<Vec<_>>());
}

/// All frames and errors to the end of the input; an error that is not skipped is the last.
fn read(framing: Framing, skips: bool, reads: &[&[u8]]) -> Vec<Result<Bytes, Unreadable>> {
    let mut decoder = Decoder::new(framing, LIMIT);
    decoder.skip_oversized(skips.then_some(&["id", "method"]));
    let mut all = Vec::new();
    for read in reads {
        let mut read = *read;
        while !read.is_empty() {
            let (buffer, most) = decoder.space();
            assert!(most > 0, "nothing could ever come");
            let (now, later) = read.split_at(most.min(read.len()));
            buffer.extend_from_slice(now);
            assert!(buffer.capacity() <= LIMIT + BESIDE, "{}", buffer.capacity());
            read = later;
            while let Some(found) = decoder.next() {
                let ends = matches!(&found, Err(error) if !is_skipped(error));
                all.push(found);
                if ends {
                    return all;
                }
            }
        }
    }
    all.extend(decoder.finish());
    all
}

fn is_skipped(error: &Unreadable) -> bool {
    matches!(error, Unreadable::Oversized { .. })
}

#![no_main]

use breakbulk_fuzz::Input;
use breakbulk_message::vscode::ipc::{Frame, IpcError, IpcReader};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

const LIMIT: usize = 4096;

// The first bytes give the lengths of reads, repeated over and over.
fuzz_target!(|bytes: &[u8]| {
    let mut input = Input::new(bytes);
    let cuts: Vec<usize> = input.slice().iter().map(|&cut| usize::from(cut)).collect();
    let stream = input.rest();
    let whole = read([stream]);
    let mut chunks = Vec::new();
    let mut left = stream;
    for &cut in cuts.iter().cycle() {
        if left.is_empty() || chunks.len() > 4096 {
            break;
        }
        let (chunk, rest) = left.split_at(cut.min(left.len()));
        chunks.push(chunk);
        left = rest;
    }
    chunks.push(left);
    assert_eq!(read(chunks), whole);

    let mut written = Vec::new();
    for frame in &whole.0 {
        frame.write(&mut written).expect("it came in a frame");
    }
    assert!(stream.starts_with(&written));
});

/// All frames, how the stream ended, and whether it ended inside a frame.
fn read<'a>(
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<Frame>, Result<(), IpcError>, bool) {
    let mut reader = IpcReader::new(LIMIT);
    let mut frames = Vec::new();
    for chunk in chunks {
        let mut chunk = Bytes::copy_from_slice(chunk);
        loop {
            match reader.read(&mut chunk) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Err(error), reader.is_inside_frame()),
            }
        }
        assert!(chunk.is_empty());
        assert!(reader.held() <= LIMIT);
    }
    (frames, Ok(()), reader.is_inside_frame())
}

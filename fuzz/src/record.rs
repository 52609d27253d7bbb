//! Files of `gateway --record`, which anybody may have written, and the naming of frames in them.

use breakbulk_gateway::record::{Entry, Found, Namer, Note, RecordReader, words};
use breakbulk_link::Frame;
use bytes::Bytes;

/// Texts of peers are shortened to this many characters, and an ellipsis.
const TEXT: usize = 121;

/// Reads a file to its end, or to where it is damaged.
pub fn read(file: &[u8]) {
    let mut reader = RecordReader::new(file);
    let (mut entries, mut bytes) = (0, 0);
    while let Ok(Some(found)) = reader.read_next() {
        entries += 1;
        if let Found::Entry(point, entry) = found {
            bytes += entry.body.len() + point.name().len();
            again(&entry);
        }
    }
    // A packet takes at least 32 bytes, and what is read is bounded by the file's size.
    assert!(entries * 32 <= file.len() && bytes <= file.len() * 8 + 64 * entries);
}

/// An entry that was read can be written and read again, and shown.
fn again(entry: &Entry) {
    let text = serde_json::to_string(&entry.note).expect("it was read from JSON");
    let note: Note = serde_json::from_str(&text).expect("it is the same");
    assert_eq!(note, entry.note);
    assert!(!entry.note.summary().is_empty());
}

/// Names a frame, as text and as bytes, and then a second one.
pub fn name(frame: &[u8]) {
    let mut namer = Namer::default();
    let half = frame.len() / 2;
    for part in [frame, &frame[..half], &frame[half..]] {
        for frame in [
            Frame::Text(Bytes::copy_from_slice(part)),
            Frame::Binary(Bytes::copy_from_slice(part)),
        ] {
            let head = namer.head(&frame);
            assert!(head.data.is_none_or(|data| data <= part.len() as u64));
            for text in [&head.key, &head.method, &head.id].into_iter().flatten() {
                assert!(text.chars().count() <= TEXT, "{text}");
            }
            assert!(!words(&head).is_empty());
            let note = Note::Frame {
                n: 1,
                bytes: part.len() as u64,
                head,
            };
            let text = serde_json::to_string(&note).expect("a note");
            assert_eq!(serde_json::from_str::<Note>(&text).expect("a note"), note);
        }
    }
}

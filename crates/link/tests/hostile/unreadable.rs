//! Attacks by frames that cannot be read: of the wrong kind (text or binary), not UTF-8, not JSON, cut short.

use breakbulk_link::Frame;

use super::{Attack, NO_PIECES, Table, ZERO, deep, steps, text};
use crate::common::Kit;
use crate::{MESSAGE, MESSAGE_LIMIT};

pub(super) fn unreadable(attacks: &mut Vec<Attack>) {
    let mut table = Table(attacks);
    table.add("wrong carrier", |kit| {
        Ok(steps([match kit {
            Kit::Loro => text("\u{0}not bytes"),
            _ => Frame::Binary(MESSAGE.into()),
        }]))
    });
    table.add("empty frame", |kit| {
        Ok(steps([match kit {
            Kit::Loro => Frame::Binary(vec![].into()),
            _ => text(""),
        }]))
    });
    table.add("not UTF-8", |kit| match kit {
        Kit::Loro => Err("the wire carries any bytes"),
        _ => Ok(steps([Frame::Text(b"{\"a\":\"\xff\"}".to_vec().into())])),
    });
    table.add("not UTF-8 inside a piece", |kit| match kit {
        Kit::Loro => Err("the wire carries any bytes"),
        Kit::Whole => Err(NO_PIECES),
        _ => {
            let mut frame = kit.piece_fields(1, 0, 2, 20, b"@@@@@@").text().into_bytes();
            let at = frame
                .windows(4)
                .rposition(|part| part == b"@@@@" || part == b"QEBA")
                .unwrap();
            frame[at] = 0xff;
            let mut frames: Vec<Frame> = kit.open(1, 2, 20, &ZERO).into_iter().collect();
            frames.push(Frame::Text(frame.into()));
            Ok(steps(frames))
        }
    });
    table.add("frame over the limit", |kit| {
        Ok(steps([kit.whole(&vec![b' '; MESSAGE_LIMIT + 1])]))
    });
    table.text("no JSON", || "hello".into());
    table.text("an unfinished object", || r#"{"jsonrpc":"2.0""#.into());
    table.text("an object and more", || {
        r#"{"jsonrpc":"2.0","id":1,"method":"m"} x"#.into()
    });
    table.text("a batch", || {
        r#"[{"jsonrpc":"2.0","id":1,"method":"m"}]"#.into()
    });
    table.text("a scalar", || "7".into());
    table.text("deep JSON as a message", || {
        format!(
            r#"{{"jsonrpc":"2.0","method":"m","params":{}}}"#,
            deep(100_000)
        )
    });
    table.text("deep JSON and nothing else", || deep(100_000));
    table.text("deep JSON that never ends", || "[".repeat(100_000));
    table.frames("a piece cut short at every length", |kit| {
        let frame = kit.piece(1, 0, 2, 20, b"0123456789");
        let mut frames: Vec<Frame> = kit.open(1, 2, 20, &ZERO).into_iter().collect();
        frames.extend((0..frame.bytes().len()).map(|end| part(&frame, end)));
        frames
    });
    table.only(
        &[Kit::Cep22, Kit::Loro],
        "an opening cut short at every length",
        |kit| {
            let frame = kit.open(1, 2, 20, &ZERO).unwrap();
            (0..frame.bytes().len())
                .map(|end| part(&frame, end))
                .collect()
        },
    );
}

fn part(frame: &Frame, end: usize) -> Frame {
    match frame {
        Frame::Text(text) => Frame::Text(text.slice(..end)),
        Frame::Binary(bytes) => Frame::Binary(bytes.slice(..end)),
    }
}

//! Attacks by too much data: in one message, declared or not, and in many.

use breakbulk_link::Frame;

use super::{Attack, NO_PIECES, Table, ZERO, opened, steps, text};
use crate::common::Kit;
use crate::{MESSAGE, MESSAGE_LIMIT, PIECES_LIMIT, Step};

pub(super) fn sizes(attacks: &mut Vec<Attack>) {
    let mut table = Table(attacks);
    table.frames("a declared giant", |kit| {
        opened(kit, 2, 1 << 31, [(0, &b"x"[..])])
    });
    table.frames("a declared giant number of pieces", |kit| {
        opened(kit, 60_000, 60_000, [(0, &b"x"[..])])
    });
    table.frames("exactly the limit of pieces", |kit| {
        opened(kit, PIECES_LIMIT, 5000, [(0, &b"x"[..])])
    });
    table.frames("one piece over the limit of pieces", |kit| {
        opened(kit, PIECES_LIMIT + 1, 5000, [(0, &b"x"[..])])
    });
    table.frames("more bytes than declared", |kit| {
        opened(kit, 3, 3, [(0, &b"xx"[..]), (1, b"yy")])
    });
    table.frames("more bytes than declared, early", |kit| {
        opened(kit, 3, 3, [(2, &b"xx"[..]), (1, b"yy")])
    });
    table.frames("fewer bytes than declared", |kit| {
        let mut frames = opened(kit, 2, 30, [(0, &b"x"[..]), (1, b"y")]);
        frames.extend(kit.close(1, 2));
        frames
    });
    table.frames("declared as nothing", |kit| {
        opened(kit, 1, 0, [(0, &b"x"[..])])
    });
    table.frames("a message of exactly the limit", |kit| {
        let padding = MESSAGE_LIMIT - MESSAGE.len();
        let message = [MESSAGE, &vec![b' '; padding]].concat();
        kit.transfer(1, &message, 100_000)
    });
    table.frames("a message one byte over the limit", |kit| {
        let padding = MESSAGE_LIMIT - MESSAGE.len() + 1;
        let message = [MESSAGE, &vec![b' '; padding]].concat();
        kit.transfer(1, &message, 100_000)
    });
    // WIRE-3
    table.frames("an undeclared message over the limit", |kit| {
        let piece = vec![b'x'; 100_000];
        let declared = MESSAGE_LIMIT as u64;
        let mut frames: Vec<Frame> = kit.open(1, 20, declared, &ZERO).into_iter().collect();
        frames.extend((0..20).map(|index| kit.piece(1, index, 20, declared, &piece)));
        frames
    });
    table.add("a whole message over the link's memory", |kit| {
        let frame = kit.whole(&vec![b'7'; MESSAGE_LIMIT - 2]);
        Ok([Step::Deaf]
            .into_iter()
            .chain(steps(vec![frame; 4]))
            .collect())
    });
}

pub(super) fn floods(attacks: &mut Vec<Attack>) {
    let mut table = Table(attacks);
    table.frames("500 empty pieces", |kit| {
        let mut frames: Vec<Frame> = kit.open(1, 1000, 1000, &ZERO).into_iter().collect();
        frames.extend((0..500).map(|index| kit.piece(1, index, 1000, 1000, b"")));
        frames
    });
    table.frames("1,000 pieces of one byte", |kit| {
        kit.transfer(1, &[b'x'; 1000], 1)
    });
    table.frames("every other piece of one byte", |kit| {
        opened(kit, 1000, 1000, (0..500).map(|half| (half * 2, &b"x"[..])))
    });
    table.frames("999 pieces of one byte, the first missing", |kit| {
        opened(kit, 1000, 1000, (1..1000).map(|at| (at, &b"x"[..])))
    });
    table.frames("a key flood", |kit| {
        let open = |number| {
            kit.open(number, 2, 20, &ZERO)
                .into_iter()
                .chain([kit.piece(number, 0, 2, 20, b"x")])
        };
        (0..1000).flat_map(open).collect()
    });
    table.add("a key flood that nobody listens to", |kit| match kit {
        Kit::Whole => Err(NO_PIECES),
        _ => {
            let open = |number| {
                kit.open(number, 2, 20, &ZERO)
                    .into_iter()
                    .chain([kit.piece(number, 0, 2, 20, b"x")])
            };
            Ok([Step::Deaf]
                .into_iter()
                .chain(steps((0..3000).flat_map(open)))
                .collect())
        }
    });
    table.add("a flood of wrong frames that nobody listens to", |kit| {
        let wrong = match kit {
            Kit::Loro => Frame::Binary(vec![9].into()),
            Kit::Cep22 => kit.special(1, 1, "nonsense").frame(),
            Kit::Whole => Frame::Binary(vec![].into()),
            _ => kit.piece_fields(1, 0, 2, 20, b"").set("data", "7").frame(),
        };
        Ok([Step::Deaf]
            .into_iter()
            .chain(steps(vec![wrong; 3000]))
            .collect())
    });
    table.add("a flood of messages that nobody takes", |kit| {
        let message = [MESSAGE, &[b' '; 500]].concat();
        Ok([Step::Deaf]
            .into_iter()
            .chain(steps(vec![kit.whole(&message); 3000]))
            .collect())
    });
    // WIRE-7
    table.frames("joint limits: four transfers of 400 KB", |kit| {
        let piece = vec![b'x'; 100_000];
        let open: Vec<Frame> = (1..5)
            .filter_map(|number| kit.open(number, 5, 500_000, &ZERO))
            .collect();
        let pieces = (0..4).flat_map(|index| (1..5).map(move |number| (number, index)));
        open.into_iter()
            .chain(pieces.map(|(number, index)| kit.piece(number, index, 5, 500_000, &piece)))
            .collect()
    });
    table.frames("joint limits: the same with gaps", |kit| {
        let piece = vec![b'x'; 100_000];
        let open: Vec<Frame> = (1..5)
            .filter_map(|number| kit.open(number, 5, 500_000, &ZERO))
            .collect();
        let pieces = (1..5).flat_map(|index| (1..5).map(move |number| (number, index)));
        open.into_iter()
            .chain(pieces.map(|(number, index)| kit.piece(number, index, 5, 500_000, &piece)))
            .collect()
    });
    table.add("the process is short of memory", |kit| match kit {
        Kit::Whole => Ok([Step::Process(100)]
            .into_iter()
            .chain(steps([kit.whole(MESSAGE)]))
            .collect()),
        _ => {
            let piece = vec![b'x'; 8_000];
            let open: Vec<Frame> = (1..3)
                .filter_map(|number| kit.open(number, 2, 16_000, &ZERO))
                .collect();
            let pieces = (1..3).map(|number| kit.piece(number, 0, 2, 16_000, &piece));
            Ok([Step::Process(12_000)]
                .into_iter()
                .chain(steps(open.into_iter().chain(pieces)))
                .collect())
        }
    });
    table.add("a long word of the transport's own", |kit| match kit {
        Kit::Loro => Ok(steps([text(&"p".repeat(400_000))])),
        _ => Err("the wire has no words of the transport's own"),
    });
    table.add("a flood of words that nobody listens to", |kit| match kit {
        Kit::Loro => Ok([Step::Deaf]
            .into_iter()
            .chain(steps(vec![text("ping"); 3000]))
            .collect()),
        _ => Err("the wire has no words of the transport's own"),
    });
}

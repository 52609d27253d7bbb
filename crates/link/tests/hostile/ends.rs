//! Attacks by frames at the wrong time: late pieces, and closing, accept and abort frames out of place.

use std::time::Duration;

use super::{Attack, NO_PIECES, OTHER_FORMAT, Table, ZERO, opened, steps};
use crate::common::Kit;
use crate::{MESSAGE, Step};

pub(super) fn time(attacks: &mut Vec<Attack>) {
    let mut table = Table(attacks);
    let second = Duration::from_secs(1);
    table.add("a slow drip", move |kit| match kit {
        Kit::Whole => Err(NO_PIECES),
        _ => {
            let mut script = steps(kit.open(1, 1000, 1000, &ZERO));
            for index in 0..100 {
                script.push(Step::Frame(kit.piece(1, index, 1000, 1000, b"x")));
                script.push(Step::Wait(second * 25));
            }
            Ok(script)
        }
    });
    table.add("one piece and then nothing", move |kit| match kit {
        Kit::Whole => Err(NO_PIECES),
        _ => {
            let mut script = steps(opened(kit, 2, 20, [(0, &b"x"[..])]));
            script.push(Step::Wait(second * 3600));
            Ok(script)
        }
    });
    table.add("a piece after its transfer's time", move |kit| match kit {
        Kit::Whole => Err(NO_PIECES),
        _ => {
            let mut script = steps(opened(kit, 2, 20, [(0, &b"x"[..])]));
            script.push(Step::Wait(second * 3600));
            script.push(Step::Frame(kit.piece(1, 1, 2, 20, b"y")));
            Ok(script)
        }
    });
    // WIRE-8, TYWRAP-1
    table.add("frames of a discarded key", |kit| match kit {
        Kit::Whole => Err(NO_PIECES),
        _ => {
            let mut script = steps(opened(kit, 3, 3, [(0, &b"x"[..])]));
            script.push(Step::Discard(kit.key(1)));
            script.extend(steps((1..3).map(|index| kit.piece(1, index, 3, 3, b"x"))));
            // The last piece of the discarded transfer has come: the key may be used again.
            script.extend(steps(kit.transfer(1, MESSAGE, 10)));
            Ok(script)
        }
    });
    table.add("a wrong frame of a discarded key", |kit| match kit {
        Kit::Tywrap | Kit::Bridge => Ok(vec![
            Step::Discard(kit.key(1)),
            Step::Frame(kit.piece_fields(1, 0, 2, 20, b"x").set("data", "7").frame()),
        ]),
        _ => Err("discarding is tywrap's"),
    });
    table.add("frames after the link is closed", |kit| match kit {
        Kit::Ahp => {
            let mut frames = opened(kit, 2, 20, [(0, &b"x"[..]), (0, b"x")]);
            frames.extend(kit.transfer(2, MESSAGE, 10));
            frames.push(kit.whole(MESSAGE));
            Ok(steps(frames))
        }
        _ => Err("no frame of a peer closes such a link"),
    });
    table.add("pieces that were not negotiated", |kit| match kit {
        Kit::Whole => Err(NO_PIECES),
        _ => Ok([Step::NotNegotiated]
            .into_iter()
            .chain(steps(kit.transfer(1, MESSAGE, 10)))
            .collect()),
    });
}

pub(super) fn ends(attacks: &mut Vec<Attack>) {
    const CEP22: &[Kit] = &[Kit::Cep22];
    let mut table = Table(attacks);
    table.only(CEP22, "end before the last piece", |kit| {
        let mut frames = kit.transfer(1, MESSAGE, 10);
        frames.remove(3);
        frames
    });
    table.only(CEP22, "end with a number too high", |kit| {
        let mut frames = kit.transfer(1, MESSAGE, 10);
        frames.pop();
        frames.push(kit.end(1, 99));
        frames
    });
    table.only(CEP22, "end with the opening's number", |kit| {
        let mut frames = kit.transfer(1, MESSAGE, 10);
        frames.pop();
        frames.push(kit.end(1, 1));
        frames
    });
    table.only(CEP22, "end twice", |kit| {
        let mut frames = kit.transfer(1, MESSAGE, 10);
        frames.extend(kit.close(1, 4));
        frames
    });
    table.only(CEP22, "end out of nowhere", |kit| vec![kit.end(1, 5)]);
    table.only(CEP22, "end right after the opening", |kit| {
        vec![kit.open(1, 1, 5, &ZERO).unwrap(), kit.end(1, 2)]
    });
    table.only(CEP22, "accept out of nowhere", |kit| {
        vec![kit.special(1, 2, "accept").frame()]
    });
    table.only(CEP22, "abort out of nowhere", |kit| {
        vec![kit.special(1, 2, "abort").frame()]
    });
    table.only(CEP22, "abort of the peer's own transfer", |kit| {
        let mut frames = opened(kit, 2, 20, [(0, &b"x"[..])]);
        frames.push(
            kit.special(1, 9, "abort")
                .set("reason", "\"enough\"")
                .frame(),
        );
        frames
    });
    table.only(CEP22, "abort with a reason of 100 KB", |kit| {
        let mut frames = opened(kit, 2, 20, [(0, &b"x"[..])]);
        frames.push(
            kit.special(1, 9, "abort")
                .set("reason", &format!("\"{}\"", "r".repeat(100_000)))
                .frame(),
        );
        frames
    });
    for (name, kinds) in [
        ("accept of our transfer", &["accept"][..]),
        ("accept of our transfer, twice", &["accept", "accept"]),
        ("abort of our transfer", &["abort"]),
        ("abort of our transfer, then accept", &["abort", "accept"]),
    ] {
        table.add(name, move |kit| match kit {
            Kit::Cep22 => {
                let mut script = vec![Step::Send(kit.key(1))];
                script.extend(steps(
                    kinds.iter().map(|kind| kit.special(1, 2, kind).frame()),
                ));
                Ok(script)
            }
            _ => Err(OTHER_FORMAT),
        });
    }
    table.add("no accept for our transfer", |kit| match kit {
        Kit::Cep22 => Ok(vec![
            Step::Send(kit.key(1)),
            Step::Wait(Duration::from_secs(31)),
        ]),
        _ => Err(OTHER_FORMAT),
    });
    table.add(
        "the key of our transfer as the peer's own",
        |kit| match kit {
            Kit::Cep22 => {
                let mut script = vec![Step::Send(kit.key(1))];
                script.extend(steps(kit.transfer(1, MESSAGE, 10)));
                Ok(script)
            }
            _ => Err(OTHER_FORMAT),
        },
    );
}

//! Attacks by pieces and opening frames that are out of order, repeated, late, or contradict each other.

use sha2::Digest;

use super::{Attack, Table, ZERO, opened, steps};
use crate::MESSAGE;
use crate::common::Kit;

pub(super) fn order(attacks: &mut Vec<Attack>) {
    let mut table = Table(attacks);
    table.frames("index at the count", |kit| {
        opened(kit, 2, 20, [(2, &b"x"[..])])
    });
    table.frames("index far over the count", |kit| {
        opened(kit, 2, 20, [(1_000_000, &b"x"[..])])
    });
    table.frames("not the first piece first", |kit| {
        opened(kit, 3, 30, [(1, &b"x"[..])])
    });
    table.frames("a gap", |kit| {
        opened(kit, 3, 30, [(0, &b"x"[..]), (2, b"y")])
    });
    table.frames("a gap that is closed later", |kit| {
        opened(kit, 3, 3, [(0, &b"x"[..]), (2, b"z"), (1, b"y")])
    });
    table.frames("all pieces backwards", |kit| {
        let mut frames = kit.transfer(1, MESSAGE, 4);
        let (first, last) = (
            usize::from(kit.open(1, 1, 1, &ZERO).is_some()),
            usize::from(kit == Kit::Cep22),
        );
        let end = frames.len() - last;
        frames[first..end].reverse();
        frames
    });
    table.frames("the same piece twice", |kit| {
        opened(kit, 3, 30, [(0, &b"x"[..]), (0, b"x")])
    });
    table.frames("the same piece twice with other data", |kit| {
        opened(kit, 3, 30, [(0, &b"x"[..]), (0, b"y")])
    });
    table.frames("the same early piece twice", |kit| {
        opened(kit, 3, 30, [(2, &b"x"[..]), (2, b"x")])
    });
    table.frames("the same early piece twice with other data", |kit| {
        opened(kit, 3, 30, [(2, &b"x"[..]), (2, b"y")])
    });
    table.frames("every frame twice", |kit| {
        kit.transfer(1, MESSAGE, 10)
            .into_iter()
            .flat_map(|frame| [frame.clone(), frame])
            .collect()
    });
    table.frames("a late piece of a finished transfer", |kit| {
        let mut frames = kit.transfer(1, MESSAGE, 10);
        frames.push(kit.piece(1, 2, 4, 37, b"0123456789"));
        frames
    });
    table.frames("a piece of a transfer that nobody opened", |kit| {
        vec![kit.piece(1, 0, 2, 20, b"0123456789")]
    });
    table.only(&[Kit::Cep22, Kit::Loro], "an opening twice", |kit| {
        let mut frames = kit.transfer(1, MESSAGE, 10);
        frames.insert(2, frames[0].clone());
        frames
    });
    table.only(
        &[Kit::Cep22, Kit::Loro],
        "an opening twice with other figures",
        |kit| {
            let mut frames = kit.transfer(1, MESSAGE, 10);
            frames.insert(2, kit.open(1, 1, 10, &ZERO).unwrap());
            frames
        },
    );
    table.only(&[Kit::Cep22, Kit::Loro], "a late opening", |kit| {
        let mut frames = kit.transfer(1, MESSAGE, 10);
        frames.rotate_left(1);
        frames
    });
    table.add("the count changes", |kit| match kit {
        Kit::Ahp | Kit::Tywrap | Kit::Bridge => Ok(steps([
            kit.piece(1, 0, 3, 30, b"x"),
            kit.piece(1, 1, 4, 30, b"y"),
        ])),
        _ => Err("it is said once"),
    });
    table.add("the size changes", |kit| match kit {
        Kit::Tywrap | Kit::Bridge => Ok(steps([
            kit.piece(1, 0, 3, 30, b"x"),
            kit.piece(1, 1, 3, 31, b"y"),
        ])),
        _ => Err("it is said once, or not at all"),
    });
    table.only(&[Kit::Cep22], "as far ahead as the window goes", |kit| {
        opened(kit, 40, 400, (1..22).rev().map(|at| (at, &b"x"[..])))
    });
    // CEP22-1
    table.only(
        &[Kit::Cep22],
        "the first piece late by the whole window",
        |kit| {
            let pieces = (1..22).chain([0]).chain(22..40).map(|at| (at, &b"x"[..]));
            opened(kit, 40, 40, pieces)
        },
    );
    table.only(&[Kit::Cep22], "beyond the window", |kit| {
        opened(kit, 40, 400, [(0, &b"x"[..]), (23, b"y")])
    });
    // CEP22-1
    table.only(&[Kit::Cep22], "beyond the window before any piece", |kit| {
        opened(kit, 40, 400, [(30, &b"x"[..])])
    });
    // CEP22-1
    table.only(
        &[Kit::Cep22],
        "the layout with a slot for the accept",
        |kit| {
            let shifted = (0..40).map(|at| kit.piece(1, at + 1, 40, 40, b"x"));
            let digest = sha2::Sha256::digest([b'x'; 40]).into();
            kit.open(1, 40, 40, &digest)
                .into_iter()
                .chain(shifted)
                .chain([kit.end(1, 43)])
                .collect()
        },
    );
    table.only(&[Kit::Cep22], "both layouts at once", |kit| {
        opened(kit, 3, 4, (0..5).map(|at| (at, &b"x"[..])))
    });
}

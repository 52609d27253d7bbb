//! The attacks: for each wire a script, or the reason why the attack does not apply to it.

mod content;
mod ends;
mod fields;
mod floods;
mod formats;
mod order;
mod unreadable;

use breakbulk_link::Frame;

use crate::common::{Fields, Kit};
use crate::{MESSAGE, Step};

use content::content;
use ends::{ends, time};
use fields::{fields, keys};
use floods::{floods, sizes};
use formats::rules_of_one;
use order::order;
use unreadable::unreadable;

/// An attack on one wire, or why there is none.
pub(crate) type Script = Result<Vec<Step>, &'static str>;

/// An attack with its name.
pub(crate) type Attack = (String, Box<dyn Fn(Kit) -> Script>);

const NO_PIECES: &str = "the wire has no pieces";
const NO_FIELD: &str = "the wire has no such field";
const NO_JSON: &str = "the wire has no JSON";
const OTHER_FORMAT: &str = "a rule of another format";
const ZERO: [u8; 32] = [0; 32];

/// All attacks, in the order of the snapshot.
pub(crate) fn all() -> Vec<Attack> {
    let mut attacks = Vec::new();
    honest(&mut attacks);
    unreadable(&mut attacks);
    fields(&mut attacks);
    keys(&mut attacks);
    content(&mut attacks);
    order(&mut attacks);
    sizes(&mut attacks);
    floods(&mut attacks);
    time(&mut attacks);
    ends(&mut attacks);
    rules_of_one(&mut attacks);
    attacks
}

struct Table<'a>(&'a mut Vec<Attack>);

impl Table<'_> {
    fn add(&mut self, name: impl Into<String>, script: impl Fn(Kit) -> Script + 'static) {
        self.0.push((name.into(), Box::new(script)));
    }

    /// Adds an attack by these frames, for the wires with pieces.
    fn frames(&mut self, name: impl Into<String>, frames: impl Fn(Kit) -> Vec<Frame> + 'static) {
        self.add(name, move |kit| match kit {
            Kit::Whole => Err(NO_PIECES),
            _ => Ok(steps(frames(kit))),
        });
    }

    /// Adds an attack by a raw text frame, the same for all text wires.
    fn text(&mut self, name: impl Into<String>, text: impl Fn() -> String + 'static) {
        self.add(name, move |kit| match kit {
            Kit::Loro => Err(NO_JSON),
            _ => Ok(steps([Frame::Text(text().into())])),
        });
    }

    /// Adds an attack by a piece whose JSON was tampered with, after a valid opening frame.
    fn tampered(
        &mut self,
        name: impl Into<String>,
        tamper: impl Fn(Kit, Fields) -> Option<Fields> + 'static,
    ) {
        self.add(name, move |kit| {
            if matches!(kit, Kit::Whole | Kit::Loro) {
                return Err(if kit == Kit::Loro { NO_JSON } else { NO_PIECES });
            }
            let piece =
                tamper(kit, kit.piece_fields(1, 0, 2, 20, b"0123456789")).ok_or(NO_FIELD)?;
            let mut frames: Vec<Frame> = kit.open(1, 2, 20, &ZERO).into_iter().collect();
            frames.push(piece.frame());
            Ok(steps(frames))
        });
    }

    /// Adds an attack that applies to these wires only.
    fn only(
        &mut self,
        kits: &'static [Kit],
        name: impl Into<String>,
        frames: impl Fn(Kit) -> Vec<Frame> + 'static,
    ) {
        self.add(name, move |kit| match kits.contains(&kit) {
            true => Ok(steps(frames(kit))),
            false => Err(OTHER_FORMAT),
        });
    }
}

fn steps(frames: impl IntoIterator<Item = Frame>) -> Vec<Step> {
    frames.into_iter().map(Step::Frame).collect()
}

fn text(text: &str) -> Frame {
    Frame::Text(text.to_owned().into())
}

fn deep(levels: usize) -> String {
    format!("{}{}", "[".repeat(levels), "]".repeat(levels))
}

/// The opening of a transfer, where there is one, and these pieces.
fn opened(
    kit: Kit,
    count: u64,
    bytes: u64,
    pieces: impl IntoIterator<Item = (u64, &'static [u8])>,
) -> Vec<Frame> {
    let mut frames: Vec<Frame> = kit.open(1, count, bytes, &ZERO).into_iter().collect();
    frames.extend(
        pieces
            .into_iter()
            .map(|(index, data)| kit.piece(1, index, count, bytes, data)),
    );
    frames
}

fn honest(attacks: &mut Vec<Attack>) {
    let mut table = Table(attacks);
    table.add("honest: a message in one frame", |kit| {
        Ok(steps([kit.whole(MESSAGE)]))
    });
    table.frames("honest: a message in pieces", |kit| {
        kit.transfer(1, MESSAGE, 10)
    });
    table.frames("honest: one piece", |kit| kit.transfer(1, MESSAGE, 100));
    table.frames("honest: four transfers, mixed", |kit| {
        let all: Vec<Vec<Frame>> = (1..5)
            .map(|number| kit.transfer(number, MESSAGE, 10))
            .collect();
        (0..all[0].len())
            .flat_map(|at| all.iter().map(move |frames| frames[at].clone()))
            .collect()
    });
    table.frames("honest: the same key again after the end", |kit| {
        [kit.transfer(1, MESSAGE, 10), kit.transfer(1, MESSAGE, 7)].concat()
    });
}

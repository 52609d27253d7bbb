//! The attacks, each as a script per wire or a reason why the wire does not know it.

use std::time::Duration;

use breakbulk_link::Frame;
use sha2::Digest;

use super::common::{Fields, Kit, Role};
use super::{MESSAGE, MESSAGE_LIMIT, PIECES_LIMIT, Step};

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

    /// Frames of a wire with pieces.
    fn frames(&mut self, name: impl Into<String>, frames: impl Fn(Kit) -> Vec<Frame> + 'static) {
        self.add(name, move |kit| match kit {
            Kit::Whole => Err(NO_PIECES),
            _ => Ok(steps(frames(kit))),
        });
    }

    /// Raw text frames, the same for all text wires.
    fn text(&mut self, name: impl Into<String>, text: impl Fn() -> String + 'static) {
        self.add(name, move |kit| match kit {
            Kit::Loro => Err(NO_JSON),
            _ => Ok(steps([Frame::Text(text().into())])),
        });
    }

    /// A frame of pieces whose JSON was tampered with, after a proper opening.
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

    /// A rule of one format.
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

fn unreadable(attacks: &mut Vec<Attack>) {
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

fn fields(attacks: &mut Vec<Attack>) {
    let mut table = Table(attacks);
    for role in [Role::Key, Role::Index, Role::Count, Role::Bytes, Role::Data] {
        table.add(format!("{role:?} is missing").to_lowercase(), move |kit| {
            edited(kit, role, |fields, name| fields.without(name))
        });
    }
    let numbers = [
        "-1",
        "-0",
        "00",
        "01",
        "2147483648",
        "4294967295",
        "4294967296",
        "9007199254740992",
        "18446744073709551615",
        "18446744073709551616",
        "170141183460469231731687303715884105728",
        "1e3",
        "1.0",
        "\"1\"",
        "true",
        "null",
        "[1]",
        "{}",
    ];
    for role in [Role::Index, Role::Count, Role::Bytes] {
        for number in numbers {
            let name = format!("{role:?} is {number}").to_lowercase();
            table.add(name, move |kit| match (kit, number.parse::<u32>()) {
                (Kit::Loro, Ok(number)) if role == Role::Index => {
                    Ok(steps(opened(kit, 2, 20, [(number.into(), &b"x"[..])])))
                }
                (Kit::Loro, Ok(number)) if role == Role::Count => {
                    Ok(steps(kit.open(1, number.into(), 20, &ZERO)))
                }
                (Kit::Loro, Ok(number)) => Ok(steps(kit.open(1, 2, number.into(), &ZERO))),
                (Kit::Loro, Err(_)) => Err("a number is four bytes"),
                _ => edited(kit, role, |fields, name| fields.set(name, number)),
            });
        }
    }
    for number in [
        "-1",
        "1.0",
        "1e3",
        "9007199254740993",
        "\"7\"",
        "null",
        "true",
        "{}",
        "[]",
    ] {
        table.add(format!("key is {number}"), move |kit| {
            edited(kit, Role::Key, |fields, name| fields.set(name, number))
        });
    }
    for value in ["null", "7", "{}", "[\"AAAA\"]"] {
        table.add(format!("data is {value}"), move |kit| {
            edited(kit, Role::Data, |fields, name| fields.set(name, value))
        });
    }
    table.tampered("deep JSON in a member of no meaning", |_, fields| {
        Some(fields.add("x", &deep(100_000)))
    });
    table.tampered("deep JSON as data", |_, fields| {
        Some(fields.set("data", &deep(100_000)))
    });
    table.tampered("deep JSON as key", |kit, fields| {
        Some(fields.set(kit.field(Role::Key)?.0, &deep(100_000)))
    });
    table.tampered("members of no meaning", |_, fields| {
        Some(fields.add("x", "1").add("y", "[{}]"))
    });
    table.tampered("index twice: the last wins", |kit, fields| {
        Some(fields.add(kit.field(Role::Index)?.0, "9"))
    });
    table.tampered("data twice: the last wins", |kit, fields| {
        let last = kit.piece_fields(1, 0, 2, 20, b"last").1.pop()?.1;
        Some(fields.add("data", &last))
    });
    table.add("key twice: the last wins", |kit| {
        if matches!(kit, Kit::Whole | Kit::Loro) {
            return Err(NO_JSON);
        }
        let name = kit.field(Role::Key).unwrap().0;
        let (first, last) = (
            kit.piece_fields(1, 0, 1, 4, b"oops"),
            kit.piece_fields(2, 0, 1, 4, b"oops"),
        );
        let raw = &last.1.iter().find(|(known, _)| known == name).unwrap().1;
        // It looks as the wire itself writes it, up to its last member.
        let mut frames: Vec<Step> = steps(kit.open(2, 1, 4, &sha2::Sha256::digest(b"oops").into()));
        frames.push(Step::Discard(kit.key(1)));
        frames.push(Step::Frame(first.add(name, raw).frame()));
        frames.extend(steps(kit.close(2, 1)));
        Ok(frames)
    });
    table.tampered("a piece with white space", |_, fields| {
        Some(Fields(
            fields.0,
            fields
                .1
                .into_iter()
                .map(|(name, raw)| (name, format!(" {raw}\t")))
                .collect(),
        ))
    });
    table.tampered("names with escapes", |kit, mut fields| {
        let name = kit.field(Role::Data)?.0;
        fields
            .1
            .iter_mut()
            .filter(|(known, _)| known == name)
            .for_each(|field| field.0 = "d\\u0061ta".into());
        Some(fields)
    });
}

/// The frame that carries a role's field, with that field edited, and a piece after it.
fn edited(kit: Kit, role: Role, edit: impl Fn(Fields, &str) -> Fields) -> Script {
    if matches!(kit, Kit::Whole | Kit::Loro) {
        return Err(if kit == Kit::Loro { NO_JSON } else { NO_PIECES });
    }
    let (name, in_opening) = kit.field(role).ok_or(NO_FIELD)?;
    let mut frames = Vec::new();
    if in_opening {
        frames.push(edit(kit.open_fields(1, 2, 20, &ZERO), name).frame());
        frames.push(kit.piece(1, 0, 2, 20, b"0123456789"));
    } else {
        frames.extend(kit.open(1, 2, 20, &ZERO));
        frames.push(edit(kit.piece_fields(1, 0, 2, 20, b"0123456789"), name).frame());
    }
    Ok(steps(frames))
}

fn keys(attacks: &mut Vec<Attack>) {
    let mut table = Table(attacks);
    for length in [0usize, 1, 128, 129, 1024, 1025, 100_000] {
        table.add(format!("a key of {length} bytes"), move |kit| match kit {
            Kit::Tywrap | Kit::Bridge => Err("keys are numbers"),
            _ => edited(kit, Role::Key, |fields, name| {
                fields.set(name, &format!("\"{}\"", "k".repeat(length)))
            }),
        });
    }
    for (name, raw) in [
        ("a key with a lone surrogate", r#""\ud800""#),
        ("a key with controls", r#""\u0000\u001f""#),
        ("a key with quotes", r#""\"\\""#),
    ] {
        table.add(name, move |kit| {
            edited(kit, Role::Key, |fields, name| fields.set(name, raw))
        });
    }
    table.only(
        &[Kit::Cep22],
        "a numeric token is the same as its text",
        |kit| {
            let start = kit.open_fields(5, 1, 4, &sha2::Sha256::digest(b"data").into());
            let chunk = kit.piece_fields(5, 0, 1, 4, b"data");
            vec![
                start.set("progressToken", "5").frame(),
                chunk.set("progressToken", "\"5\"").frame(),
                kit.special(5, 3, "end").set("progressToken", "5").frame(),
            ]
        },
    );
}

fn content(attacks: &mut Vec<Attack>) {
    let mut table = Table(attacks);
    for (name, raw) in [
        ("data with a lone high surrogate", r#""0123\ud83d""#),
        ("data with a lone low surrogate", r#""\ude000123""#),
        (
            "data with a surrogate pair the wrong way round",
            r#""\ude00\ud83d""#,
        ),
        ("data with half an escape", r#""\u12""#),
        ("data with an unknown escape", r#""\x""#),
        ("data with a raw control", "\"a\nb\""),
    ] {
        table.tampered(name, move |_, fields| Some(fields.set("data", raw)));
    }
    table.add("a surrogate pair over two pieces", |kit| match kit {
        Kit::Tywrap | Kit::Bridge | Kit::Cep22 => {
            let mut frames: Vec<Frame> = kit.open(1, 2, 4, &ZERO).into_iter().collect();
            frames.push(
                kit.piece_fields(1, 0, 2, 4, b"")
                    .set("data", r#""\ud83d""#)
                    .frame(),
            );
            frames.push(
                kit.piece_fields(1, 1, 2, 4, b"")
                    .set("data", r#""\ude00""#)
                    .frame(),
            );
            Ok(steps(frames))
        }
        _ => Err("data is no JSON text"),
    });
    table.only(
        &[Kit::Ahp, Kit::Loro],
        "a character over two pieces",
        |kit| {
            let message = r#"{"jsonrpc":"2.0","method":"日本語日本語"}"#.as_bytes();
            (1..4)
                .flat_map(|number| kit.transfer(number, message, 28 + number as usize))
                .collect()
        },
    );
    for (name, raw) in [
        ("base64 with a character outside the alphabet", r#""AA*A""#),
        ("base64 without its padding", r#""QQ""#),
        ("base64 with too much padding", r#""QQ=====""#),
        ("base64 with stray bits", r#""QR==""#),
        ("base64 for addresses", r#""_-_-""#),
        ("base64 with white space", r#""QUFB\nQUFB""#),
        ("base64 with escaped slashes", r#""\/\/\/\/""#),
        ("base64 padded in the middle", r#""QQ==QQ==""#),
    ] {
        table.only(&[Kit::Ahp], name, move |kit| {
            vec![kit.piece_fields(1, 0, 2, 0, b"").set("data", raw).frame()]
        });
    }
    for (name, whole) in [
        ("assembled: no JSON", "hello"),
        ("assembled: no JSON-RPC", r#"{"hello":1}"#),
        (
            "assembled: a batch",
            r#"[{"jsonrpc":"2.0","id":1,"method":"m"}]"#,
        ),
        ("assembled: nothing", ""),
        (
            "assembled: an object and more",
            r#"{"jsonrpc":"2.0","id":1,"method":"m"} x"#,
        ),
    ] {
        table.frames(name, move |kit| {
            if whole.is_empty() {
                let mut frames: Vec<Frame> = kit
                    .open(1, 1, 0, &sha2::Sha256::digest(b"").into())
                    .into_iter()
                    .collect();
                frames.push(kit.piece(1, 0, 1, 0, b""));
                frames.extend(kit.close(1, 1));
                return frames;
            }
            kit.transfer(1, whole.as_bytes(), 10)
        });
    }
    table.only(&[Kit::Ahp], "assembled: not UTF-8", |kit| {
        kit.transfer(1, b"{\"jsonrpc\":\"2.0\",\"method\":\"\xff\"}", 10)
    });
    table.frames("assembled: a piece", |kit| {
        kit.transfer(1, kit.piece(2, 0, 1, 4, b"abcd").bytes(), 40)
    });
    table.only(&[Kit::Ahp], "assembled: a piece behind escapes", |kit| {
        let inner = r#"{"jsonrpc":"2.0","method":"ahp\/message\u0053egment","params":{}}"#;
        kit.transfer(1, inner.as_bytes(), 40)
    });
    table.frames("assembled: deep JSON", |kit| {
        let message = format!(
            r#"{{"jsonrpc":"2.0","method":"m","params":{}}}"#,
            deep(100_000)
        );
        kit.transfer(1, message.as_bytes(), 100_000)
    });
}

fn order(attacks: &mut Vec<Attack>) {
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
    table.only(&[Kit::Cep22], "beyond the window before any piece", |kit| {
        opened(kit, 40, 400, [(30, &b"x"[..])])
    });
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

fn sizes(attacks: &mut Vec<Attack>) {
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

fn floods(attacks: &mut Vec<Attack>) {
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

fn time(attacks: &mut Vec<Attack>) {
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
    table.add("frames of a discarded key", |kit| match kit {
        Kit::Whole => Err(NO_PIECES),
        _ => {
            let mut script = steps(opened(kit, 3, 3, [(0, &b"x"[..])]));
            script.push(Step::Discard(kit.key(1)));
            script.extend(steps((1..3).map(|index| kit.piece(1, index, 3, 3, b"x"))));
            // The last piece came by: the key may be used again.
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

fn ends(attacks: &mut Vec<Attack>) {
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

fn rules_of_one(attacks: &mut Vec<Attack>) {
    let mut table = Table(attacks);
    table.only(&[Kit::Ahp], "a segment with an id", |kit| {
        let text = kit.piece_fields(1, 0, 2, 0, b"x").text().replacen(
            "{\"jsonrpc\"",
            "{\"id\":1,\"jsonrpc\"",
            1,
        );
        vec![Frame::Text(text.into())]
    });
    for (name, from, to) in [
        ("a segment of JSON-RPC 1.0", "\"2.0\"", "\"1.0\""),
        ("a segment without a version", "\"jsonrpc\":\"2.0\",", ""),
        (
            "a segment whose params are an array",
            "\"params\":{",
            "\"x\":[],\"params\":[],\"y\":{",
        ),
        ("a segment without params", "\"params\"", "\"param\""),
        (
            "a segment whose method has escapes",
            "ahp/messageSegment",
            "ahp\\/messageSegment",
        ),
        (
            "a method of another case",
            "ahp/messageSegment",
            "ahp/MessageSegment",
        ),
        (
            "a reserved method that nobody knows",
            "ahp/messageSegment",
            "ahp/messageSegments",
        ),
    ] {
        table.only(&[Kit::Ahp], name, move |kit| {
            vec![Frame::Text(
                kit.piece_fields(1, 0, 2, 0, b"x")
                    .text()
                    .replacen(from, to, 1)
                    .into(),
            )]
        });
    }
    const TYWRAP: &[Kit] = &[Kit::Tywrap, Kit::Bridge];
    for (name, field, raw) in [
        ("a frame of the other direction", "stream", None),
        ("a stream of no known name", "stream", Some("\"sideways\"")),
        ("a stream that is no text", "stream", Some("1")),
        ("an error frame", "__tywrap_frame__", Some("\"error\"")),
        ("a kind that is no text", "__tywrap_frame__", Some("true")),
        (
            "another version of the protocol",
            "frameProtocol",
            Some("\"tywrap-frame/2\""),
        ),
        ("another encoding", "encoding", Some("\"base64\"")),
    ] {
        table.only(TYWRAP, name, move |kit| {
            let other = if kit == Kit::Tywrap {
                "\"request\""
            } else {
                "\"response\""
            };
            vec![
                kit.piece_fields(1, 0, 2, 20, b"x")
                    .set(field, raw.unwrap_or(other))
                    .frame(),
            ]
        });
    }
    table.only(
        TYWRAP,
        "a new burst before the last one is complete",
        |kit| vec![kit.piece(1, 0, 2, 20, b"x"), kit.piece(2, 0, 2, 20, b"x")],
    );
    table.only(TYWRAP, "a plain line inside a burst", |kit| {
        vec![kit.piece(1, 0, 2, 20, b"x"), kit.whole(MESSAGE)]
    });
    table.only(TYWRAP, "a burst that begins in the middle", |kit| {
        vec![kit.piece(1, 0, 2, 20, b"x"), kit.piece(2, 1, 2, 20, b"x")]
    });
    const CEP22: &[Kit] = &[Kit::Cep22];
    for (name, field, raw) in [
        (
            "another completion mode",
            "completionMode",
            Some("\"stream\""),
        ),
        ("no completion mode", "completionMode", None),
        ("no digest", "digest", None),
        (
            "a digest without its name",
            "digest",
            Some("\"0000000000000000000000000000000000000000000000000000000000000000\""),
        ),
        (
            "a digest of another kind",
            "digest",
            Some("\"sha512:0000000000000000000000000000000000000000000000000000000000000000\""),
        ),
        (
            "a digest in capitals",
            "digest",
            Some("\"sha256:ABCDEF0000000000000000000000000000000000000000000000000000000000\""),
        ),
        ("a digest too short", "digest", Some("\"sha256:00\"")),
        ("more chunks than bytes", "totalChunks", Some("21")),
        ("an unknown frame type", "frameType", Some("\"middle\"")),
        ("no frame type", "frameType", None),
        ("CEP-41's profile", "type", Some("\"open-stream\"")),
        ("the start at 2^53", "progress", Some("9007199254740992")),
        (
            "the start at the last number",
            "progress",
            Some("18446744073709551615"),
        ),
        ("progress 0", "progress", Some("0")),
    ] {
        table.only(CEP22, name, move |kit| {
            let start = kit.open_fields(1, 2, 20, &ZERO);
            vec![
                match raw {
                    Some(raw) => start.set(field, raw),
                    None => start.without(field),
                }
                .frame(),
            ]
        });
    }
    table.only(CEP22, "another digest", |kit| {
        let mut frames = kit.transfer(1, MESSAGE, 10);
        frames[0] = kit.open(1, 4, MESSAGE.len() as u64, &ZERO).unwrap();
        frames
    });
    const LORO: &[Kit] = &[Kit::Loro];
    table.only(LORO, "every reserved prefix", |_| {
        (3..=255)
            .map(|prefix| Frame::Binary(vec![prefix; 20].into()))
            .collect()
    });
    table.only(LORO, "a header with bytes after it", |_| {
        let mut frame = Kit::Loro.open(1, 2, 20, &ZERO).unwrap().bytes().to_vec();
        frame.push(0);
        vec![Frame::Binary(frame.into())]
    });
    table.only(LORO, "a piece without data", |kit| {
        opened(kit, 2, 20, [(0, &b""[..])])
    });
    table.only(LORO, "a message without bytes", |_| {
        vec![Frame::Binary(vec![0].into())]
    });
    table.only(LORO, "words of the transport's own", |_| {
        ["ready", "ping", "pong", ""].map(text).to_vec()
    });
}

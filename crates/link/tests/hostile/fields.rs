//! Attacks by frames with one invalid field (missing, twice, of another type, out of range), and by keys,
//! which the peer chooses.

use sha2::Digest;

use super::{Attack, NO_FIELD, NO_JSON, NO_PIECES, Script, Table, ZERO, deep, opened, steps};
use crate::Step;
use crate::common::{Fields, Kit, Role};

pub(super) fn fields(attacks: &mut Vec<Attack>) {
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
    // WIRE-2
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
        // The frame has exactly the form that the wire writes, except for its last member.
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

pub(super) fn keys(attacks: &mut Vec<Attack>) {
    let mut table = Table(attacks);
    for length in [0usize, 1, 128, 129, 1024, 1025, 100_000] {
        // CEP22-5
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

//! Attacks by data that is not text, not base64, or not a message once it is assembled.

use breakbulk_link::Frame;
use sha2::Digest;

use super::{Attack, Table, ZERO, deep, steps};
use crate::common::Kit;

pub(super) fn content(attacks: &mut Vec<Attack>) {
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
        // AHP-2
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

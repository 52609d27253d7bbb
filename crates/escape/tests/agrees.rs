//! Every implementation of escaping, unescaping and counting agrees with a naive one, and with serde_json.

#![allow(clippy::unwrap_used)]

use breakbulk_escape::{Escapes, Invalid, count, escape, portable, string_end, unescape};
use breakbulk_link::Random;

/// Escapes byte by byte, as RFC 8259 says.
fn naive_escape(text: &[u8]) -> (Vec<u8>, Escapes) {
    let (mut out, mut sum) = (Vec::new(), Escapes::default());
    for &byte in text {
        match byte {
            b'"' | b'\\' => {
                sum.itself += 1;
                out.extend([b'\\', byte]);
            }
            8 | 9 | 10 | 12 | 13 => {
                sum.letter += 1;
                out.extend([b'\\', b"btn_fr"[usize::from(byte - 8)]]);
            }
            0..0x20 => {
                sum.unicode += 1;
                out.extend(format!("\\u{byte:04x}").bytes());
            }
            _ => out.push(byte),
        }
    }
    (out, sum)
}

/// Unescapes character by character.
fn naive_unescape(raw: &[u8]) -> Result<Vec<u8>, Invalid> {
    let (mut out, mut rest) = (Vec::new(), raw);
    let unit = |rest: &[u8]| -> Option<u32> {
        let digits = rest.strip_prefix(b"\\u")?.get(..4)?;
        let text = std::str::from_utf8(digits).ok()?;
        digits
            .iter()
            .all(u8::is_ascii_hexdigit)
            .then(|| u32::from_str_radix(text, 16).ok())?
    };
    while let [first, after @ ..] = rest {
        let simple = |meaning| Ok((vec![meaning], &rest[2..]));
        let (text, next) = match (first, after.first()) {
            (b'\\', Some(b'u')) => {
                let high = unit(rest).ok_or(Invalid::Syntax)?;
                let (code, length) = if (0xd800..0xdc00).contains(&high) {
                    let low = unit(&rest[6..]).filter(|low| (0xdc00..0xe000).contains(low));
                    let low = low.ok_or(Invalid::LoneSurrogate)?;
                    (0x10000 + (high - 0xd800) * 0x400 + low - 0xdc00, 12)
                } else {
                    (high, 6)
                };
                let character = char::from_u32(code).ok_or(Invalid::LoneSurrogate)?;
                (character.to_string().into_bytes(), &rest[length..])
            }
            (b'\\', Some(&same @ (b'"' | b'\\' | b'/'))) => simple(same)?,
            (b'\\', Some(b'b')) => simple(8)?,
            (b'\\', Some(b'f')) => simple(12)?,
            (b'\\', Some(b'n')) => simple(10)?,
            (b'\\', Some(b'r')) => simple(13)?,
            (b'\\', Some(b't')) => simple(9)?,
            (b'\\' | b'"' | 0..0x20, _) => return Err(Invalid::Syntax),
            (&byte, _) => (vec![byte], after),
        };
        out.extend(text);
        rest = next;
    }
    Ok(out)
}

/// Checks one text in all ways. The output begins after bytes that must stay as they are.
fn check(text: &[u8]) {
    let (escaped, escapes) = naive_escape(text);
    for (name, escape) in [
        ("wide", escape as fn(&[u8], &mut Vec<u8>)),
        ("portable", portable::escape),
    ] {
        let mut out = b"before".to_vec();
        escape(text, &mut out);
        assert_eq!(out, [b"before", &escaped[..]].concat(), "{name} {text:?}");
    }
    assert_eq!((count(text), portable::count(text)), (escapes, escapes));
    check_unescape(&escaped);
    // Text that is not escaped is mostly invalid: all implementations must find the same fault.
    check_unescape(text);
}

/// Where the string ends: escape by escape.
fn naive_end(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match text.get(at)? {
            b'"' => return Some(at),
            b'\\' => match text.get(at + 1)? {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => at += 2,
                b'u' if text.get(at + 2..at + 6)?.iter().all(u8::is_ascii_hexdigit) => at += 6,
                _ => return None,
            },
            0..0x20 => return None,
            _ => at += 1,
        }
    }
}

fn check_unescape(raw: &[u8]) {
    let expected = naive_unescape(raw);
    for text in [
        raw,
        &[raw, b"\""].concat(),
        &[raw, b"\",\"next\":\"and more text behind it\"}"].concat(),
    ] {
        let end = naive_end(text);
        assert_eq!(
            (string_end(text), portable::string_end(text)),
            (end, end),
            "{text:?}"
        );
    }
    for (name, unescape) in [
        (
            "wide",
            unescape as fn(&[u8], &mut Vec<u8>) -> Result<(), Invalid>,
        ),
        ("portable", portable::unescape),
    ] {
        // A buffer without spare room, like that of a transfer whose memory is limited.
        let mut out = Vec::with_capacity(6 + raw.len());
        out.extend(b"before");
        let capacity = out.capacity();
        let outcome = unescape(raw, &mut out).map(|()| out[6..].to_vec());
        assert_eq!(outcome, expected, "{name} {raw:?}");
        assert_eq!(
            out.capacity(),
            capacity,
            "{name}: no more than it was given"
        );
        assert!(out.starts_with(b"before"));
    }
}

#[test]
fn each_byte_at_each_place_of_a_block() {
    for byte in 0..=255 {
        for at in 0..70 {
            let mut text = vec![b'x'; 71];
            text[at] = byte;
            check(&text);
            text.truncate(at + 1);
            check(&text);
        }
    }
}

/// The last block of a text is stored over bytes that are in the output already, or escaped again with them.
#[test]
fn two_escapes_anywhere_in_the_last_bytes() {
    for length in [33, 40, 63, 64, 65, 95, 130, 170] {
        for first in length - 33..length {
            for second in first..length {
                for [one, two] in [*b"\n\"", *b"\x01\\", *b"\\\x1f"] {
                    let mut text = vec![b'x'; length];
                    (text[first], text[second]) = (one, two);
                    check(&text);
                }
            }
        }
    }
}

#[test]
fn runs_of_backslashes_across_blocks() {
    for before in 24..40 {
        for run in 0..80 {
            for end in [
                "",
                "n",
                "\"",
                "u0041",
                "u00",
                "x",
                "ud83d\\ude00",
                "ud83d\\u0041",
                "\n",
            ] {
                let text = format!("{}{}{end}", "x".repeat(before), "\\".repeat(run));
                check_unescape(text.as_bytes());
                check_unescape(format!("{text}{}", "y".repeat(40)).as_bytes());
            }
        }
    }
}

#[test]
fn each_pattern_of_escapes_in_a_group() {
    for mask in 0..=255u32 {
        let group = |one: &'static str| -> String {
            let parts = (0..8).map(|bit| if mask >> bit & 1 == 1 { one } else { "a" });
            parts.collect()
        };
        for one in ["\"", "\\", "\n", "\t", "\u{1}"] {
            check(group(one).repeat(9).as_bytes());
        }
    }
}

/// Pieces of text, so that escapes lie densely and in odd places.
fn pieces(random: &mut Random) -> String {
    const PIECES: [&str; 16] = [
        "\"",
        "\\",
        "\\",
        "a",
        "\\n",
        "\\u0041",
        "\n",
        "\u{1}",
        "\\ud83d\\ude00",
        "\\ud83d",
        "日本",
        "\u{7f}",
        "/",
        "\\/",
        "some words of plain text, long enough for a look at many bytes at once ",
        "😀",
    ];
    let kinds = random.below(PIECES.len() as u64) + 1;
    let count = random.below(120);
    (0..count)
        .map(|_| match random.below(3) {
            0 => "x".repeat(random.below(90) as usize),
            _ => PIECES[random.below(kinds) as usize].to_owned(),
        })
        .collect()
}

#[test]
fn random_texts_as_the_naive_code_and_serde_json() {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let seeds = match number("BREAKBULK_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("BREAKBULK_SEEDS").unwrap_or(4000),
    };
    for seed in seeds {
        let text = pieces(&mut Random::from_number(seed));
        let agree = std::panic::catch_unwind(|| {
            check(text.as_bytes());
            as_serde_json(&text);
        });
        assert!(agree.is_ok(), "BREAKBULK_SEED={seed}");
    }
}

fn as_serde_json(text: &str) {
    let theirs = serde_json::to_string(text).unwrap();
    let mut ours = Vec::new();
    escape(text.as_bytes(), &mut ours);
    assert_eq!(ours, theirs.as_bytes()[1..theirs.len() - 1]);
    let theirs: Result<String, _> = serde_json::from_str(&format!("\"{text}\""));
    let mut ours = Vec::new();
    let outcome = unescape(text.as_bytes(), &mut ours);
    assert_eq!(outcome.is_ok(), theirs.is_ok());
    if let Ok(theirs) = theirs {
        assert_eq!(ours, theirs.as_bytes());
    }
}

//! Attacks on rules that only one format has.

use breakbulk_link::Frame;

use super::{Attack, Table, ZERO, opened, text};
use crate::MESSAGE;
use crate::common::Kit;

pub(super) fn rules_of_one(attacks: &mut Vec<Attack>) {
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
        // AHP-1
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
    // LORO-2
    table.only(LORO, "words of the transport's own", |_| {
        ["ready", "ping", "pong", ""].map(text).to_vec()
    });
}

//! Frames in byte streams: tables of inputs, which arrive in chunks of every size, and what a hostile writer
//! can do.

#![cfg(feature = "process")]
#![allow(clippy::unwrap_used)]

use breakbulk_net::process::{Decoder, Framing, LengthField, Unreadable};

/// Feeds at most `step` bytes at a time and collects frames; the bytes left, or the error.
fn decode(
    framing: Framing,
    limit: usize,
    input: &[u8],
    step: usize,
) -> (Vec<String>, Result<usize, Unreadable>) {
    let mut decoder = Decoder::new(framing, limit);
    let (mut frames, mut rest) = (Vec::new(), input);
    loop {
        while let Some(next) = decoder.next() {
            match next {
                Ok(frame) => frames.push(String::from_utf8(frame.to_vec()).unwrap()),
                Err(error) => return (frames, Err(error)),
            }
        }
        if rest.is_empty() {
            return (frames, Ok(decoder.unfinished()));
        }
        let (buffer, most) = decoder.space();
        let (now, later) = rest.split_at(step.min(most).min(rest.len()));
        buffer.extend_from_slice(now);
        rest = later;
    }
}

/// Checks that the result is the same for chunks of every size.
fn check(
    framing: Framing,
    limit: usize,
    input: &[u8],
    frames: &[&str],
    end: Result<usize, Unreadable>,
) {
    for step in (1..=input.len().min(64)).chain([usize::MAX]) {
        let (found, ended) = decode(framing, limit, input, step);
        let shown = String::from_utf8_lossy(input);
        assert_eq!(found, frames, "{framing} {shown:?} by {step}");
        assert_eq!(ended, end, "{framing} {shown:?} by {step}");
    }
}

#[test]
fn lines_are_frames() {
    for (input, frames, left) in [
        ("", vec![], 0),
        ("{}\n", vec!["{}"], 0),
        ("{}\r\n", vec!["{}"], 0),
        ("a\nb\r\nc\n", vec!["a", "b", "c"], 0),
        ("\n\r\n\n\na\n\n", vec!["a"], 0),
        (
            " \n\t \r\n\u{a0}\u{3000}\n\u{feff}\n\u{1c}\na\n",
            vec!["a"],
            0,
        ),
        ("a\nunfinished", vec!["a"], 10),
        ("a\r", vec![], 2),
        ("a\rb\n", vec!["a\rb"], 0),
        ("größe 世界 😀\n", vec!["größe 世界 😀"], 0),
        (" a \n", vec![" a "], 0),
        ("0123456789\n", vec!["0123456789"], 0),
        ("0123456789\r\n", vec!["0123456789"], 0),
    ] {
        check(Framing::Lines, 24, input.as_bytes(), &frames, Ok(left));
    }
}

#[test]
fn announced_bodies_are_frames() {
    for (input, frames, left) in [
        ("", vec![], 0),
        ("Content-Length: 2\r\n\r\n{}", vec!["{}"], 0),
        ("content-length:2\r\n\r\n{}", vec!["{}"], 0),
        ("CONTENT-LENGTH :  2  \r\n\r\n{}", vec!["{}"], 0),
        ("Content-Length: 2\n\n{}", vec!["{}"], 0),
        ("Content-Length: 2\n\r\n{}", vec!["{}"], 0),
        ("Content-Length: 002\r\n\r\n{}", vec!["{}"], 0),
        (
            "Content-Length: 2\r\nContent-Type: application/vscode-jsonrpc; charset=utf-8\r\n\r\n{}",
            vec!["{}"],
            0,
        ),
        (
            "Content-Type: x; charset=\"UTF8\"\r\nX-Other: 1:2\r\nContent-Length: 2\r\n\r\n{}",
            vec!["{}"],
            0,
        ),
        (
            "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
            vec!["{}"],
            0,
        ),
        (
            "Content-Length: 2\r\n\r\n{}Content-Length: 5\r\n\r\na\r\n\r\n",
            vec!["{}", "a\r\n\r\n"],
            0,
        ),
        (
            "Content-Length: 0\r\n\r\nContent-Length: 1\r\n\r\nx",
            vec!["x"],
            0,
        ),
        (
            "Content-Length: 1\r\n\r\nx\r\n\nContent-Length: 1\r\n\r\ny",
            vec!["x", "y"],
            0,
        ),
        ("Content-Length: 6\r\n\r\n世界", vec!["世界"], 0),
        ("Content-Length: 6\r\n\r\n12345", vec![], 26),
        ("Content-Le", vec![], 10),
    ] {
        check(
            Framing::ContentLength,
            24,
            input.as_bytes(),
            &frames,
            Ok(left),
        );
    }
}

#[test]
fn what_cannot_be_read_says_why() {
    let bad = |what| Unreadable::BadHeader { what };
    let lines = Unreadable::WrongFraming {
        seen: Framing::Lines,
        expected: Framing::ContentLength,
    };
    let no_colon = bad("a line without a colon");
    let no_number = bad("a Content-Length that is no number");
    for (input, error) in [
        (&b"{"[..], lines.clone()),
        (b"\r\n[{\"jsonrpc\":", lines),
        (b"jsonrpc:\n\n", Unreadable::NoLength),
        (b"just text\r\n\r\n", no_colon.clone()),
        (b"Content-Length\r\n\r\n", no_colon),
        (b"Content-Length: \r\n\r\n", no_number.clone()),
        (b"Content-Length: -1\r\n\r\n", no_number.clone()),
        (b"Content-Length: +1\r\n\r\n", no_number.clone()),
        (b"Content-Length: 0x10\r\n\r\n", no_number.clone()),
        (b"Content-Length: 1 2\r\n\r\n", no_number),
        (
            b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
            bad("two different Content-Lengths"),
        ),
        (
            b"Content-Length: 1\r\nContent-Type: x; charset=utf-16\r\n\r\n",
            bad("a charset that is not utf-8"),
        ),
        (b"X: 1\r\n\r\n", Unreadable::NoLength),
        (
            b"Content-Length: 25\r\n\r\n",
            Unreadable::TooLong {
                size: 25,
                limit: 24,
            },
        ),
        (
            b"Content-Length: 99999999999999999999999\r\n\r\n",
            Unreadable::TooLong {
                size: u64::MAX,
                limit: 24,
            },
        ),
        (
            b"Content-Length: 2\r\n\r\n\xff\xfe",
            Unreadable::NotUtf8 { size: 2 },
        ),
    ] {
        check(Framing::ContentLength, 24, input, &[], Err(error));
    }
    check(
        Framing::Lines,
        4,
        b"1234\n12345\n",
        &["1234"],
        Err(Unreadable::LineTooLong { limit: 4 }),
    );
    check(
        Framing::Lines,
        4,
        b"1234\r\n12345",
        &["1234"],
        Err(Unreadable::LineTooLong { limit: 4 }),
    );
    check(
        Framing::Lines,
        4,
        b"ok\n\xc3\n",
        &["ok"],
        Err(Unreadable::NotUtf8 { size: 1 }),
    );
}

#[test]
fn the_other_framing_is_named_with_the_option_that_mends_it() {
    for (framing, input, frames, text) in [
        (
            Framing::Lines,
            "Content-Length: 2\r\n\r\n{}",
            &[][..],
            "this stream has Content-Length headers, not JSON lines; use ?framing=content-length",
        ),
        (
            Framing::Lines,
            "{}\ncontent-type: x\r\nContent-Length: 2\r\n\r\n{}",
            &["{}"],
            "this stream has Content-Length headers, not JSON lines; use ?framing=content-length",
        ),
        (
            Framing::ContentLength,
            "{}\n",
            &[],
            "this stream has JSON lines, not Content-Length headers; use ?framing=lines",
        ),
        (
            Framing::ContentLength,
            "hello\n\n",
            &[],
            "a frame's header is wrong: a line without a colon; for JSON lines use ?framing=lines",
        ),
    ] {
        for step in [1, 5, usize::MAX] {
            let (found, end) = decode(framing, 100, input.as_bytes(), step);
            assert_eq!(found, frames, "{input:?}");
            assert_eq!(end.unwrap_err().to_string(), text, "{input:?}");
        }
    }
}

type Found = Result<String, Unreadable>;

/// What a decoder that skips large frames finds up to the end of the input, its error, and the most bytes
/// that it held.
fn skipping(
    framing: Framing,
    limit: usize,
    input: &[u8],
    step: usize,
) -> (Vec<Found>, Option<Unreadable>, usize) {
    let mut decoder = Decoder::new(framing, limit);
    decoder.skip_oversized(Some(&["id", "method"]));
    let (mut found, mut rest, mut held) = (Vec::new(), input, 0);
    loop {
        let next = match decoder.next() {
            None if rest.is_empty() => match decoder.finish() {
                None => return (found, None, held),
                finished => finished,
            },
            next => next,
        };
        match next {
            Some(Ok(frame)) => found.push(Ok(String::from_utf8(frame.to_vec()).unwrap())),
            Some(Err(skipped @ Unreadable::Oversized { .. })) => found.push(Err(skipped)),
            Some(Err(error)) => return (found, Some(error), held),
            None => {
                let (buffer, most) = decoder.space();
                held = held.max(buffer.capacity());
                let (now, later) = rest.split_at(step.min(most).min(rest.len()));
                buffer.extend_from_slice(now);
                rest = later;
            }
        }
    }
}

#[test]
fn the_last_line_counts_without_its_line_break_if_it_is_whole() {
    let cut = |size, start: &str| Unreadable::CutLine {
        size,
        start: start.to_owned(),
    };
    for (framing, input, frames, error) in [
        (
            Framing::Lines,
            "{}\n{\"a\":1}",
            &["{}", "{\"a\":1}"][..],
            None,
        ),
        (Framing::Lines, "[1]\r", &["[1]"], None),
        (Framing::Lines, "{} ", &["{}"], None),
        (Framing::Lines, "{}\n \r", &["{}"], None),
        (
            Framing::Lines,
            "{}\n{\"a\":",
            &["{}"],
            Some(cut(5, "{\"a\":")),
        ),
        (
            Framing::Lines,
            "{\"a\":\"}",
            &[],
            Some(cut(7, "{\"a\":\"}")),
        ),
        (Framing::Lines, "12", &[], Some(cut(2, "12"))),
        (Framing::Lines, "{}{}", &[], Some(cut(4, "{}{}"))),
        (
            Framing::ContentLength,
            "Content-Length: 2\r\n\r\n{}\r\n",
            &["{}"],
            None,
        ),
        (
            Framing::ContentLength,
            "Content-Length: 5\r\n\r\n{}",
            &[],
            Some(Unreadable::CutBody {
                size: 2,
                announced: 5,
            }),
        ),
        (
            Framing::ContentLength,
            "Content-Le",
            &[],
            Some(Unreadable::CutHeaders { size: 10 }),
        ),
    ] {
        for step in 1..=input.len() {
            let (found, end, _) = skipping(framing, 24, input.as_bytes(), step);
            let expected: Vec<_> = frames.iter().map(|&text| Ok(text.to_owned())).collect();
            assert_eq!((found, &end), (expected, &error), "{input:?} by {step}");
        }
    }
}

#[test]
fn what_is_over_the_limit_is_skipped_to_its_end() {
    let request = r#"{"jsonrpc":"2.0","method":"m","params":["xxxxxxxxxx"],"id":7}"#;
    let len = request.len();
    let oversized = |size: usize, id: Option<&str>| -> Found {
        Err(Unreadable::Oversized {
            size: size as u64,
            limit: 24,
            members: id
                .into_iter()
                .flat_map(|id| [("id", id), ("method", "\"m\"")])
                .map(|(name, value)| (name, Some(value.to_owned())))
                .collect(),
        })
    };
    let frame = |text: &str| -> Found { Ok(text.to_owned()) };
    let cut = &request[..40];
    for (framing, input, expected, error) in [
        (
            Framing::Lines,
            format!("{{}}\n{request}\n[1]\n{request}\r\n[2]\n"),
            vec![
                frame("{}"),
                oversized(len, Some("7")),
                frame("[1]"),
                oversized(len, Some("7")),
                frame("[2]"),
            ],
            None,
        ),
        (
            Framing::Lines,
            format!("{request}{request}\n[1]\n"),
            vec![oversized(2 * len, None), frame("[1]")],
            None,
        ),
        // A frame that is too large at the end of the input.
        (
            Framing::Lines,
            request.to_owned(),
            vec![oversized(len, Some("7"))],
            None,
        ),
        (
            Framing::Lines,
            cut.to_owned(),
            vec![oversized(40, None)],
            None,
        ),
        (
            Framing::ContentLength,
            format!(
                "Content-Length: {len}\r\n\r\n{request}Content-Length: 3\r\n\r\n[1]Content-Length: {len}\r\n\r\n{request}\r\n"
            ),
            vec![
                oversized(len, Some("7")),
                frame("[1]"),
                oversized(len, Some("7")),
            ],
            None,
        ),
        (
            Framing::ContentLength,
            format!("Content-Length: {len}\r\n\r\n{cut}"),
            vec![],
            Some(Unreadable::CutBody {
                size: 40,
                announced: len as u64,
            }),
        ),
        // A frame that is too large even to be skipped.
        (
            Framing::ContentLength,
            "Content-Length: 1099511627777\r\n\r\n".to_owned(),
            vec![],
            Some(Unreadable::TooLong {
                size: 1_099_511_627_777,
                limit: 24,
            }),
        ),
    ] {
        for step in (1..=input.len()).chain([usize::MAX]) {
            let (found, end, _) = skipping(framing, 24, input.as_bytes(), step);
            assert_eq!((&found, &end), (&expected, &error), "{input:?} by {step}");
        }
    }
}

#[test]
fn what_is_skipped_is_not_held() {
    let limit = 1 << 20;
    let large = format!(r#"{{"params":"{}","id":1}}"#, "x".repeat(20 << 20));
    let announced = format!("Content-Length: {}\r\n\r\n{large}", large.len());
    for (framing, input, most) in [
        (Framing::Lines, format!("{large}\n"), limit + 2),
        (Framing::ContentLength, announced, 64 << 10),
    ] {
        let (found, error, held) = skipping(framing, limit, input.as_bytes(), usize::MAX);
        assert_eq!((found.len(), error), (1, None), "{framing}");
        assert!(held <= most, "{framing}: {held} bytes were held");
        let Err(Unreadable::Oversized { size, members, .. }) = &found[0] else {
            panic!("{framing}")
        };
        assert_eq!(*size, large.len() as u64, "{framing}");
        assert_eq!(members.get("id"), Some("1"), "{framing}");
    }
}

/// Writes more than the limit without end; returns the most bytes that were buffered, and the error.
fn endless(framing: Framing, limit: usize, head: &[u8], byte: u8) -> (usize, Option<Unreadable>) {
    let mut decoder = Decoder::new(framing, limit);
    let (mut most_held, mut given, mut head) = (0, 0, head);
    while given < limit + (1 << 20) {
        if let Some(next) = decoder.next() {
            return (most_held, next.err());
        }
        let (buffer, most) = decoder.space();
        let from_head = head.len().min(most);
        buffer.extend_from_slice(&head[..from_head]);
        head = &head[from_head..];
        buffer.resize(buffer.len() + most - from_head, byte);
        given += most;
        most_held = most_held.max(buffer.capacity());
    }
    (most_held, None)
}

#[test]
fn an_endless_writer_costs_no_more_than_the_limit() {
    let limit = 1 << 20;
    for (framing, head, byte, error, most) in [
        (
            Framing::Lines,
            &b""[..],
            b'x',
            Unreadable::LineTooLong { limit },
            limit + 2,
        ),
        (
            Framing::ContentLength,
            b"Content-Length: 1",
            b'0',
            Unreadable::HeadersTooLong,
            (64 << 10) + 4096,
        ),
        (
            Framing::ContentLength,
            b"X: ",
            b'\r',
            Unreadable::HeadersTooLong,
            (64 << 10) + 4096,
        ),
        (
            Framing::ContentLength,
            b"Content-Length: 1048577\r\n\r\n",
            b'x',
            Unreadable::TooLong {
                size: 1_048_577,
                limit,
            },
            64 << 10,
        ),
    ] {
        let (held, found) = endless(framing, limit, head, byte);
        assert_eq!(found, Some(error), "{framing}");
        assert!(held <= most, "{framing}: {held} bytes were held");
    }
    // Empty lines are skipped and take little memory, however many there are.
    for framing in [Framing::Lines, Framing::ContentLength] {
        let (held, found) = endless(framing, limit, b"", b'\n');
        assert_eq!(found, None);
        assert!(held <= 64 << 10, "{framing}: {held} bytes were held");
    }
}

#[test]
fn an_announced_size_is_no_allocation() {
    let mut decoder = Decoder::new(Framing::ContentLength, 1 << 30);
    let (buffer, _) = decoder.space();
    buffer.extend_from_slice(b"Content-Length: 1000000000\r\n\r\nx");
    assert!(decoder.next().is_none());
    let (buffer, _) = decoder.space();
    assert!(buffer.capacity() <= 192 << 10, "{}", buffer.capacity());
}

#[test]
fn a_large_frame_comes_whole_between_small_ones() {
    let body = "x".repeat(5_000_000);
    let line = format!("small\n{body}\nafter\n");
    let announced = format!(
        "Content-Length: 5\r\n\r\nsmallContent-Length: 5000000\r\n\r\n{body}Content-Length: 5\r\n\r\nafter"
    );
    for (framing, input) in [(Framing::Lines, line), (Framing::ContentLength, announced)] {
        for step in [1000, 4096, 65_536, usize::MAX] {
            let (frames, end) = decode(framing, 5_000_000, input.as_bytes(), step);
            assert_eq!(frames, ["small", &body, "after"], "{framing} by {step}");
            assert_eq!(end, Ok(0));
        }
    }
}

#[test]
fn what_goes_out_is_read_back() {
    for (framing, bytes) in [
        (Framing::Lines, "{}\n"),
        (Framing::ContentLength, "Content-Length: 2\r\n\r\n{}"),
    ] {
        let (before, after) = framing.around(2);
        assert_eq!(format!("{before}{{}}{after}"), bytes);
        check(framing, 24, bytes.as_bytes(), &["{}"], Ok(0));
        assert_eq!(framing.to_string().parse(), Ok(framing));
    }
    assert_eq!(
        "line".parse::<Framing>().unwrap_err(),
        "\"line\" is no framing; use lines or content-length"
    );
}

const FIELD: Framing = Framing::LengthField(LengthField {
    name: "test",
    header: 6,
    at: 2,
});

#[test]
fn headers_of_a_fixed_size_make_frames() {
    for (input, frames, left) in [
        ("", vec![], 0),
        ("ab\0\0\0\0", vec!["ab\0\0\0\0"], 0),
        (
            "ab\0\0\0\x02\n\ncd\0\0\0\x01x",
            vec!["ab\0\0\0\x02\n\n", "cd\0\0\0\x01x"],
            0,
        ),
        ("ab\0\0\0\x02x", vec![], 7),
        ("ab\0\0\0", vec![], 5),
        // In binary frames, a space is a byte like any other.
        ("    ", vec![], 4),
        (
            "ab\0\0\0\x120123456789abcdefgh",
            vec!["ab\0\0\0\x120123456789abcdefgh"],
            0,
        ),
    ] {
        check(FIELD, 24, input.as_bytes(), &frames, Ok(left));
    }
    // One byte more than the limit: an error as soon as the header has come; binary frames are never skipped.
    let too_long = |size| Unreadable::FrameTooLong {
        name: "test",
        size,
        limit: 24,
    };
    check(FIELD, 24, b"ab\0\0\0\x13", &[], Err(too_long(25)));
    let mut decoder = Decoder::new(FIELD, 24);
    decoder.skip_oversized(Some(&["id"]));
    decoder.space().0.extend_from_slice(b"ab\xff\xff\xff\xff");
    assert_eq!(decoder.next(), Some(Err(too_long(0x1_0000_0005))));
    for (input, error) in [
        (&b"ab\0\0\0"[..], Unreadable::CutHeaders { size: 5 }),
        (
            b"ab\0\0\0\x02x",
            Unreadable::CutBody {
                size: 7,
                announced: 8,
            },
        ),
    ] {
        let mut decoder = Decoder::new(FIELD, 24);
        decoder.space().0.extend_from_slice(input);
        assert_eq!(decoder.next(), None);
        assert_eq!(decoder.unframed(), input.len() as u64);
        assert_eq!(decoder.finish(), Some(Err(error)));
    }
}

#[test]
fn a_stream_that_begins_like_http_is_refused_before_any_frame() {
    for framing in [Framing::Lines, Framing::ContentLength, FIELD] {
        for (input, is_http) in [
            ("POST /x:y HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}\n", true),
            ("GET / HTTP/1.1\r\n\r\n", true),
            ("HTTP/1.1 400 Bad Request\r\n\r\n", true),
            ("OPTIONS * HTTP/1.1\r\n\r\n", true),
            ("{}\nPOST / HTTP/1.1\n", false),
            ("POSTS", false),
        ] {
            for step in [1, 3, usize::MAX] {
                // The smallest limit: HTTP is recognized even in a line that would be skipped.
                let mut decoder = Decoder::new(framing, 4);
                decoder.refuse_http();
                decoder.skip_oversized(Some(&["id"]));
                let (mut found, mut rest) = (Vec::new(), input.as_bytes());
                while !rest.is_empty() {
                    let (buffer, most) = decoder.space();
                    let (now, later) = rest.split_at(step.min(most).min(rest.len()));
                    buffer.extend_from_slice(now);
                    rest = later;
                    match decoder.next() {
                        Some(Err(error)) if !matches!(error, Unreadable::Oversized { .. }) => {
                            found.push(Err(error));
                            break;
                        }
                        next => found.extend(next),
                    }
                }
                let refused = found == [Err(Unreadable::Http)];
                assert_eq!(refused, is_http, "{framing} {input:?} by {step}: {found:?}");
            }
        }
    }
}

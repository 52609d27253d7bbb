//! Frames in streams: tables of what is read, split at every byte, and what a hostile writer can do.

#![cfg(feature = "process")]
#![allow(clippy::unwrap_used)]

use breakbulk_net::process::{Decoder, Framing, Unreadable};

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

/// The same however the bytes come.
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
    let no_colon = bad("a line without a colon");
    let no_number = bad("a Content-Length that is no number");
    for (input, error) in [
        (&b"{"[..], bad("it begins as JSON does")),
        (b"\r\n[{\"jsonrpc\":", bad("it begins as JSON does")),
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

/// Writes endlessly; how much is buffered at most, and what comes of it.
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
    // Empty lines are nothing, however many.
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
fn the_search_for_a_lines_end_is_linear() {
    // Byte by byte: a search that began anew each time would look at 80 GB.
    let line = format!("{}\n", "x".repeat(400_000));
    let started = std::time::Instant::now();
    let (frames, _) = decode(Framing::Lines, 1 << 20, line.as_bytes(), 1);
    assert_eq!(frames.len(), 1);
    assert!(started.elapsed().as_secs() < 3, "{:?}", started.elapsed());
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

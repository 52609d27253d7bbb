//! The scanner over chunks of every size.

use super::*;

const HEADS: [&[u8]; 2] = [
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
];

fn frame(first: u8, masked: bool, length: u64) -> Vec<u8> {
    let mask = if masked { 0x80 } else { 0 };
    let mut frame = vec![first];
    match length {
        0..126 => frame.push(mask | length as u8),
        126..0x1_0000 => {
            frame.push(mask | 126);
            frame.extend((length as u16).to_be_bytes());
        }
        _ => {
            frame.push(mask | 127);
            frame.extend(length.to_be_bytes());
        }
    }
    frame.extend(if masked { &[1, 2, 3, 4][..] } else { &[] });
    // A payload that looks like headers would mislead a scanner that lost its place.
    frame.extend((0..length.min(100_000)).map(|at| (at * 7) as u8 | 0x80));
    frame
}

/// Scans in chunks of `step` bytes until a verdict; returns what passed.
fn run(
    scanner: &mut Scanner,
    stream: &[u8],
    step: usize,
    way: &Way,
    mut left: Left,
) -> (Vec<u8>, Passed, Verdict) {
    let (mut out, mut passed) = (Vec::new(), Passed::default());
    let mut chunks: Vec<_> = stream.chunks(step).rev().collect();
    while let Some(chunk) = chunks.pop() {
        let scan = scanner.scan(chunk, way, left, false);
        out.extend_from_slice(scan.lead.as_slice());
        out.extend_from_slice(&chunk[scan.start..scan.end]);
        passed.add(&scan.passed);
        if left.frames != u64::MAX {
            left.frames -= scan.passed.frames;
        }
        if left.bytes != u64::MAX {
            left.bytes -= scan.passed.bytes;
        }
        match scan.verdict {
            Verdict::Pass => {}
            Verdict::Again => chunks.push(&chunk[scan.end..]),
            verdict => return (out, passed, verdict),
        }
    }
    (out, passed, Verdict::Pass)
}

fn stream() -> Vec<u8> {
    [
        HEADS[0].to_vec(),
        frame(0x01, true, 5),
        frame(0x89, true, 125),
        frame(0x00, true, 0),
        frame(0x80, true, 300),
        frame(0x82, false, 70_000),
        frame(0x88, true, 2),
    ]
    .concat()
}

#[test]
fn every_chunking_passes_the_same_bytes_and_counts() {
    let stream = stream();
    let expected = Passed {
        frames: 4,
        control_frames: 2,
        messages: 2,
        bytes: (stream.len() - HEADS[0].len()) as u64,
        largest_frame: 70_000,
        largest_message: 70_000,
        blocked: 0,
        largest_blocked: 0,
    };
    for step in (1..40).chain([1000, usize::MAX]) {
        let [mut scanner, _] = Scanner::pair(true);
        let (out, passed, verdict) = run(&mut scanner, &stream, step, &Way::default(), Left::ALL);
        assert!(out == stream, "chunks of {step}");
        assert_eq!(passed, expected, "chunks of {step}");
        assert_eq!(verdict, Verdict::Pass);
        assert!(scanner.at_boundary());
    }
}

#[test]
fn a_cut_by_bytes_passes_exactly_so_many_in_every_chunking() {
    let stream = stream();
    let head = HEADS[0].len();
    for bytes in (0..480).chain([70_000]) {
        for step in [1, 2, 3, 13, 64, usize::MAX] {
            let [mut scanner, _] = Scanner::pair(true);
            let left = Left {
                bytes: bytes as u64,
                ..Left::ALL
            };
            let (out, passed, verdict) = run(&mut scanner, &stream, step, &Way::default(), left);
            assert_eq!(
                verdict,
                Verdict::CutReached,
                "{bytes} bytes, chunks of {step}"
            );
            assert!(out == stream[..head + bytes], "{bytes}, chunks of {step}");
            assert_eq!(passed.bytes, bytes as u64);
        }
    }
}

#[test]
fn a_cut_by_frames_passes_whole_data_frames_and_no_more() {
    let stream = stream();
    // After the head; after 5 bytes in a header of 6; past the ping and an empty frame; and so on.
    for (frames, bytes) in [(0, 0), (1, 11), (2, 11 + 131 + 6), (3, 11 + 131 + 6 + 308)] {
        for step in [1, 7, usize::MAX] {
            let [mut scanner, _] = Scanner::pair(true);
            let left = Left {
                frames,
                ..Left::ALL
            };
            let (out, passed, verdict) = run(&mut scanner, &stream, step, &Way::default(), left);
            assert_eq!(verdict, Verdict::CutReached);
            assert_eq!(out.len(), HEADS[0].len() + bytes, "{frames} frames");
            assert_eq!(passed.frames, frames);
        }
    }
}

#[test]
fn caps_are_judged_by_the_header_alone() {
    let message = |size, cap| Verdict::Violation(Violation::Message { size, cap });
    let too_large = |size, cap| Verdict::Violation(Violation::Frame { size, cap });
    let (frame_cap, message_cap) = (Some(1000), Some(2500));
    let cases = [
        (
            "at the frame cap",
            vec![frame(0x81, true, 1000)],
            Verdict::Pass,
        ),
        (
            "one over",
            vec![frame(0x81, true, 1001)],
            too_large(1001, 1000),
        ),
        (
            "binary too",
            vec![frame(0x82, true, 1001)],
            too_large(1001, 1000),
        ),
        (
            "absurd",
            vec![frame(0x81, true, u64::MAX)],
            too_large(u64::MAX, 1000),
        ),
        (
            "absurd ping",
            vec![frame(0x89, true, 1 << 63)],
            too_large(1 << 63, 1000),
        ),
        (
            "pieces at the message cap",
            vec![
                frame(1, true, 1000),
                frame(0, true, 1000),
                frame(0x80, true, 500),
            ],
            Verdict::Pass,
        ),
        (
            "pieces one over",
            vec![
                frame(1, true, 1000),
                frame(0, true, 1000),
                frame(0x80, true, 501),
            ],
            message(2501, 2500),
        ),
        (
            "a ping between pieces counts for nothing",
            vec![
                frame(1, true, 1000),
                frame(0x89, true, 125),
                frame(0, true, 1000),
                frame(0x8a, true, 125),
                frame(0x80, true, 500),
            ],
            Verdict::Pass,
        ),
        (
            "messages do not add up",
            vec![
                frame(0x81, true, 900),
                frame(0x81, true, 900),
                frame(0x81, true, 900),
            ],
            Verdict::Pass,
        ),
    ];
    for (name, frames, expected) in cases {
        for step in [1, 5, 1021, usize::MAX] {
            let way = Way {
                frame_cap,
                message_cap,
                ..Way::default()
            };
            let [mut scanner, _] = Scanner::pair(true);
            let stream = [HEADS[0].to_vec(), frames.concat()].concat();
            let (out, passed, verdict) = run(&mut scanner, &stream, step, &way, Left::ALL);
            assert_eq!(verdict, expected, "{name}, chunks of {step}");
            let passes = match expected {
                Verdict::Pass => frames.len(),
                _ => frames.len() - 1,
            };
            let whole: usize = frames[..passes].iter().map(Vec::len).sum();
            assert_eq!(
                out.len(),
                HEADS[0].len() + whole,
                "{name}, chunks of {step}"
            );
            assert_eq!(passed.blocked, (frames.len() - passes) as u64, "{name}");
            assert!(scanner.at_boundary(), "{name}");
        }
    }
}

#[test]
fn absurd_lengths_pass_as_a_stream_where_no_cap_is_set() {
    let [mut scanner, _] = Scanner::pair(true);
    let stream = [HEADS[0].to_vec(), frame(1, true, u64::MAX), vec![0; 1000]].concat();
    let (out, passed, verdict) = run(&mut scanner, &stream, 77, &Way::default(), Left::ALL);
    assert!(out == stream);
    assert_eq!((passed.frames, verdict), (0, Verdict::Pass));
}

#[test]
fn text_only_refuses_binary() {
    let way = Way {
        text_only: true,
        ..Way::default()
    };
    for (first, expected) in [
        (0x81, Verdict::Pass),
        (0x89, Verdict::Pass),
        (0x82, Verdict::Violation(Violation::Binary)),
        (0x02, Verdict::Violation(Violation::Binary)),
    ] {
        let [mut scanner, _] = Scanner::pair(true);
        let stream = [HEADS[0].to_vec(), frame(first, true, 3)].concat();
        let (_, _, verdict) = run(&mut scanner, &stream, 4, &way, Left::ALL);
        assert_eq!(verdict, expected, "{first:#x}");
    }
}

#[test]
fn a_head_may_have_64_kib_and_no_more() {
    for (fill, expected) in [
        (HEAD_CAP - 4, Verdict::Pass),
        (HEAD_CAP - 3, Verdict::LongHead),
    ] {
        let [mut scanner, _] = Scanner::pair(true);
        let stream = [vec![b'a'; fill], b"\r\n\r\n".to_vec()].concat();
        let (_, _, verdict) = run(&mut scanner, &stream, 1000, &Way::default(), Left::ALL);
        assert_eq!(verdict, expected);
    }
}

#[test]
fn a_refused_upgrade_goes_on_as_plain_bytes() {
    let way = Way {
        frame_cap: Some(1),
        ..Way::default()
    };
    for (status, expected) in [("101", true), ("426", false)] {
        let [mut client, mut target] = Scanner::pair(true);
        run(&mut client, HEADS[0], 9, &way, Left::ALL);
        let answer = format!("HTTP/1.1 {status} x\r\n\r\n");
        run(&mut target, answer.as_bytes(), 9, &way, Left::ALL);
        for scanner in [&mut client, &mut target] {
            let (_, _, verdict) = run(scanner, b"GET /other HTTP/1.1", 9, &way, Left::ALL);
            let struck = matches!(verdict, Verdict::Violation(_));
            assert_eq!(struck, expected, "{status}");
        }
    }
}

#[test]
fn what_is_over_a_cap_is_left_out_or_cut_off_in_every_chunking() {
    let way = |refusal| Way {
        frame_cap: Some(300),
        message_cap: Some(700),
        refusal,
        ..Way::default()
    };
    let whole = |first, length| frame(first, true, length);
    // As it stands in the stream, but for its length.
    let cut = |first, length: u64, to: u64| {
        let mut cut = whole(first, to);
        let payload = &whole(first, length)[8..];
        let head = cut.len() - to as usize;
        cut.truncate(head);
        cut.extend_from_slice(&payload[..to as usize]);
        cut
    };
    let ping = whole(0x89, 3);
    for (name, refusal, stream, expected) in [
        (
            "a frame is left out",
            Refusal::Drop,
            [whole(0x81, 200), whole(0x82, 301), whole(0x81, 20)].concat(),
            [whole(0x81, 200), whole(0x81, 20)].concat(),
        ),
        (
            "all that follows is left out",
            Refusal::Silence,
            [whole(0x81, 200), whole(0x82, 301), whole(0x81, 20)].concat(),
            whole(0x81, 200),
        ),
        (
            "a frame is cut off",
            Refusal::Truncate,
            [whole(0x81, 200), whole(0x82, 301), whole(0x81, 20)].concat(),
            [whole(0x81, 200), cut(0x82, 301, 300), whole(0x81, 20)].concat(),
        ),
        (
            "a message is cut off in its third frame, and its fourth one is left out",
            Refusal::Truncate,
            [
                whole(0x01, 300),
                whole(0x00, 300),
                whole(0x00, 200),
                ping.clone(),
                whole(0x80, 200),
                whole(0x81, 20),
            ]
            .concat(),
            [
                whole(0x01, 300),
                whole(0x00, 300),
                whole(0x80, 100),
                ping.clone(),
                whole(0x81, 20),
            ]
            .concat(),
        ),
    ] {
        for step in [1, 2, 3, 7, 100, 301, 5000] {
            let [mut scanner, _] = Scanner::pair(true);
            let stream = [HEADS[0], &stream].concat();
            let (out, passed, verdict) = run(&mut scanner, &stream, step, &way(refusal), Left::ALL);
            assert!(out == [HEADS[0], &expected].concat(), "{name}, {step}");
            assert_eq!(verdict, Verdict::Pass, "{name}, {step}");
            assert_eq!(passed.blocked, 1, "{name}, {step}");
            assert_eq!(passed.bytes, expected.len() as u64, "{name}, {step}");
        }
    }
}

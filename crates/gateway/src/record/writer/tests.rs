use std::fs::{self, File};
use std::path::Path;

use breakbulk_link::{Closed, Frame};

use super::super::{By, Feed, Found, FrameTap, RecordReader, Way, files};
use super::*;
use crate::watch::{RouteWatch, Watch};

fn options(folder: &Path) -> RecordOptions {
    RecordOptions::new(folder.to_owned())
}

fn point(session: &str) -> Point {
    Point {
        session: session.to_owned(),
        route: "gateway".to_owned(),
        listen: "stdio:".to_owned(),
        to: "ws://h/".to_owned(),
        side: Some(super::super::SideName::To),
        line: 1,
    }
}

/// All records of a folder, in their order; nothing may be damaged.
fn read(folder: &Path) -> Vec<(Arc<Point>, Entry)> {
    let mut entries = Vec::new();
    for file in files(folder).unwrap() {
        let mut reader = RecordReader::open(&file).unwrap();
        while let Some(found) = reader.read_next().unwrap() {
            match found {
                Found::Entry(point, entry) => entries.push((point, *entry)),
                Found::Foreign => panic!("foreign in {}", file.display()),
            }
        }
    }
    entries
}

fn text(text: &str) -> Frame {
    Frame::Text(Bytes::copy_from_slice(text.as_bytes()))
}

fn say(tap: &FrameTap) {
    tap.frame(
        Way::Out,
        &text(r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"secret":"hunter2"}}"#),
    );
    tap.frame(
        Way::In,
        &text(r#"{"jsonrpc":"2.0","id":7,"result":"hunter2"}"#),
    );
    tap.frame(Way::Out, &Frame::Binary(Bytes::from_static(b"\x09hunter2")));
    let closed = Closed {
        code: 1009,
        reason: "too big".to_owned(),
    };
    tap.closed(By::Peer, &closed);
}

// REC-1, REC-2
#[test]
fn frames_are_named_without_their_content_in_files_of_their_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("made/for/it");
    let recorder = Recorder::start(&options(&folder)).unwrap();
    let feed = Feed::new(Some(recorder.clone()));
    say(&feed.tap(point("s-1")));
    recorder.finish();
    let entries = read(&folder);
    let notes: Vec<String> = entries
        .iter()
        .map(|(_, entry)| serde_json::to_string(&entry.note).unwrap())
        .collect();
    assert_eq!(
        notes,
        [
            r#"{"is":"frame","n":1,"bytes":76,"kind":"whole","method":"tools/call","id":"7"}"#,
            r#"{"is":"frame","n":1,"bytes":43,"kind":"whole","id":"7"}"#,
            r#"{"is":"frame","n":2,"bytes":8,"kind":"whole"}"#,
            r#"{"is":"closed","by":"peer","code":1009,"reason":"too big"}"#,
        ]
    );
    let ways: Vec<_> = entries.iter().map(|(_, entry)| entry.way).collect();
    assert_eq!(ways, [Some(Way::Out), Some(Way::In), Some(Way::Out), None]);
    assert_eq!(*entries[0].0, point("s-1"));
    assert!(
        entries
            .windows(2)
            .all(|two| two[0].1.micros <= two[1].1.micros)
    );
    for file in files(&folder).unwrap() {
        let bytes = fs::read(&file).unwrap();
        assert!(!contains(&bytes, b"hunter2"));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!((mode(&file), mode(&folder)), (0o600, 0o700));
        }
    }
    // What happens after the end is not recorded.
    say(&feed.tap(point("s-2")));
    recorder.finish();
    assert_eq!(read(&folder).len(), 4);
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Whoever knows the name of a tunnel's session can resume that session.
// REC-1
#[test]
fn bodies_are_kept_where_they_are_asked_for_but_never_the_name_of_a_session() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(folder.path()).with(|it| it.bodies = 60);
    let recorder = Recorder::start(&options).unwrap();
    let tap = Feed::new(Some(recorder.clone())).tap(point("s-1"));
    say(&tap);
    let name = "-_v7-_v7-_v7-_v7-_v7-_v7-_v7-_v7";
    for params in [
        format!(
            r#"hello","params":{{"version":2,"session":"{name}","carries":"text","resumeMs":5,"window":1,"frame":900,"message":900,"label":"x-9"}}}}"#
        ),
        format!(r#"resume","params":{{"version":2,"session":"{name}","received":3}}}}"#),
    ] {
        tap.frame(
            Way::In,
            &text(&format!(
                r#"{{"jsonrpc":"2.0","method":"breakbulk/{params}"#
            )),
        );
    }
    recorder.finish();
    let entries = read(folder.path());
    let bodies: Vec<_> = entries.iter().map(|(_, entry)| &entry.body[..]).collect();
    let first: &[u8] = br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"secr"#;
    let second: &[u8] = br#"{"jsonrpc":"2.0","id":7,"result":"hunter2"}"#;
    assert_eq!(bodies[..4], [&first[..60], second, b"\x09hunter2", b""]);
    assert_eq!(bodies[4..], [b"", b""]);
    let notes: Vec<String> = entries[4..]
        .iter()
        .map(|(_, entry)| serde_json::to_string(&entry.note).unwrap())
        .collect();
    assert_eq!(
        notes,
        [
            r#"{"is":"frame","n":2,"bytes":193,"kind":"tunnel","tunnel":{"says":"hello","frame":900,"message":900,"resume_ms":5,"label":"x-9"}}"#,
            r#"{"is":"frame","n":3,"bytes":126,"kind":"tunnel","tunnel":{"says":"resume","received":3}}"#,
        ]
    );
    for file in files(folder.path()).unwrap() {
        assert!(!contains(&fs::read(&file).unwrap(), name.as_bytes()));
    }
}

// REC-3
#[test]
fn the_oldest_go_when_there_are_too_many_bytes_and_each_segment_stands_alone() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(folder.path()).with(|it| it.size = RecordOptions::LEAST_SIZE);
    let total = 20_000;
    let recorder = Recorder::start_with_queue(&options, total).unwrap();
    let tap = Feed::new(Some(recorder.clone())).tap(point("s-1"));
    for _ in 0..total {
        tap.frame(Way::Out, &text(r#"{"jsonrpc":"2.0","method":"m"}"#));
    }
    recorder.finish();
    let files = files(folder.path()).unwrap();
    let bytes: u64 = files.iter().map(|it| fs::metadata(it).unwrap().len()).sum();
    assert!(files.len() > 8, "{}", files.len());
    assert!(bytes <= options.size, "{bytes}");
    let entries = read(folder.path());
    assert!(entries.len() < total, "{}", entries.len());
    // The last records are there without a gap, and each segment describes its session again.
    let first = total - entries.len() + 1;
    for (at, (found, entry)) in entries.iter().enumerate() {
        assert_eq!(**found, point("s-1"));
        assert!(matches!(entry.note, Note::Frame { n, .. } if n as usize == first + at));
    }
}

// REC-3
#[test]
fn what_is_too_old_goes_and_what_others_keep_there_stays() {
    let folder = tempfile::tempdir().unwrap();
    let week = SystemTime::now() - Duration::from_secs(8 * 24 * 3600);
    let make = |name: &str| {
        let path = folder.path().join(name);
        File::create(&path).unwrap().set_modified(week).unwrap();
        path
    };
    let (ours, other) = (make("breakbulk-2020.pcapng"), make("other.pcapng"));
    let recorder = Recorder::start(&options(folder.path())).unwrap();
    assert!(!ours.exists() && other.exists());
    let taken = Recorder::start(&options(folder.path()));
    let error = taken.unwrap_err().to_string();
    assert!(error.starts_with("another gateway records in "), "{error}");
    recorder.finish();
    drop(recorder);
}

/// The segment that is being written is never deleted, so an idle gateway must end it when its records are
/// too old.
// REC-3
#[test]
fn what_is_too_old_goes_although_nothing_more_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let now = SystemTime::now();
    let options = options(folder.path());
    let mut segments = Segments::open(&options, now).unwrap();
    let entry = Entry {
        micros: time::micros(now),
        way: None,
        note: Note::Refused,
        body: Bytes::new(),
    };
    segments.write(now, (1, &point("s-1")), &entry).unwrap();
    segments.idle(now).unwrap();
    assert_eq!(files(folder.path()).unwrap().len(), 1);
    segments.idle(now + options.age / 2).unwrap();
    assert_eq!(read(folder.path()).len(), 1);
    segments
        .idle(now + options.age + Duration::from_secs(60))
        .unwrap();
    assert_eq!(files(folder.path()).unwrap().len(), 0);
}

/// A session is forgotten when it ends: remembered ones must not push out those that still run.
#[test]
fn a_long_session_is_remembered_however_many_come_and_go() {
    let feed = Feed::new(None);
    let watch = Watch::default();
    watch.set_record(Arc::new(feed.clone()));
    let ends = ("ws://0".to_owned(), "exec:cat".to_owned());
    let route = RouteWatch::new(&watch, "gateway", ends, Arc::default());
    let long = route.arrived("127.0.0.1:1");
    for _ in 0..20_000 {
        // A client without an end of its own, such as one that resumes another session with a line of a
        // tunnel.
        drop(route.arrived("127.0.0.1:2"));
    }
    assert_eq!(feed.sessions().len(), 1);
    drop(long);
    assert_eq!(feed.sessions().len(), 0);
}

// REC-4
#[test]
fn what_does_not_fit_is_counted_in_the_record_and_nobody_waits() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(folder.path()).with(|it| it.bodies = usize::MAX);
    let recorder = Recorder::start(&options).unwrap();
    let tap = Feed::new(Some(recorder.clone())).tap(point("s-1"));
    let huge = Frame::Binary(vec![9; QUEUED_BYTES + 1].into());
    tap.frame(Way::In, &huge);
    tap.frame(Way::In, &huge);
    tap.frame(Way::In, &text("{}"));
    recorder.finish();
    let notes: Vec<Note> = read(folder.path())
        .into_iter()
        .map(|it| it.1.note)
        .collect();
    assert_eq!(notes[0], Note::Missed { records: 2 });
    assert!(
        matches!(notes[1], Note::Frame { n: 3, bytes: 2, .. }),
        "{notes:?}"
    );
    assert_eq!(notes.len(), 2);
}

// REC-5
#[test]
fn a_disk_that_takes_no_more_ends_the_record_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("record");
    let recorder = Recorder::start(&options(&inner)).unwrap();
    fs::remove_dir_all(&inner).unwrap();
    let tap = Feed::new(Some(recorder.clone())).tap(point("s-1"));
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while recorder.is_recording() {
        assert!(std::time::Instant::now() < deadline);
        say(&tap);
    }
    for _ in 0..10 * QUEUE {
        say(&tap);
    }
    recorder.finish();
}

// REC-6
#[test]
fn a_record_that_was_cut_off_is_read_up_to_its_last_whole_entry() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = Recorder::start(&options(folder.path())).unwrap();
    say(&Feed::new(Some(recorder.clone())).tap(point("s-1")));
    recorder.finish();
    let file = files(folder.path()).unwrap().remove(0);
    let bytes = fs::read(&file).unwrap();
    let mut most = 0;
    for end in 0..=bytes.len() {
        let mut reader = RecordReader::new(&bytes[..end]);
        let mut count = 0;
        while let Ok(Some(Found::Entry(..))) = reader.read_next() {
            count += 1;
        }
        assert!(count >= most, "{end}: {count} after {most}");
        most = count;
    }
    assert_eq!(most, 4);
}

/// Arbitrary bytes cause no panic, and reading comes to an end.
// REC-7
#[test]
fn bytes_of_anybody_are_read_without_harm() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = Recorder::start(&options(folder.path())).unwrap();
    say(&Feed::new(Some(recorder.clone())).tap(point("s-1")));
    recorder.finish();
    let file = files(folder.path()).unwrap().remove(0);
    let good = fs::read(&file).unwrap();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    for _ in 0..20_000 {
        let mut bytes = good.clone();
        for _ in 0..1 + next() % 4 {
            let at = next() as usize % bytes.len();
            bytes[at] = next() as u8;
        }
        let mut reader = RecordReader::new(&bytes[..]);
        while let Ok(Some(_)) = reader.read_next() {}
    }
}

// REC-2
#[test]
fn another_reader_of_pcapng_finds_the_same() {
    use pcap_parser::{Block, PcapNGOption};

    // That reader keeps the padding.
    let value = |option: &PcapNGOption<'_>| option.value[..usize::from(option.len)].to_vec();
    let folder = tempfile::tempdir().unwrap();
    let options = options(folder.path()).with(|it| it.bodies = 60);
    let recorder = Recorder::start(&options).unwrap();
    say(&Feed::new(Some(recorder.clone())).tap(point("s-1")));
    recorder.finish();
    let ours = read(folder.path());
    let file = fs::read(&files(folder.path()).unwrap()[0]).unwrap();
    let (rest, blocks) = pcap_parser::parse_pcapng(&file)
        .map(|(rest, file)| (rest, file.sections))
        .unwrap();
    assert!(rest.is_empty() && blocks.len() == 1);
    let (mut seen, mut interfaces) = (Vec::new(), Vec::new());
    for block in &blocks[0].blocks {
        match block {
            Block::InterfaceDescription(it) => {
                let name = value(&it.options[0]);
                interfaces.push((it.linktype.0, it.if_tsresol, name));
            }
            Block::EnhancedPacket(it) => {
                let resolution = 1_000_000;
                let (seconds, fraction) = it.decode_ts(0, resolution);
                let micros = u64::from(seconds) * resolution + u64::from(fraction);
                let option = |code| it.options.iter().find(|it| it.code.0 == code);
                let comment = value(option(1).unwrap());
                let flags = option(2).map(|it| value(it)[0]);
                let data = it.data[..it.caplen as usize].to_vec();
                seen.push((micros, comment, flags, data, it.origlen - it.caplen));
            }
            _ => {}
        }
    }
    assert_eq!(interfaces, [(252, 6, b"s-1 to 1".to_vec())]);
    assert_eq!(seen.len(), ours.len());
    let flags: Vec<_> = seen.iter().map(|it| it.2).collect();
    assert_eq!(flags, [Some(2), Some(1), Some(2), None]);
    let left_out: Vec<_> = seen.iter().map(|it| it.4).collect();
    assert_eq!(left_out, [16, 0, 0, 0]);
    for ((micros, comment, _, data, _), (_, entry)) in seen.iter().zip(&ours) {
        assert_eq!(*micros, entry.micros);
        assert_eq!(*comment, serde_json::to_vec(&entry.note).unwrap());
        assert!(data.ends_with(&entry.body));
    }
}

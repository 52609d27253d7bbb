use std::sync::Arc;

use breakbulk::gateway::record::{
    By, End, Entry, Fate, FrameKind, Head, NotCarried, Note, Point, Says, SideName, Way,
};

use super::book::Book;
use super::{chain, print, report};

/// Writes the records of two gateways, entry by entry, a millisecond each.
struct Scene {
    book: Book,
    micros: u64,
    /// Frames of each point and direction so far.
    frames: std::collections::BTreeMap<String, u64>,
}

/// A gateway of the scene: its record, its session and its ends.
type Gateway = (usize, &'static str, &'static str, &'static str);

const NEAR: Gateway = (1, "7kq3vd-1", "stdio:", "ws://host.example/");
const FAR: Gateway = (0, "9fa2mm-1", "ws://0.0.0.0:8080", "exec:server");

impl Scene {
    fn new() -> Self {
        Self {
            book: Book::default(),
            micros: 1_795_000_000_000_000,
            frames: Default::default(),
        }
    }

    fn note(&mut self, of: Gateway, side: Option<SideName>, way: Option<Way>, note: Note) {
        let (place, session, listen, to) = of;
        let point = Point {
            session: session.to_owned(),
            route: "gateway".to_owned(),
            listen: listen.to_owned(),
            to: to.to_owned(),
            side,
            line: u64::from(side.is_some()),
        };
        self.micros += 1000;
        let entry = Entry {
            micros: self.micros,
            way,
            note,
            body: Default::default(),
        };
        self.book.add(place, &Arc::new(point), &entry);
    }

    fn frame(&mut self, of: Gateway, side: SideName, way: Way, bytes: u64, head: &Head) {
        let count = self
            .frames
            .entry(format!("{of:?}{side:?}{way:?}"))
            .or_default();
        *count += 1;
        let (n, head) = (*count, head.clone());
        self.note(of, Some(side), Some(way), Note::Frame { n, bytes, head });
    }

    /// A frame from one gateway to the other.
    fn carried(&mut self, there: bool, bytes: u64, head: &Head) {
        let ends = [(NEAR, SideName::To), (FAR, SideName::Listen)];
        let [from, to] = if there { ends } else { [ends[1], ends[0]] };
        self.frame(from.0, from.1, Way::Out, bytes, head);
        self.frame(to.0, to.1, Way::In, bytes, head);
    }

    fn text(&self, records: &[&str]) -> String {
        let records = records.iter().map(|it| (*it).to_owned()).collect();
        let report = report::Report::new(&self.book, chain::chains(&self.book), records, vec![]);
        let mut out = Vec::new();
        print::print(&report, false, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }
}

fn hello(label: &str, resume_ms: u64) -> Head {
    Head {
        kind: FrameKind::Tunnel,
        tunnel: Some(Says::Hello {
            frame: 900_000,
            message: 32 << 20,
            resume_ms,
            label: Some(label.to_owned()),
        }),
        ..Head::default()
    }
}

fn piece(seq: u64) -> Head {
    Head {
        kind: FrameKind::Piece,
        wire: Some("ahp".to_owned()),
        key: Some("k".to_owned()),
        seq: Some(seq),
        count: Some(30),
        data: Some(674_844),
        method: (seq == 0).then(|| "tools/call".to_owned()),
        id: (seq == 0).then(|| "7".to_owned()),
        ..Head::default()
    }
}

/// A request of 20 MB, of whose 30 pieces 15 are sent and 12 arrive: the path closes with 1009.
fn planted() -> Scene {
    let mut scene = Scene::new();
    scene.note(
        NEAR,
        None,
        None,
        Note::Began {
            peer: "stdio:".into(),
        },
    );
    scene.note(
        FAR,
        None,
        None,
        Note::Began {
            peer: "192.0.2.1:5".into(),
        },
    );
    scene.carried(true, 180, &hello(NEAR.1, 0));
    scene.carried(false, 220, &hello(FAR.1, 60_000));
    let request = Head {
        method: Some("tools/call".to_owned()),
        id: Some("7".to_owned()),
        ..Head::default()
    };
    scene.frame(NEAR, SideName::Listen, Way::In, 20_000_058, &request);
    for seq in 0..12 {
        scene.carried(true, 900_000, &piece(seq));
    }
    for seq in 12..15 {
        scene.frame(NEAR, SideName::To, Way::Out, 900_000, &piece(seq));
    }
    let reason = "message of 900000 bytes over the cap of 100003";
    let closed = |by| Note::Closed {
        by,
        code: 1009,
        reason: reason.to_owned(),
    };
    scene.note(NEAR, Some(SideName::To), None, closed(By::Peer));
    scene.note(FAR, Some(SideName::Listen), None, closed(By::Peer));
    // The gateway answers what nobody else does.
    let answer = Head {
        id: Some("7".to_owned()),
        ..Head::default()
    };
    scene.frame(NEAR, SideName::Listen, Way::Out, 120, &answer);
    for (of, side) in [(NEAR, SideName::To), (FAR, SideName::Listen)] {
        let end = End {
            side,
            by_peer: true,
            code: 1009,
            reason: reason.to_owned(),
            lost: 1,
            unanswered: 1,
            incomplete: 0,
            clean: false,
        };
        scene.note(of, None, None, Note::Ended(end));
    }
    scene
}

// REC-9
#[test]
fn a_failure_is_explained_in_one_screen() {
    let text = planted().text(&["/var/far", "/var/near/"]);
    assert_eq!(
        text,
        "\
2 records, 1 conversation, 2026-11-18 11:06:40.001 to 11:06:40.039 UTC

7kq3vd-1 in near: stdio: to ws://host.example/
9fa2mm-1 in far: ws://0.0.0.0:8080 to exec:server
  11:06:40.001, 0.038 s; in 1 frame 20,000,058 B, out 1 frame 120 B; failed

where     the connection between 7kq3vd-1 and 9fa2mm-1 ended with 1009 at
          11:06:40.035
reason    message of 900000 bytes over the cap of 100003
closed by the path between them: neither 7kq3vd-1 nor 9fa2mm-1 closed it
frame     14 from 7kq3vd-1 to 9fa2mm-1: 900,000 bytes; it and 2 after it did
          not arrive
message   tools/call id 7: piece 13 of 30, from byte 8,098,128 of at most
          20,245,320
cap       100,003 bytes, as the close reason says; the gateways sent up to
          900,000
requests  1 request without an answer: tools/call id 7
remedy    start both gateways with --max-frame 100003, or with the --preset of
          that path. With --resume-for above 0 at both, the tunnel finds the
          cap by itself and goes on.
"
    );
    assert!(text.lines().count() <= 24);
    assert!(text.lines().all(|line| line.chars().count() <= 80));
}

/// A request whose answer is larger than the far gateway takes: an error takes its place, and all ends well.
fn too_large() -> Scene {
    let mut scene = Scene::new();
    scene.carried(true, 180, &hello(NEAR.1, 60_000));
    scene.carried(false, 220, &hello(FAR.1, 60_000));
    let request = Head {
        method: Some("tools/call".to_owned()),
        id: Some("2".to_owned()),
        ..Head::default()
    };
    scene.frame(NEAR, SideName::Listen, Way::In, 100, &request);
    scene.carried(true, 100, &request);
    let answer = NotCarried {
        side: SideName::To,
        bytes: 40_000_073,
        limit: Some(33_554_432),
        own: true,
        method: None,
        id: Some("2".to_owned()),
        instead: Fate::Replaced,
        why: "it is over max-message 33554432".to_owned(),
    };
    scene.note(FAR, None, None, Note::NotCarried(answer));
    let error = Head {
        id: Some("2".to_owned()),
        error: Some(-32011),
        ..Head::default()
    };
    scene.carried(false, 303, &error);
    scene.frame(NEAR, SideName::Listen, Way::Out, 303, &error);
    for (of, side) in [(NEAR, SideName::To), (FAR, SideName::Listen)] {
        let end = End {
            side,
            by_peer: true,
            code: 1000,
            reason: String::new(),
            lost: 0,
            unanswered: 0,
            incomplete: 0,
            clean: true,
        };
        scene.note(of, None, None, Note::Ended(end));
    }
    scene
}

// REC-9
#[test]
fn an_answer_that_was_too_large_is_explained_although_all_went_on() {
    let text = too_large().text(&["/var/far", "/var/near/"]);
    assert_eq!(
        text,
        "\
2 records, 1 conversation, 2026-11-18 11:06:40.001 to 11:06:40.013 UTC

7kq3vd-1 in near: stdio: to ws://host.example/
9fa2mm-1 in far: ws://0.0.0.0:8080 to exec:server
  11:06:40.001, 0.012 s; in 1 frame 100 B, out 1 frame 303 B; message too large

too large the answer to tools/call id 2, of 40,000,073 bytes, did not pass: the
          gateway of 9fa2mm-1 put an error in its place
cap       33,554,432 bytes, the max-message of the gateway of 9fa2mm-1 at its
          end --to
remedy    start the gateway of 9fa2mm-1 with --max-message 40000073 or more
          (and the other gateway, if there is one), or ask for less
"
    );
    assert!(text.lines().all(|line| line.chars().count() <= 80));
    // The record of the near gateway alone knows that there was an error, and where more is told.
    let mut alone = Scene::new();
    let request = Head {
        method: Some("m".to_owned()),
        id: Some("7".to_owned()),
        ..Head::default()
    };
    alone.frame(NEAR, SideName::Listen, Way::In, 100, &request);
    let error = Head {
        id: Some("7".to_owned()),
        error: Some(-32011),
        ..Head::default()
    };
    alone.frame(NEAR, SideName::Listen, Way::Out, 303, &error);
    let text = alone.text(&["/var/near"]);
    assert!(
        text.contains("m id 7 was answered with error -32011"),
        "{text}"
    );
}

/// The remedy was always a larger --max-message, which does not help against too many pieces.
// REC-9
#[test]
fn the_remedy_is_that_of_the_limit_that_was_exceeded() {
    for (fact, remedy) in [
        (
            "message too large: 65 bytes make more than 10 pieces in frames of 5 bytes",
            "send less, or start both gateways with a larger --max-frame",
        ),
        (
            "message too large: 65 bytes, and the gateway at its receiver takes 5",
            "send less, or start both gateways with a larger --max-message",
        ),
    ] {
        let mut scene = Scene::new();
        let request = NotCarried {
            side: SideName::To,
            bytes: 65,
            limit: Some(5),
            own: false,
            method: Some("m".to_owned()),
            id: Some("2".to_owned()),
            instead: Fate::Answered,
            why: format!("{fact}; {remedy}"),
        };
        scene.note(NEAR, None, None, Note::NotCarried(request));
        let text = scene.text(&["/var/near"]);
        let said = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.ends_with(&format!("{fact} remedy {remedy}")), "{text}");
    }
}

/// Sessions that only one side calls the same, and circles, stay apart or end.
// REC-8
#[test]
fn sessions_are_joined_only_where_both_gateways_say_so() {
    let with = |near_says: &str, far_says: &str| {
        let mut scene = Scene::new();
        scene.carried(true, 1, &hello(near_says, 1));
        scene.carried(false, 1, &hello(far_says, 1));
        chain::chains(&scene.book)
            .iter()
            .map(Vec::len)
            .collect::<Vec<_>>()
    };
    assert_eq!(with(NEAR.1, FAR.1), [2]);
    for (near_says, far_says) in [("other-1", FAR.1), (NEAR.1, "other-1"), (FAR.1, NEAR.1)] {
        assert_eq!(with(near_says, far_says), [1, 1], "{near_says} {far_says}");
    }
}

/// However much a record says, little of it is kept.
// REC-7
#[test]
fn a_record_of_any_size_takes_bounded_memory() {
    let mut scene = Scene::new();
    for number in 0..5000_u64 {
        let head = Head {
            kind: FrameKind::Piece,
            key: Some(number.to_string()),
            count: Some(u64::MAX),
            seq: Some(u64::MAX - 1),
            data: Some(u64::MAX),
            method: Some("m".to_owned()),
            id: Some(number.to_string()),
            ..Head::default()
        };
        scene.frame(NEAR, SideName::Listen, Way::In, u64::MAX, &head);
        let open = Head {
            kind: FrameKind::Open,
            key: Some(format!("open {number}")),
            ..head
        };
        scene.frame(NEAR, SideName::Listen, Way::In, 1, &open);
    }
    let way = &scene.book.sessions[0].lines[0].ways[0];
    assert!(way.last.len() <= 256 && way.transfers.len() <= 256);
    assert!(scene.book.sessions[0].open_requests().count() <= 256);
    assert!(!scene.text(&["a", "b"]).is_empty());
}

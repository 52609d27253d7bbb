//! Writes and reads every control frame, and compares their bytes.

use super::*;

const SESSION: SessionId = SessionId([0xfb; SESSION_BYTES]);

fn hello(session: Option<SessionId>) -> Hello {
    Hello {
        session,
        binary: false,
        resume_ms: 60_000,
        window: 8 << 20,
        frame: 900_000,
        message: 32 << 20,
        label: None,
    }
}

#[test]
fn written_as_read() {
    let id = "-_v7-_v7-_v7-_v7-_v7-_v7-_v7-_v7";
    for (control, params) in [
        (
            Control::Hello(hello(None)),
            r#"hello","params":{"version":2,"carries":"text","resumeMs":60000,"window":8388608,"frame":900000,"message":33554432}}"#.to_owned(),
        ),
        (
            Control::Hello(Hello { binary: true, ..hello(Some(SESSION)) }),
            format!(r#"hello","params":{{"version":2,"session":"{id}","carries":"binary","resumeMs":60000,"window":8388608,"frame":900000,"message":33554432}}}}"#),
        ),
        (
            Control::Hello(Hello { label: Label::new("7kq3-12"), ..hello(None) }),
            r#"hello","params":{"version":2,"carries":"text","resumeMs":60000,"window":8388608,"frame":900000,"message":33554432,"label":"7kq3-12"}}"#.to_owned(),
        ),
        (
            Control::Resume { session: SESSION, received: Received::frames(7) },
            format!(r#"resume","params":{{"version":2,"session":"{id}","received":7}}}}"#),
        ),
        (
            Control::Resume { session: SESSION, received: Received { frames: 7, bytes: 9 } },
            format!(r#"resume","params":{{"version":2,"session":"{id}","received":7,"bytes":9}}}}"#),
        ),
        (
            Control::Resumed { received: Received::default(), cap: 0 },
            r#"resumed","params":{"received":0}}"#.to_owned(),
        ),
        (
            Control::Resumed { received: Received { frames: 0, bytes: 300 }, cap: 4096 },
            r#"resumed","params":{"received":0,"bytes":300,"cap":4096}}"#.to_owned(),
        ),
        (Control::Gone(Gone::Restarted), r#"gone","params":{"why":"restarted"}}"#.to_owned()),
        (Control::Gone(Gone::Member), r#"gone","params":{"why":"member"}}"#.to_owned()),
        (Control::Gone(Gone::Expired), r#"gone","params":{"why":"expired"}}"#.to_owned()),
        (Control::Gone(Gone::Numbers), r#"gone","params":{"why":"numbers"}}"#.to_owned()),
        (Control::Ack { taken: 12 }, r#"ack","params":{"taken":12}}"#.to_owned()),
        (
            Control::Part { at: 0, last: true, data: b"\xff\xfe\xfd".to_vec() },
            r#"part","params":{"last":true,"data":"//79"}}"#.to_owned(),
        ),
        (
            Control::Part { at: 700, last: true, data: b"\xff\xfe\xfd".to_vec() },
            r#"part","params":{"last":true,"data":"//79","at":700}}"#.to_owned(),
        ),
        (
            Control::Part { at: 0, last: false, data: Vec::new() },
            r#"part","params":{"last":false,"data":""}}"#.to_owned(),
        ),
        (
            Control::Close { code: 1001, reason: "say \"no\"".to_owned() },
            r#"close","params":{"code":1001,"reason":"say \"no\""}}"#.to_owned(),
        ),
    ] {
        let text = format!(r#"{{"jsonrpc":"2.0","method":"breakbulk/{params}"#);
        assert_eq!(control.to_json(), text);
        assert!(Control::is_control(text.as_bytes()));
        assert_eq!(Control::read(text.as_bytes()), Ok(control), "{text}");
    }
    // 256 bytes is the smallest cap that a gateway can have.
    let longest = Hello {
        label: Label::new(&"x".repeat(LABEL_MAX)),
        ..hello(Some(SESSION))
    };
    assert!(Control::Hello(longest).to_json().len() <= 256);
}

#[test]
fn a_label_is_a_short_plain_word_or_is_left_out() {
    let longest = "x".repeat(LABEL_MAX);
    for label in ["a", "7kq3-12", "Z9-", &longest] {
        assert_eq!(Label::new(label).unwrap().to_string(), label);
    }
    let read = |label: &str| {
        let numbers = r#""resumeMs":0,"window":1,"frame":900,"message":900"#;
        let text = format!(
            r#"{CONTROL}hello","params":{{"version":2,"carries":"text",{numbers},"label":{label}}}}}"#
        );
        match Control::read(text.as_bytes()) {
            Ok(Control::Hello(hello)) => hello.label,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(read(r#""s-1""#), Label::new("s-1"));
    for wrong in [
        "7",
        "null",
        "\"\"",
        "\"a b\"",
        "\"\\u001b[2J\"",
        "\"é\"",
        &format!("\"{longest}x\""),
    ] {
        assert_eq!(read(wrong), None, "{wrong}");
    }
}

#[test]
fn the_bytes_of_a_part_are_counted_without_decoding() {
    for (at, last, data) in [
        (0, true, 0),
        (0, false, 1),
        (7, true, 2),
        (0, false, 3),
        (4_000_000_000, true, 100_000),
    ] {
        let part = Control::Part {
            at,
            last,
            data: vec![7; data],
        };
        assert_eq!(part_bytes(part.to_json().as_bytes()), Some((last, data)));
    }
    let ack = Control::Ack { taken: 1 }.to_json();
    for other in ["", "{}", &ack] {
        assert_eq!(part_bytes(other.as_bytes()), None);
    }
}

#[test]
fn what_is_no_control_frame() {
    let frame = |method: &str, params: &str| {
        format!(r#"{{"jsonrpc":"2.0","method":"breakbulk/{method}","params":{params}}}"#)
    };
    let good = r#""carries":"text","resumeMs":0,"window":1,"frame":1,"message":1"#;
    for (text, error) in [
        (String::new(), ControlError::Other),
        ("[]".to_owned(), ControlError::Other),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#.to_owned(),
            ControlError::Other,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"breakbulk/ack"}"#.to_owned(),
            ControlError::Other,
        ),
        (frame("later", "{}"), ControlError::Unknown),
        (
            frame("hello", "[]"),
            ControlError::Member("hello", "params"),
        ),
        (
            frame("hello", "{}"),
            ControlError::Member("hello", "version"),
        ),
        (frame("hello", r#"{"version":1}"#), ControlError::Version(1)),
        (frame("hello", r#"{"version":9}"#), ControlError::Version(9)),
        (
            frame("hello", r#"{"version":2}"#),
            ControlError::Member("hello", "carries"),
        ),
        (
            frame(
                "hello",
                &format!(r#"{{"version":2,"session":"short",{good}}}"#),
            ),
            ControlError::Member("hello", "session"),
        ),
        (
            frame(
                "hello",
                r#"{"version":2,"carries":"text","resumeMs":0,"window":1,"frame":2,"message":1}"#,
            ),
            ControlError::Member("hello", "frame"),
        ),
        (
            frame("resume", r#"{"version":2,"received":1}"#),
            ControlError::Member("resume", "session"),
        ),
        (
            frame("ack", r#"{"taken":-1}"#),
            ControlError::Member("ack", "taken"),
        ),
        (
            frame("resumed", r#"{"received":1,"bytes":-1}"#),
            ControlError::Member("resumed", "bytes"),
        ),
        (
            frame("part", r#"{"last":true,"data":"","at":"1"}"#),
            ControlError::Member("part", "at"),
        ),
        (
            frame("part", r#"{"last":1,"data":""}"#),
            ControlError::Member("part", "last"),
        ),
        (
            frame("part", r#"{"last":true,"data":"a"}"#),
            ControlError::Member("part", "data"),
        ),
        (
            frame("close", r#"{"code":99999}"#),
            ControlError::Member("close", "code"),
        ),
    ] {
        assert_eq!(Control::read(text.as_bytes()), Err(error), "{text}");
    }
    for (version, words) in [(1, "update the other one"), (3, "update this one")] {
        let error = ControlError::Version(version).to_string();
        assert!(error.ends_with(words), "{error}");
    }
    // Members that a later version adds are ignored.
    let later = frame("hello", &format!(r#"{{"later":[],"version":2,{good}}}"#));
    assert!(Control::read(later.as_bytes()).is_ok());
    let escaped = frame("part", r#"{"last":true,"data":"\/\/79"}"#);
    let part = Control::Part {
        at: 0,
        last: true,
        data: b"\xff\xfe\xfd".to_vec(),
    };
    assert_eq!(Control::read(escaped.as_bytes()), Ok(part));
}

#[test]
fn a_part_fills_its_room_and_no_more() {
    for room in [200, 256, 257, 258, 259, 4096, 100_003] {
        for last in [true, false] {
            let data = vec![7; part_room(room)];
            let at = 9_999_999_999;
            let size = Control::Part { at, last, data }.to_json().len();
            assert!(size <= room && size + 5 > room, "{size} of {room}");
        }
    }
    assert_eq!(part_room(0), 1);
}

#[test]
fn nobody_sees_a_sessions_name() {
    let shown = format!(
        "{:?}",
        Control::Resume {
            session: SESSION,
            received: Received::frames(1)
        }
    );
    assert_eq!(
        shown,
        "Resume { session: SessionId, received: Received { frames: 1, bytes: 0 } }"
    );
}

use breakbulk_wire::Stream;

use super::*;

type Names = Calls<&'static str>;

fn calls(change: impl FnOnce(&mut Config)) -> Names {
    let mut config = Config::default();
    change(&mut config);
    let mut calls = Calls::new(&config);
    calls.begin(1, "one");
    calls
}

fn result(id: i64) -> String {
    format!(r#"{{"id": {id}, "protocol": "tywrap/1", "result": [ 5]}}"#)
}

fn error(id: i64) -> String {
    format!(r#"{{"id":{id},"protocol":"tywrap/1","error":{{"type":"E","message":"m"}}}}"#)
}

fn word(calls: &mut Names, verdict: Verdict<&'static str>) -> String {
    let broken = if calls.broken().is_some() {
        " broken"
    } else {
        ""
    };
    match verdict {
        Verdict::Nothing => format!("nothing{broken}"),
        Verdict::Answer(who, range) => format!("{who} at {range:?}{broken}"),
        Verdict::Raised(who, raised) => format!("{who} raised {raised}{broken}"),
        Verdict::Failed(who, _) => format!("{} failed{broken}", who.join("+")),
        Verdict::Stray(line) => format!("stray {line}{broken}"),
    }
}

// TYWRAP-6
#[test]
fn what_a_line_means_for_whom() {
    // The verdict with one open call, and with two.
    for (text, frame, alone, both) in [
        (result(1), None, "one at 44..48", "one at 44..48"),
        (result(1), Some(1), "one at 44..48", "one at 44..48"),
        (error(1), None, "one raised E: m", "one raised E: m"),
        (
            result(9),
            None,
            "one failed broken",
            "one+two failed broken",
        ),
        (result(9), Some(1), "one failed broken", "one failed broken"),
        (result(1), Some(9), "one failed broken", "one failed broken"),
        (
            result(8),
            Some(9),
            "one failed broken",
            "one+two failed broken",
        ),
        (error(-1), None, "one raised E: m", "one+two failed broken"),
        (
            result(-1),
            None,
            "one failed broken",
            "one+two failed broken",
        ),
        (
            "{}".into(),
            None,
            "one failed broken",
            "one+two failed broken",
        ),
        (
            String::new(),
            Some(1),
            "one failed broken",
            "one failed broken",
        ),
        (
            r#"{"id":1,"protocol":"tywrap/1"}"#.into(),
            None,
            "one failed broken",
            "one failed broken",
        ),
        (
            r#"{"id":1,"result":1}"#.into(),
            None,
            "one at 17..18",
            "one at 17..18",
        ),
        (
            r#"{"id":1,"protocol":"tywrap/2","result":1}"#.into(),
            None,
            "one failed broken",
            "one+two failed broken",
        ),
    ] {
        let mut one = calls(|_| ());
        let verdict = one.handle_message(&text, frame);
        assert_eq!(word(&mut one, verdict), alone, "{text}");
        let mut two = calls(|_| ());
        two.begin(2, "two");
        let verdict = two.handle_message(&text, frame);
        assert_eq!(word(&mut two, verdict), both, "{text}");
    }
}

#[test]
fn what_a_fault_means_for_whom() {
    let of = |kind: FaultKind, stream: Stream, id| kind.of(&stream.key(id));
    let not_json = || Fault::from(FaultKind::NotJson);
    for (fault, expected) in [
        (not_json(), "one+two failed broken"),
        (
            of(FaultKind::Duplicate { index: 0 }, Stream::Response, 1),
            "one failed broken",
        ),
        (
            of(FaultKind::WrongStream, Stream::Request, 2),
            "two failed broken",
        ),
        (
            of(FaultKind::WrongStream, Stream::Request, 3),
            "one+two failed broken",
        ),
        // A fault in the answer to a call that was given up: no call fails, but the bridge is broken.
        (
            of(FaultKind::NotUtf8, Stream::Response, 7),
            " failed broken",
        ),
        (FaultKind::UnknownProtocol.into(), "one+two failed broken"),
    ] {
        let mut calls = calls(|_| ());
        calls.begin(2, "two");
        calls.begin(7, "seven");
        calls.give_up(Instant::now(), 7);
        let shown = fault.to_string();
        let verdict = calls.fault(fault, "hello".into());
        assert_eq!(word(&mut calls, verdict), expected, "{shown}");
    }
    let mut tolerant = calls(|config| config.tolerant = true);
    for text in ["{}", r#"{"result":1}"#, r#"{"id":1,"protocol":"x"}"#] {
        let verdict = tolerant.handle_message(text, None);
        assert_eq!(word(&mut tolerant, verdict), format!("stray {text}"));
    }
    let verdict = tolerant.fault(not_json(), "hello".into());
    assert_eq!(word(&mut tolerant, verdict), "stray hello");
    // An answer to a call that is not open is a breach, not a stray line.
    let verdict = tolerant.handle_message(&result(9), None);
    assert_eq!(word(&mut tolerant, verdict), "one failed broken");
}

#[test]
fn frames_of_another_id_pass_where_they_may() {
    let mut calls = calls(|config| config.ids_may_differ = true);
    let verdict = calls.handle_message(&result(1), Some(9));
    assert_eq!(word(&mut calls, verdict), "one at 44..48");
}

// TYWRAP-6
#[test]
fn late_answers_are_expected_once() {
    let now = Instant::now();
    let mut calls = calls(|_| ());
    calls.begin(2, "two");
    assert_eq!(calls.give_up(now, 1), Some("one"));
    assert_eq!(
        (
            calls.still_running(),
            calls.has_earlier(2),
            calls.has_earlier(3)
        ),
        (1, false, true)
    );
    // After the late answer came, an error without an id can only be for the open call.
    let verdict = calls.handle_message(&result(1), None);
    assert_eq!(word(&mut calls, verdict), "nothing");
    assert_eq!(calls.still_running(), 0);
    let verdict = calls.handle_message(&error(-1), None);
    assert_eq!(word(&mut calls, verdict), "two raised E: m");

    calls.begin(3, "three");
    calls.give_up(now, 3);
    let verdict = calls.handle_message(&error(-1), None);
    assert_eq!(
        (word(&mut calls, verdict), calls.still_running()),
        ("nothing".into(), 0)
    );

    calls.begin(4, "four");
    calls.give_up(now, 4);
    calls.not_received(4);
    assert_eq!(calls.still_running(), 0);
    let verdict = calls.handle_message(&result(4), None);
    assert_eq!(
        word(&mut calls, verdict),
        "nothing",
        "it is dropped all the same"
    );

    // The answer to `meta` may come late, and does not count as a running call.
    calls.begin(-1, "probe");
    calls.give_up(now, -1);
    assert_eq!(calls.still_running(), 0);
    let verdict = calls.handle_message(&result(-1), None);
    assert_eq!(word(&mut calls, verdict), "nothing");

    calls.begin(5, "five");
    calls.give_up(now, 5);
    calls.begin(6, "six");
    let verdict = calls.handle_message(&error(-1), None);
    assert_eq!(
        word(&mut calls, verdict),
        "six failed broken",
        "it may be either's"
    );
    assert_eq!(calls.still_running(), 0, "a bridge that goes owes nothing");
}

#[test]
fn what_is_remembered_of_late_calls_is_bounded() {
    let now = Instant::now();
    let mut calls = calls(|_| ());
    for id in 2..2002 {
        calls.begin(id, "x");
        calls.give_up(now, id);
    }
    assert_eq!(calls.still_running(), LATE_MAX);
    calls.begin(3000, "y");
    calls.give_up(now + LATE_AGE, 3000);
    assert_eq!(calls.still_running(), 1, "the old ones are forgotten");
}

#[test]
fn an_excerpt_is_short() {
    assert_eq!(excerpt(b"hello"), "hello");
    assert_eq!(excerpt("é".repeat(1000).as_bytes()), "é".repeat(200));
    assert!(excerpt(&[0xff; 5000]).chars().count() == 200);
}

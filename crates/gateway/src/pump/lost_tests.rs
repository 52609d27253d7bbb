//! What is lost when a side ends or the gateway is stopped, and who is told.

use std::sync::Arc;
use std::time::Duration;

use breakbulk_link::Frame;
use breakbulk_message::mcp;
use breakbulk_message::tunnel::{Control, SESSION_BYTES, SessionId};
use breakbulk_net::memory::pair;
use breakbulk_net::{Incoming as Received, Sink, Source, Transport};
use breakbulk_testkit::log::{Level, Log};

use super::tests::{
    NoMoreLines, Setup, closed, message, open, plain, program, request, run, send, tunnel, whole,
};
use super::*;
use crate::tunnel::{Line, connect};

fn small(id: &str) -> String {
    request(id, 1)
}

fn not_answered(id: &str, why: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32000,"message":"the request was not answered: {why}","data":{{"reason":"notAnswered"}}}}}}"#
    )
}

/// Passes requests with these ids to the target.
async fn ask(setup: &Setup, ids: &[&str]) {
    for id in ids {
        send(&setup.listen, small(id));
        assert_eq!(message(&setup.to).await, small(id));
    }
}

// PROG-18
#[tokio::test(start_paused = true)]
async fn requests_that_nobody_is_left_to_answer_get_an_error_that_says_why() {
    let broke =
        "the gateway lost the program on its other side; the log of that gateway says why (1011)";
    for (code, reason, why, told) in [
        (1000, "", "the other side closed with 1000", 1011),
        (
            1001,
            "the gateway is stopping",
            "the gateway is stopping",
            1011,
        ),
        (1006, "reset", broke, 1011),
        (4413, "large", "large (4413)", 4413),
    ] {
        let setup = plain(usize::MAX);
        ask(&setup, &["1", r#""\u0061""#, "3", "4"]).await;
        send(&setup.to, r#"{"jsonrpc":"2.0","id":"a","result":1}"#);
        message(&setup.listen).await;
        // The client cancels this request.
        send(&setup.listen, mcp::cancellation("3", ""));
        message(&setup.to).await;
        setup.to.close(code, reason);
        for id in ["1", "4"] {
            assert_eq!(message(&setup.listen).await, not_answered(id, why));
        }
        assert_eq!(setup.listen.closed().await.code, told, "{code}");
        let ended = setup.pump.await.unwrap();
        assert_eq!((ended.unanswered, ended.lost), (2, 0), "{code}");
        assert!(!ended.is_clean() && ended.closed.code == code, "{ended:?}");
    }
}

/// A client of AHP reconnects when its connection closes, and takes an error for a refusal.
// PROG-18
#[tokio::test(start_paused = true)]
async fn a_reconnect_is_answered_by_the_close_alone() {
    let setup = plain(usize::MAX);
    let reconnect = small("1").replace(r#""m""#, r#""reconnect""#);
    send(&setup.listen, &*reconnect);
    assert_eq!(message(&setup.to).await, reconnect);
    setup.to.close(1000, "");
    assert_eq!(setup.listen.closed().await.code, 1011);
    while let Some(event) = setup.listen.event().await {
        assert!(!matches!(event, Event::Message(_)), "{event:?}");
    }
    assert_eq!(setup.pump.await.unwrap().unanswered, 1);
}

// PROG-18
#[tokio::test(start_paused = true)]
async fn a_client_may_leave_with_requests_open_both_ways() {
    let setup = plain(usize::MAX);
    ask(&setup, &["1"]).await;
    send(&setup.to, small("7"));
    message(&setup.listen).await;
    setup.listen.close(1000, "bye");
    assert_eq!(message(&setup.to).await, not_answered("7", "bye"));
    assert_eq!(setup.to.closed().await, closed(1000, "bye"));
    let ended = setup.pump.await.unwrap();
    assert!(ended.is_clean(), "{ended:?}");
}

// PROG-18
#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_open_requests_within_the_grace_time() {
    let setup = plain(usize::MAX);
    ask(&setup, &["1"]).await;
    setup.stop.send(()).unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":1}"#;
    send(&setup.to, answer);
    assert_eq!(message(&setup.listen).await, answer);
    assert_eq!(
        setup.listen.closed().await,
        closed(1001, "the gateway is stopping")
    );
    assert!(setup.pump.await.unwrap().is_clean());

    let setup = plain(usize::MAX);
    ask(&setup, &["1", "2"]).await;
    setup.stop.send(()).unwrap();
    let why = "the gateway is stopping, and no answer came within its grace time of 10 s";
    for id in ["1", "2"] {
        assert_eq!(message(&setup.listen).await, not_answered(id, why));
    }
    let reason = "the gateway is stopping, and 2 requests were not answered";
    assert_eq!(setup.listen.closed().await, closed(1011, reason));
    let ended = setup.pump.await.unwrap();
    assert_eq!(ended.unanswered, 2);
    assert!(!ended.is_clean(), "{ended:?}");
}

/// A message of which only a part arrived before its sender ended counts as incomplete, also when the sender
/// closed normally, or broke a rule with the next frame.
#[tokio::test(start_paused = true)]
async fn a_message_that_did_not_arrive_whole_is_told() {
    let segment = |index: usize| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{{"groupId":"g","index":{index},"total":3,"data":"e30="}}}}"#
        )
    };
    for is_damaged in [false, true] {
        let (near, listen) = pair(1);
        let (far, to) = pair(1);
        let (mut source, mut sink) = far.split();
        let frame = |text: String| Frame::Text(text.into());
        let config = tunnel(1000);
        let session = SessionId([1; SESSION_BYTES]);
        let hello = Control::Hello(config.hello(Some(session))).to_json();
        sink.send(frame(hello)).await.unwrap();
        let to = connect(Line::new(to), Arc::new(NoMoreLines), &config).await;
        let ports = [Port::new(open(whole(usize::MAX), listen)), to.unwrap().port];
        let passing = Tunnel {
            listen: false,
            to: true,
            inner: Plain::default(),
        };
        let near = open(program(), near);
        let setup = run(near.clone(), near, ports, passing);
        assert!(matches!(source.next().await, Received::Frame(_)));
        sink.send(frame(segment(0))).await.unwrap();
        let code = if is_damaged {
            sink.send(frame(segment(2))).await.unwrap();
            let told = Control::Close {
                code: 4400,
                reason: "invalid messageSegment: piece 2 is out of order, expected 1".to_owned(),
            };
            let heard = source.next().await;
            assert_eq!(heard, Received::Frame(frame(told.to_json())));
            4400
        } else {
            let close = Control::Close {
                code: 1001,
                reason: "the gateway is stopping".to_owned(),
            };
            sink.send(frame(close.to_json())).await.unwrap();
            1001
        };
        let ended = setup.pump.await.unwrap();
        assert_eq!((ended.incomplete, ended.lost), (1, 0), "{ended:?}");
        assert_eq!(ended.closed.code, code, "{ended:?}");
        assert!(!ended.is_clean(), "{ended:?}");
    }
}

#[cfg(feature = "process")]
#[tokio::test(start_paused = true)]
async fn the_half_of_a_line_that_was_read_is_told() {
    use breakbulk_net::process::{Framing, Stream};
    use tokio::io::AsyncWriteExt;

    let (mut input, stream) = tokio::io::duplex(100_000);
    let (read, write) = tokio::io::split(stream);
    let mut stream = Stream::new(read, write, Framing::Lines, MESSAGE);
    let ends = stream.ends();
    let listen = open(whole(usize::MAX), stream);
    let listen = Port::with_ends(listen, ends.clone());
    let (far, to) = pair(1);
    let to = Port::new(open(whole(usize::MAX), to));
    let far = open(program(), far);
    let setup = run(far.clone(), far, [listen, to], Plain::default());
    let line = request("1", 50_000);
    input.write_all(&line.as_bytes()[..30_000]).await.unwrap();
    while ends.unframed() < 30_000 {
        tokio::task::yield_now().await;
    }
    setup.to.close(1001, "the gateway is stopping");
    let ended = setup.pump.await.unwrap();
    assert_eq!(ended.unframed, 30_000);
    assert!(!ended.is_clean(), "{ended:?}");
}

// PROG-18
#[tokio::test(start_paused = true)]
async fn a_request_that_comes_after_the_other_side_has_ended_is_answered_too() {
    let setup = plain(usize::MAX);
    // The client reads nothing, so its side stays open when the other one ends.
    let text = request("1", 100_000).replace(r#""id":1,"#, "");
    let flood = async {
        loop {
            let message = Outgoing::new(text.clone());
            setup.to.send_when_writable(message).await.unwrap();
        }
    };
    let stuck = tokio::time::timeout(Duration::from_secs(30), flood).await;
    assert!(stuck.is_err());
    setup.to.close(1000, "");
    // The clock goes on only when nothing moves any more.
    tokio::time::sleep(Duration::from_secs(1)).await;
    send(&setup.listen, small("9"));
    let error = not_answered("9", "the other side closed with 1000");
    while message(&setup.listen).await != error {}
    assert!(!setup.pump.await.unwrap().is_clean());
}

/// A batch is not cut, and the session goes on after one that is too large.
// PROG-19
#[tokio::test(start_paused = true)]
async fn a_batch_over_the_cap_is_answered_and_the_rest_goes_on() {
    let log = Log::capture();
    let setup = plain(1000);
    let large = "x".repeat(2000);
    send(
        &setup.listen,
        format!(
            r#"[{{"jsonrpc":"2.0","id":1,"method":"{large}"}},{{"jsonrpc":"2.0","id":2,"method":"m"}}]"#
        ),
    );
    let answer = message(&setup.listen).await;
    for id in [1, 2] {
        let error = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32011,"#);
        assert!(answer.contains(&error), "{answer}");
    }
    let warning = [
        "a request could not be sent and was answered with an error",
        "size=2076",
        "1000",
    ];
    log.assert_line(Level::WARN, &warning);
    let after = r#"{"jsonrpc":"2.0","method":"after"}"#;
    send(&setup.listen, after);
    assert_eq!(message(&setup.to).await, after);
    setup.listen.close(1000, "");
    assert!(setup.pump.await.unwrap().is_clean());
}

#[tokio::test(start_paused = true)]
async fn a_close_with_1009_tells_the_size_that_was_sent() {
    let setup = plain(usize::MAX);
    send(&setup.listen, request("1", 100_000));
    message(&setup.to).await;
    setup.to.close(1009, "too big, at most 65536");
    let error = message(&setup.listen).await;
    assert!(
        error.contains("too big, at most 65536 (1009); the largest frame"),
        "{error}"
    );
    let remedy = "--max-frame SIZE (below 65536 bytes)";
    assert!(error.contains(remedy), "{error}");
    let ended = setup.pump.await.unwrap();
    let refused = ended.refused.unwrap();
    assert!(refused.size > 100_000, "{refused:?}");
    assert_eq!(refused.limit, Some(65_536));
}

/// Only the `processId` changes, and only on the way to the server.
// PROG-21
#[tokio::test(start_paused = true)]
async fn a_language_server_is_told_no_process_of_another_machine() {
    let (near, listen) = pair(1);
    let (far, to) = pair(1);
    let ports = [listen, to].map(|end| Port::new(open(whole(usize::MAX), end)));
    let (near, far) = (open(program(), near), open(program(), far));
    let setup = run(near, far, ports, NoProcessId(Plain::default()));
    let text =
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"processId": 4711,"x":"é"}}"#;
    send(&setup.listen, text);
    assert_eq!(message(&setup.to).await, text.replace("4711", "null"));
    send(&setup.to, text);
    assert_eq!(message(&setup.listen).await, text);
    let other = text.replace("initialize", "other");
    send(&setup.listen, &*other);
    assert_eq!(message(&setup.to).await, other);
}

const MESSAGE: usize = 1 << 20;

/// A target that takes no frame any more: its connection breaks, and what waited for it counts as lost.
#[tokio::test(start_paused = true)]
async fn what_a_target_does_not_take_in_time_is_lost_and_told() {
    let (near, listen) = pair(1);
    let (_held, to) = pair(1);
    let ports = [
        Port::new(open(whole(usize::MAX), listen)),
        Port::new(open(whole(usize::MAX), to)),
    ];
    let near = open(program(), near);
    let setup = run(near.clone(), near, ports, Plain::default());
    for id in ["1", "2", "3"] {
        send(&setup.listen, request(id, 10));
    }
    let answer = message(&setup.listen).await;
    assert!(answer.contains(r#""code":-32000"#), "{answer}");
    let ended = setup.pump.await.unwrap();
    let silent = "nothing received from the other end for 60 s";
    assert_eq!(ended.closed, closed(1006, silent));
    assert!(ended.lost > 0 && !ended.is_clean(), "{ended:?}");
}

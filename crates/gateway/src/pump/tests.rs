use std::sync::Arc;
use std::time::Duration;

use breakbulk_link::{Budget, Cap, Carries, Link};
use breakbulk_message::ahp::MessageTooLarge;
use breakbulk_message::jsonrpc::Envelope;
use breakbulk_message::tunnel::{Control, TUNNEL};
use breakbulk_net::memory::pair;
use breakbulk_testkit::log::{Level, Log};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use breakbulk_net::Connection;

use super::*;
use crate::OpenError;
use crate::tunnel::{
    Boxed, Caller, Dial, Greeted, Line, Lobby, TunnelConfig, Tunnelled, WINDOW, connect,
};

const MESSAGE: usize = 1 << 20;

pub(super) fn whole(cap: usize) -> Link {
    let cap = Cap::frame(cap);
    whole_link(Carries::Text, cap, MESSAGE, Budget::unlimited())
}

/// A link of a program of the test, with room for all that the test sends.
pub(super) fn program() -> Link {
    whole_link(
        Carries::Text,
        Cap::frame(usize::MAX),
        64 * MESSAGE,
        Budget::unlimited(),
    )
}

pub(super) fn tunnel(cap: usize) -> TunnelConfig {
    TunnelConfig {
        cap: Cap::frame(cap),
        max_frame: cap,
        max_message: MESSAGE,
        budget: Budget::unlimited(),
        carries: Carries::Text,
        resume_for: Duration::from_secs(60),
        window: WINDOW,
        caps: Default::default(),
        watched: Default::default(),
    }
}

/// A path on which no further line can be opened.
pub(super) struct NoMoreLines;

impl Dial for NoMoreLines {
    fn dial(&self) -> Boxed<'_, Result<Line, OpenError>> {
        Box::pin(async { Err(OpenError::Stopped) })
    }

    fn path(&self) -> String {
        "memory:".to_owned()
    }
}

pub(super) fn open(link: Link, transport: impl breakbulk_net::Transport) -> Connection {
    Connection::open(link, transport, breakbulk_net::Options::default()).unwrap()
}

/// A program on either side, and the pump between them.
pub(super) struct Setup {
    pub(super) listen: Connection,
    pub(super) to: Connection,
    pub(super) stop: oneshot::Sender<()>,
    pub(super) pump: JoinHandle<Ended>,
}

/// `to_cap` is what the pump may send to the target in one frame.
pub(super) fn plain(to_cap: usize) -> Setup {
    plain_to(to_cap, program())
}

/// [`plain`] with this link for the target.
fn plain_to(to_cap: usize, target: Link) -> Setup {
    let (near, listen) = pair(1);
    let (far, to) = pair(1);
    let ports = [
        Port::new(open(whole(usize::MAX), listen)),
        Port::new(open(whole(to_cap), to)),
    ];
    let (listen, to) = (open(program(), near), open(target, far));
    run(listen, to, ports, Plain::default())
}

pub(super) fn run(
    listen: Connection,
    to: Connection,
    [listen_port, to_port]: [Port; 2],
    passing: impl Passing + 'static,
) -> Setup {
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = async {
        if stopped.await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let options = Options {
        grace: Duration::from_secs(10),
    };
    let pump = tokio::spawn(relay(listen_port, to_port, passing, stopped, options));
    Setup {
        listen,
        to,
        stop,
        pump,
    }
}

pub(super) async fn message(connection: &Connection) -> String {
    loop {
        match connection.event().await.unwrap() {
            Event::Message(message) => return String::from_utf8(message.bytes.to_vec()).unwrap(),
            Event::Closed(closed) => panic!("closed: {closed:?}"),
            _ => {}
        }
    }
}

pub(super) fn send(connection: &Connection, text: impl Into<String>) {
    let sent = connection.send(Outgoing::new(text.into()));
    assert!(sent.is_ok(), "{}", sent.unwrap_err());
}

pub(super) fn request(id: &str, size: usize) -> String {
    let text = "x".repeat(size);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m","params":{{"t":"{text}"}}}}"#)
}

pub(super) fn closed(code: u16, reason: &str) -> Closed {
    Closed {
        code,
        reason: reason.to_owned(),
    }
}

#[tokio::test(start_paused = true)]
async fn messages_pass_unchanged_and_in_order() {
    let setup = plain(usize::MAX);
    let texts: Vec<_> = (0..200)
        .map(|n| request(&n.to_string(), n * 37).replace(r#""id":"#, r#""n":"#))
        .chain(["no json".to_owned(), "[1, 2]".to_owned(), " {} ".to_owned()])
        .collect();
    for text in &texts {
        send(&setup.listen, text.clone());
        send(&setup.to, text.clone());
    }
    for text in &texts {
        assert_eq!(message(&setup.to).await, *text);
        assert_eq!(message(&setup.listen).await, *text);
    }
    setup.listen.close(4001, "enough");
    assert_eq!(setup.to.closed().await, closed(4001, "enough"));
    let ended = setup.pump.await.unwrap();
    assert_eq!(
        ended,
        Ended {
            side: Side::Listen,
            closed: closed(4001, "enough"),
            by_peer: true,
            lost: 0,
            unanswered: 0,
            incomplete: 0,
            unframed: 0,
            refused: None,
        }
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_too_large_is_answered() {
    let setup = plain(1000);
    send(&setup.listen, request(r#""\u0061 b""#, 2000));
    send(&setup.listen, request("2", 10));
    let answer = message(&setup.listen).await;
    let envelope = Envelope::parse(&answer).unwrap();
    assert_eq!(envelope.id.unwrap().get(), r#""\u0061 b""#);
    let error = MessageTooLarge::read(envelope.error.unwrap()).unwrap();
    assert_eq!((error.message_bytes, error.max_frame_bytes), (2064, 1000));
    // What comes after it is not held up.
    assert_eq!(message(&setup.to).await, request("2", 10));
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_too_large_becomes_an_error() {
    let log = Log::capture();
    let setup = plain(1000);
    let result = format!(
        r#"{{"jsonrpc":"2.0","id":7,"result":"{}"}}"#,
        "x".repeat(2000)
    );
    send(&setup.listen, result);
    send(&setup.listen, request("8", 10));
    let answer = message(&setup.to).await;
    assert!(
        answer.starts_with(r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32011,"#),
        "{answer}"
    );
    assert_eq!(message(&setup.to).await, request("8", 10));
    let warning = [
        "a response could not be sent and was replaced by an error",
        "size=2036",
        "1000",
    ];
    log.assert_line(Level::WARN, &warning);
}

// PROG-18
#[tokio::test(start_paused = true)]
async fn what_cannot_be_answered_ends_both() {
    let large = "x".repeat(2000);
    let limit = "message too large: 2039 bytes, and the gateway at its receiver passes on 1000; send less, or start both gateways";
    for (text, reason) in [
        (
            format!(r#"{{"jsonrpc":"2.0","method":"n","params":["{large}"]}}"#).replacen(
                "xxxxxxxxx",
                "",
                1,
            ),
            format!("n: {limit}"),
        ),
        (
            format!(r#"[{{"jsonrpc":"2.0","method":"{large}"}}]"#),
            "a text that is no JSON-RPC message: message too large".to_owned(),
        ),
    ] {
        let setup = plain(1000);
        send(&setup.listen, request("1", 10));
        send(&setup.listen, text);
        send(&setup.listen, request("2", 10));
        // What is open is answered before the close.
        let answer = message(&setup.listen).await;
        let not_answered = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"#;
        assert!(answer.starts_with(not_answered), "{answer}");
        assert!(answer.contains("(4413)"), "{answer}");
        let ended = setup.pump.await.unwrap();
        assert_eq!(ended.closed.code, 4413, "{ended:?}");
        for connection in [&setup.listen, &setup.to] {
            let end = connection.closed().await;
            assert_eq!(end.code, 4413);
            let words = reason.split(':').next().unwrap();
            assert!(end.reason.starts_with(words), "{end:?} {reason}");
        }
        assert!(!ended.is_clean() && ended.lost > 0, "{ended:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn ends_that_cannot_travel_are_translated() {
    let lost = "the gateway lost the program on its other side; the log of that gateway says why";
    for (code, reason, told) in [
        (1000, "", closed(1000, "")),
        (1001, "bye", closed(1001, "bye")),
        (1005, "", closed(1000, "")),
        (1006, "10.0.0.1 is gone", closed(1011, lost)),
        (1006, "", closed(1011, lost)),
        (1015, "tls", closed(1011, lost)),
        (1009, "large", closed(1009, "large")),
        (4413, "large", closed(4413, "large")),
    ] {
        let setup = plain(usize::MAX);
        setup.to.close(code, reason);
        assert_eq!(setup.listen.closed().await, told, "{code}");
        assert_eq!(setup.pump.await.unwrap().side, Side::To);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_receiver_holds_up_its_sender_and_nobody_else() {
    let (near, listen) = pair(1);
    let (far, to) = pair(1);
    let held = open(whole(usize::MAX), listen);
    let ports = [
        Port::new(held.clone()),
        Port::new(open(whole(usize::MAX), to)),
    ];
    let (listen, to) = (open(program(), near), open(program(), far));
    let setup = run(listen, to, ports, Plain::default());
    let text = request("1", 100_000);
    let mut sent = 0;
    // Nobody reads at the target: at some point nothing more can be sent.
    let flood = async {
        loop {
            let message = Outgoing::new(text.clone());
            setup.listen.send_when_writable(message).await.unwrap();
            sent += 1;
        }
    };
    let stuck = tokio::time::timeout(Duration::from_secs(30), flood).await;
    assert!(stuck.is_err());
    let memory = held.with(|link| link.memory());
    assert!(memory <= session_memory(MESSAGE), "{memory} bytes are held");
    assert!((10..2000).contains(&sent), "{sent} messages went in");
    // The other way is free.
    send(&setup.to, "{}");
    assert_eq!(message(&setup.listen).await, "{}");
    for _ in 0..sent {
        assert_eq!(message(&setup.to).await, text);
    }
}

#[tokio::test(start_paused = true)]
async fn what_fails_is_answered_even_while_the_other_way_is_stuck() {
    let setup = plain(1000);
    let text = request("1", 100_000);
    // Fills everything from the target to the listening side, which reads nothing.
    let flood = async {
        loop {
            let message = Outgoing::new(text.clone());
            setup.to.send_when_writable(message).await.unwrap();
        }
    };
    let stuck = tokio::time::timeout(Duration::from_secs(30), flood).await;
    assert!(stuck.is_err());
    send(&setup.listen, request("5", 2000));
    send(&setup.listen, request("6", 10));
    loop {
        // The target gets the second one although the answer to the first waits.
        if message(&setup.to).await == request("6", 10) {
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_what_came_in_go_out() {
    let setup = plain(usize::MAX);
    let text = request("1", 200_000).replace(r#""id":1,"#, "");
    for _ in 0..5 {
        send(&setup.listen, text.clone());
    }
    setup.listen.drained().await;
    setup.stop.send(()).unwrap();
    for _ in 0..5 {
        assert_eq!(message(&setup.to).await, text);
    }
    assert_eq!(
        setup.to.closed().await,
        closed(1001, "the gateway is stopping")
    );
    assert_eq!(setup.listen.closed().await.code, 1001);
    assert!(setup.pump.await.unwrap().is_clean());
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_ever() {
    // The target's link takes a few of the messages, and nobody takes them from the link.
    let setup = plain_to(usize::MAX, whole(usize::MAX));
    for _ in 0..40 {
        send(&setup.listen, request("1", 200_000));
    }
    // Until nothing moves any more: the clock of this test goes on only then.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = tokio::time::Instant::now();
    setup.stop.send(()).unwrap();
    let ended = setup.pump.await.unwrap();
    assert!(
        before.elapsed() < Duration::from_secs(40),
        "{:?}",
        before.elapsed()
    );
    assert!(ended.lost > 0 && !ended.is_clean(), "{ended:?}");
}

/// A tunnel over a line within this process: the end that accepted it, and the end that opened it.
pub(super) async fn tunnel_pair(cap: usize) -> (Tunnelled, Tunnelled) {
    let (far, near) = pair(1);
    let accepted = tokio::spawn(async move {
        let (lobby, config) = (Lobby::new(8, 8).unwrap(), tunnel(cap));
        let caller = Caller::default();
        let greeted = lobby.greet(Line::new(far), &caller, &config).await;
        let Ok(Greeted::Newcomer(newcomer)) = greeted else {
            panic!("no newcomer");
        };
        newcomer.accept(&config).await.unwrap()
    });
    let dialed = connect(Line::new(near), Arc::new(NoMoreLines), &tunnel(cap)).await;
    (accepted.await.unwrap(), dialed.unwrap())
}

/// A tunnel on the target's side; its other end as a connection.
async fn tunnelled(cap: usize) -> Setup {
    let (near, listen) = pair(1);
    let (far, to) = tunnel_pair(cap).await;
    let ports = [Port::new(open(program(), listen)), to.port];
    let passing = Tunnel {
        listen: false,
        to: true,
        inner: Plain::default(),
    };
    run(open(program(), near), far.connection, ports, passing)
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_carries_what_no_frame_holds() {
    let log = Log::capture();
    let setup = tunnelled(1000).await;
    for size in [10, 900, 5000, 500_000] {
        send(&setup.listen, request("1", size));
        assert_eq!(message(&setup.to).await, request("1", size));
        send(&setup.to, request("2", size));
        assert_eq!(message(&setup.listen).await, request("2", size));
    }
    // Over what the other side takes: the limits of its hello count.
    send(&setup.listen, request("3", MESSAGE));
    let answer = message(&setup.listen).await;
    assert!(
        answer.contains(r#""maxMessageBytes":1048576,"chunking":true"#),
        "{answer}"
    );
    assert!(
        answer.contains("start both gateways with a larger --max-message"),
        "{answer}"
    );
    let warning = [
        "a request could not be sent and was answered with an error",
        &format!("size={}", request("3", MESSAGE).len()),
        "1048576",
    ];
    log.assert_line(Level::WARN, &warning);
    // When the other side ends its input, the tunnel does not end.
    send(&setup.to, breakbulk_message::tunnel::tunnel_end());
    send(&setup.listen, request("4", 5000));
    assert_eq!(message(&setup.to).await, request("4", 5000));
    assert_eq!(setup.listen.closed().await, closed(1000, "end of input"));
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_does_not_carry_what_it_would_take_for_its_own() {
    for method in [
        "ahp/messageSegment",
        r"ahp\/messageSegment",
        "breakbulk/end",
    ] {
        let log = Log::capture();
        let setup = tunnelled(1000).await;
        send(
            &setup.listen,
            format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{{}}}}"#),
        );
        let end = setup.listen.closed().await;
        assert_eq!(end.code, 4400, "{method}: {end:?}");
        assert!(end.reason.starts_with("a tunnel cannot carry"), "{end:?}");
        while let Some(event) = setup.to.event().await {
            assert!(!matches!(event, Event::Message(_)), "{event:?}");
        }
        let error = [
            "a message from the client cannot be carried",
            "code=4400",
            &end.reason,
        ];
        log.assert_line(Level::ERROR, &error);
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_frame_that_is_no_hello_ends_the_tunnel() {
    let segment = r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":0,"total":2,"data":"e30="}}"#;
    let hello = tunnel(1000).hello(None);
    let later = Control::Hello(hello).to_json();
    let later = later.replace("\"version\":2", "\"version\":9");
    let binary = Control::Hello(breakbulk_message::tunnel::Hello {
        binary: true,
        ..hello
    });
    let other = "the first frame is no breakbulk/hello; is the other end a breakbulk gateway?";
    for (first, reason) in [
        (r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#, other),
        (segment, other),
        (&Control::Ack { taken: 1 }.to_json(), other),
        (
            &later,
            "the other gateway speaks version 9 of the tunnel, this one speaks 2; update this one",
        ),
        (
            &binary.to_json(),
            "one gateway carries text and the other one binary messages; their other ends must be of one kind",
        ),
        ("", "the other gateway sent no breakbulk/hello within 30 s"),
    ] {
        for accepts in [true, false] {
            let (ours, theirs) = pair(1);
            let config = tunnel(1000);
            let other = open(whole(usize::MAX), theirs);
            if !first.is_empty() {
                send(&other, first);
            }
            let ours = Line::new(ours);
            let error = if accepts {
                let lobby = Lobby::new(8, 8).unwrap();
                let greeted = lobby.greet(ours, &Caller::default(), &config).await;
                greeted.err().unwrap()
            } else {
                let dialed = connect(ours, Arc::new(NoMoreLines), &config).await;
                let hello = Control::Hello(config.hello(None)).to_json();
                assert_eq!(message(&other).await, hello);
                dialed.err().unwrap()
            };
            assert_eq!(error.to_string(), reason);
            assert_eq!(other.closed().await, closed(4400, reason));
        }
    }
    assert_eq!(TUNNEL, "breakbulk.v2");
}

#[tokio::test(start_paused = true)]
async fn a_held_up_tunnel_lives_as_long_as_it_takes() {
    let setup = tunnelled(1000).await;
    for _ in 0..10 {
        send(&setup.listen, request("1", 400_000));
    }
    // Longer than AHP's 30 s for a group, shorter than what counts as silence here.
    tokio::time::sleep(Duration::from_secs(50)).await;
    for _ in 0..10 {
        assert_eq!(message(&setup.to).await, request("1", 400_000));
    }
}

/// What a box and a plain pump do when the standard output of a program is a message over the limit.
// PROG-7
#[cfg(feature = "process")]
#[tokio::test]
async fn what_is_skipped_ends_both_only_where_it_would_leave_a_hole() {
    use breakbulk_ahp::Config;
    use breakbulk_net::process::{Framing, Stream};
    use tokio::io::AsyncWriteExt;

    let large = "x".repeat(2000);
    let action = format!(r#"{{"jsonrpc":"2.0","method":"action","params":"{large}"}}"#);
    let other = format!(r#"{{"jsonrpc":"2.0","method":"n","params":"{large}"}}"#);
    let unread = format!(r#"{{"jsonrpc":"2.0","method":"n","params":["{large}"]"#);
    for (name, text, goes_on) in [
        ("plain", &action, true),
        ("plain", &unread, true),
        ("host", &other, true),
        ("host", &action, false),
        ("host", &unread, false),
    ] {
        let log = Log::capture();
        let (mut program, stream) = tokio::io::duplex(100_000);
        let (read, write) = tokio::io::split(stream);
        let mut stream = Stream::new(read, write, Framing::Lines, 1000);
        let ends = stream.ends();
        let skipped = Skipped::of(&ends);
        let to = open(whole(usize::MAX), stream);
        let to = Port::with_ends(to, ends).with_skipped(skipped);
        let (near, listen) = pair(1);
        let near = open(self::program(), near);
        let listen = open(whole(usize::MAX), listen);
        let passing: Box<dyn Passing> = match name {
            "host" => {
                let config = Config::default();
                Box::new(HostBox::new(listen.clone(), config, Default::default()))
            }
            _ => Box::new(Plain::default()),
        };
        let listen = Port::new(listen);
        let never = std::future::pending();
        let pump = tokio::spawn(relay(listen, to, passing, never, Options::default()));
        let after = r#"{"jsonrpc":"2.0","method":"after"}"#;
        let input = format!("{text}\n{after}\n");
        program.write_all(input.as_bytes()).await.unwrap();
        if goes_on {
            assert_eq!(message(&near).await, after, "{name}");
            near.close(1000, "");
            log.assert_line(Level::WARN, &["is dropped", "limit=1000"]);
        } else {
            let end = near.closed().await;
            assert_eq!(end.code, 4413, "{name}: {end:?}");
            log.assert_line(Level::ERROR, &["closed both ends", "limit=1000"]);
        }
        drop(program);
        let ended = pump.await.unwrap();
        // The message after it may have been read too before both sides ended.
        let most = if goes_on { 1 } else { 2 };
        assert!((1..=most).contains(&ended.lost), "{name}: {ended:?}");
    }
}

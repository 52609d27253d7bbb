//! Event streams: small frames come without a request for each, and if a path does not let a stream through,
//! polls bring the frames.

use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use breakbulk_net::exchange::FRAME_HEAD;
use breakbulk_net::{Sink, Transport};
use breakbulk_testkit::log::{Level, Log};

use super::common::*;
use super::hostile::Raw;

const FRAMES: usize = 200;

/// The server sends small frames, each once the previous one has come; returns how many requests that took.
async fn requests(streams: bool) -> usize {
    let (address, mut arrivals) = server(serve_options()).await;
    let (path, proxy) = Proxy::streaming(address, CAP, usize::MAX).await;
    let mut options = client_options();
    if !streams {
        options.event_streams = None;
    }
    let url = format!("http://{path}/tunnel");
    let client = breakbulk_net::exchange::connect(&url, &options)
        .await
        .unwrap();
    let (mut source, _sink) = client.split();
    let server = arrivals.next().await.unwrap().transport;
    let (_theirs, mut their_sink) = server.split();
    for number in 0..FRAMES {
        their_sink.send(numbered(number, 50)).await.unwrap();
        assert_eq!(frame(&mut source).await, numbered(number, 50));
    }
    proxy.requests.load(SeqCst)
}

// LINE-7
#[tokio::test]
async fn small_frames_come_by_a_stream_without_being_asked_for() {
    let (by_stream, by_polls) = (requests(true).await, requests(false).await);
    assert!(by_polls >= FRAMES, "{by_polls}");
    assert!(by_stream < FRAMES / 4, "{by_stream}");
}

/// Receives frames of many sizes over a path that lets only this many bytes of a stream through.
async fn received(bytes: usize) -> usize {
    let (address, mut arrivals) = server(serve_options()).await;
    let (path, proxy) = Proxy::streaming(address, CAP, bytes).await;
    let (client, server) = pair(path, &mut arrivals).await;
    let (mut source, _sink) = client.split();
    let (_theirs, mut their_sink) = server.split();
    let size = |number: usize| match number % 5 {
        0..4 => (number * 31) % 400,
        _ => (number * 7919) % (CAP - FRAME_HEAD),
    };
    // Between two rounds the client has time to open a stream again.
    let rounds = async {
        for round in (0..400).step_by(40) {
            let send = async {
                for number in round..round + 40 {
                    let frame = numbered(number, size(number));
                    their_sink.send(frame).await.unwrap();
                }
            };
            let receive = async {
                for number in round..round + 40 {
                    assert_eq!(frame(&mut source).await, numbered(number, size(number)));
                }
            };
            tokio::join!(send, receive);
        }
        their_sink.flush().await.unwrap();
    };
    tokio::time::timeout(Duration::from_secs(60), rounds)
        .await
        .unwrap();
    proxy.largest.load(SeqCst)
}

// LINE-1, LINE-7
#[tokio::test]
async fn no_stream_is_over_the_cap_of_a_body() {
    let largest = received(usize::MAX).await;
    assert!(largest <= CAP, "{largest}");
}

// LINE-7
#[tokio::test]
async fn streams_that_break_off_lose_and_repeat_nothing() {
    for bytes in [0, 10, 30, 100, 1000, 5000, 20_000] {
        received(bytes).await;
    }
}

// LINE-7
#[tokio::test]
async fn nothing_waits_for_a_stream_that_a_proxy_holds_back() {
    let log = Log::capture();
    let (address, mut arrivals) = server(serve_options()).await;
    let (path, _) = Proxy::start(address, CAP, |_| Fate::Pass).await;
    let options = client_options();
    let url = format!("http://{path}/tunnel");
    let client = breakbulk_net::exchange::connect(&url, &options)
        .await
        .unwrap();
    let (mut source, _sink) = client.split();
    let server = arrivals.next().await.unwrap().transport;
    let (_theirs, mut their_sink) = server.split();
    let streams = options.event_streams.unwrap();
    let (begun, mut number) = (Instant::now(), 0);
    let mut slowest = Duration::ZERO;
    while streams.may_pass() {
        assert!(begun.elapsed() < Duration::from_secs(30));
        let sent = Instant::now();
        their_sink.send(numbered(number, 50)).await.unwrap();
        assert_eq!(frame(&mut source).await, numbered(number, 50));
        slowest = slowest.max(sent.elapsed());
        number += 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(number > 5, "polls were answered meanwhile: {number}");
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    log.assert_line(Level::INFO, &["event streams do not pass this path"]);
}

// LINE-7
#[tokio::test]
async fn a_server_that_closes_does_not_wait_for_the_end_of_a_stream() {
    let (address, mut arrivals) = server(serve_options()).await;
    let (client, server) = pair(address, &mut arrivals).await;
    let (mut source, _sink) = client.split();
    let (_theirs, mut their_sink) = server.split();
    for number in 0..3 {
        their_sink.send(numbered(number, 50)).await.unwrap();
        assert_eq!(frame(&mut source).await, numbered(number, 50));
    }
    let begun = Instant::now();
    their_sink.flush().await.unwrap();
    let (_, closed) = tokio::join!(their_sink.close(1000, "done"), end(&mut source));
    assert_eq!((closed.code, &*closed.reason), (1000, "done"));
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
}

// LINE-7
#[tokio::test]
async fn a_session_has_one_stream() {
    let (address, mut arrivals) = server(serve_options()).await;
    let raw = Raw::open(address, "").await.unwrap();
    let stream = "poll?number=1&got=0&wait=20000&max=65536&events=1";
    let mut first = raw.send("GET", stream, "").await;
    let (_theirs, mut sink) = arrivals.next().await.unwrap().transport.split();
    let mut second = raw.send("GET", stream, "").await;
    let (open, idle) = ("event: open\ndata: \n\n", "event: end\ndata: idle\n\n");
    // The second stream has ended the first one.
    assert_eq!(until(&mut first, idle).await, format!("{open}{idle}"));
    sink.send(numbered(0, 3)).await.unwrap();
    let answer = "id: 1\ndata: dAAAAAMwIGE=\n\n";
    assert_eq!(until(&mut second, answer).await, format!("{open}{answer}"));
    let third = "poll?number=2&got=1&wait=0&max=65536&events=1";
    assert_eq!(
        raw.ask("GET", third, "").await,
        (200, format!("{open}{idle}"))
    );
    assert_eq!(until(&mut second, idle).await, idle);
    let wrong = raw.ask("GET", "poll?number=99&got=1&events=1", "").await;
    assert_eq!(wrong.0, 409);
}

/// Reads an answer until what has come ends with this text.
async fn until(answer: &mut reqwest::Response, last: &str) -> String {
    let mut text = String::new();
    while !text.ends_with(last) {
        let part = answer.chunk().await.unwrap().unwrap();
        text.push_str(std::str::from_utf8(&part).unwrap());
    }
    text
}

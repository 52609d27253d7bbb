//! Paths between client and server: paths with a cap, paths that lose requests and answers, and sides that
//! vanish or do not read.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use breakbulk_net::exchange::FRAME_HEAD;
use breakbulk_net::http::ServeOptions;
use breakbulk_net::{Sink, Transport};

use super::common::*;

/// Sends frames of many sizes over a path and gets them back; returns the largest body that passed.
async fn echoed(cap: usize, fate: fn(usize) -> Fate) -> usize {
    let (address, mut arrivals) = server(serve_options()).await;
    let (path, proxy) = Proxy::start(address, cap, fate).await;
    let (client, server) = pair(path, &mut arrivals).await;
    tokio::spawn(echo(server));
    let (mut source, mut sink) = client.split();
    let size = |number: usize| (number * 7919) % (CAP - FRAME_HEAD);
    let send = async {
        for number in 0..120 {
            sink.send(numbered(number, size(number))).await.unwrap();
        }
    };
    let receive = async {
        for number in 0..120 {
            assert_eq!(frame(&mut source).await, numbered(number, size(number)));
        }
    };
    tokio::time::timeout(Duration::from_secs(60), async {
        tokio::join!(send, receive)
    })
    .await
    .unwrap();
    proxy.largest.load(SeqCst)
}

// LINE-1
#[tokio::test]
async fn no_body_is_over_the_cap() {
    let largest = echoed(CAP, |_| Fate::Pass).await;
    assert!(largest <= CAP && largest > CAP / 2, "{largest}");
}

// LINE-2
#[tokio::test]
async fn what_is_lost_on_the_way_is_sent_again_and_arrives_once() {
    for fate in [
        |number: usize| {
            if number % 7 == 1 {
                Fate::Refuse
            } else {
                Fate::Pass
            }
        },
        |number: usize| {
            if number % 7 == 1 {
                Fate::LoseAnswer
            } else {
                Fate::Pass
            }
        },
        |number: usize| {
            if number % 2 == 1 {
                Fate::Twice
            } else {
                Fate::Pass
            }
        },
        |number: usize| match number % 17 {
            1 | 4 => Fate::LoseAnswer,
            2 => Fate::Refuse,
            5 => Fate::Twice,
            _ => Fate::Pass,
        },
    ] {
        echoed(CAP, fate).await;
    }
}

// LINE-2
#[tokio::test]
async fn a_body_over_the_cap_of_a_proxy_is_told_as_refused_for_its_size() {
    let (address, mut arrivals) = server(serve_options()).await;
    let (path, _) = Proxy::start(address, 10_000, |_| Fate::Pass).await;
    let (client, _server) = pair(path, &mut arrivals).await;
    let (mut source, mut sink) = client.split();
    sink.send(numbered(0, 10_000)).await.unwrap();
    let closed = end(&mut source).await;
    assert_eq!((closed.code, &*closed.reason), (1009, "HTTP 413"));
    assert!(sink.send(numbered(1, 1)).await.is_err());
}

/// A third of all answers is lost by chance: the path refuses none.
// LINE-2
#[tokio::test]
async fn a_path_that_loses_a_third_of_all_answers_refuses_none() {
    echoed(CAP, |number| {
        // Any good mixture of the bits will do.
        let mixed = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        match (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33 {
            mixed if mixed % 3 == 0 => Fate::LoseAnswer,
            _ => Fate::Pass,
        }
    })
    .await;
}

/// The server is told that its answer was refused for its size; the client gets a code that does not blame
/// its own frames.
// LINE-2
#[tokio::test]
async fn an_answer_that_a_proxy_refuses_is_told_to_the_server() {
    let (address, mut arrivals) = server(serve_options()).await;
    let (path, _) = Proxy::start(address, 10_000, |_| Fate::Pass).await;
    let (client, server) = pair(path, &mut arrivals).await;
    let (mut source, _sink) = client.split();
    let (mut theirs, mut their_sink) = server.split();
    their_sink.send(numbered(0, 9_000)).await.unwrap();
    assert_eq!(frame(&mut source).await, numbered(0, 9_000));
    their_sink.send(numbered(1, 10_000)).await.unwrap();
    let (closed, told) = tokio::join!(end(&mut source), end(&mut theirs));
    assert_eq!(
        (closed.code, told.code),
        (1006, 1009),
        "{closed:?} {told:?}"
    );
}

/// A client that vanishes without a DELETE is noticed by its silence.
#[tokio::test]
async fn a_silent_client_is_gone_after_a_time() {
    let options = ServeOptions {
        stale: Duration::from_millis(300),
        ..serve_options()
    };
    let (address, mut arrivals) = server(options).await;
    // The client polls only once.
    let raw = super::hostile::Raw::open(address, "").await.unwrap();
    raw.ask("GET", "poll?number=1&wait=0", "").await;
    let (mut theirs, mut their_sink) = arrivals.next().await.unwrap().transport.split();
    let closed = end(&mut theirs).await;
    assert_eq!((closed.code, &*closed.reason), (1001, "no poll for 0.3 s"));
    assert!(their_sink.send(numbered(0, 1)).await.is_err());
}

/// A client that is dropped tells the server, and one that closes without reading does not keep the
/// server waiting.
#[tokio::test]
async fn a_client_that_reads_no_more_keeps_no_server_waiting() {
    let (address, mut arrivals) = server(serve_options()).await;
    let (client, server) = pair(address, &mut arrivals).await;
    let (mut theirs, _their_sink) = server.split();
    drop(client);
    let closed = tokio::time::timeout(Duration::from_secs(5), end(&mut theirs)).await;
    assert_eq!(closed.unwrap().reason, "the client has gone");

    let (client, server) = pair(address, &mut arrivals).await;
    let (source, mut sink) = client.split();
    let (_theirs, mut their_sink) = server.split();
    drop(source);
    their_sink.send(numbered(0, 50_000)).await.unwrap();
    // Both close, and neither reads.
    let both = async { tokio::join!(their_sink.close(1000, ""), sink.close(1000, "")) };
    let closed = tokio::time::timeout(Duration::from_secs(5), both).await;
    assert!(closed.is_ok(), "both wait for each other");
}

/// A client whose application does not read is still there, and gets everything later.
#[tokio::test]
async fn a_client_that_does_not_read_is_not_taken_for_gone() {
    let options = ServeOptions {
        stale: Duration::from_millis(1500),
        wait_max: Duration::from_millis(500),
        ..serve_options()
    };
    let (address, mut arrivals) = server(options).await;
    let (client, server) = pair(address, &mut arrivals).await;
    let (mut source, mut sink) = client.split();
    let (mut theirs, mut their_sink) = server.split();
    let sender = tokio::spawn(async move {
        for number in 0..30 {
            their_sink.send(numbered(number, 60_000)).await.unwrap();
        }
        their_sink
    });
    // Three times as long as a client may be silent.
    let heard = tokio::time::timeout(Duration::from_millis(4500), end(&mut theirs)).await;
    assert!(heard.is_err(), "{heard:?}");
    for number in 0..30 {
        assert_eq!(frame(&mut source).await, numbered(number, 60_000));
    }
    sink.send(numbered(0, 3)).await.unwrap();
    assert_eq!(frame(&mut theirs).await, numbered(0, 3));
    drop(sender.await.unwrap());
}

/// A server whose application does not read holds the client back, for longer than a request may wait.
#[tokio::test]
async fn a_server_that_does_not_read_holds_the_client_back() {
    let options = ServeOptions {
        wait_max: Duration::from_millis(200),
        ..serve_options()
    };
    let (address, mut arrivals) = server(options).await;
    let (client, server) = pair(address, &mut arrivals).await;
    let (_source, mut sink) = client.split();
    let (mut theirs, _sink) = server.split();
    let all = async {
        for number in 0..60 {
            sink.send(numbered(number, 60_000)).await.unwrap();
        }
    };
    tokio::pin!(all);
    let waits = tokio::time::timeout(Duration::from_secs(2), &mut all).await;
    assert!(waits.is_err(), "3.6 MB wait somewhere");
    let receive = async {
        for number in 0..60 {
            assert_eq!(frame(&mut theirs).await, numbered(number, 60_000));
        }
    };
    tokio::join!(all, receive);
}

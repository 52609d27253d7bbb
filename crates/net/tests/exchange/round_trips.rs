//! Frames arrive: text and binary, small and as large as fits, in order, and followed by the close.

use std::time::Instant;

use breakbulk_net::exchange::FRAME_HEAD;
use breakbulk_net::http::Way;
use breakbulk_net::{Sink, Transport};

use super::common::*;

#[tokio::test]
async fn frames_of_both_kinds_arrive_in_order_both_ways() {
    let (address, mut arrivals) = server(serve_options()).await;
    let (client, server) = pair(address, &mut arrivals).await;
    assert_eq!(server.way(), Way::Exchange);
    let echo = tokio::spawn(echo(server));
    let (mut source, mut sink) = client.split();
    let largest = CAP - FRAME_HEAD;
    let sizes = [0, 1, 100, largest, 5, largest - 1, 40_000, 40_000, 3];
    let sent: Vec<_> = sizes
        .into_iter()
        .enumerate()
        .map(|(at, size)| numbered(at, size))
        .collect();
    for frame in sent.clone() {
        sink.send(frame).await.unwrap();
    }
    for expected in &sent {
        assert_eq!(&frame(&mut source).await, expected);
    }
    sink.close(1000, "done").await;
    echo.await.unwrap();
}

#[tokio::test]
async fn each_side_hears_the_last_word_of_the_other_after_all_frames() {
    let (address, mut arrivals) = server(serve_options()).await;
    let (client, server) = pair(address, &mut arrivals).await;
    let (mut source, mut sink) = client.split();
    let (mut theirs, _sink) = server.split();
    sink.send(numbered(0, 50_000)).await.unwrap();
    let (_, heard) = tokio::join!(sink.close(1001, "leaving"), async {
        assert_eq!(frame(&mut theirs).await, numbered(0, 50_000));
        end(&mut theirs).await
    });
    assert_eq!((heard.code, &*heard.reason), (1001, "leaving"));
    assert_eq!(end(&mut source).await.code, 1001);

    let (client, server) = pair(address, &mut arrivals).await;
    let (mut source, _sink) = client.split();
    let (_source, mut theirs) = server.split();
    theirs.send(numbered(1, 50_000)).await.unwrap();
    let (_, heard) = tokio::join!(theirs.close(1014, "no target"), async {
        assert_eq!(frame(&mut source).await, numbered(1, 50_000));
        end(&mut source).await
    });
    assert_eq!((heard.code, &*heard.reason), (1014, "no target"));
}

/// A client that drops its session as soon as it has got the server's close does not keep the server waiting.
#[tokio::test]
async fn a_server_hears_that_its_last_word_has_come() {
    let (address, mut arrivals) = server(serve_options()).await;
    for _ in 0..20 {
        let (client, server) = pair(address, &mut arrivals).await;
        let (_source, mut theirs) = server.split();
        let hears = async {
            let (mut source, _sink) = client.split();
            end(&mut source).await
        };
        let begun = Instant::now();
        let (_, heard) = tokio::join!(theirs.close(1000, "done"), hears);
        assert_eq!((heard.code, &*heard.reason), (1000, "done"));
        assert!(begun.elapsed().as_secs() < 3, "{:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn a_frame_that_fits_in_no_body_ends_the_session_for_its_size() {
    let (address, mut arrivals) = server(serve_options()).await;
    let (client, _server) = pair(address, &mut arrivals).await;
    let (mut source, mut sink) = client.split();
    sink.send(numbered(0, CAP)).await.unwrap();
    let closed = end(&mut source).await;
    assert_eq!(
        (closed.code, &*closed.reason),
        (
            1009,
            "a frame of 65536 bytes is too large: 65531 fit in a body"
        )
    );
    let (client, server) = pair(address, &mut arrivals).await;
    let (mut source, _sink) = client.split();
    let (mut theirs, mut their_sink) = server.split();
    their_sink.send(numbered(0, CAP)).await.unwrap();
    let (closed, theirs) = tokio::join!(end(&mut source), end(&mut theirs));
    assert_eq!((closed.code, theirs.code), (1006, 1009));
}

/// 20 MB there and back, in bodies of 64 KB.
#[tokio::test]
async fn twenty_megabytes_there_and_back() {
    let (address, mut arrivals) = server(serve_options()).await;
    let (client, server) = pair(address, &mut arrivals).await;
    tokio::spawn(echo(server));
    let (mut source, mut sink) = client.split();
    let size = CAP - FRAME_HEAD;
    let count = (20 << 20) / size + 1;
    let begun = Instant::now();
    let send = async {
        for number in 0..count {
            sink.send(numbered(number, size)).await.unwrap();
        }
    };
    let receive = async {
        for number in 0..count {
            assert_eq!(frame(&mut source).await, numbered(number, size));
        }
    };
    tokio::join!(send, receive);
    let seconds = begun.elapsed().as_secs_f64();
    println!("{:.0} MB/s there and back", 40.0 / seconds);
}

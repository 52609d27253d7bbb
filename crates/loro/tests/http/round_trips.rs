//! Messages in many fragments up, and whole texts down, over every transport.

use breakbulk_loro::http::client_options;
use breakbulk_loro::http::serve_options;
use breakbulk_net::Connection;
use breakbulk_net::http::{Way, refused_post};
use breakbulk_net::{poll, sse, ws};

use crate::common::{all_ways, dialled, echo, keepers, message, payload, send, soon};

async fn dial(way: Way, base: &str) -> Connection {
    let options = client_options("2000");
    // With a slash at its end, and without.
    let http = format!("http://{base}{}", if way == Way::Sse { "/" } else { "" });
    match way {
        Way::Sse => dialled(way, sse::connect(&http, &options).await.unwrap()),
        Way::Poll => dialled(way, poll::connect(&http, &options).await.unwrap()),
        #[cfg(feature = "webrtc")]
        Way::DataChannel => {
            let local = crate::channels::local();
            let channel = breakbulk_net::webrtc::connect(&http, &options, &local).await;
            dialled(way, channel.unwrap())
        }
        _ => {
            let url = format!("ws://{base}/ws?peerId=2000");
            let options = ws::ConnectOptions::default();
            dialled(way, ws::connect(&url, &options).await.unwrap())
        }
    }
}

#[tokio::test]
async fn fragments_go_up_and_whole_texts_come_down_by_every_way() {
    #[cfg(not(feature = "webrtc"))]
    let (options, ways) = (serve_options(), [Way::Sse, Way::Poll, Way::WebSocket]);
    #[cfg(feature = "webrtc")]
    let (options, ways) = (
        crate::channels::serving(),
        [Way::Sse, Way::Poll, Way::WebSocket, Way::DataChannel],
    );
    let (address, arrivals, _serving) = all_ways(options).await;
    keepers(arrivals);
    for way in ways {
        let connection = dial(way, &format!("{address}/loro")).await;
        // One frame, a frame of the cap, two frames, many frames; and many small messages in a row.
        for sizes in [&[1][..], &[19_999], &[20_000], &[300_000, 2], &[5; 40]] {
            for size in sizes {
                send(&connection, payload(*size));
            }
            for size in sizes {
                let what = format!("the echo of {size} bytes over {way:?}");
                let came = soon(&what, message(&connection)).await.expect(&what);
                let expected = echo(&payload(*size));
                assert!(came.bytes == expected, "{what}: {:.60?}", came.bytes);
            }
        }
        connection.close(1000, "");
        soon("the end", connection.ended()).await;
        assert!(!connection.broke_off(), "{way:?}");
    }
}

#[tokio::test]
async fn a_message_that_the_peer_refuses_ends_the_clients_connection_with_its_words() {
    let (address, arrivals, _serving) = all_ways(serve_options()).await;
    keepers(arrivals);
    for way in [Way::Sse, Way::Poll] {
        let connection = dial(way, &format!("{address}/loro")).await;
        send(&connection, &b"\x01\x00"[..]);
        let closed = soon("the end", connection.closed()).await;
        let expected = "HTTP 400: Unsupported wire version: 1";
        assert!(closed.reason.contains(expected), "{way:?}: {closed}");
        let (status, words) = refused_post(&closed).unwrap();
        assert_eq!(status, 400, "{way:?}");
        assert!(words.starts_with("Unsupported wire version: 1"), "{words}");
    }
}

#[tokio::test]
async fn a_server_that_ends_is_noticed_by_every_client() {
    for way in [Way::Sse, Way::Poll, Way::WebSocket] {
        let (address, mut arrivals, serving) = all_ways(serve_options()).await;
        let base = format!("{address}/loro");
        let (connection, arrival) =
            tokio::join!(dial(way, &base), soon("the arrival", arrivals.next()));
        let arrival = arrival.unwrap();
        assert_eq!(arrival.claim.peer_id, "2000");
        assert_eq!(arrival.transport.way(), way);
        let config = crate::common::config(way);
        let server = crate::common::open(arrival, config);
        server.close(1001, "Server shutting down");
        let closed = soon("the end", connection.closed()).await;
        let expected = match way {
            Way::Sse => "the server ended the event stream",
            Way::Poll => "the server no longer knows this connection",
            _ => "Server shutting down",
        };
        assert_eq!(closed.reason, expected, "{way:?}");
        drop(serving);
    }
}

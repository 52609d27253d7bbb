//! A peer that connects again, two polls at once, and answers that go to the right client.

use breakbulk_loro::http::serve_options;
use breakbulk_net::http::{Authorize, Claim, Denied, Grant, ServeOptions};
use std::sync::Arc;
use std::time::Duration;

use crate::common::{all_ways, config, dialled, keepers, message, open, payload, send, soon};
use crate::raw::{Open, ask, post};

// LORO-7
#[tokio::test]
async fn a_returning_peer_replaces_its_connection_and_stays() {
    for path in ["/loro/events?peerId=2000", "/loro/poll?peerId=2000"] {
        let (address, mut arrivals, _serving) = all_ways(serve_options()).await;
        let _first = Open::new(address, "GET", "/loro/events?peerId=2000", &[], &[]).await;
        let first = open(
            arrivals.next().await.unwrap(),
            config(breakbulk_net::http::Way::Sse),
        );
        let _second = Open::new(address, "GET", path, &[], &[]).await;
        let second = arrivals.next().await.unwrap();
        let second_config = config(second.claim.way);
        let second = open(second, second_config);
        let closed = soon("the end of the old one", first.closed()).await;
        assert_eq!(
            (closed.code, closed.reason.as_str()),
            (1000, "Replaced by new connection")
        );
        // The old connection ends, and takes nothing of the new one with it.
        soon("the old one's end", first.ended()).await;
        let posting = tokio::spawn(post_static(address));
        let came = soon("the message", message(&second)).await.unwrap();
        second.settle(came.id, Ok(()));
        assert_eq!(posting.await.unwrap(), 200, "{path}");
    }
}

/// The peer id of a WebSocket is only a claim.
// LORO-7
#[tokio::test]
async fn a_second_web_socket_with_the_same_peer_id_replaces_nobody() {
    let (address, mut arrivals, _serving) = all_ways(serve_options()).await;
    let url = format!("ws://{address}/loro/ws?peerId=2000");
    let options = breakbulk_net::ws::ConnectOptions::default();
    let mut both = Vec::new();
    for _ in 0..2 {
        let (client, arrival) = soon("a WebSocket", async {
            tokio::join!(breakbulk_net::ws::connect(&url, &options), arrivals.next())
        })
        .await;
        let way = breakbulk_net::http::Way::WebSocket;
        both.push((
            dialled(way, client.unwrap()),
            open(arrival.unwrap(), config(way)),
        ));
    }
    for (client, server) in &both {
        send(client, payload(5));
        let came = soon("a message", message(server)).await.unwrap();
        assert_eq!(came.bytes, payload(5));
    }
}

async fn post_static(address: std::net::SocketAddr) -> u16 {
    post(address, "/loro/sync", "2000", &[0, 2]).await.status
}

// LORO-9
#[tokio::test]
async fn of_two_polls_the_older_is_answered_at_once() {
    let (address, mut arrivals, _serving) = all_ways(serve_options()).await;
    let path = "/loro/poll?peerId=2000&wait=60000";
    // A new connection's first poll does not wait.
    let first = ask(address, "GET", path, &[], &[]).await;
    assert_eq!(first.body, r#"{"messages":[],"isNewConnection":true}"#);
    let connection = open(
        arrivals.next().await.unwrap(),
        config(breakbulk_net::http::Way::Poll),
    );
    let mut polls = tokio::task::JoinSet::new();
    for _ in 0..2 {
        polls.spawn(ask(address, "GET", path, &[], &[]));
    }
    // The older of both is answered while the newer one waits.
    let first = soon("the older poll", polls.join_next())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(first.body, r#"{"messages":[],"isNewConnection":false}"#);
    send(&connection, "{}");
    let second = soon("the newer poll", polls.join_next())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(second.body, r#"{"messages":[{}],"isNewConnection":false}"#);
}

// LORO-9
#[tokio::test]
async fn a_poll_that_is_given_up_with_messages_ends_its_connection() {
    let options = ServeOptions {
        linger: Duration::from_secs(30),
        ..serve_options()
    };
    let (address, mut arrivals, _serving) = all_ways(options).await;
    let path = "/loro/poll?peerId=2000&wait=60000";
    ask(address, "GET", path, &[], &[]).await;
    let connection = open(
        arrivals.next().await.unwrap(),
        config(breakbulk_net::http::Way::Poll),
    );
    let poll = tokio::spawn(ask(address, "GET", path, &[], &[]));
    send(&connection, "{}");
    // The message is with the poll, which waits for more.
    soon("the handing over", connection.drained()).await;
    poll.abort();
    let closed = soon("the end", connection.closed()).await;
    assert_eq!(
        closed.reason,
        "the client dropped a poll before it was answered"
    );
}

/// Accepts two secrets.
struct Secrets;

impl Authorize for Secrets {
    fn authorize(&self, claim: &Claim) -> Result<Grant, Denied> {
        let token = claim.parameter("token");
        match claim.bearer().or(token.as_deref()) {
            Some(secret @ ("one" | "two")) => Ok(Grant {
                subject: Some(secret.to_owned()),
            }),
            _ => Err(Denied {
                status: 401,
                error: "no token".to_owned(),
            }),
        }
    }
}

// LORO-7
#[tokio::test]
async fn nobody_speaks_for_another_by_giving_its_peer_id() {
    let options = ServeOptions {
        authorize: Arc::new(Secrets),
        ..serve_options()
    };
    let (address, arrivals, _serving) = all_ways(options).await;
    keepers(arrivals);
    let events = "/loro/events?peerId=2000&token=one";
    let stream = Open::new(address, "GET", events, &[], &[]).await;
    assert_eq!(stream.answer.status, 200);
    for (method, path, token, status) in [
        ("GET", "/loro/events?peerId=2000", "", 401),
        ("GET", "/loro/events?peerId=2000", "two", 403),
        ("GET", "/loro/poll?peerId=2000", "two", 403),
        ("DELETE", "/loro/poll?peerId=2000", "two", 403),
        ("POST", "/loro/sync", "", 401),
        ("POST", "/loro/sync", "two", 403),
        ("POST", "/loro/sync", "one", 200),
    ] {
        let bearer = format!("Bearer {token}");
        let headers = [
            ("content-type", "application/octet-stream"),
            ("x-peer-id", "2000"),
            ("authorization", bearer.as_str()),
        ];
        let answer = ask(address, method, path, &headers, &[0, 2]).await;
        assert_eq!(answer.status, status, "{method} {path} {token}: {answer:?}");
    }
}

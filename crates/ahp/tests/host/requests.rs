//! Requests that the application answers.

use super::common::*;

#[tokio::test(start_paused = true)]
async fn answers_carry_the_id_as_it_was_written() {
    let host = host(config());
    let client = Client::new(&host);
    client.initialize("c", "").await;
    for (said, heard) in [
        (
            r#"{"jsonrpc":"2.0","id":"a\u0062","method":"echo","params":{"x": 1}}"#,
            r#"{"jsonrpc":"2.0","id":"a\u0062","result":{"x": 1}}"#,
        ),
        (
            r#"{"jsonrpc":"2.0","id":-0.5e1,"method":"e\u0063ho","params":[]}"#,
            r#"{"jsonrpc":"2.0","id":-0.5e1,"result":[]}"#,
        ),
        (
            r#"{"jsonrpc":"2.0","id":18446744073709551616,"method":"echo"}"#,
            r#"{"jsonrpc":"2.0","id":18446744073709551616,"result":null}"#,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"who"}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":"c"}"#,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"nothing"}"#,
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no such method: nothing"}}"#,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"panic"}"#,
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the request failed"}}"#,
        ),
        (
            r#"{"jsonrpc":"2.0","id":2,"method":"unsubscribe","params":{"channel":"x"}}"#,
            r#"{"jsonrpc":"2.0","id":2,"result":null}"#,
        ),
    ] {
        assert_eq!(client.ask(said).await, heard, "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_with_many_requests_waits_for_its_own() {
    let host = host(config().with(|it| it.limits.requests = 2));
    let (greedy, other) = (Client::new(&host), Client::new(&host));
    greedy.initialize("greedy", "").await;
    other.initialize("other", "").await;
    for id in 0..3 {
        greedy.say(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"wait"}}"#));
    }
    greedy.say(r#"{"jsonrpc":"2.0","id":9,"method":"ping"}"#);
    // The other client is served meanwhile, as often as it asks.
    for _ in 0..100 {
        other
            .ask(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#)
            .await;
    }
    assert_eq!(*host.app().begun.lock().unwrap(), 2);
    let mut heard = vec![];
    for _ in 0..3 {
        host.app().gate.notify_one();
        heard.push(greedy.hear().await);
    }
    heard.push(greedy.hear().await);
    assert_eq!(*host.app().begun.lock().unwrap(), 3);
    let pong = r#"{"jsonrpc":"2.0","id":9,"result":null}"#;
    assert!(heard.iter().any(|text| text == pong), "{heard:?}");
    assert_ne!(heard[0], pong, "it was not read before there was room");
}

#[tokio::test(start_paused = true)]
async fn requests_end_with_their_client() {
    let host = host(config().with(|it| it.limits.requests = 1));
    let client = Client::new(&host);
    client.initialize("c", "").await;
    client.say(r#"{"jsonrpc":"2.0","id":1,"method":"wait"}"#);
    while *host.app().begun.lock().unwrap() == 0 {
        tokio::task::yield_now().await;
    }
    drop(client);
    let (log, late) = (host.shutdown().await, Client::new(&host));
    assert!(log.is_some());
    assert_eq!(late.closed().await.code, 1001);
}

//! Handshakes: which clients are accepted, and which limits apply to them.

use super::common::*;

#[tokio::test(start_paused = true)]
async fn what_initialize_answers() {
    let host = host(config());
    host.app().open("ahp-otlp:/x", &[]);
    publish(&host, CHAT, "7").await;
    let more = |more: &str| initialize("c", "", more);
    let error = |code: i32, message: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":{code},"message":"{message}"}}}}"#)
    };
    let result = |snapshots: &str, extras: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":{{"protocolVersion":"1.0.0","serverSeq":1,"snapshots":[{snapshots}]{extras},{OURS}}}}}"#
        )
    };
    let chat = r#"{"resource":"ahp-chat:/a","state":[7],"fromSeq":1}"#;
    let root = r#"{"resource":"ahp-root://","state":[],"fromSeq":1}"#;
    let long = "x".repeat(257);
    for (said, expected) in [
        (initialize("c", "", ""), result("", "")),
        (
            initialize("c", r#""ahp-root://","ahp-chat:/a","ahp-root://""#, ""),
            result(&format!("{chat},{root}"), ""),
        ),
        // A channel without a state has no snapshot, and one that does not exist has none either.
        (
            initialize("c", r#""ahp-otlp:/x","ahp-chat:/gone""#, ""),
            result("", ""),
        ),
        (
            initialize("guest", r#""ahp-root://","ahp-chat:/a""#, ""),
            result(root, ""),
        ),
        (
            initialize("curious", "", ""),
            result("", r#","serverInfo":{"name":"board"}"#),
        ),
        (
            initialize("stranger", "", ""),
            error(-32007, "who are you?"),
        ),
        (
            initialize("", "", ""),
            error(-32602, "`clientId` must have 1 to 256 bytes"),
        ),
        (
            initialize(&long, "", ""),
            error(-32602, "`clientId` must have 1 to 256 bytes"),
        ),
        (
            more(r#","channel":"ahp-chat:/a""#),
            error(-32602, "`channel` must be ahp-root://"),
        ),
        (
            more(r#","initialSubscriptions":[1]"#),
            error(-32602, "`initialSubscriptions` must be an array of strings"),
        ),
        (
            more(r#","protocolVersions":["1.4.0","2.0.0"]"#),
            result("", "").replace("1.0.0", "1.4.0"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#.to_owned(),
            error(-32602, "an object is expected"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{}}"#.to_owned(),
            error(-32600, "initialize or reconnect comes first"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"subscribe","params":{"channel":"ahp-root://"}}"#
                .to_owned(),
            error(-32600, "initialize or reconnect comes first"),
        ),
    ] {
        assert_eq!(Client::new(&host).ask(&said).await, expected, "{said}");
    }
}

// AHP-7
#[tokio::test(start_paused = true)]
async fn without_a_version_in_common_it_ends() {
    let host = host(config());
    let client = Client::new(&host);
    let said = initialize("c", "", r#","protocolVersions":["0.3.0"]"#);
    assert_eq!(
        client.ask(said).await,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32005,"message":"the host supports none of the offered protocol versions","data":{"supportedVersions":["1.0.0","0.9.0"]}}}"#
    );
    let closed = client.closed().await;
    assert_eq!(
        (closed.code, &*closed.reason),
        (4406, "no protocol version in common")
    );
    assert_eq!(client.served.await.unwrap(), closed, "the operator's view");
}

// AHP-10
#[tokio::test(start_paused = true)]
async fn one_handshake_a_connection_and_errors_do_not_count() {
    let host = host(config());
    let client = Client::new(&host);
    assert!(
        client
            .initialize("stranger", "")
            .await
            .contains("who are you?")
    );
    assert!(
        client
            .ask(reconnect("stranger", 0, "", ""))
            .await
            .contains("who are you?")
    );
    assert!(client.initialize("c", "").await.contains("result"));
    for again in [initialize("c", "", ""), reconnect("c", 0, "", "")] {
        let answer = client.ask(again).await;
        assert!(
            answer.contains(r#""code":-32600,"message":"this connection is initialized already"#),
            "{answer}"
        );
    }
}

// AHP-7
#[tokio::test(start_paused = true)]
async fn who_does_not_introduce_itself_goes() {
    let host = host(config());
    let client = Client::new(&host);
    let start = tokio::time::Instant::now();
    let closed = client.closed().await;
    assert_eq!(
        (closed.code, &*closed.reason),
        (4408, "no initialize or reconnect within 30 s")
    );
    assert_eq!(start.elapsed().as_secs(), 30);
    assert_eq!(client.served.await.unwrap(), closed, "the operator's view");
}

// AHP-7
#[tokio::test(start_paused = true)]
async fn the_second_connection_of_a_client_takes_over() {
    let host = host(config());
    let first = Client::new(&host);
    first.initialize("c", r#""ahp-root://""#).await;
    let other = Client::new(&host);
    other.initialize("d", r#""ahp-root://""#).await;
    let second = Client::new(&host);
    second.initialize("c", r#""ahp-root://""#).await;
    let closed = first.closed().await;
    assert_eq!(
        (closed.code, &*closed.reason),
        (4409, "another connection with this clientId has taken over")
    );
    assert_eq!(first.served.await.unwrap(), closed, "the operator's view");
    publish(&host, ROOT, "1").await;
    for client in [&second, &other] {
        assert_eq!(client.hear().await, action(ROOT, "1", 1));
    }
}

/// What a client receives is cut by that client's own limits; invalid limits count as none.
#[tokio::test(start_paused = true)]
async fn what_the_client_advertised_is_what_it_gets() {
    for (more, segments) in [
        (takes(300, 5000), true),
        (takes(5000, 5000), false),
        (String::new(), false),
        (r#","capabilities":{"chunking":{}}"#.to_owned(), false),
        (takes(0, 5000), false),
    ] {
        let host = host(config());
        let client = Client::new(&host);
        client.ask(initialize("c", r#""ahp-root://""#, &more)).await;
        let big = format!(r#""{}""#, "x".repeat(2000));
        publish(&host, ROOT, &big).await;
        let mut came = None;
        while came.is_none() {
            if let Some(breakbulk_link::Event::Message(message)) = client.connection.event().await {
                assert_eq!(message.bytes, action(ROOT, &big, 1), "{more}");
                came = Some(message.key.is_some());
            }
        }
        assert_eq!(came, Some(segments), "{more}");
    }
}

//! The admin port beside routes that are reloaded.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;

use super::{Client, Folder};
use crate::common::PATIENCE;

/// The status and the body of an answer.
fn get(address: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap();
    (status.to_owned(), body.to_owned())
}

// OPS-10
#[test]
fn a_route_that_drains_after_a_reload_is_told_apart() {
    let folder = Folder::new();
    let text = |limit: &str| {
        format!(
            "memory = '256MiB'
            max-message = '{limit}'
            [admin]
            address = '127.0.0.1:0'
            [log]
            filter = 'debug'
            [[route]]
            name = 'one'
            listen = 'unix:$D/one'
            to = '$ANSWER'
            [[route]]
            name = 'two'
            listen = 'unix:$D/two'
            to = '$ANSWER'
            max-message = '9MiB'"
        )
    };
    folder.write(&text("10MiB"));
    let gateway = folder.start(2);
    let admin = gateway
        .before
        .iter()
        .find_map(|line| line.strip_prefix("admin on http://"));
    let admin = admin.unwrap().trim_end_matches('/').to_owned();
    let mut client = Client::unix(&folder.path("one"));
    client.ask(1, 8_000_000);
    let mut first = [0; 1000];
    client.reader.read_exact(&mut first).unwrap();
    folder.write(&text("11MiB"));
    gateway.signal("-HUP");
    gateway.line("reloaded: 1 route unchanged; started: one; stopped: none");
    // The old one still has a session, and clients are served by the new one.
    let (_, state) = get(&admin, "/api/state");
    assert_eq!(state.matches(r#""name":"one""#).count(), 2, "{state}");
    assert_eq!(state.matches(r#""state":"stopping""#).count(), 1, "{state}");
    // Both routes share one memory.
    assert!(state.contains(r#""budget":268435456"#), "{state}");
    assert_eq!(get(&admin, "/readyz").0, "200");
    // No series is there twice.
    let (_, metrics) = get(&admin, "/metrics");
    let mut seen = BTreeSet::new();
    for line in metrics
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
    {
        let series = line.rsplit_once(' ').unwrap().0;
        assert!(seen.insert(series.to_owned()), "{series} is there twice");
    }
    assert!(metrics.contains(r#"route="one""#) && metrics.contains(r#"route="two""#));
    let rest = client.line();
    assert!(rest.ends_with("xx\"}\n"), "{}", rest.len());
    // What only a start reads is told.
    folder.write(&text("11MiB").replace("filter = 'debug'", "filter = 'info'"));
    gateway.signal("-HUP");
    gateway.line("[admin], [log], [record] and [traces] are read at the start only");
}

/// A supervisor would start the process anew, although its listener takes clients.
// OPS-7
#[test]
fn a_session_over_pipes_that_ends_badly_is_no_listener_that_failed() {
    let folder = Folder::new();
    folder.write(
        "[admin]
        address = '127.0.0.1:0'
        [[route]]
        name = 'pipes'
        listen = 'stdio:'
        to = \"exec:sh -c 'read line'\"
        [[route]]
        name = 'other'
        listen = 'unix:$D/other'
        to = '$ANSWER'",
    );
    let mut gateway = folder.start(1);
    let admin = gateway
        .before
        .iter()
        .find_map(|line| line.strip_prefix("admin on http://"));
    let admin = admin.unwrap().trim_end_matches('/').to_owned();
    let mut stdin = gateway.child.stdin.take().unwrap();
    let request = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}\n";
    stdin.write_all(request).unwrap();
    // Its command ends without an answer.
    gateway.line("route pipes has ended: ");
    assert_eq!(
        get(&admin, "/readyz"),
        ("200".to_owned(), "ready\n".to_owned())
    );
}

//! Tests of the limits for one address, which the header of a trusted proxy names.

use crate::common::{INITIALIZE, Server};

#[test]
fn one_address_does_not_take_all_places() {
    let proxy = ["--trust-proxy", "x-forwarded-for", "--max-per-address", "2"];
    let gateway = Server::gateway(&proxy);
    let documents = Server::documents(&proxy);
    for (server, path) in [(&gateway, "/"), (&documents, "/ws")] {
        let mut open = Vec::new();
        for (forwarded, expected) in [
            ("203.0.113.7", 101),
            // What the client itself wrote before the proxy's own entry proves nothing.
            ("198.51.100.1, 203.0.113.7", 101),
            ("203.0.113.7", 503),
            ("198.51.100.2, 203.0.113.7", 503),
            ("203.0.113.8", 101),
            // IPv6 counts by /64.
            ("2001:db8:1:1::1", 101),
            ("2001:db8:1:1::2", 101),
            ("[2001:db8:1:1:ffff::3]:443", 503),
            ("2001:db8:1:2::3", 101),
        ] {
            let headers = format!("X-Forwarded-For: {forwarded}\r\n");
            let (status, socket) = server.web_socket(path, &headers);
            assert_eq!(status, expected, "{path} {forwarded}: {}", server.log());
            open.push(socket);
        }
        server.line("(max-per-address)");
    }
    let mcp = Server::mcp(&proxy);
    for (forwarded, expected) in [
        ("203.0.113.7", 200),
        ("203.0.113.7", 200),
        ("203.0.113.7", 503),
        ("203.0.113.8", 200),
    ] {
        let head = format!("POST /mcp HTTP/1.1\r\nX-Forwarded-For: {forwarded}\r\n{INITIALIZE}");
        assert_eq!(mcp.ask(&head).0, expected, "{forwarded}: {}", mcp.log());
    }
    mcp.line("(max-per-address)");
    // Without the option the header is ignored.
    let server = Server::gateway(&["--max-per-address", "1"]);
    for _ in 0..3 {
        let (status, _socket) = server.web_socket("/", "X-Forwarded-For: 203.0.113.7\r\n");
        assert_eq!(status, 101);
    }
}

#[test]
fn one_address_asks_only_so_often() {
    let limits = ["--trust-proxy", "forwarded", "--rate-per-address", "5"];
    for server in [Server::documents(&limits), Server::mcp(&limits)] {
        asks_only_so_often(&server);
    }
}

fn asks_only_so_often(server: &Server) {
    let ask = |client: &str| {
        let head = format!(
            "GET /nothing HTTP/1.1\r\nHost: localhost\r\nForwarded: for=\"{client}\"\r\n\r\n"
        );
        server.ask(&head).0
    };
    let answers: Vec<u16> = (0..40).map(|_| ask("203.0.113.7")).collect();
    assert_eq!(answers[0], 404);
    assert!(answers.contains(&503), "{answers:?}");
    assert_eq!(ask("203.0.113.8"), 404);
    server.line("(rate-per-address)");
}

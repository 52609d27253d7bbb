//! Web pages of strangers: what a browser says of them, and names that stand for this machine.

use crate::common::{Server, UPGRADE};

/// The name in `Host`, further header lines, whether it is let in, and with which status it is refused.
const CASES: [(&str, &str, Option<u16>); 19] = [
    ("Host: 127.0.0.1\r\n", "", None),
    ("Host: localhost:7402\r\n", "", None),
    ("Host: [::1]:7402\r\n", "", None),
    ("Host: LOCALHOST.\r\n", "", None),
    ("", "", Some(400)),
    ("Host: localhost\r\nHost: localhost\r\n", "", Some(400)),
    ("Host: localhost\r\nHost: evil.example\r\n", "", Some(400)),
    ("Host: a b\r\n", "", Some(400)),
    ("Host: \r\n", "", Some(403)),
    // A name that was made to stand for this machine.
    ("Host: evil.example\r\n", "", Some(403)),
    ("Host: localhost.evil.example\r\n", "", Some(403)),
    ("Host: 192.0.2.7\r\n", "", Some(403)),
    (
        "Host: localhost\r\n",
        "Sec-Fetch-Site: cross-site\r\n",
        Some(403),
    ),
    (
        "Host: localhost\r\n",
        "Sec-Fetch-Site: same-site\r\n",
        Some(403),
    ),
    (
        "Host: localhost\r\n",
        "Sec-Fetch-Site: same-origin\r\nSec-Fetch-Site: cross-site\r\n",
        Some(403),
    ),
    (
        "Host: localhost\r\n",
        "Sec-Fetch-Site: same-origin\r\n",
        None,
    ),
    ("Host: localhost\r\n", "Sec-Fetch-Site: none\r\n", None),
    (
        "Host: localhost\r\n",
        "Origin: http://localhost:3000\r\nSec-Fetch-Site: same-site\r\n",
        None,
    ),
    (
        "Host: localhost\r\n",
        "Origin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\n",
        Some(403),
    ),
];

// PROG-14
#[test]
fn pages_of_strangers_reach_no_listener_of_this_machine() {
    let gateway = Server::gateway(&[]);
    let documents = Server::documents(&[]);
    let mcp = Server::mcp(&[]);
    let mut wrong = Vec::new();
    for (number, (host, headers, refused)) in CASES.into_iter().enumerate() {
        for (server, path, upgrade, fine) in [
            (&gateway, "/".to_owned(), UPGRADE, 101),
            (&documents, "/ws".to_owned(), UPGRADE, 101),
            (&documents, format!("/poll?peerId={number}"), "", 200),
            (&documents, format!("/events?peerId={number}"), "", 200),
            // Let in, and told that there is nothing here.
            (&mcp, "/else".to_owned(), "", 404),
        ] {
            let head = format!("GET {path} HTTP/1.1\r\n{host}{headers}{upgrade}\r\n");
            let (status, _) = server.ask(&head);
            let expected = refused.unwrap_or(fine);
            if status != expected {
                wrong.push(format!(
                    "{path} {host:?} {headers:?}: {status}, not {expected}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn hosts_and_origins_are_allowed_by_name() {
    let more = [
        "--allow-host",
        "proxy.example",
        "--origin",
        "https://app.example",
    ];
    let gateway = Server::gateway(&more);
    let documents = Server::documents(&more);
    for (headers, expected) in [
        ("Host: proxy.example:443\r\n", 101),
        ("Host: other.example\r\n", 403),
        (
            "Host: proxy.example\r\nOrigin: https://app.example\r\nSec-Fetch-Site: cross-site\r\n",
            101,
        ),
        (
            "Host: proxy.example\r\nOrigin: https://evil.example\r\n",
            403,
        ),
        ("Host: localhost\r\n", 101),
    ] {
        for (server, path) in [(&gateway, "/"), (&documents, "/ws")] {
            let (status, _) = server.ask(&format!("GET {path} HTTP/1.1\r\n{headers}{UPGRADE}\r\n"));
            assert_eq!(status, expected, "{path} {headers:?}");
        }
    }
}

#[test]
fn head_opens_and_resets_nothing() {
    let documents = Server::documents(&[]);
    let mcp = Server::mcp(&[]);
    for (server, method, path, expected) in [
        (&documents, "HEAD", "/poll?peerId=1", 405),
        (&documents, "HEAD", "/events?peerId=1", 405),
        (&documents, "HEAD", "/ws?peerId=1", 405),
        (&mcp, "HEAD", "/mcp", 405),
    ] {
        let (status, _) = server.ask(&format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"
        ));
        assert_eq!(status, expected, "{method} {path}");
    }
}

//! Sockets that say nothing, or stay after they were answered, keep nobody out.

use std::net::TcpStream;

use crate::common::{INITIALIZE, Server};

const POLL: &str = "GET /poll?peerId=1 HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[test]
fn silent_sockets_keep_no_newcomer_out() {
    let gateway = Server::gateway(&[]);
    let documents = Server::documents(&["--max-connections", "16"]);
    let mcp = Server::mcp(&["--max-sessions", "16"]);
    for (server, sockets) in [(&gateway, 300), (&documents, 150), (&mcp, 400)] {
        let silent: Vec<TcpStream> = (0..sockets).map(|_| server.connect()).collect();
        let (status, _socket) = match server {
            server if std::ptr::eq(server, &gateway) => server.web_socket("/", ""),
            server if std::ptr::eq(server, &mcp) => {
                server.ask(&format!("POST /mcp HTTP/1.1\r\n{INITIALIZE}"))
            }
            server => server.ask(POLL),
        };
        assert!([101, 200].contains(&status), "{status}: {}", server.log());
        server.line("made room for a new client");
        drop(silent);
    }
}

#[test]
fn refused_clients_that_stay_keep_no_newcomer_out() {
    let server = Server::gateway(&["--max-sessions", "1"]);
    let (status, _first) = server.web_socket("/", "");
    assert_eq!(status, 101);
    let refused: Vec<TcpStream> = (0..300)
        .map(|number| {
            let (status, socket) = server.web_socket("/", "");
            assert_eq!(status, 503, "client {number}");
            socket
        })
        .collect();
    drop(refused);
}

//! SIGTERM with several routes: listeners are closed, and what was begun is finished.

use std::io::Read;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::{Client, Folder, free_port};
use crate::common::PATIENCE;

// OPS-6
#[test]
fn all_routes_finish_what_was_begun() {
    let (folder, port) = (Folder::new(), free_port());
    folder.write(&format!(
        "[[route]]
        name = 'one'
        listen = 'unix:$D/one'
        to = '$ANSWER'
        [[route]]
        name = 'two'
        listen = 'tcp://127.0.0.1:{port}'
        to = '$ANSWER'"
    ));
    let mut gateway = folder.start(2);
    let mut clients = [Client::unix(&folder.path("one")), Client::tcp(port)];
    for client in &mut clients {
        client.ask(1, 8_000_000);
        let mut first = [0; 1000];
        client.reader.read_exact(&mut first).unwrap();
    }
    gateway.signal("-TERM");
    let since = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_ok() || folder.path("one").exists() {
        assert!(since.elapsed() < PATIENCE, "it still listens");
        std::thread::sleep(Duration::from_millis(5));
    }
    for mut client in clients {
        let rest = client.line();
        assert!(rest.ends_with("xx\"}\n"), "{}", rest.len());
        assert_eq!(
            rest.len() + 1000,
            8_000_000 + "{\"jsonrpc\": \"2.0\", \"id\": 1, \"result\": \"\"}\n".len()
        );
        assert_eq!(client.line(), "");
    }
    assert_eq!(gateway.exit_code(), Some(0));
}

// OPS-7
#[test]
fn one_route_that_cannot_start_lets_none_start() {
    let folder = Folder::new();
    let port = {
        let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        folder.write(&format!(
            "[[route]]
            name = 'one'
            listen = 'unix:$D/one'
            to = '$ANSWER'
            [[route]]
            name = 'two'
            listen = 'tcp://127.0.0.1:{port}'
            to = '$ANSWER'"
        ));
        let config = folder.config().display().to_string();
        let output = crate::common::run(crate::common::gateway(&["--config", &config]), Vec::new());
        assert_eq!(output.status.code(), Some(2));
        let said = crate::common::said(&output);
        assert!(
            said.contains("gateway.toml:7:22: listen: cannot listen at 127.0.0.1:"),
            "{said}"
        );
        assert!(!folder.path("one").exists());
        port
    };
    let _ = port;
}

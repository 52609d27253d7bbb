//! `nats://`: tunnels over a NATS server that the test starts.

use super::{ECHO, SIZES, certificate, echo_during, echo_each};
use crate::common::{Listening, Near, gateway, lines, run, said};
use crate::nats_server::NatsServer;

#[test]
fn messages_of_any_size_cross_a_server_with_a_small_max_payload() {
    let server = NatsServer::start("");
    let url = server.url("tools.echo");
    let far = Listening::new(&["--listen", &url, "--to", ECHO]);
    assert_eq!(far.address, url);
    let input = lines(&SIZES);
    let output = run(
        gateway(&["--listen", "stdio:", "--to", &url]),
        input.clone(),
    );
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(output.stdout == input, "not byte for byte");
    far.line("the command exited with status 0");
}

#[test]
fn a_restart_of_the_server_loses_no_message() {
    let mut server = NatsServer::start("");
    let url = server.url("tools");
    let _far = Listening::new(&["--listen", &url, "--to", ECHO]);
    let mut near = Near::new(&["--listen", "stdio:", "--to", &url]);
    echo_each(&mut near, &[10, 100_000], |_| {});
    let before = server.messages();
    echo_during(&mut near, 20_000_000, |_| {
        // In the middle: of about 600 messages some hundred have passed.
        server.until(|passed| passed >= before + 100);
        server.restart();
    });
    echo_each(&mut near, &[10, 100_000], |_| {});
    near.log
        .line("the connection to the other gateway was lost; the session waits for a new one");
    near.log.line("the tunnel goes on over a new connection");
}

/// What was made for the larger max_payload goes on in parts, and the link makes smaller frames.
// LINE-4
#[test]
fn a_server_that_comes_back_with_a_smaller_max_payload_loses_no_message() {
    let mut server = NatsServer::start("");
    let url = server.url("tools");
    let _far = Listening::new(&["--listen", &url, "--to", ECHO]);
    let mut near = Near::new(&["--listen", "stdio:", "--to", &url]);
    echo_each(&mut near, &[10, 100_000], |_| {});
    for max_payload in [20_000, 65_536] {
        server.configure(max_payload, "");
        let before = server.messages();
        echo_during(&mut near, 20_000_000, |_| {
            server.until(|passed| passed >= before + 100);
            server.restart();
        });
        echo_each(&mut near, &[10, 100_000], |_| {});
    }
}

#[test]
fn a_queue_group_of_two_gateways_shares_the_sessions() {
    let server = NatsServer::start("");
    let url = server.url("tools");
    let far = [(); 2].map(|()| Listening::new(&["--listen", &url, "--to", ECHO]));
    let near: Vec<_> = (0..12)
        .map(|_| {
            let mut near = Near::new(&["--listen", "stdio:", "--to", &url]);
            echo_each(&mut near, &[10], |_| {});
            near
        })
        .collect();
    drop(near);
    for far in &far {
        far.line("session started");
    }
}

#[test]
fn credentials_and_wrong_addresses_are_named() {
    let users = "authorization { users: [ { user: anna, password: \"p@ss word\" } ] }";
    let server = NatsServer::start(users);
    let port = server.port;
    let secret = server.folder.path().join("secret");
    std::fs::write(&secret, "anna:wrong\n").unwrap();
    let own = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&secret, own).unwrap();
    let listen = format!("nats://anna:p%40ss%20word@127.0.0.1:{port}/tools");
    let far = Listening::new(&["--listen", &listen, "--to", ECHO]);
    assert_eq!(far.address, server.url("tools"), "no credentials are shown");
    let output = run(
        gateway(&["--listen", "stdio:", "--to", &listen]),
        lines(&[10]),
    );
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let in_file = format!(
        "nats://127.0.0.1:{port}/tools?token-file={}",
        secret.display()
    );
    let nobody = listen.replace("/tools", "/nobody");
    for (to, expected) in [
        (server.url("tools"), "refuses these credentials"),
        (in_file, "refuses these credentials"),
        (nobody, "nobody listens at the subject nobody"),
        ("nats://127.0.0.1:1/tools".to_owned(), "127.0.0.1:1"),
        ("nats://host".to_owned(), "there is no subject"),
        ("nats:///tools".to_owned(), "there is no NATS server"),
        ("nats://host:x/tools".to_owned(), "there is no NATS server"),
        ("nats://host/a..b".to_owned(), "is no subject for sessions"),
        (
            "nats://host/a?frames=1".to_owned(),
            "\"frames\" is no option",
        ),
        ("nats://host/a?ca=x".to_owned(), "ca is for"),
        ("loro+nats://host/a".to_owned(), "without loro+"),
        ("nats:host/a".to_owned(), "write nats:// with its slashes"),
    ] {
        let output = run(gateway(&["--listen", "stdio:", "--to", &to]), Vec::new());
        assert_eq!(output.status.code(), Some(2), "{to}: {}", said(&output));
        assert!(said(&output).contains(expected), "{to}: {}", said(&output));
        assert!(!said(&output).contains("wrong"), "{}", said(&output));
    }
}

#[test]
fn two_gateways_meet_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = certificate(folder.path());
    let server = NatsServer::start(&format!(
        "tls {{ cert_file: \"{cert}\", key_file: \"{key}\" }}"
    ));
    let url = format!("tls://127.0.0.1:{}/tools", server.port);
    let trusted = format!("{url}?ca={cert}");
    let far = Listening::new(&["--listen", &trusted, "--to", ECHO]);
    assert_eq!(far.address, url);
    let input = lines(&[10, 1_000_000]);
    let output = run(
        gateway(&["--listen", "stdio:", "--to", &trusted]),
        input.clone(),
    );
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(output.stdout == input, "not byte for byte");
    let output = run(gateway(&["--listen", "stdio:", "--to", &url]), Vec::new());
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("certificate"), "{}", said(&output));
}

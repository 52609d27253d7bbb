//! `ahp+http://`: tunnels over plain HTTP.

use std::net::SocketAddr;
use std::time::Duration;

use breakbulk_testkit::http_path::HttpPath;

use super::{ECHO, SIZES, certificate, echo_during, echo_each};
use crate::common::{Listening, Near, gateway, lines, run, said};

const CAP: &str = "64KiB";

fn far(further: &[&str]) -> Listening {
    let listen = [
        "--listen",
        "ahp+http://0/tunnel",
        "--to",
        ECHO,
        "--max-frame",
        CAP,
    ];
    Listening::new(&[&listen, further].concat())
}

fn address(far: &Listening) -> SocketAddr {
    let rest = far.address.strip_prefix("ahp+http://").unwrap();
    rest.strip_suffix("/tunnel").unwrap().parse().unwrap()
}

/// A runtime for the path, which runs beside the test.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

#[test]
fn messages_of_any_size_cross_a_path_that_caps_bodies() {
    let (runtime, far) = (runtime(), far(&[]));
    let path = runtime
        .block_on(HttpPath::start(address(&far), 64 << 10))
        .unwrap();
    let to = format!("ahp+http://{}/tunnel", path.address());
    let input = lines(&SIZES);
    let near = gateway(&["--listen", "stdio:", "--to", &to, "--max-frame", CAP]);
    let output = run(near, input.clone());
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(output.stdout == input, "not byte for byte");
    let largest = path.largest();
    assert!(largest <= 64 << 10 && largest > 60_000, "{largest}");
    far.line("the command exited with status 0");
}

#[test]
fn lost_answers_and_cuts_lose_no_message() {
    let (runtime, far) = (runtime(), far(&[]));
    let path = runtime
        .block_on(HttpPath::start(address(&far), 64 << 10))
        .unwrap();
    let to = format!("ahp+http://{}/tunnel", path.address());
    let mut near = Near::new(&["--listen", "stdio:", "--to", &to, "--max-frame", CAP]);
    echo_each(&mut near, &[10, 100_000], |_| {});
    path.lose_every(7);
    echo_each(&mut near, &[10, 1_000_000, 20, 300_000], |_| {});
    path.lose_every(0);
    // In the middle of 20 MB the path is away for longer than requests are repeated.
    echo_during(&mut near, 20_000_000, |log| {
        let begun = path.requests();
        while path.requests() < begun + 100 {
            std::thread::sleep(Duration::from_millis(5));
        }
        path.cut(true);
        log.line("the connection to the other gateway was lost; the session waits for a new one");
        path.cut(false);
    });
    echo_each(&mut near, &[10, 100_000], |_| path.cut(false));
    near.log.line("the tunnel goes on over a new connection");
}

#[test]
fn a_cap_that_a_proxy_enforces_is_learned() {
    let (runtime, far) = (runtime(), far(&[]));
    let path = runtime
        .block_on(HttpPath::start(address(&far), 30_000))
        .unwrap();
    let to = format!("ahp+http://{}/tunnel", path.address());
    let mut near = Near::new(&["--listen", "stdio:", "--to", &to, "--max-frame", CAP]);
    echo_each(&mut near, &[10, 25_000], |_| {});
    echo_each(&mut near, &[1_000_000, 10, 2_000_000], |_| {});
    assert!(path.largest() <= 30_000);
    let learned = near.log.line("does not pass the path to the other gateway");
    assert!(
        learned.contains("start this gateway with --max-frame"),
        "{learned}"
    );
}

#[test]
fn tokens_pages_and_certificates_are_as_for_web_sockets() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "anna s3cret-of-anna\nben s3cret-of-ben\n").unwrap();
    let own = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&token, own).unwrap();
    let listen = format!("ahp+http://0/tunnel?token-file={}", token.display());
    let far = Listening::new(&["--listen", &listen, "--to", ECHO]);
    let near = |token: &str| {
        let mut near = gateway(&["--listen", "stdio:", "--to", &far.address]);
        near.env("BREAKBULK_TOKEN", token);
        run(near, lines(&[10]))
    };
    let output = near("s3cret-of-ben");
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    far.line("ben@127.0.0.1:");
    let output = near("wrong");
    assert_eq!(output.status.code(), Some(2));
    let expected = "this server does not accept this bearer token";
    assert!(said(&output).contains(expected), "{}", said(&output));
    for (arguments, expected) in [
        (
            ["ahp+http://0.0.0.0:0", "exec:cat"],
            "open to others than this machine",
        ),
        (["ahp+https://0", "exec:cat"], "need a certificate"),
        (
            ["stdio:", "ahp+http://8080"],
            "did you mean ahp+http://127.0.0.1:8080?",
        ),
        (["stdio:", "ahp+http://127.0.0.1:1/x"], "127.0.0.1:1"),
        (
            ["stdio:", "ahp+http:127.0.0.1"],
            "write ahp+http:// with its slashes",
        ),
        (["stdio:", "ahp+http://a@host"], "no names or passwords"),
        (
            ["stdio:", "ahp+http://host?tunnel=never"],
            "tunnel is for ws:// and wss://",
        ),
        (["stdio:", "loro+http://host"], "http"),
    ] {
        let output = run(
            gateway(&["--listen", arguments[0], "--to", arguments[1]]),
            Vec::new(),
        );
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(
            said(&output).contains(expected),
            "{arguments:?}: {}",
            said(&output)
        );
    }
}

#[test]
fn a_stop_sends_what_is_queued_and_says_goodbye() {
    let mut far = far(&[]);
    let mut near = Near::new(&[
        "--listen",
        "stdio:",
        "--to",
        &far.address,
        "--max-frame",
        CAP,
    ]);
    echo_each(&mut near, &[10], |_| {});
    far.signal("-TERM");
    assert_eq!(far.exit_code(), Some(0));
    assert_eq!(near.read_line(), "");
}

#[test]
fn two_gateways_carry_a_program_over_https() {
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = certificate(folder.path());
    let listen = format!("ahp+https://0/tunnel?cert={cert}&key={key}&max-frame=50KB");
    let far = Listening::new(&["--listen", &listen, "--to", ECHO]);
    assert!(
        far.address.starts_with("ahp+https://127.0.0.1:"),
        "{}",
        far.address
    );
    let trusted = format!("{}?ca={cert}", far.address);
    let input = lines(&[10, 1_000_000, 50_000]);
    let output = run(
        gateway(&["--listen", "stdio:", "--to", &trusted]),
        input.clone(),
    );
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(output.stdout == input, "not byte for byte");
    let output = run(
        gateway(&["--listen", "stdio:", "--to", &far.address]),
        Vec::new(),
    );
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("certificate"), "{}", said(&output));
}

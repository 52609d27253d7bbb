//! `breakbulk probe` against gateways that listen by HTTP and at NATS.

use std::net::SocketAddr;
use std::process::{Command, Output};

use breakbulk_testkit::http_path::HttpPath;

use crate::common::{Listening, said};
use crate::nats_server::NatsServer;

fn probe(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_breakbulk"))
        .arg("probe")
        .args(arguments)
        .env_remove("BREAKBULK_TOKEN")
        .output()
        .unwrap()
}

/// The lines that a probe prints.
fn found(arguments: &[&str]) -> Vec<String> {
    let output = probe(arguments);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}{}", said(&output));
    text.lines().map(str::to_owned).collect()
}

/// The host and port of an address, and the path.
fn parts(address: &str) -> (SocketAddr, &str) {
    let rest = address.split_once("://").unwrap().1;
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    (host.parse().unwrap(), path)
}

// PATH-3
#[test]
fn a_gateway_over_http_answers_probes() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    for listen in [
        "http://127.0.0.1:0/mcp",
        "ahp+http://0/tunnel",
        "ahp+http://0",
    ] {
        let far = Listening::new(&["--listen", listen, "--to", "exec:cat"]);
        let (address, path) = parts(&far.address);
        // A path that caps bodies at a size that no table knows.
        let capped = runtime.block_on(HttpPath::start(address, 70_001)).unwrap();
        let scheme = listen.split_once("://").unwrap().0;
        let to = format!("{scheme}://{}{path}", capped.address());
        let lines = found(&[&to, "--up-to", "200KB"]);
        assert_eq!(
            lines[0],
            "up    text    70001 bytes pass; one more: answered with HTTP 413"
        );
        assert_eq!(
            lines[1],
            "down  text    70001 bytes pass; one more: answered with HTTP 502"
        );
        let last = lines.last().unwrap();
        assert_eq!(last, "use     --max-frame 70001; at both gateways");
    }
}

// PATH-3
#[test]
fn only_who_would_get_a_session_gets_an_answer() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "s3cret-of-anna\n").unwrap();
    let own = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&token, own).unwrap();
    let token = token.display();
    for listen in ["http://127.0.0.1:0/mcp", "ahp+http://0/tunnel"] {
        let locked = format!("{listen}?token-file={token}");
        let far = Listening::new(&["--listen", &locked, "--to", "exec:cat"]);
        let output = probe(&[&far.address, "--up-to", "10KB"]);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains("401"), "{}", said(&output));
        let with_token = format!("{}?token-file={token}", far.address);
        let lines = found(&[&with_token, "--up-to", "10KB"]);
        assert_eq!(lines[0], "up    text    no limit up to 10000 bytes");
        let far = Listening::new(&["--listen", listen, "--to", "exec:cat", "--no-probe"]);
        let output = probe(&[&far.address, "--up-to", "10KB"]);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        let words = "the other end answers no probes";
        assert!(said(&output).contains(words), "{}", said(&output));
    }
}

// PATH-3
#[test]
fn what_passes_at_nats_is_what_max_payload_says() {
    let server = NatsServer::start("");
    let url = server.url("tools");
    let far = Listening::new(&["--listen", &url, "--to", "exec:cat"]);
    let expected = "65527 bytes pass; one more: closed with 1009 (a frame of 65528 bytes is too large: 65527 fit in a message)";
    let lines = found(&[&far.address, "--up-to", "200KB"]);
    assert_eq!(lines[0], format!("up    text    {expected}"));
    assert_eq!(lines[1], format!("down  text    {expected}"));
    let quiet = Listening::new(&[
        "--listen",
        &server.url("quiet"),
        "--to",
        "exec:cat",
        "--no-probe",
    ]);
    let output = probe(&[&quiet.address]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    let words = "this gateway answers no probes";
    assert!(said(&output).contains(words), "{}", said(&output));
    let nobody = probe(&[&server.url("nobody")]);
    assert_eq!(nobody.status.code(), Some(2), "{}", said(&nobody));
    let words = "nobody listens at the subject nobody";
    assert!(said(&nobody).contains(words), "{}", said(&nobody));
}

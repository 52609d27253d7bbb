//! Tests of a NATS server that is away, or that a fleet cannot use.

use super::{Members, SECRET, WS, fleet_at, member, noted_echo};
use crate::common::{Listening, Near, gateway, run, said};
use crate::lines::echo_each;
use crate::nats_server::NatsServer;

/// Direct clients are served without NATS; a client that comes to the wrong member is told to try again,
/// and goes on once NATS is back.
// FLEET-4
#[test]
fn a_member_without_nats_serves_its_own_and_says_of_others_that_it_does_not_know() {
    let mut server = NatsServer::start("");
    let members = Members::start(WS, &fleet_at(&server), noted_echo, &[]);
    let to = format!("ws://{}/", members.balancer.address);
    let mut near = Near::new(&["--listen", "stdio:", "--to", &to]);
    echo_each(&mut near, &[10, 3_000], |_| {});
    let owner = members.owner();
    let other = (owner + 1) % 3;
    server.stop();
    for member in &members.members {
        member.line("the connection to the NATS server was lost");
    }
    echo_each(&mut near, &[10, 3_000], |_| {});
    members.balancer.only(other);
    members.balancer.cut();
    members.members[other].line("has no connection to NATS, and the session is at another one");
    // A new client of the same member is served.
    let mut direct = Near::new(&["--listen", "stdio:", "--to", &to]);
    echo_each(&mut direct, &[10], |_| {});
    server.restart();
    near.log.line("the tunnel goes on over a new connection");
    echo_each(&mut near, &[10, 3_000], |_| {});
    echo_each(&mut direct, &[10], |_| {});
    let started = members.started();
    assert_eq!(started.iter().sum::<usize>(), 2, "{started:?}");
}

/// The NATS server that lines are forwarded by is restarted: only lines are lost.
// FLEET-4
#[test]
fn a_restart_of_nats_costs_a_forwarded_line_and_no_message() {
    let mut server = NatsServer::start("");
    let members = Members::start(WS, &fleet_at(&server), noted_echo, &[]);
    let to = format!("ws://{}/", members.balancer.address);
    let mut near = Near::new(&["--listen", "stdio:", "--to", &to]);
    echo_each(&mut near, &[10], |_| {});
    let owner = members.owner();
    members.balancer.only((owner + 2) % 3);
    members.balancer.cut();
    near.log.line("the tunnel goes on over a new connection");
    let before = server.messages();
    crate::lines::echo_during(&mut near, 20_000_000, |_| {
        server.until(|now| now > before + 20);
        server.restart();
    });
    echo_each(&mut near, &[10, 3_000], |_| {});
    members.owner();
}

/// A gateway that does not know the secret gets nothing of a session, and the session's client loses nothing.
// FLEET-3
#[test]
fn a_gateway_with_another_secret_is_no_member() {
    let server = NatsServer::start("");
    let fleet = fleet_at(&server);
    let members = Members::start(WS, &fleet, noted_echo, &[]);
    let stranger = {
        let mut command = gateway(&["--listen", WS, "--to", "exec:cat", "--fleet", &fleet]);
        command.env("BREAKBULK_FLEET_SECRET", SECRET.replace("all", "few"));
        Listening::start(command)
    };
    let own = members.members[0].address.clone();
    let balancer = super::Balancer::start([own, stranger.address.clone()].into_iter());
    balancer.only(0);
    let to = format!("ws://{}/", balancer.address);
    let mut near = Near::new(&["--listen", "stdio:", "--to", &to]);
    echo_each(&mut near, &[10], |_| {});
    balancer.only(1);
    balancer.cut();
    members.members[0].line("cannot be decrypted; give all members the same secret");
    balancer.only(0);
    near.log.line("the tunnel goes on over a new connection");
    echo_each(&mut near, &[10], |_| {});
    members.owner();
}

// FLEET-6
#[test]
fn a_fleet_that_cannot_be_joined_is_refused_at_the_start() {
    let users = "authorization { users: [ { user: anna, password: secret, permissions: { publish: \">\", subscribe: [\"_INBOX.>\"] } } ] }";
    let server = NatsServer::start(users);
    let port = server.port;
    let url = |who: &str| format!("nats://{who}127.0.0.1:{port}");
    let open = NatsServer::start("");
    for (fleet, secret, listen, expected) in [
        (url(""), SECRET, WS, "--fleet: the NATS server"),
        (url("anna:wrong@"), SECRET, WS, "refuses these credentials"),
        (url("anna:secret@"), SECRET, WS, "denies access"),
        ("nats://127.0.0.1:1".to_owned(), SECRET, WS, "127.0.0.1:1"),
        (fleet_at(&open), "", WS, "must have at least 16 characters"),
        (
            fleet_at(&open),
            SECRET,
            "stdio:",
            "a fleet is for listeners",
        ),
        (
            fleet_at(&open),
            SECRET,
            "tcp://127.0.0.1:0",
            "a fleet is for listeners",
        ),
        (
            "redis://a".to_owned(),
            SECRET,
            WS,
            "write nats:// with its slashes",
        ),
    ] {
        let mut command = member(&["--listen", listen, "--to", "exec:cat", "--fleet", &fleet]);
        command.env("BREAKBULK_FLEET_SECRET", secret);
        let output = run(command, Vec::new());
        assert_eq!(output.status.code(), Some(2), "{fleet}: {}", said(&output));
        assert!(
            said(&output).contains(expected),
            "{fleet}: {}",
            said(&output)
        );
        assert!(!said(&output).contains("wrong@"), "{}", said(&output));
    }
    let mut command = gateway(&[
        "--listen",
        WS,
        "--to",
        "exec:cat",
        "--fleet",
        &fleet_at(&open),
    ]);
    command.env_remove("BREAKBULK_FLEET_SECRET");
    let output = run(command, Vec::new());
    let words =
        "give secret-file=FILE, the same text for all members, or set BREAKBULK_FLEET_SECRET";
    assert!(said(&output).contains(words), "{}", said(&output));
}

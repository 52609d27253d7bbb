//! Tunnels over plain HTTP, whose requests reach any member.

use super::{Members, fleet_at, noted_echo};
use crate::common::Near;
use crate::lines::echo_each;
use crate::nats_server::NatsServer;

/// Each new connection goes to another member, and connections are cut all the time.
// FLEET-1
#[test]
fn the_requests_of_one_tunnel_reach_any_member() {
    let server = NatsServer::start("");
    let more = ["--max-frame", "20KB"];
    let listen = "ahp+http://127.0.0.1:0/tunnel";
    let members = Members::start(listen, &fleet_at(&server), noted_echo, &more);
    let to = format!("ahp+http://{}/tunnel", members.balancer.address);
    let mut near = Near::new(&["--listen", "stdio:", "--to", &to, "--max-frame", "20KB"]);
    let sizes: Vec<_> = [1, 300, 9_000, 100_000, 40]
        .into_iter()
        .cycle()
        .take(50)
        .collect();
    echo_each(&mut near, &sizes, |number| {
        if number % 5 == 0 {
            members.balancer.cut();
        }
    });
    let sent = members.balancer.sent();
    assert!(sent.iter().all(|count| *count >= 5), "{sent:?}");
    members.owner();
}

/// The member that has the session is killed.
// FLEET-2
#[test]
fn a_tunnel_over_http_whose_member_was_killed_ends_with_a_named_error() {
    let server = NatsServer::start("");
    let listen = "ahp+http://127.0.0.1:0/tunnel";
    let mut members = Members::start(listen, &fleet_at(&server), noted_echo, &[]);
    let to = format!("ahp+http://{}/tunnel", members.balancer.address);
    let mut near = Near::new(&["--listen", "stdio:", "--to", &to]);
    echo_each(&mut near, &[10], |_| {});
    let owner = members.owner();
    members.kill(owner);
    let words = "the member of the other gateway's fleet that had this session is gone";
    near.log.line(words);
    assert_eq!(crate::common::wait(&mut near.child), Some(1));
    members.owner();
}

//! Tunnels whose lines come back to any member.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use breakbulk_testkit::bad_path::{After, BadPath, Cut, How, Over, Weather};
use tokio::task::spawn_blocking;

use super::{Members, WS, fleet_at, noted_echo, noted_silence};
use crate::common::{Near, PATIENCE, lines};
use crate::lines::echo_each;
use crate::nats_server::NatsServer;

/// 200 messages, of one byte to 100 KB.
pub(super) fn mixed() -> Vec<usize> {
    let sizes = [1, 300, 24, 9_000, 50, 100_000, 2, 40_000, 700, 20_000];
    sizes.into_iter().cycle().take(200).collect()
}

/// Every line is cut after a few frames, and the next one goes to the next member.
// FLEET-1
#[tokio::test]
async fn a_session_goes_on_by_any_member_and_has_one_command() {
    let server = NatsServer::start("");
    let more = ["--max-frame", "20KB"];
    let members = Members::start(WS, &fleet_at(&server), noted_echo, &more);
    let path = BadPath::start(members.balancer.address, Weather::default());
    let path = path.await.unwrap();
    path.cut_after(Cut {
        after: After::Frames(20),
        counting: None,
        over: Over::EachConnection,
        how: How::Reset,
    });
    let to = format!("ws://{}/", path.address());
    let echoed = spawn_blocking(move || {
        let mut near = Near::new(&["--listen", "stdio:", "--to", &to, "--max-frame", "20KB"]);
        echo_each(&mut near, &mixed(), |_| {});
        near
    });
    let _near = echoed.await.unwrap();
    assert!(path.counts().cuts >= 20, "{:?}", path.counts());
    let sent = members.balancer.sent();
    assert!(sent.iter().all(|count| *count >= 5), "{sent:?}");
    members.owner();
}

/// The member that has the session is killed while a request is open: the client is told, and the next
/// session begins at a member that lives.
// FLEET-2
#[test]
fn a_session_whose_member_was_killed_ends_with_a_named_error() {
    let server = NatsServer::start("");
    let mut members = Members::start(WS, &fleet_at(&server), noted_silence, &[]);
    let to = format!("ws://{}/", members.balancer.address);
    let mut near = Near::new(&["--listen", "stdio:", "--to", &to]);
    near.write(b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"m\"}\n");
    let begun = Instant::now();
    while !members.has_read() {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(10));
    }
    let owner = members.owner();
    // The line goes through another member, so that the client's own connection stays when the owner dies.
    members.balancer.only((owner + 1) % 3);
    members.balancer.cut();
    near.log.line("the tunnel goes on over a new connection");
    let killed = Instant::now();
    members.kill(owner);
    let line = near.read_line();
    let words = "the request was not answered: the member of the other gateway's fleet that had this session is gone, and the session with it (1011)";
    assert!(line.contains(words), "{line}");
    assert!(line.contains(r#""id":7"#), "{line}");
    println!("told {:?} after the death", killed.elapsed());
    assert_eq!(crate::common::wait(&mut near.child), Some(1));
    // No member took the session over: the only other command is that of a new session.
    members.owner();
    let mut again = Near::new(&["--listen", "stdio:", "--to", &to]);
    again.write(b"{\"jsonrpc\":\"2.0\",\"id\":8,\"method\":\"m\"}\n");
    while members.started().iter().sum::<usize>() < 2 {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(members.started()[owner], 1);
}

/// Many clients at once, and members that die one after another: each client gets each message once and
/// in order, or a named error.
// FLEET-2
#[test]
fn each_message_arrives_once_or_its_session_ends_with_a_name() {
    let server = NatsServer::start("");
    let mut members = Members::start(WS, &fleet_at(&server), noted_echo, &["--resume-for", "20"]);
    let to = format!("ws://{}/", members.balancer.address);
    let (begun, begins) = mpsc::channel();
    let clients: Vec<_> = (0..9)
        .map(|_| {
            let (to, begun) = (to.clone(), begun.clone());
            std::thread::spawn(move || client(&to, 200, &begun))
        })
        .collect();
    for _ in 0..9 {
        begins.recv_timeout(PATIENCE).unwrap();
    }
    let before = members.started();
    for _ in 0..5 {
        members.balancer.cut();
        std::thread::sleep(Duration::from_millis(200));
    }
    members.kill(1);
    for _ in 0..5 {
        members.balancer.cut();
        std::thread::sleep(Duration::from_millis(300));
    }
    let ended: Vec<_> = clients.into_iter().map(|it| it.join().unwrap()).collect();
    let died = ended.iter().filter(|whole| !**whole).count();
    assert_eq!(died, before[1], "{ended:?}: those of the member that died");
    assert_eq!(
        members.started(),
        before,
        "no second command for any session"
    );
}

/// Sends requests and reads them back; whether all came. Those that came are the first ones, in order.
fn client(to: &str, count: usize, begun: &mpsc::Sender<()>) -> bool {
    let mut near = Near::new(&["--listen", "stdio:", "--to", to, "--resume-for", "20"]);
    let input = lines(&vec![2_000; count]);
    for (number, line) in input.split_inclusive(|byte| *byte == b'\n').enumerate() {
        if std::io::Write::write_all(near.stdin.as_mut().unwrap(), line).is_err() {
            return is_named(&mut near);
        }
        let back = near.read_line();
        if back.as_bytes() != line {
            assert!(back.is_empty(), "message {number} came back as {back:.200}");
            return is_named(&mut near);
        }
        if number == 0 {
            begun.send(()).unwrap();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// The session has ended with the name of its cause.
fn is_named(near: &mut Near) -> bool {
    near.log
        .line("the member of the other gateway's fleet that had this session is gone");
    false
}

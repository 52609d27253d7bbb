//! Tunnels whose lines are lost, and paths that let less through than the gateways believe.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use breakbulk_testkit::bad_path::{After, BadPath, Cut, Direction, How, Over, Weather};
use tokio::task::spawn_blocking;

use crate::common::{Listening, Near, PATIENCE, gateway, lines, run, said};

/// Where the gateway at the other end of a path is.
fn target(address: &str) -> String {
    address.strip_prefix("ws://").unwrap().to_owned()
}

async fn path_to(far: &Listening, weather: Weather) -> BadPath {
    BadPath::start(target(&far.address), weather).await.unwrap()
}

fn file_in(folder: &tempfile::TempDir, name: &str) -> PathBuf {
    folder.path().join(name)
}

/// A command that writes down each request before it answers, at length.
fn diligent(diary: &Path, size: usize) -> String {
    format!(
        r#"exec:sh -c 'while read line; do echo ran >> {}; printf "{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\""; head -c {size} /dev/zero | tr "\\0" x; printf "\"}}\n"; done'"#,
        diary.display()
    )
}

const REQUEST: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}\n";

// TUN-1
#[tokio::test]
async fn a_large_answer_is_finished_over_lines_that_are_cut_and_the_request_runs_once() {
    let folder = tempfile::tempdir().unwrap();
    let diary = file_in(&folder, "diary");
    let size = 20_000_000;
    let to = diligent(&diary, size);
    let far = Listening::new(&["--listen", "ws://0", "--to", &to]);
    for how in [How::Reset, How::End] {
        std::fs::write(&diary, "").unwrap();
        let path = path_to(&far, Weather::default()).await;
        path.cut_after(Cut {
            after: After::Bytes(4_000_000),
            counting: None,
            over: Over::EachConnection,
            how,
        });
        let to = format!("ws://{}/", path.address());
        let answer = spawn_blocking(move || {
            let mut near = Near::new(&["--listen", "stdio:", "--to", &to]);
            near.write(REQUEST);
            near.read_line()
        });
        let answer = answer.await.unwrap();
        let head = r#"{"jsonrpc":"2.0","id":1,"result":""#;
        assert!(
            answer.starts_with(head),
            "{how:?}: {}",
            &answer[..100.min(answer.len())]
        );
        assert_eq!(answer.len(), head.len() + size + 3, "{how:?}");
        assert!(path.counts().cuts >= 4, "{how:?}: {:?}", path.counts());
        let ran = std::fs::read_to_string(&diary).unwrap();
        assert_eq!(ran, "ran\n", "{how:?}");
    }
}

/// Both directions, with the end of the input on the way.
// TUN-1, TUN-4
#[tokio::test]
async fn a_whole_session_passes_lines_that_are_cut_every_few_frames() {
    let far = Listening::new(&[
        "--listen",
        "ws://0",
        "--to",
        "exec:cat",
        "--max-frame",
        "20KB",
    ]);
    for (every, counting) in [
        (12, None),
        (8, Some(Direction::FromClient)),
        (8, Some(Direction::FromTarget)),
    ] {
        let path = path_to(&far, Weather::default()).await;
        path.cut_after(Cut {
            after: After::Frames(every),
            counting,
            over: Over::EachConnection,
            how: How::End,
        });
        let to = format!("ws://{}/", path.address());
        let input = lines(&[10, 100_000, 50, 300_000, 1, 20_000, 20_000, 400]);
        let sent = input.clone();
        let output =
            spawn_blocking(move || run(gateway(&["--listen", "stdio:", "--to", &to]), sent));
        let output = output.await.unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        assert!(
            output.stdout == input,
            "{every}: not byte for byte: {} of {}",
            output.stdout.len(),
            input.len()
        );
        assert!(path.counts().cuts >= 3, "{:?}", path.counts());
    }
}

// TUN-3
#[tokio::test]
async fn a_line_that_does_not_come_back_gives_named_errors() {
    let far = Listening::new(&[
        "--listen",
        "ws://0",
        "--to",
        "exec:cat",
        "--resume-for",
        "2",
    ]);
    let path = path_to(&far, Weather::default()).await;
    let to = format!("ws://{}/", path.address());
    let control = path.control();
    let told = spawn_blocking(move || {
        // The smaller one of both applies.
        let mut near = Near::new(&["--listen", "stdio:", "--to", &to, "--resume-for", "600"]);
        near.write(REQUEST);
        assert_eq!(near.read_line().as_bytes(), REQUEST);
        control.refuse();
        assert_eq!(control.cut(How::Reset), 1);
        (near.read_line(), near)
    });
    let since = Instant::now();
    let (line, _near) = told.await.unwrap();
    let words = "the request was not answered: the connection to the other gateway was lost and not restored within 2 s (resume-for) (1011)";
    assert!(line.contains(words), "{line}");
    assert!(since.elapsed() < PATIENCE);
    far.line("the connection to the other gateway was lost; the session waits");
    far.line("not restored within 2 s (resume-for)");
}

/// The path loses the connection to the client, and the listener hears nothing of it: its one place is taken
/// when the client comes back.
// TUN-7
#[tokio::test]
async fn a_client_that_comes_back_finds_a_place_at_a_full_listener() {
    let far = Listening::new(&[
        "--listen",
        "ws://0",
        "--to",
        "exec:cat",
        "--max-sessions",
        "1",
    ]);
    let far_address = target(&far.address);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = format!("ws://{}/", listener.local_addr().unwrap());
    let (cut, mut cuts) = tokio::sync::watch::channel(0);
    // The far halves of lost connections, which stay open.
    let path = tokio::spawn(async move {
        let mut lost = Vec::new();
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut server = tokio::net::TcpStream::connect(&far_address).await.unwrap();
            cuts.mark_unchanged();
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                _ = cuts.changed() => lost.push(server),
            }
        }
    });
    let told = spawn_blocking(move || {
        let mut near = Near::new(&["--listen", "stdio:", "--to", &to]);
        for _ in 0..3 {
            near.write(REQUEST);
            assert_eq!(near.read_line().as_bytes(), REQUEST);
            cut.send_modify(|cuts| *cuts += 1);
            near.log.line("the tunnel goes on over a new connection");
        }
        near.write(REQUEST);
        near.read_line()
    });
    assert_eq!(told.await.unwrap().as_bytes(), REQUEST);
    path.abort();
}

/// Ends the process as a crash would.
fn kill(listening: &mut Listening) {
    listening.child.kill().unwrap();
    listening.child.wait().unwrap();
}

// TUN-3
#[test]
fn a_gateway_that_was_restarted_does_not_know_its_sessions_and_says_so() {
    let far = &mut Listening::new(&["--listen", "ws://0", "--to", "exec:cat"]);
    let address = far.address.clone();
    let mut near = Near::new(&["--listen", "stdio:", "--to", &address]);
    near.write(REQUEST);
    assert_eq!(near.read_line().as_bytes(), REQUEST);
    kill(far);
    let _far = Listening::new(&["--listen", &address, "--to", "exec:cat"]);
    let line = near.read_line();
    let words = "the request was not answered: the other gateway was restarted, or another one answers there: it does not know this session (1011)";
    assert!(line.contains(words), "{line}");
    let mut rest = String::new();
    near.stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(crate::common::wait(&mut near.child), Some(1));
}

// TUN-3
#[test]
fn a_client_that_was_killed_ends_its_session_after_a_while() {
    let far = Listening::new(&[
        "--listen",
        "ws://0",
        "--to",
        "exec:cat",
        "--resume-for",
        "1",
    ]);
    let mut near = Near::new(&["--listen", "stdio:", "--to", &far.address]);
    near.write(REQUEST);
    assert_eq!(near.read_line().as_bytes(), REQUEST);
    near.child.kill().unwrap();
    near.child.wait().unwrap();
    far.line("the connection to the other gateway was lost; the session waits");
    far.line("not restored within 1 s (resume-for)");
}

// TUN-7
#[test]
fn sessions_that_wait_for_their_client_count() {
    let far = Listening::new(&[
        "--listen",
        "ws://0",
        "--to",
        "exec:cat",
        "--max-sessions",
        "1",
        "--resume-for",
        "3",
    ]);
    let mut near = Near::new(&["--listen", "stdio:", "--to", &far.address]);
    near.write(REQUEST);
    assert_eq!(near.read_line().as_bytes(), REQUEST);
    near.child.kill().unwrap();
    near.child.wait().unwrap();
    far.line("the connection to the other gateway was lost; the session waits");
    let client = || {
        run(
            gateway(&["--listen", "stdio:", "--to", &far.address]),
            lines(&[10]),
        )
    };
    let refused = client();
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
    assert!(
        said(&refused).contains(
            "closed with 1013: all 1 sessions are in use (--max-sessions): try again later"
        ),
        "{}",
        said(&refused)
    );
    far.line("not restored within 3 s (resume-for)");
    let since = Instant::now();
    while client().status.code() != Some(0) {
        assert!(since.elapsed() < PATIENCE);
    }
}

/// A gateway whose state is in a file of the test.
fn learning(to: &str, state: &Path) -> Command {
    let mut command = gateway(&["--listen", "stdio:", "--to", to]);
    command.arg("--state").arg(state);
    command
}

/// The cap is below what both gateways believe, and nothing of the session is lost.
// TUN-5, TUN-8
#[tokio::test]
async fn a_cap_is_learned_by_a_running_tunnel_and_kept_for_the_next() {
    let cap = 100_003;
    let far = Listening::new(&["--listen", "ws://0", "--to", "exec:cat"]);
    let folder = tempfile::tempdir().unwrap();
    let state = file_in(&folder, "caps.json");
    let path = path_to(&far, Weather::capped(cap)).await;
    let to = format!("ws://{}/", path.address());
    let input = lines(&[10, 2_000_000, 50, 3_000_000, 90_000, 120_000]);
    for (attempt, blocked) in [(1, 1), (2, 0)] {
        let before = path.counts();
        let (command, sent) = (learning(&to, &state), input.clone());
        let output = spawn_blocking(move || run(command, sent)).await.unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(output.stdout == input, "{attempt}: not byte for byte");
        let counts = path.counts();
        assert!(counts.from_client.largest_message <= cap);
        let refused = counts.from_client.blocked - before.from_client.blocked;
        assert_eq!(refused, blocked, "{attempt}: {counts:?}");
        let learned = said
            .matches("start this gateway with --max-frame 100003")
            .count() as u64;
        assert_eq!(learned, blocked, "{said}");
    }
    far.line("from now on frames of at most 100003 bytes are sent");
    let kept = std::fs::read_to_string(&state).unwrap();
    let kept: serde_json::Value = serde_json::from_str(&kept).unwrap();
    assert_eq!(kept["paths"][&to]["out"], cap, "{kept}");
    // What is asked for overrules what was learned.
    let mut command = learning(&to, &state);
    command.args(["--max-frame", "50KB"]);
    let sent = input.clone();
    let output = spawn_blocking(move || run(command, sent)).await.unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", self::said(&output));
    assert!(output.stdout == input, "not byte for byte");
}

/// A client that asks once, for one large answer: all its frames were made before the cap was found.
// TUN-8
#[tokio::test]
async fn one_large_answer_is_enough_for_the_cap_to_be_kept() {
    let (size, cap) = (5_000_000, 128_000);
    let folder = tempfile::tempdir().unwrap();
    let command = diligent(&file_in(&folder, "diary"), size);
    let far = Listening::new(&["--listen", "ws://0", "--to", &command]);
    let state = file_in(&folder, "caps.json");
    let path = path_to(&far, Weather::capped(cap)).await;
    let to = format!("ws://{}/", path.address());
    for (attempt, blocked) in [(1, true), (2, false)] {
        let before = path.counts().from_target.blocked;
        let command = learning(&to, &state);
        let request = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}\n".to_vec();
        let output = spawn_blocking(move || run(command, request)).await.unwrap();
        assert!(output.stdout.len() > size, "{}", said(&output));
        let refused = path.counts().from_target.blocked > before;
        assert_eq!(refused, blocked, "{attempt}: {}", said(&output));
        let told = "start both gateways with --max-frame 128000 to begin with that";
        assert_eq!(said(&output).contains(told), blocked, "{}", said(&output));
    }
}

/// A path that becomes narrower in the middle of a message, and says nothing about its limit.
// TUN-5
#[tokio::test]
async fn a_cap_that_appears_while_a_message_is_on_its_way_is_learned() {
    let far = Listening::new(&["--listen", "ws://0", "--to", "exec:cat"]);
    let path = path_to(&far, Weather::default()).await;
    path.change(|weather| weather.from_client.pace = Some(20_000_000));
    let to = format!("ws://{}/", path.address());
    let input = lines(&[8_000_000, 100]);
    let sent = input.clone();
    let near = spawn_blocking(move || {
        let mut command = gateway(&["--listen", "stdio:", "--to", &to]);
        command.args(["--state", "none"]);
        run(command, sent)
    });
    path.until(|counts| counts.from_client.frames >= 3).await;
    path.change(|weather| {
        weather.from_client.message_cap = Some(30_000);
        weather.from_target.message_cap = Some(30_000);
    });
    let output = near.await.unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(output.stdout == input, "not byte for byte");
    assert!(
        said(&output).contains("at most 30000 bytes"),
        "{}",
        said(&output)
    );
}

//! How a command is started and ended: its environment, its standard error, and that no process is left.

#![cfg(all(feature = "process", unix))]
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use breakbulk_link::{Budget, Cap, Config, Event, Limits, Link, Outgoing};
use breakbulk_net::process::{Exec, Exited, Framing, Program, Stderr, StderrTail};
use breakbulk_net::{Connection, Options};
use breakbulk_wire::Whole;

const LIMIT: usize = 8 << 20;

fn open(exec: Exec, grace: Duration) -> Connection {
    let mut config = Config::new(Whole::rules());
    config.limits = Limits::default().with(|limits| {
        limits.frame = LIMIT;
        limits.message = LIMIT;
    });
    let wire = Arc::new(Whole::TEXT);
    let mut link = Link::new(wire.clone(), wire, config, Budget::unlimited(), [1; 32]);
    link.set_cap(Cap::frame(LIMIT).lines());
    let options = Options {
        keepalive: None,
        silence: None,
        grace,
        ..Options::default()
    };
    Connection::open(link, exec, options).unwrap()
}

fn shell(script: &str) -> Program {
    Program::new(["sh", "-c", script])
}

fn started(program: &Program, grace: Duration) -> (Connection, Exited, Option<StderrTail>) {
    let (exec, exited) = program.start(Framing::Lines, LIMIT).unwrap();
    let tail = exec.stderr();
    (open(exec, grace), exited, tail)
}

async fn message(connection: &Connection) -> Option<String> {
    loop {
        match connection.event().await? {
            Event::Message(message) => {
                return Some(String::from_utf8(message.bytes.to_vec()).unwrap());
            }
            Event::Closed(_) => return None,
            _ => {}
        }
    }
}

/// Whether a process runs; a zombie, for which its parent has not waited, counts as gone.
fn lives(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| {
        let state = stat.rsplit(')').next().unwrap_or_default();
        !state.trim_start().starts_with('Z')
    })
}

async fn gone(pid: &str) {
    let wait = async {
        while lives(pid) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait)
        .await
        .unwrap_or_else(|_| panic!("process {pid} lives on"));
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn words_environment_and_folder_are_as_told() {
    let folder = tempfile_dir();
    let program = shell(r#"echo "[\"$0\",\"$1\",\"$MINE\",\"$HOME\",\"$TWICE\",\"$(pwd)\"]""#)
        .arg("zero")
        .arg("a b")
        .env("MINE", "ü")
        .env("TWICE", "1")
        .env_default("TWICE", "2")
        .env_remove("HOME")
        .current_dir(&folder);
    let (connection, _, _) = started(&program, SECOND);
    let folder = std::path::PathBuf::from(folder).canonicalize().unwrap();
    let expected = format!(r#"["zero","a b","ü","","1",{folder:?}]"#);
    assert_eq!(message(&connection).await, Some(expected));
}

fn tempfile_dir() -> String {
    std::env::temp_dir().to_str().unwrap().to_owned()
}

#[tokio::test]
async fn what_it_says_aside_is_kept_to_the_end() {
    // More than a pipe holds: the command blocks unless its standard error is read.
    let script = "i=0; while [ $i -lt 20000 ]; do echo line $i >&2; i=$((i+1)); done; printf '\\033[1mlast\\033[0m words' >&2; exit 3";
    let program = shell(script).stderr(Stderr::Keep(20));
    let (connection, mut exited, tail) = started(&program, SECOND);
    let closed = connection.closed().await;
    assert_eq!(closed.reason, "the command exited with status 3");
    assert_eq!(tail.unwrap().text(), "ine 19999\nlast words");
    assert_eq!(exited.status().await.unwrap().code(), Some(3));
}

#[tokio::test]
async fn a_command_is_asked_to_end_before_it_is_killed() {
    let script = "trap 'echo \"[1]\" >&2; exit 7' TERM; echo '{}'; while :; do sleep 0.01; done";
    let program = shell(script)
        .stderr(Stderr::Keep(100))
        .terminate_after(Duration::from_millis(20));
    let (connection, mut exited, tail) = started(&program, Duration::from_secs(30));
    assert_eq!(message(&connection).await.as_deref(), Some("{}"));
    connection.close(1000, "enough");
    // It ends well before it would be killed.
    let ended = tokio::time::timeout(Duration::from_secs(20), connection.ended());
    ended.await.unwrap();
    assert_eq!(exited.status().await.unwrap().code(), Some(7));
    // A shell may write a line of its own before this one.
    assert!(tail.unwrap().text().ends_with("[1]\n"));
}

#[tokio::test]
async fn all_of_a_group_is_killed() {
    // Both processes ignore SIGTERM and the end of their input, and the second one holds the pipes open.
    let script = "trap '' TERM; sleep 1000 & echo \"[$$,$!]\"; while :; do sleep 0.01; done";
    for ended in ["closed", "killed", "dropped"] {
        let program = shell(script).terminate_after(Duration::from_millis(20));
        let (exec, _exited) = program.start(Framing::Lines, LIMIT).unwrap();
        let stopper = exec.stopper();
        let connection = open(exec, Duration::from_millis(200));
        let pids: Vec<u64> = serde_pids(&message(&connection).await.unwrap());
        match ended {
            "closed" => connection.close(1000, "enough"),
            "killed" => stopper.kill(),
            _ => drop(connection),
        }
        for pid in pids {
            gone(&pid.to_string()).await;
        }
    }
}

fn serde_pids(text: &str) -> Vec<u64> {
    text.trim_matches(['[', ']'])
        .split(',')
        .map(|pid| pid.parse().unwrap())
        .collect()
}

#[tokio::test]
async fn what_a_command_left_behind_goes_where_that_is_asked() {
    for sweeps in [true, false] {
        let script = "sleep 1000 >/dev/null 2>&1 </dev/null & echo \"[$!]\"";
        let program = if sweeps {
            shell(script).kill_group_on_exit()
        } else {
            shell(script)
        };
        let (connection, mut exited, _) = started(&program, SECOND);
        let pid = serde_pids(&message(&connection).await.unwrap())[0].to_string();
        assert!(exited.status().await.unwrap().success());
        connection.ended().await;
        if sweeps {
            gone(&pid).await;
        } else {
            assert!(lives(&pid), "a daemon lives on");
            let killed = std::process::Command::new("kill").arg(&pid).status();
            assert!(killed.unwrap().success());
        }
    }
}

#[tokio::test]
async fn the_last_words_of_a_command_that_reads_nothing_are_heard() {
    // The command ends while we write: its output and its exit status are reported, and not the broken pipe.
    let (connection, _, _) = started(&shell("read line; echo '[\"last\"]'; exit 4"), SECOND);
    let large = format!("[\"{}\"]", "x".repeat(4 << 20));
    for _ in 0..4 {
        connection.send(Outgoing::new(large.clone())).unwrap();
    }
    let mut heard = Vec::new();
    while let Some(text) = message(&connection).await {
        heard.push(text);
    }
    assert_eq!(heard, ["[\"last\"]"]);
    let reason = connection.closed().await.reason;
    assert_eq!(reason, "the command exited with status 4");
}

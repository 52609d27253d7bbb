//! Tests of bridges that exit by themselves, are killed, or are stopped by the host.

use std::time::Duration;

use breakbulk_net::process::Program;
use breakbulk_testkit::log::{Level, Log};
use breakbulk_tywrap::{CallError, Host};

use super::common::{config, gone, host, lives, ordinary, program};

async fn number(host: &Host, function: &str) -> u64 {
    let returned = host.call("t", function, "[]", None).await.unwrap();
    let value: serde_json::Value = serde_json::from_str(returned.json()).unwrap();
    value["pid"].as_u64().or(value.as_u64()).unwrap()
}

// TYWRAP-5
#[tokio::test]
async fn a_bridge_killed_within_an_answer_is_followed_by_another() {
    for within in ["request", "response"] {
        let host = host(|_| ());
        let args = format!("[{within:?}]");
        let dead = host.call("t", "die", args, None).await;
        let Err(CallError::Exited { how, .. }) = &dead else {
            panic!("{within}: {dead:?}")
        };
        assert!(how.contains("signal 9"), "{how}");
        ordinary(&host, 1000).await;
        assert_eq!(host.starts(), 2, "{within}");
    }
}

// TYWRAP-5
#[tokio::test]
async fn a_bridge_killed_within_a_request_is_followed_by_another() {
    let host = Host::new(program().env("TEST_DIE_AT_FRAME", "50"), config());
    for round in 1..4 {
        let large = format!("[\"{}\"]", "x".repeat(200_000));
        let dead = host.call("t", "size", large, None).await;
        let Err(CallError::Exited { how, .. }) = &dead else {
            panic!("{dead:?}")
        };
        assert!(how.contains("signal 9"), "{how}");
        ordinary(&host, 300).await;
        assert_eq!(host.starts(), round + 1);
    }
}

#[tokio::test]
async fn an_answer_over_the_limit_fails_with_the_limit_and_the_size() {
    for (way, frame) in [("in one line", 1 << 20), ("in frames", 200)] {
        let log = Log::capture();
        let host = host(|config| {
            config.limits.message = 20_000;
            config.limits.frame = frame;
        });
        let large = host.call("t", "fill", "[100000,\"x\"]", None).await;
        let Err(error @ CallError::Breach { .. }) = large else {
            panic!("{way}: {large:?}")
        };
        let text = error.to_string();
        assert!(text.contains("20000"), "{way}: {text}");
        assert!(text.contains("1000"), "{way}: {text}");
        let warning = ["the bridge broke the protocol", "calls=1", "20000"];
        log.assert_line(Level::WARN, &warning);
        ordinary(&host, 100).await;
        assert_eq!(host.starts(), 2, "{way}");
    }
}

#[tokio::test]
async fn a_bridge_that_died_while_nobody_called_is_replaced_before_the_next_call() {
    let host = host(|_| ());
    let pid = number(&host, "pid").await;
    let killed = std::process::Command::new("kill")
        .args(["-9", &pid.to_string()])
        .status();
    assert!(killed.unwrap().success());
    while host.is_up() {
        tokio::task::yield_now().await;
    }
    ordinary(&host, 10).await;
    assert_eq!(host.starts(), 2);
}

#[tokio::test]
async fn nothing_is_left_behind() {
    // Stopped, dropped or restarted while it ignores SIGTERM, or killed; each has a child process.
    for end in ["stop", "drop", "restart", "die"] {
        let host = host(|config| config.grace = Duration::from_millis(200));
        let child = number(&host, "child").await;
        let pid = number(&host, if end == "die" { "pid" } else { "deaf" }).await;
        assert!(lives(child) && lives(pid));
        match end {
            "stop" => {
                host.stop().await;
                let error = host.call("t", "echo", "[1]", None).await.unwrap_err();
                assert!(matches!(error, CallError::Stopped), "{error}");
            }
            "drop" => drop(host),
            "restart" => {
                host.restart();
                ordinary(&host, 3).await;
                host.stop().await;
            }
            _ => drop(host.call("t", "die", "[\"request\"]", None).await),
        }
        gone(pid).await;
        gone(child).await;
    }
}

#[tokio::test]
async fn a_bridge_that_heeds_the_end_of_its_input_ends_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ended");
    let script = "import json, sys
for line in sys.stdin:
    id = json.loads(line)['id']
    print(json.dumps({'id': id, 'protocol': 'tywrap/1', 'result': 5}), flush=True)
open(sys.argv[1], 'w').close()
";
    let program = Program::new(["python3", "-c", script]).arg(&path);
    let host = Host::new(program, config());
    assert_eq!(host.call("t", "f", "[]", None).await.unwrap().json(), "5");
    host.stop().await;
    assert!(path.exists(), "it came to its last line");
}

#[tokio::test]
async fn no_zombie_is_left() {
    let host = host(|_| ());
    let mut pids = Vec::new();
    for _ in 0..5 {
        pids.push(number(&host, "pid").await);
        drop(host.call("t", "exit_0", "[]", None).await);
    }
    host.stop().await;
    for pid in pids {
        let path = format!("/proc/{pid}");
        let wait = async {
            while std::path::Path::new(&path).exists() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), wait)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn calls_at_once_share_a_start_and_one_that_leaves_does_not_stop_it() {
    let host = host(|_| ());
    let instant = Some(Duration::from_millis(1));
    let early = host.call_within(instant, "t", "echo", "[1]", None).await;
    assert!(matches!(early, Err(CallError::TimedOut { .. })));
    let calls: Vec<_> = (0..50)
        .map(|number| {
            let host = host.clone();
            tokio::spawn(async move {
                let echoed = host.call("t", "echo", format!("[{number}]"), None).await;
                assert_eq!(echoed.unwrap().json(), number.to_string());
            })
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
    assert_eq!(host.starts(), 1);
}

#[tokio::test]
async fn the_python_of_a_virtualenv_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let bin = folder.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    // The interpreter is a script that reports its arguments and environment.
    let script = r#"#!/bin/sh
read line; echo '{"id":-1,"protocol":"tywrap/1","result":{}}'
read line; echo '{"id":1,"protocol":"tywrap/1","result":["'$0'","'$1'","'$VIRTUAL_ENV'","'$PATH'"]}'
"#;
    std::fs::write(bin.join("python3"), script).unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(bin.join("python3"), executable).unwrap();
    let program = Program::virtualenv(folder.path()).unwrap().arg("bridge.py");
    let host = Host::new(program, config());
    let seen = host.call("t", "about", "[]", None).await.unwrap();
    let seen: Vec<String> = serde_json::from_str(seen.json()).unwrap();
    let folder = folder.path().to_str().unwrap();
    assert_eq!(seen[0], format!("{folder}/bin/python3"));
    assert_eq!(seen[1..3], ["bridge.py", folder]);
    assert!(
        seen[3].starts_with(&format!("{folder}/bin:")),
        "{}",
        seen[3]
    );
    let none = Program::virtualenv("/nowhere").unwrap_err().to_string();
    assert!(none.contains("python"), "{none}");
}

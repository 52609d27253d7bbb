//! Tests of what a bridge is told and asked when it is started.

use std::time::Duration;

use breakbulk_link::SendError;
use breakbulk_net::process::Program;
use breakbulk_tywrap::{CallError, Host, StartError};
use serde_json::Value;

use super::common::{config, host, ordinary, program};

fn bridge(mode: &str) -> Host {
    Host::new(program().env("TEST_META", mode), config())
}

// TYWRAP-3
#[tokio::test]
async fn frames_follow_from_what_a_bridge_says() {
    for (mode, frame, is_known) in [
        ("0.9", Some(200), true),
        ("0.8", Some(64), true),
        ("off", None, true),
        ("other", None, true),
        ("garbage", None, false),
        ("error", None, false),
    ] {
        let host = bridge(mode);
        let about = host.start().await.unwrap();
        assert_eq!(
            (about.frame, about.meta.is_some()),
            (frame, is_known),
            "{mode}"
        );
        // Requests larger than a frame arrive with and without frames; this bridge accepts both.
        ordinary(&host, 30).await;
        assert_eq!(host.starts(), 1);
    }
}

// TYWRAP-3
#[tokio::test]
async fn a_bridge_that_does_not_say_what_it_is_works_on() {
    for mode in ["silent", "late"] {
        let mut config = config();
        config.probe = Some(Duration::from_millis(50));
        let host = Host::new(program().env("TEST_META", mode), config);
        let about = host.start().await.unwrap();
        assert_eq!((about.frame, about.meta), (None, None), "{mode}");
        assert!(!host.is_busy());
        ordinary(&host, 30).await;
        assert_eq!(host.starts(), 1, "{mode}");
    }
    let unasked = host(|config| config.probe = None);
    assert_eq!(unasked.start().await.unwrap().frame, Some(200));
    ordinary(&unasked, 30).await;
}

/// With the default limits, too, `meta` has no more than a third of the call's time.
// TYWRAP-3
#[tokio::test]
async fn a_silent_bridge_leaves_time_for_the_call() {
    let config = config().with(|config| config.timeout = Some(Duration::from_secs(6)));
    assert_eq!(config.probe_time(), Some(Duration::from_secs(2)));
    let default = breakbulk_tywrap::Config::default();
    assert!(default.probe_time().unwrap() * 3 <= default.timeout.unwrap());
    let host = Host::new(program().env("TEST_META", "silent"), config);
    let echoed = host.call("t", "echo", "[1]", None).await.unwrap();
    assert_eq!(echoed.json(), "1");
}

#[tokio::test]
async fn a_start_that_takes_its_time_can_be_stopped() {
    let config = config().with(|config| {
        config.timeout = None;
        config.probe = Some(Duration::from_secs(3600));
    });
    let host = Host::new(program().env("TEST_META", "silent"), config);
    let calling = tokio::spawn({
        let host = host.clone();
        async move { host.call("t", "echo", "[1]", None).await }
    });
    while host.starts() == 0 {
        tokio::task::yield_now().await;
    }
    let stopped = tokio::time::timeout(Duration::from_secs(60), host.stop()).await;
    assert!(stopped.is_ok(), "it waits for the bridge to answer");
    let error = calling.await.unwrap().unwrap_err();
    assert!(
        matches!(
            error,
            CallError::Start(StartError::Stopped) | CallError::Stopped
        ),
        "{error}"
    );
}

#[tokio::test]
async fn without_frames_a_line_must_hold_it() {
    let mut config = config();
    config.limits.line_out = Some(1000);
    let host = Host::new(program().env("TEST_META", "off"), config);
    let long = format!("[\"{}\"]", "x".repeat(2000));
    let error = host.call("t", "size", long, None).await.unwrap_err();
    let CallError::NotSent(SendError::FrameTooLarge { limit: 1000, .. }) = error else {
        panic!("{error}")
    };
    // The refused call does not hold up later ones.
    ordinary(&host, 3).await;
}

#[tokio::test]
async fn lines_can_be_kept_short_too() {
    let mut config = config();
    config.limits.line_out = Some(300);
    config.limits.frame = 1000;
    let host = Host::new(program(), config);
    ordinary(&host, 50).await;
}

#[tokio::test]
async fn a_bridge_that_fails_to_start_says_why() {
    let host = bridge("exit");
    for _ in 0..2 {
        let error = host.call("t", "echo", "[1]", None).await.unwrap_err();
        assert!(matches!(error, CallError::Start(StartError::Failed(_))));
        let text = error.to_string();
        assert!(
            text.contains("status 1") && text.contains("no module named tywrap"),
            "{text}"
        );
    }
    assert_eq!(host.starts(), 2, "it is tried again with each call");

    for (mode, shown) in [("banner", "Welcome!"), ("dict", "{'ready': True}")] {
        let banner = bridge(mode).start().await.unwrap_err().to_string();
        assert!(banner.contains(shown), "{banner}");
    }

    let missing = Host::new(Program::new(["no-such-python"]), config());
    let error = missing.start().await.unwrap_err().to_string();
    assert!(error.contains("no-such-python"), "{error}");
}

// TYWRAP-3, TYWRAP-4
#[tokio::test]
async fn both_handshakes_are_sent() {
    let folder = tempfile::tempdir().unwrap();
    let program = program()
        .env("MINE", "ü")
        .env("TYWRAP_CODEC_MAX_BYTES", "5")
        .current_dir(folder.path());
    let host = Host::new(program, config());
    let about = host.call("t", "about", "[]", None).await.unwrap();
    let about: Value = serde_json::from_str(about.json()).unwrap();
    assert_eq!(
        about["argv"],
        serde_json::json!(["--tywrap-max-frame-bytes", "200"])
    );
    for (name, value) in [
        ("TYWRAP_TRANSPORT_CHUNKING", "1"),
        ("TYWRAP_TRANSPORT_FRAME_PROTOCOL", "tywrap-frame/1"),
        ("TYWRAP_TRANSPORT_MAX_FRAME_BYTES", "200"),
        ("TYWRAP_REQUEST_MAX_BYTES", "10485760"),
        ("TYWRAP_CODEC_MAX_BYTES", "5"),
        ("PYTHONUTF8", "1"),
        ("MINE", "ü"),
    ] {
        assert_eq!(about["env"][name], value, "{name}");
    }
    let here = folder.path().canonicalize().unwrap();
    assert_eq!(about["cwd"], here.to_str().unwrap());
    let meta = host.meta().await.unwrap();
    assert_eq!(meta.python_version, "3");
}

//! Tests of arguments, results, exceptions and limits.

use breakbulk_message::tywrap::{Style, request_bytes};
use breakbulk_tywrap::{Breach, CallError, Config};
use bytes::Bytes;

use super::common::{Flag, host, ordinary};

#[tokio::test]
async fn values_travel_as_they_are() {
    let host = host(|config| config.tolerant = false);
    let quoted = format!("\"{}\"", r#"\"\\\n\t"#.repeat(500));
    let raw = format!("\"{}\"", "é中😀".repeat(500));
    for value in ["null", "1.5", "[]", "{\"a\": [true]}", &quoted, &raw] {
        let echoed = host.call("t", "echo", format!("[{value}]"), None).await;
        let echoed: serde_json::Value = serde_json::from_str(echoed.unwrap().json()).unwrap();
        let sent: serde_json::Value = serde_json::from_str(value).unwrap();
        assert_eq!(echoed, sent);
    }
    let named = Bytes::from("{\"a\": 1,\n \"b\": [2]}");
    let echoed = host.call("t", "kwargs", "[]", Some(named)).await.unwrap();
    assert_eq!(echoed.json(), r#"{"a": 1, "b": [2]}"#);

    let data: Vec<u8> = (0..=255).cycle().take(10_000).collect();
    let argument = request_bytes(&data, Style::Compact);
    let echoed = host.call("t", "echo", format!("[{argument}]"), None).await;
    assert!(echoed.unwrap().json().contains("__tywrap_bytes__"));
    let result = breakbulk_message::tywrap::response_bytes(&data, Style::Compact);
    let echoed = host.call("t", "echo", format!("[{result}]"), None).await;
    assert_eq!(echoed.unwrap().bytes().unwrap().unwrap(), data);
    let arrow = r#"{"__type__":"dataframe","encoding":"arrow","b64":"QQ=="}"#;
    let echoed = host.call("t", "echo", format!("[{arrow}]"), None).await;
    assert_eq!(echoed.unwrap().type_name().as_deref(), Some("dataframe"));
}

#[tokio::test]
async fn an_exception_comes_with_all_that_is_known() {
    let host = host(|_| ());
    let long = format!("[\"{}\"]", "é".repeat(300));
    for (args, message) in [("[\"bad\"]", "bad".to_owned()), (&long, "é".repeat(300))] {
        let error = host.call("t", "raise", args.to_owned(), None).await;
        let Err(CallError::Raised(raised)) = error else {
            panic!("{error:?}")
        };
        assert_eq!((&*raised.kind, &raised.message), ("ValueError", &message));
        assert_eq!(raised.traceback.as_deref(), Some("Traceback:\n  here\n"));
        assert!(
            raised.stderr.ends_with("about to raise\n"),
            "{}",
            raised.stderr
        );
    }
    ordinary(&host, 10).await;
    assert_eq!(host.starts(), 1);
    // Only the end of the bridge's standard error is kept, and writing to it never blocks the bridge.
    host.call("t", "stderr", "[1000000]", None).await.unwrap();
    while host.stderr().len() < 8192 || !host.stderr().starts_with('x') {
        tokio::task::yield_now().await;
    }
    assert_eq!(host.stderr(), "x".repeat(8192));
}

#[tokio::test]
async fn limits_are_named_before_anything_goes_out() {
    let host = host(|config| config.limits.message = 5000);
    let large = format!("[\"{}\"]", "x".repeat(6000));
    let error = host.call("t", "echo", large, None).await.unwrap_err();
    assert!(
        matches!(
            error,
            CallError::RequestTooLarge {
                size: 6004,
                limit: 5000
            }
        ),
        "{error:?}"
    );
    for (args, kwargs) in [("1", None), ("[", None), ("[]", Some(Bytes::from("[]")))] {
        let error = host.call("t", "echo", args, kwargs).await.unwrap_err();
        assert!(matches!(error, CallError::BadArguments(_)), "{error}");
    }
    assert_eq!(host.starts(), 0);
    // An answer that is too large fails its call, and the next call is served.
    let error = host
        .call("t", "fill", "[6000,\"x\"]", None)
        .await
        .unwrap_err();
    let CallError::Breach {
        breach: Breach::Frame { code, .. },
        ..
    } = &error
    else {
        panic!("{error}")
    };
    assert_eq!(*code, "FRAME_PAYLOAD_TOO_LARGE");
    assert!(error.to_string().contains("limits.message"), "{error}");
    ordinary(&host, 10).await;
    assert_eq!(host.starts(), 2);
}

/// As the original host does: seen with the live program, not among the recorded scenarios.
// TYWRAP-13
#[tokio::test]
async fn blank_lines_and_a_missing_protocol_are_no_breach() {
    let host = host(|_| ());
    for name in ["blank_lines_in_a_burst", "no_protocol"] {
        let returned = host.call("t", name, "[]", None).await;
        let returned = returned.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(returned.json(), "\"R\"", "{name}");
    }
    assert_eq!(host.starts(), 1);
}

#[tokio::test]
async fn several_calls_wait_at_once() {
    let host = host(|_| ());
    let flag = Flag::new();
    let calls: Vec<_> = (0..100)
        .map(|number| {
            let (host, args) = (host.clone(), flag.args(""));
            tokio::spawn(async move {
                if number == 0 {
                    return host.call("t", "wait", args, None).await.unwrap();
                }
                let text = format!("[\"{}\"]", number.to_string().repeat(number * 20));
                let size = host.call("t", "size", text, None).await.unwrap();
                let digits = number.to_string().len();
                assert_eq!(size.json(), (digits * number * 20).to_string());
                size
            })
        })
        .collect();
    flag.raise();
    for call in calls {
        call.await.unwrap();
    }
    assert_eq!(host.starts(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_values_travel_both_ways() {
    let mut config = Config::default().with(|config| config.limits.message = 64 << 20);
    config.timeout = None;
    let host = breakbulk_tywrap::Host::new(super::common::program(), config);
    for size in [1 << 20, (1 << 20) + 1, 5 << 20, 20 << 20] {
        let text = format!("[\"{}\"]", "x".repeat(size));
        let echoed = host.call("t", "echo", text, None).await.unwrap();
        assert_eq!(echoed.json().len(), size + 2);
    }
    // Both pipes are full at once, and no side waits for the other for ever.
    let texts: Vec<_> = (0..8)
        .map(|number: u8| {
            let host = host.clone();
            tokio::spawn(async move {
                let text = char::from(b'a' + number).to_string().repeat(1 << 20);
                let echoed = host.call("t", "echo", format!("[\"{text}\"]"), None).await;
                assert_eq!(echoed.unwrap().json(), format!("\"{text}\""));
            })
        })
        .collect();
    for text in texts {
        text.await.unwrap();
    }
    assert_eq!(host.starts(), 1);
}

#[tokio::test]
async fn the_bridge_that_is_brought_along_is_called() {
    let python = std::path::Path::new("python3");
    let host = breakbulk_tywrap::Host::python(python, super::common::config());
    let root = host.call("math", "sqrt", "[16]", None).await.unwrap();
    assert_eq!(root.json(), "4.0");
    let joined = host.call("os.path", "join", "[\"a\", \"b\"]", None).await;
    assert_eq!(joined.unwrap().json(), "\"a/b\"");
    let named = Bytes::from("{\"indent\": 1}");
    let text = format!("[{:?}]", "x".repeat(1000));
    let dumped = host.call("json", "dumps", text, Some(named)).await.unwrap();
    assert_eq!(dumped.json().len(), 1006);
    let error = host.call("math", "sqrt", "[-1]", None).await.unwrap_err();
    let CallError::Raised(raised) = error else {
        panic!("{error}")
    };
    assert_eq!(raised.kind, "ValueError");
    assert!(raised.traceback.is_some());
}

/// Results belong to the caller: they do not count against the link's memory, which they would fill.
// TYWRAP-8
#[tokio::test]
async fn results_that_are_kept_do_not_hold_up_later_calls() {
    let host = host(|settings| {
        settings.limits.message = 4 << 20;
        settings.limits.frame = 1 << 20;
    });
    let mut kept = Vec::new();
    // More than the link may hold: four messages and 16 MiB.
    for _ in 0..12 {
        let filled = host.call("t", "fill", "[3000000,\"x\"]", None).await;
        kept.push(filled.unwrap());
    }
    assert!(kept.iter().all(|result| result.json().len() > 3_000_000));
}

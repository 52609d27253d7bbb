//! `breakbulk call` as people meet it: the real program and the machine's own Python.

#![cfg(unix)]
#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

fn call(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_breakbulk"))
        .arg("call")
        .args(words)
        .output()
        .unwrap()
}

#[test]
fn results_go_to_standard_output() {
    for (words, expected) in [
        (&["python:", "math", "sqrt", "16"][..], "4.0\n"),
        (&["python:", "operator", "neg", "-5"], "5\n"),
        (&["python:python3", "operator", "add", "a", "b"], "\"ab\"\n"),
        (&["python:", "operator", "add", "--raw", "a", "é"], "aé"),
        (
            &["python:", "operator", "add", "--", "-a", "--b"],
            "\"-a--b\"\n",
        ),
        (
            &["python:", "base64", "b64decode", "aGVsbG8=", "--raw"],
            "hello",
        ),
        (
            &[
                "python:", "json", "dumps", "[1]", "--kwarg", "indent=1", "--raw",
            ],
            "[\n 1\n]",
        ),
    ] {
        let output = call(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {said}");
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            expected,
            "{words:?}"
        );
    }
}

#[test]
fn failures_say_what_to_mend() {
    for (words, code, expected) in [
        (
            &["python:", "math", "sqrt", "x"][..],
            1,
            "TypeError: must be real number, not str",
        ),
        (&["python:", "no_such_module", "f"], 1, "No module named"),
        (
            &["python:", "time", "sleep", "60", "--timeout", "0.2"],
            1,
            "time.sleep did not answer within 0.2 s; raise --timeout",
        ),
        (
            &[
                "python:",
                "operator",
                "mul",
                "ab",
                "9000000",
                "--max-message",
                "1MB",
            ],
            1,
            "1000000",
        ),
        (
            &["python:/no/such/python", "math", "sqrt", "2"],
            2,
            "cannot be executed",
        ),
        (
            &["tywrap+exec:/bin/cat /no/such/file", "m", "f"],
            1,
            "unrecognized option",
        ),
        (&["ruby:", "m", "f"], 2, "a target is python:"),
        (&["python:", "m", "f", "--timeout", "-1"], 2, "--timeout"),
        (&["python:", "m", "f", "--kwarg", "x"], 2, "NAME=VALUE"),
    ] {
        let output = call(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        assert!(said.contains(expected), "{words:?}: {said}");
        assert!(output.stdout.is_empty(), "{words:?}");
    }
}

#[test]
fn a_large_result_becomes_a_file_and_a_failed_one_does_not() {
    let folder = std::env::temp_dir().join(format!("breakbulk-call-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str| folder.join(name).display().to_string();
    std::fs::write(
        file("args.json"),
        format!("[\"{}\"]", "é".repeat(4_000_000)),
    )
    .unwrap();
    let (args, result, failed) = (file("args.json"), file("result"), file("failed"));
    let output = call(&[
        "python:",
        "builtins",
        "str",
        "--args-from",
        &args,
        "--raw",
        "-o",
        &result,
    ]);
    assert!(output.status.success(), "{output:?}");
    assert!(std::fs::read(&result).unwrap() == "é".repeat(4_000_000).as_bytes());
    let output = call(&["python:", "operator", "neg", "x", "-o", &failed]);
    assert!(!output.status.success());
    assert!(!std::path::Path::new(&failed).exists());
    std::fs::remove_dir_all(folder).unwrap();
}

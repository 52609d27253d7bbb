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

// PROG-13
#[test]
fn results_go_to_standard_output() {
    for (words, expected) in [
        (&["python:", "math", "sqrt", "16"][..], "4.0\n"),
        (&["python:", "operator", "neg", "-5"], "5\n"),
        (&["python:python3", "operator", "add", "a", "b"], "\"ab\"\n"),
        (&["python:", "operator", "add", "--raw", "a", "é"], "aé"),
        (
            &["python:", "operator", "add", "中", "😀\n"],
            "\"中😀\\n\"\n",
        ),
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

/// A key or token of ours would let a called module pass for this user.
#[test]
fn no_child_sees_a_variable_of_ours() {
    let secrets = [
        ("BREAKBULK_NOSTR_KEY", "a secret key"),
        ("BREAKBULK_TOKEN", "a-token"),
        ("BREAKBULK_ANYTHING", "else"),
    ];
    let code = r#"import json, os; print(json.dumps({"jsonrpc": "2.0", "method": "m", "params": [n for n in os.environ if n.startswith("BREAKBULK_")]}))"#;
    let exec = format!("exec:python3 -c '{code}'");
    let names = "list(filter(lambda n: n.startswith('BREAKBULK_'), __import__('os').environ))";
    for (words, expected) in [
        (&["call", "python:", "builtins", "eval", names][..], "[]\n"),
        (
            &["gateway", "--listen", "stdio:", "--to", &exec],
            "{\"jsonrpc\": \"2.0\", \"method\": \"m\", \"params\": []}\n",
        ),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_breakbulk"));
        let output = command.args(words).envs(secrets).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let heard = String::from_utf8_lossy(&output.stdout);
        assert_eq!(heard, expected, "{words:?}: {said}");
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
            &["python:", "time", "sleep", "60", "--timeout", "2"],
            124,
            "time.sleep did not answer within 2 s; raise --timeout",
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
            "is over --max-message=1000000; return less or raise it",
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
    // A limit for files stands for a full disk; the signal that comes with it is ignored.
    std::fs::write(&failed, "mine").unwrap();
    let full = "trap '' XFSZ; ulimit -f 100; exec \"$0\" call python: builtins str --args-from \"$1\" -o \"$2\"";
    let output = Command::new("sh")
        .args(["-c", full, env!("CARGO_BIN_EXE_breakbulk"), &args, &failed])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains(&failed) && said.contains("File too large"),
        "{said}"
    );
    assert_eq!(std::fs::read_to_string(&failed).unwrap(), "mine");
    assert_eq!(
        std::fs::read_dir(&folder).unwrap().count(),
        3,
        "nothing else is left"
    );
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_actor_of_vscodes_rpc_is_called_over_tcp() {
    use breakbulk::message::vscode::{RpcId, SerializedError, Thrown};
    use breakbulk::net::tcp;
    use breakbulk::vscode::{Actor, Actors, Config, Endpoint, Returned};

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = format!("vscode+tcp:{}", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        loop {
            let actor = Actor::new()
                .typed("$add", |(a, b): (i64, i64)| async move {
                    Ok::<_, Thrown>(a + b)
                })
                .typed("$greet", |(name,): (String,)| async move {
                    Ok::<_, Thrown>(format!("hello {name}"))
                })
                .method("$bytes", |_| async {
                    Ok(Returned::Buffer(vec![1, 2, 255].into()))
                })
                .method("$nothing", |_| async { Ok(Returned::Undefined) })
                .method("$throw", |_| async {
                    Err(SerializedError::new("RangeError", "too far").into())
                });
            let options = Config::default().with(|config| {
                config.actors = Actors::new().add(RpcId::new(3).unwrap(), "Test", actor)
            });
            let endpoint = Endpoint::over_stream(tcp::accept(&listener).await.unwrap(), options);
            tokio::spawn(async move { endpoint.ended().await });
        }
    });
    let call = |words: &'static [&str]| {
        let target = target.clone();
        tokio::task::spawn_blocking(move || call(&[&[target.as_str()], words].concat()))
    };
    for (words, code, stdout, said) in [
        (&["3", "$add", "2", "40"][..], 0, &b"42\n"[..], ""),
        (&["3", "$greet", "you", "--raw"], 0, b"hello you", ""),
        (&["3", "$bytes"], 0, &[1, 2, 255], ""),
        (&["3", "$nothing"], 0, b"undefined\n", ""),
        (&["3", "$throw"], 1, b"", "too far"),
        (&["3", "$absent"], 1, b"", "$absent"),
        (&["300", "$add"], 2, b"", "1 to 255"),
        (
            &["3", "$add", "--kwarg", "a=1"],
            2,
            b"",
            "--kwarg is for python: and tywrap+exec: targets",
        ),
    ] {
        let output = call(words).await.unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {told}");
        assert_eq!(output.stdout, stdout, "{words:?}");
        assert!(told.contains(said), "{words:?}: {told}");
    }
    serving.abort();
}

/// A folder of this test's own, and bridges in it.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("breakbulk-call-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    /// A bridge in Python that does this with each line of its host.
    fn bridge(&self, name: &str, each_line: &str) -> String {
        let code = format!(
            "import json, os, sys, time\nopen({:?}, 'w').write(str(os.getpid()))\nfor line in sys.stdin:\n    message = json.loads(line)\n{each_line}",
            self.0.join(format!("{name}.pid"))
        );
        let path = self.0.join(name);
        std::fs::write(&path, code).unwrap();
        format!("tywrap+exec:python3 -u {}", path.display())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

// PROG-13
#[test]
fn what_the_called_code_says_goes_to_standard_error() {
    for (words, out, said) in [
        (
            &["python:", "builtins", "print", "hello", "ü"][..],
            "null\n",
            "hello ü\n",
        ),
        (
            &["python:", "os", "system", "echo by a child"],
            "0\n",
            "by a child\n",
        ),
        (
            &["python:", "warnings", "warn", "it is old"],
            "null\n",
            "UserWarning: it is old\n",
        ),
    ] {
        let output = call(words);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            out,
            "{words:?}: {told}"
        );
        assert!(told.ends_with(said), "{words:?}: {told}");
    }
}

// PROG-13
#[test]
fn bridges_that_misbehave_are_quoted_briefly() {
    let folder = Folder::new("misbehave");
    let say = "    answer = lambda text: print(text, flush=True)\n    meta = message['id'] == -1\n";
    let silent = "    if message['id'] == -1: continue\n    print(json.dumps({'id': message['id'], 'result': 'é'}), flush=True)\n";
    for (name, each_line, options, code, out, said) in [
        // It never answers `meta`, and has time for the call all the same.
        (
            "silent",
            silent.to_owned(),
            &["--timeout", "9"][..],
            0,
            "\"é\"\n",
            "",
        ),
        // It is silent for ever: the limit holds while it starts.
        (
            "deaf",
            "    time.sleep(600)\n".to_owned(),
            &["--timeout", "1"],
            124,
            "",
            "raise --timeout",
        ),
        (
            "print",
            format!("{say}    answer({{'a': 1}})\n"),
            &[],
            1,
            "",
            "{'a': 1}",
        ),
        (
            "long",
            format!(
                "{say}    if meta: continue\n    body = {{'type': 'E', 'message': 'm' * 3000000, 'traceback': 't' * 3000000 + 'end'}}\n    answer(json.dumps({{'id': message['id'], 'protocol': 'tywrap/1', 'error': body}}))\n"
            ),
            &["--timeout", "9"],
            1,
            "",
            "tttend",
        ),
    ] {
        let target = folder.bridge(name, &each_line);
        let output = call(&[&[target.as_str(), "m", "f"], options].concat());
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.len() < 20_000, "{name}: {} bytes", told.len());
        assert_eq!(output.status.code(), Some(code), "{name}: {told}");
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            out,
            "{name}: {told}"
        );
        assert!(told.contains(said), "{name}: {told}");
        assert!(!told.contains("restarted"), "{name}: {told}");
        // Whatever became of the call, its bridge is ended: perhaps before it could write its number.
        let pid = std::fs::read_to_string(folder.0.join(format!("{name}.pid")));
        assert!(pid.is_ok() || name == "deaf", "{name}");
        wait_until("the bridge is gone", || {
            !pid.as_ref().is_ok_and(|it| lives(it))
        });
    }
}

/// Whether a process is there; one that nobody has waited for counts as gone.
fn lives(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
    !state.is_empty() && !state.starts_with('Z')
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !is_so() {
        assert!(start.elapsed().as_secs() < 60, "never: {what}");
        std::thread::yield_now();
    }
}

// PROG-13
#[test]
fn signals_end_the_bridge_and_its_children() {
    let folder = Folder::new("signals");
    for signal in ["-TERM", "-HUP", "-INT"] {
        let pids = folder.0.join(format!("pids{signal}"));
        let code = format!(
            "[(c := __import__('subprocess').Popen(['sleep', '600'])), (o := __import__('os')), open('{0}.new', 'w').write('%d %d' % (o.getpid(), c.pid)), o.rename('{0}.new', '{0}'), c.wait()]",
            pids.display()
        );
        let mut caller = Command::new(env!("CARGO_BIN_EXE_breakbulk"))
            .args(["call", "python:", "builtins", "eval", &code])
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        wait_until("the call runs", || pids.exists());
        let both = std::fs::read_to_string(&pids).unwrap();
        let both: Vec<&str> = both.split(' ').collect();
        let line = std::fs::read(format!("/proc/{}/cmdline", both[0])).unwrap();
        assert!(line.len() < 1000, "the source is in the list of processes");
        let sent = Command::new("kill")
            .args([signal, &caller.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
        assert_eq!(caller.wait().unwrap().code(), Some(130), "{signal}");
        wait_until("they are gone", || !both.iter().any(|pid| lives(pid)));
    }
}

// PROG-13
#[test]
fn progress_has_a_total_once_it_is_known() {
    let folder = Folder::new("progress");
    let file = folder.0.join("result").display().to_string();
    // A terminal, by way of Python.
    let output = Command::new("python3")
        .args([
            "-c",
            "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)",
        ])
        .args([env!("CARGO_BIN_EXE_breakbulk"), "call", "python:"])
        .args(["operator", "mul", "ab", "20000000", "-o", &file])
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}");
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 40_000_003);
    assert!(
        shown.contains("receiving") && shown.contains("/40.00 MB"),
        "{shown}"
    );
}

/// What is too large is not sent: the called code does not run.
#[test]
fn arguments_over_the_limit_are_not_sent() {
    let folder = Folder::new("arguments");
    let (args, mark) = (folder.0.join("args.json"), folder.0.join("mark"));
    let code = format!("open('{}', 'w') #{}", mark.display(), "x".repeat(2_000_000));
    std::fs::write(&args, format!("[\"{code}\"]")).unwrap();
    let args = args.display().to_string();
    let eval = ["python:", "builtins", "eval", "--args-from", &args];
    let output = call(&[&eval[..], &["--max-message", "1MB"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("over the limit of 1000000 bytes"), "{said}");
    assert!(said.contains("raise --max-message"), "{said}");
    assert!(output.stdout.is_empty());
    assert!(!mark.exists(), "it ran");
}

/// The peer is cut off, between two messages or within one.
#[test]
fn an_actor_whose_connection_is_lost_is_told() {
    use std::io::{Read, Write};

    for (sent, words) in [
        (&b""[..], "the other end disconnected"),
        (b"\x01\0\0\0", "the connection is lost: "),
    ] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let target = format!("vscode+tcp:{}", listener.local_addr().unwrap());
        let dropping = std::thread::spawn(move || {
            let (mut peer, _) = listener.accept().unwrap();
            let mut some = [0; 100];
            assert!(peer.read(&mut some).unwrap() > 0);
            peer.write_all(sent).unwrap();
        });
        let output = call(&[&target, "3", "$add", "2", "40"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(words), "{said}");
        assert!(output.stdout.is_empty());
        dropping.join().unwrap();
    }
}

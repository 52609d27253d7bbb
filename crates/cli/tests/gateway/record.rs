//! The flight recorder: what gateways keep, and how `breakbulk inspect` explains it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use breakbulk_testkit::bad_path::{BadPath, Counts, Weather};
use tokio::task::spawn_blocking;

use crate::common::{Listening, PATIENCE, gateway, lines, requests, run, said};

/// The size for which `requests` makes a message of 20 MB.
const SIZE: usize = 22_000_000;

/// A record of a test.
struct Record {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl Record {
    fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        Self {
            _folder: folder,
            path,
        }
    }

    fn text(&self) -> &str {
        self.path.to_str().unwrap()
    }
}

fn inspect(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_breakbulk"))
        .arg("inspect")
        .args(arguments)
        .stdin(Stdio::null())
        .output();
    output.unwrap()
}

fn printed(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A text without what differs from run to run: times, ports, the names of sessions, and how many frames
/// the sockets held. Lines that were wrapped are whole.
fn steady(text: &str, names: &[(&str, &str)]) -> String {
    let mut text = text.replace("\n          ", " ");
    for (name, instead) in names {
        text = text.replace(name, instead);
    }
    let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).count();
    let mut out = String::new();
    let mut rest = &*text;
    while let Some(character) = rest.chars().next() {
        let date = rest.get(..10).is_some_and(|it| {
            let parts: Vec<&str> = it.split('-').collect();
            parts.len() == 3 && parts.iter().all(|part| digits(part) == part.len())
        });
        let clock = rest
            .get(..12)
            .is_some_and(|it| it.len() == 12 && it.split([':', '.']).map(digits).eq([2, 2, 2, 3]));
        let port = rest.strip_prefix("127.0.0.1:").map(digits);
        let took = rest.strip_prefix(", ").filter(|it| {
            let seconds = digits(it);
            it[seconds..].starts_with('.') && it[seconds + 4..].starts_with(" s;")
        });
        let more = rest.strip_prefix("it and ").filter(|it| digits(it) > 0);
        let (word, skip) = if date {
            ("DATE", 10)
        } else if clock {
            ("CLOCK", 12)
        } else if let Some(port) = port {
            ("127.0.0.1:PORT", 10 + port)
        } else if let Some(took) = took {
            (", TOOK s;", 2 + digits(took) + 7)
        } else if let Some(more) = more {
            ("it", 7 + digits(more) + " after it".len())
        } else {
            out.push(character);
            rest = &rest[character.len_utf8()..];
            continue;
        };
        out.push_str(word);
        rest = &rest[skip..];
    }
    out
}

/// The name of the session in a record, by what `inspect --json` says.
fn session_of(record: &Record) -> String {
    let output = inspect(&["--json", record.text()]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let id = &report["conversations"][0]["sessions"][0]["id"];
    id.as_str().unwrap_or_else(|| panic!("{report}")).to_owned()
}

/// Two gateways with a path between them that lets at most 100,003 bytes through from the middle of a message
/// of 20 MB on. Returns what the path counted.
async fn planted(near: &Record, far: &Record) -> Counts {
    let listening = Listening::new(&[
        "--listen",
        "ws://0",
        "--to",
        "exec:cat",
        "--record",
        far.text(),
    ]);
    let target = listening.address.strip_prefix("ws://").unwrap().to_owned();
    let path = BadPath::start(target, Weather::default()).await.unwrap();
    path.change(|weather| weather.from_client.pace = Some(20_000_000));
    let mut command = gateway(&["--listen", "stdio:", "--to"]);
    command
        .arg(format!("ws://{}/", path.address()))
        .args(["--resume-for", "0", "--state", "none", "--record"])
        .arg(&near.path);
    let asking = spawn_blocking(move || run(command, requests(&[SIZE])));
    // The hello and eleven pieces, so that the number of the refused one has two digits: it is in the frame's size.
    path.until(|counts| counts.from_client.frames >= 12).await;
    path.change(|weather| weather.from_client.message_cap = Some(100_003));
    let output = asking.await.unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let counts = path.counts();
    assert_eq!(counts.from_client.blocked, 1, "{counts:?}");
    // It writes its last records when it ends.
    listening.signal("-TERM");
    let mut listening = listening;
    assert_eq!(listening.exit_code(), Some(0));
    counts
}

fn grouped(number: u64) -> String {
    let text = number.to_string();
    let bytes = text.as_bytes().rchunks(3).rev();
    let groups: Vec<&str> = bytes.map(|it| std::str::from_utf8(it).unwrap()).collect();
    groups.join(",")
}

// REC-8, REC-9
#[tokio::test(flavor = "multi_thread")]
async fn a_close_with_1009_in_the_middle_of_20_mb_is_explained_in_one_screen() {
    let (near, far) = (Record::new("near"), Record::new("far"));
    let counts = planted(&near, &far).await;
    let (near_id, far_id) = (session_of(&near), session_of(&far));
    let output = inspect(&[far.text(), near.text()]);
    let text = printed(&output);
    assert_eq!(output.status.code(), Some(1), "{text}{}", said(&output));
    assert!(
        said(&output).ends_with("1 of 1 conversations failed\n"),
        "{}",
        said(&output)
    );
    assert!(text.lines().count() <= 24, "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    // The hello is the first frame, and each one after it is a piece.
    let passed = counts.from_client.frames;
    let piece = 674_892;
    let expected = format!(
        "\
2 records, 1 conversation, DATE CLOCK to CLOCK UTC

NEAR in near: stdio: to ws://127.0.0.1:PORT/
FAR in far: ws://127.0.0.1:PORT to exec:cat
  CLOCK, TOOK s; in 1 frame {size} B, out 1 frame 367 B; failed

where     the connection between NEAR and FAR ended with 1009 at CLOCK
reason    message of 899991 bytes over the cap of 100003
closed by the path between them: neither NEAR nor FAR closed it
frame     {number} from NEAR to FAR: 899,991 bytes; it did not arrive
message   m id 0: piece {passed} of 30, from byte {byte} of at most 20,246,760
cap       100,003 bytes, as the close reason says; the gateways sent up to 900,000
requests  1 request without an answer: m id 0
remedy    start both gateways with --max-frame 100003, or with the --preset of \
that path. With --resume-for above 0 at both, the tunnel finds the cap by itself and goes on.
",
        size = grouped(requests(&[SIZE]).len() as u64 - 1),
        number = passed + 1,
        byte = grouped((passed - 1) * piece),
    );
    let names = [(&*near_id, "NEAR"), (&*far_id, "FAR")];
    assert_eq!(steady(&text, &names), expected);
    // One record alone says less, but it names the hop, the cap and the option.
    let alone = printed(&inspect(&[near.text()]));
    for words in ["ended with 1009", "--max-frame 100003", "m id 0: piece "] {
        assert!(alone.contains(words), "{alone}");
    }
}

/// The answer is larger than the far gateway takes: the session goes on, and inspect says what was missing.
// REC-9
#[tokio::test]
async fn an_answer_that_became_an_error_is_explained_by_request_size_cap_and_option() {
    let (near, far) = (Record::new("near"), Record::new("far"));
    let text = "x".repeat(50_000);
    let to = format!(
        r#"exec:sh -c 'while read line; do echo "{{\"result\":\"{text}\",\"jsonrpc\":\"2.0\",\"id\":7}}"; done'?max-message=10KB"#
    );
    let mut listening =
        Listening::new(&["--listen", "ws://0", "--to", &to, "--record", far.text()]);
    let mut command = gateway(&["--listen", "stdio:", "--to", &listening.address]);
    command.args(["--state", "none", "--record", near.text()]);
    let request = b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"m\"}\n".to_vec();
    let output = spawn_blocking(move || run(command, request)).await.unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    listening.signal("-TERM");
    assert_eq!(listening.exit_code(), Some(0));
    let output = inspect(&[near.text(), far.text()]);
    let text = printed(&output);
    assert_eq!(output.status.code(), Some(1), "{text}{}", said(&output));
    let text = text.replace("\n          ", " ");
    for words in [
        "; message too large",
        "the answer to m id 7, of 50,036 bytes, did not pass",
        "cap       10,000 bytes, the max-message of ",
        "with --max-message 50036 or more",
    ] {
        assert!(text.contains(words), "no {words}: {text}");
    }
    let alone = printed(&inspect(&[near.text()])).replace("\n          ", " ");
    assert!(
        alone.contains("m id 7 was answered with error -32011"),
        "{alone}"
    );
}

/// All that is in the files of a record.
fn bytes_of(record: &Path) -> Vec<u8> {
    let files = fs::read_dir(record).unwrap();
    let mut all = Vec::new();
    for file in files {
        all.extend(fs::read(file.unwrap().path()).unwrap());
    }
    all
}

fn contains(bytes: &[u8], part: &str) -> bool {
    let mut windows = bytes.windows(part.len());
    windows.any(|window| window == part.as_bytes())
}

// REC-1
#[test]
fn messages_are_named_and_their_content_is_kept_only_where_that_is_asked_for() {
    for (option, kept) in [(None, false), (Some("--record-bodies"), true)] {
        let record = Record::new("record");
        let mut command = gateway(&["--listen", "stdio:", "--to", "exec:cat", "--record"]);
        command.arg(&record.path).args(option);
        let input = lines(&[10, 2000]);
        let output = run(command, input.clone());
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        assert!(output.stdout == input);
        let bytes = bytes_of(&record.path);
        assert_eq!(contains(&bytes, "Grüße"), kept);
        let output = inspect(&[record.text()]);
        let text = printed(&output);
        assert_eq!(output.status.code(), Some(0), "{text}{}", said(&output));
        assert!(text.contains("1 conversation"), "{text}");
        assert!(text.contains("; ended well"), "{text}");
    }
}

/// A limit of the system stands for the full disk: each write beyond it fails.
// REC-5
#[cfg(unix)]
#[test]
fn a_disk_that_is_full_stops_the_record_with_one_warning_and_not_the_gateway() {
    let record = Record::new("record");
    let program = env!("CARGO_BIN_EXE_breakbulk");
    let script = format!(
        "trap '' XFSZ; ulimit -f 8; exec {program} gateway --listen stdio: --to exec:cat --record-bodies --record {}",
        record.text()
    );
    let mut command = Command::new("sh");
    command
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let input = lines(&[50_000; 40]);
    let output = run(command, input.clone());
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(output.stdout == input, "not byte for byte");
    let warning = "recording has stopped, and the gateway goes on: File too large";
    assert_eq!(
        said(&output).matches(warning).count(),
        1,
        "{}",
        said(&output)
    );
}

// REC-7
#[test]
fn inspect_of_anything_ends_with_a_sentence() {
    let record = Record::new("record");
    let mut command = gateway(&["--listen", "stdio:", "--to", "exec:cat", "--record"]);
    command.arg(&record.path);
    assert_eq!(run(command, lines(&[10, 20, 30])).status.code(), Some(0));
    let file = fs::read_dir(&record.path).unwrap().find_map(|file| {
        let path = file.unwrap().path();
        path.extension()
            .is_some_and(|it| it == "pcapng")
            .then_some(path)
    });
    let good = fs::read(file.unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let bad = folder.path().join("breakbulk-bad.pcapng");
    let seed = std::env::var("BREAKBULK_SEED").map_or(7, |seed| seed.parse().unwrap());
    println!("BREAKBULK_SEED={seed}");
    let mut random: u64 = seed;
    for round in 0..40 {
        let mut bytes = good.clone();
        for _ in 0..=round % 5 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let at = (random >> 33) as usize % bytes.len();
            bytes[at] = (random >> 24) as u8;
        }
        bytes.truncate(bytes.len() - round * 7 % bytes.len());
        fs::write(&bad, bytes).unwrap();
        for arguments in [&["--all"][..], &["--json"]] {
            let mut arguments = arguments.to_vec();
            arguments.push(folder.path().to_str().unwrap());
            let output = inspect(&arguments);
            let code = output.status.code();
            assert!(
                matches!(code, Some(0 | 1)),
                "{round}: {code:?} {}",
                said(&output)
            );
            assert!(!said(&output).contains("panicked"), "{}", said(&output));
        }
    }
    let empty = tempfile::tempdir().unwrap();
    let output = inspect(&[empty.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said(&output).contains("no records; breakbulk gateway --record"),
        "{}",
        said(&output)
    );
}

// REC-10
#[test]
fn tap_follows_a_running_gateway_line_by_line() {
    let far = Listening::new(&["--listen", "ws://0", "--to", "exec:cat", "--admin", "0"]);
    let admin = far
        .before
        .iter()
        .find_map(|it| it.strip_prefix("admin on "));
    let admin = admin.unwrap_or_else(|| panic!("{:?}", far.before));
    let mut tap = Command::new(env!("CARGO_BIN_EXE_breakbulk"))
        .args(["tap", "--route", "gateway", "--admin", admin])
        .env_remove("BREAKBULK_ADMIN_TOKEN")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = BufReader::new(tap.stdout.take().unwrap());
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        for line in stdout.lines() {
            let _ = tell.send(line.unwrap_or_default());
        }
    });
    // Tap follows from some moment on, so clients connect until it shows one.
    let mut seen = Vec::new();
    while !seen
        .iter()
        .any(|line: &String| line.contains("session began"))
    {
        let client = gateway(&["--listen", "stdio:", "--to", &far.address]);
        assert_eq!(run(client, lines(&[10])).status.code(), Some(0));
        while let Ok(line) = told.recv_timeout(Duration::from_millis(200)) {
            seen.push(line);
        }
    }
    while !seen.iter().any(|line| line.contains("session ended: 1000")) {
        seen.push(told.recv_timeout(PATIENCE).unwrap());
    }
    assert!(
        seen.iter().all(|line| line.chars().count() <= 80),
        "{seen:#?}"
    );
    for words in [
        " listen < 1 tunnel hello frame 900000 message 33554432",
        " listen > 1 tunnel hello frame 900000 message 33554432",
        " whole m ",
        " to     > 1 whole m ",
    ] {
        assert!(
            seen.iter().any(|line| line.contains(words)),
            "{words}: {seen:#?}"
        );
    }
    assert!(
        !seen
            .iter()
            .any(|line| line.contains("Grüße") || line.contains('\u{1b}'))
    );
    far.signal("-TERM");
    assert_eq!(crate::common::wait(&mut tap), Some(0));
    let nobody = Command::new(env!("CARGO_BIN_EXE_breakbulk"))
        .args(["tap", "--admin", admin])
        .output()
        .unwrap();
    assert_eq!(nobody.status.code(), Some(2));
    assert!(
        said(&nobody).contains("is a gateway running with --admin?"),
        "{}",
        said(&nobody)
    );
}

//! The rows for commands of the program.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use breakbulk_testkit::bad_relay::{BadRelay, Weather};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use crate::{SIZE, crossed, path};

/// A part of the program that listens, killed with this.
pub(crate) struct Listening(Child);

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_breakbulk"));
    command.args(arguments).env_remove("BREAKBULK_TOKEN");
    command
}

/// Starts it, and returns what follows these words on its standard error, up to the next blank.
pub(crate) fn listen(arguments: &[&str], words: &str) -> (Listening, String) {
    let mut child = program(arguments).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    let found = loop {
        line.clear();
        assert!(
            stderr.read_line(&mut line).unwrap() > 0,
            "{words:?}: it ended"
        );
        if let Some((_, found)) = line.split_once(words) {
            break found
                .split_whitespace()
                .next()
                .unwrap_or_default()
                .to_owned();
        }
    };
    // Read on: otherwise the pipe would fill up and block the program.
    std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
    (Listening(child), found)
}

/// Runs it with this input, and returns its output.
pub(crate) fn run(arguments: &[&str], input: Vec<u8>) -> Vec<u8> {
    let mut command = program(arguments);
    let mut child = (command.stdin(Stdio::piped()).stdout(Stdio::piped()))
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writing = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap().unwrap();
    assert_eq!(output.status.code(), Some(0), "{arguments:?}");
    output.stdout
}

/// A request to an echo, and back.
pub(crate) async fn tunnel() {
    let arguments = ["gateway", "--listen", "ws://0", "--to", "exec:cat"];
    let (_far, address) = spawn_blocking(move || listen(&arguments, "listening on "))
        .await
        .unwrap();
    let path = path(address.strip_prefix("ws://").unwrap(), true).await;
    let to = format!("ws://{}/", path.address());
    let line = format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"{}\"}}\n",
        "x".repeat(SIZE)
    );
    let input = line.clone().into_bytes();
    let near = ["gateway", "--listen", "stdio:", "--to"].map(str::to_owned);
    let echo = spawn_blocking(move || {
        let mut near: Vec<&str> = near.iter().map(String::as_str).collect();
        near.push(&to);
        run(&near, input)
    });
    assert!(echo.await.unwrap() == line.as_bytes(), "not byte for byte");
    crossed(&path, 2);
}

/// A tool's large result.
pub(crate) async fn relay() {
    let relay = BadRelay::start(Weather::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key").display().to_string();
    let listening = format!("cep22+nostr:{}?key={key}", relay.url());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gateway/nostr/server.py");
    let server = format!("exec:python3 '{script}'");
    let (_far, address) = spawn_blocking(move || {
        run(&["keygen", &key], Vec::new());
        listen(
            &["gateway", "--listen", &listening, "--to", &server],
            "listening on ",
        )
    })
    .await
    .unwrap();
    let (_, at) = relay.url().split_once("://").unwrap();
    let at = at.trim_end_matches('/').to_owned();
    let path = path(&at, true).await;
    let to = address.replace(&at, &path.address().to_string());
    assert_ne!(to, address);
    let result = spawn_blocking(move || ask_for_text(&to)).await.unwrap();
    let text = result["result"]["content"][0]["text"].as_str();
    assert!(text.is_some_and(|text| text.len() >= SIZE), "{result:.200}");
    crossed(&path, 1);
}

/// An MCP client of its own kind: three lines, and what comes back.
fn ask_for_text(to: &str) -> Value {
    let mut command = program(&["gateway", "--listen", "stdio:", "--to", to]);
    let mut child = (command.stdin(Stdio::piped()).stdout(Stdio::piped()))
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let _child = Listening(child);
    let mut say = |message: Value| stdin.write_all(format!("{message}\n").as_bytes()).unwrap();
    let mut hear = || {
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        serde_json::from_str::<Value>(&line).unwrap()
    };
    let who = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "slow", "version": "1"}});
    say(json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": who}));
    hear();
    say(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    let what = json!({"name": "text", "arguments": {"kind": "ascii", "size": SIZE}});
    say(json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": what}));
    hear()
}

/// A document that is pushed.
pub(crate) async fn loro(scheme: &'static str, rest: &'static str) {
    let arguments = ["loro", "serve", "--listen", "127.0.0.1:0"];
    let (_server, at) = spawn_blocking(move || listen(&arguments, "listening on ws://"))
        .await
        .unwrap();
    let at = at.split('/').next().unwrap().to_owned();
    let path = path(&at, false).await;
    let slow = format!("{scheme}{}{rest}", path.address());
    let content = format!("{{\"text\":\"{}\"}}", noise());
    let pulled = spawn_blocking(move || {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("in.json").display().to_string();
        std::fs::write(&file, &content).unwrap();
        run(&["loro", "push", &slow, "doc", &file], Vec::new());
        run(
            &["loro", "pull", &format!("ws://{at}/ws"), "doc"],
            Vec::new(),
        )
    });
    let pulled: Value = serde_json::from_slice(&pulled.await.unwrap()).unwrap();
    assert!(pulled["text"] == noise(), "another text came");
    // LORO-8: as an update and, where questions of the server cross it, as a response to each: two at most.
    let sent = path.counts().from_client.bytes;
    assert!(
        sent < 7 * SIZE as u64 / 2,
        "{sent} bytes: it was sent more than three times"
    );
}

/// Text that does not compress.
pub(crate) fn noise() -> String {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let letters = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'#' + (state % 57) as u8)
    });
    letters.take(SIZE).collect()
}

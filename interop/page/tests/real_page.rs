//! The status page of a gateway in a real browser, with fifty busy sessions.
//!
//! They need node and Chromium, and are run by `cargo xtask interop page`.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use breakbulk_testkit::bad_path::{BadPath, Way, Weather};
use interop_ahp::program::breakbulk;
use interop_page::Browser;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

/// The time limit for anything that a test waits for.
const PATIENCE: Duration = Duration::from_secs(60);

const SESSIONS: usize = 50;

/// What a connection between the gateways carries in a second.
const RATE: u64 = 1_000_000;

/// A method that would be a script if it became markup.
const HOSTILE: &str = "<img src=x onerror=alert(1)>\u{202e}";

/// A running `breakbulk gateway`, and its output.
struct Gateway {
    child: Child,
    listening: String,
    admin: Option<String>,
}

impl Gateway {
    async fn start(arguments: &[&str]) -> Result<Self> {
        let mut child = Command::new(breakbulk()?)
            .arg("gateway")
            .args(arguments)
            .env_remove("BREAKBULK_TOKEN")
            .env("HOME", "")
            .env_remove("XDG_STATE_HOME")
            .stderr(std::process::Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stderr = child.stderr.take().context("no standard error")?;
        let mut lines = BufReader::new(stderr).lines();
        let mut admin = None;
        while let Some(line) = tokio::time::timeout(PATIENCE, lines.next_line()).await?? {
            if let Some(address) = line.strip_prefix("admin on ") {
                admin = Some(address.to_owned());
            }
            if let Some(address) = line.strip_prefix("listening on ") {
                let listening = address.to_owned();
                tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
                return Ok(Self {
                    child,
                    listening,
                    admin,
                });
            }
        }
        bail!("the gateway ended before it listened")
    }

    /// The port that it listens on.
    fn port(&self) -> u16 {
        let digits = self.listening.trim_end_matches('/').rsplit(':').next();
        digits.unwrap().parse().unwrap()
    }

    fn admin(&self) -> &str {
        self.admin.as_deref().expect("it told where the page is")
    }

    async fn end(mut self) {
        self.child.kill().await.unwrap();
    }
}

/// A target that sends back each line.
async fn echo() -> (u16, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = socket.into_split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    (port, serving)
}

/// A program that sends one request after another, and waits for each answer.
async fn client(port: u16, number: usize) {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    for id in 0.. {
        let text = "x".repeat(200 + 40 * number);
        let line = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":\"<b>{id}</b>\",\"method\":\"{HOSTILE}\",\"params\":\"{text}\"}}\n"
        );
        if socket.write_all(line.as_bytes()).await.is_err() {
            return;
        }
        let mut back = vec![0; line.len()];
        if socket.read_exact(&mut back).await.is_err() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The folder of the screenshots.
fn pictures() -> PathBuf {
    let folder = std::env::temp_dir().join("breakbulk-page");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Waits until a text of the page has changed.
async fn moves(browser: &mut Browser, selector: &str) {
    let before = browser.texts(selector).await.unwrap();
    let moved = async {
        loop {
            let now = browser.texts(selector).await.unwrap();
            if now != before {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let moved = tokio::time::timeout(PATIENCE, moved).await;
    assert!(moved.is_ok(), "{selector} stays {before:?}");
}

/// A near gateway, a slow path and a far gateway whose page is looked at; programs at both ends.
struct Stage {
    far: Gateway,
    near: Gateway,
    _path: BadPath,
    _echo: JoinHandle<()>,
}

impl Stage {
    async fn set(options: &[&str]) -> Self {
        let (target, echo) = echo().await;
        let to = format!("tcp://127.0.0.1:{target}");
        let mut arguments = vec!["--listen", "ws://0", "--to", &to, "--admin", "127.0.0.1:0"];
        arguments.extend(options);
        let far = Gateway::start(&arguments).await.unwrap();
        let way = Way {
            pace: Some(RATE),
            ..Way::default()
        };
        let weather = Weather {
            connections: 2 * SESSIONS,
            ..Weather::both_ways(way)
        };
        let path = BadPath::start(format!("127.0.0.1:{}", far.port()), weather);
        let path = path.await.unwrap();
        let to = format!("ws://{}/", path.address());
        let arguments = ["--listen", "tcp://0", "--to", &to, "--max-frame", "16KiB"];
        let near = Gateway::start(&arguments).await.unwrap();
        Self {
            far,
            near,
            _path: path,
            _echo: echo,
        }
    }

    async fn end(self) {
        self.near.end().await;
        self.far.end().await;
    }
}

// PAGE-3
#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop page"]
async fn fifty_sessions_appear_move_and_go() {
    let stage = Stage::set(&[]).await;
    let mut browser = Browser::start().await.unwrap();
    let size = json!([1440, 900]);
    let options = json!({"url": stage.far.admin(), "size": size, "dark": true});
    browser.open(options).await.unwrap();
    browser.wait("#status[data-state=live]", 1).await.unwrap();
    browser.wait("#session-rows tr", 0).await.unwrap();

    let port = stage.near.port();
    let clients: Vec<_> = (1..SESSIONS)
        .map(|n| tokio::spawn(client(port, n)))
        .collect();
    // One of its messages takes long enough on the path to be seen in progress.
    let bulk = tokio::spawn(bulk(port));
    browser.wait("#session-rows tr", SESSIONS).await.unwrap();
    assert_eq!(browser.texts("#session-count").await.unwrap(), ["50"]);
    for figure in [
        "#rate-in",
        "#memory-figure",
        "#routes dd",
        "#session-rows .rate",
    ] {
        moves(&mut browser, figure).await;
    }
    browser
        .wait_for_any("#session-rows progress")
        .await
        .unwrap();
    for _ in 0..3 {
        moves(&mut browser, "#session-rows .transfer").await;
    }
    let picture = pictures().join("desktop.png");
    browser.screenshot(&picture, false).await.unwrap();

    for client in &clients[10..] {
        client.abort();
    }
    browser.wait("#session-rows tr", 11).await.unwrap();
    bulk.abort();
    browser.wait("#session-rows tr", 10).await.unwrap();
    browser.stop().await.unwrap();
    stage.end().await;
}

// PAGE-1
#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop page"]
async fn a_session_opens_to_its_messages_and_is_closed_after_a_question() {
    let stage = Stage::set(&["--show-bodies"]).await;
    let mut browser = Browser::start().await.unwrap();
    let port = stage.near.port();
    let _clients = [1, 2, 3].map(|number| tokio::spawn(client(port, number)));
    let options =
        json!({"url": stage.far.admin(), "size": [390, 844], "dark": true, "still": true});
    browser.open(options).await.unwrap();
    browser.wait("#session-rows tr", 3).await.unwrap();
    browser
        .screenshot(&pictures().join("phone.png"), true)
        .await
        .unwrap();

    // With the keyboard alone: to the field that filters the sessions, and on to the first session.
    let id = browser
        .texts("#session-rows button")
        .await
        .unwrap()
        .remove(0);
    browser.press("/").await.unwrap();
    for key in id.chars() {
        browser.press(&key.to_string()).await.unwrap();
    }
    browser.wait("#session-rows tr", 1).await.unwrap();
    browser.press("Tab").await.unwrap();
    browser.press("Tab").await.unwrap();
    browser.press("Enter").await.unwrap();
    browser.wait("#detail", 1).await.unwrap();
    assert_eq!(
        browser.texts("#detail-title").await.unwrap(),
        [format!("Session {id}")]
    );
    moves(&mut browser, "#message-rows").await;

    // A peer's text is shown as text. It can neither become markup nor change the direction of writing.
    let method = &browser.texts("#message-rows .method").await.unwrap()[0];
    assert!(
        method.starts_with("<img src=x onerror=alert(1)>\u{fffd}"),
        "{method}"
    );
    let ids = browser.texts("#message-rows .id").await.unwrap();
    assert!(ids.iter().all(|id| id.contains("<b>")), "{ids:?}");
    let markup = browser.texts("#detail img, #detail b").await.unwrap();
    assert_eq!(markup, [""; 0], "text became markup");
    browser.click("#message-rows summary").await.unwrap();
    let body = browser.texts("#message-rows pre").await.unwrap().remove(0);
    assert!(body.contains("\"params\":\"xxx"), "{body}");
    assert!(
        body.contains('\u{fffd}') && !body.contains('\u{202e}'),
        "{body}"
    );
    browser
        .screenshot(&pictures().join("phone-session.png"), false)
        .await
        .unwrap();

    browser.click("#detail-close-session").await.unwrap();
    browser.wait("#question", 1).await.unwrap();
    // The focus is on the answer that changes nothing.
    browser.press("Enter").await.unwrap();
    browser.wait("#question", 0).await.unwrap();
    moves(&mut browser, "#message-rows").await;
    browser.click("#detail-close-session").await.unwrap();
    browser.click("#question .danger").await.unwrap();
    browser
        .wait("#detail-close-session:disabled", 1)
        .await
        .unwrap();
    browser.press("Escape").await.unwrap();
    browser.wait("#detail", 0).await.unwrap();
    browser.wait("#session-rows tr", 0).await.unwrap();
    browser.fill("#find", "").await.unwrap();
    browser.wait("#session-rows tr", 2).await.unwrap();
    browser.stop().await.unwrap();
    stage.end().await;
}

// PAGE-2
#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop page"]
async fn the_page_asks_for_the_token_and_forgets_it_with_the_tab() {
    let token = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(token.path(), "an-admin-token-of-a-test\n").unwrap();
    let file = token.path().to_str().unwrap();
    let stage = Stage::set(&["--admin-token-file", file]).await;
    let mut browser = Browser::start().await.unwrap();
    let options = json!({"url": stage.far.admin()});
    browser.open(options.clone()).await.unwrap();
    browser.wait("#login", 1).await.unwrap();
    browser.wait("#main", 0).await.unwrap();
    browser.fill("#token", "a wrong one").await.unwrap();
    browser.press("Enter").await.unwrap();
    browser.wait("#login-error:not(:empty)", 1).await.unwrap();
    browser
        .fill("#token", "an-admin-token-of-a-test")
        .await
        .unwrap();
    browser.press("Enter").await.unwrap();
    browser.wait("#status[data-state=live]", 1).await.unwrap();
    browser.wait("#login", 0).await.unwrap();
    // A new tab does not have the token.
    browser.open(options).await.unwrap();
    browser.wait("#login", 1).await.unwrap();
    browser.stop().await.unwrap();
    stage.end().await;
}

/// A program that sends messages of 4 MB.
async fn bulk(port: u16) {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let text = "x".repeat(4_000_000);
    let line = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"bulk\",\"params\":\"{text}\"}}\n");
    let (mut from, mut to) = socket.split();
    let read = async { tokio::io::copy(&mut from, &mut tokio::io::sink()).await };
    let write = async { while to.write_all(line.as_bytes()).await.is_ok() {} };
    let _ = tokio::join!(read, write);
}

//! A language server of npm and a client of npm, with `Content-Length` on sockets; between them two gateways
//! and a path of 128 KB.
//!
//! They need node, and are run by `cargo xtask interop vscode`.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use breakbulk_testkit::bad_path::{BadPath, Way, Weather};
use interop_ahp::program::Gateway;
use interop_vscode::node::script;
use tokio::time::timeout;

/// The largest message that the path lets through.
const CAP: u64 = 131_072;

/// Members of the document: 700 KB, with answers of 10 and 13 MB.
const MEMBERS: &str = "20000";

/// The time limit of a client.
const PATIENCE: Duration = Duration::from_secs(120);

const FRAMED: &str = "framing=content-length&max-message=64MiB";

/// Which sockets the two programs use.
#[derive(Clone, Copy, Debug)]
enum Sockets {
    /// The client has a TCP socket, and the server its standard streams.
    Tcp,
    /// The client has a Unix socket, and the server its standard streams.
    Unix,
    /// Both have a TCP socket.
    Both,
}

fn server() -> String {
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("node_modules");
    let script = modules.join("vscode-json-languageserver/bin/vscode-json-languageserver");
    script.display().to_string()
}

/// Runs the client, and returns what it reports of all answers.
async fn client(arguments: &[&str]) -> Result<String> {
    let mut command = script("language_client.mjs")?;
    command.args(arguments).env("MEMBERS", MEMBERS);
    let run = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .output();
    let output = timeout(PATIENCE, run).await.context("the client hangs")??;
    let told = String::from_utf8(output.stdout)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {told}{stderr}", output.status);
    Ok(told)
}

async fn check(sockets: Sockets, expected: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let exec = format!("exec:node '{}' --stdio?{FRAMED}", server());
    let tcp = format!("tcp://127.0.0.1:0?{FRAMED}");
    let (listener, target) = match sockets {
        Sockets::Both => {
            let listener = Gateway::start(&tcp, &exec).await?;
            let target = format!("{}?{FRAMED}", listener.address);
            (Some(listener), target)
        }
        _ => (None, exec),
    };
    let options = format!("tunnel=always&max-frame={CAP}&max-message=64MiB");
    let far = Gateway::start(&format!("ws://127.0.0.1:0?{options}"), &target).await?;
    let way = Way {
        message_cap: Some(CAP),
        ..Way::default()
    };
    let path = BadPath::start(&far.address, Weather::both_ways(way)).await?;
    let listen = match sockets {
        Sockets::Unix => format!("unix:{}/client?{FRAMED}", folder.path().display()),
        _ => tcp,
    };
    let to = format!("ws://{}?{options}", path.address());
    let near = Gateway::start(&listen, &to).await?;

    let told = client(&[near.address.trim_start_matches("tcp://")]).await?;
    ensure!(told == expected, "{told}instead of {expected}");
    let counts = path.until(|counts| counts.open == 0).await;
    let blocked = counts.from_client.blocked + counts.from_target.blocked;
    ensure!(blocked == 0 && counts.accepted == 1, "{counts:?}");
    near.stop().await?;
    far.stop().await?;
    match listener {
        Some(listener) => listener.stop().await,
        None => Ok(()),
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop vscode"]
async fn a_language_server_answers_the_same_on_the_other_side_of_a_capped_path() {
    let server = server();
    let expected = client(&["stdio", "node", &server, "--stdio"])
        .await
        .unwrap();
    for sockets in [Sockets::Tcp, Sockets::Unix, Sockets::Both] {
        let start = Instant::now();
        let checked = check(sockets, &expected).await;
        checked.unwrap_or_else(|error| panic!("{sockets:?}: {error:#}"));
        println!("{sockets:?}: {:.1} s", start.elapsed().as_secs_f64());
    }
}

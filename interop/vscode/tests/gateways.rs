//! VSCode's own RPCProtocol at both ends, over `ipc.net`, with two gateways and a path of 128 KB between them.
//!
//! They need node, and are run by `cargo xtask interop vscode`.

#![allow(clippy::unwrap_used, reason = "a test may")]

use anyhow::{Result, ensure};
use breakbulk_testkit::bad_path::{BadPath, Way, Weather};
use interop_ahp::program::Gateway;
use interop_vscode::bytes::{bytes, digest, seeded, told};
use interop_vscode::node::{Node, Token};
use serde_json::{Value, json};

/// The largest message that the path lets through.
const CAP: u64 = 131_072;
const LARGE: usize = 20_000_000;
const MANY: u32 = 1_000;

/// What VSCode writes to its sockets, whether these are Unix sockets, and what is between the gateways.
#[derive(Clone, Copy, Debug)]
struct Row {
    carrier: &'static str,
    unix: bool,
    between: &'static str,
}

const ROWS: [Row; 4] = [
    row("plain", false, "ws"),
    row("plain", true, "loro+ws"),
    row("persistent-once", false, "loro+ws"),
    row("persistent-once", true, "ws"),
];

const fn row(carrier: &'static str, unix: bool, between: &'static str) -> Row {
    Row {
        carrier,
        unix,
        between,
    }
}

impl Row {
    /// An endpoint that listens on a free port or in a folder.
    fn listen(self, folder: &str) -> String {
        match self.unix {
            true => format!("unix:{folder}/window?framing=ipc&max-message=64MiB"),
            false => "tcp://127.0.0.1:0?framing=ipc&max-message=64MiB".to_owned(),
        }
    }

    /// The endpoint that connects to a peer which listens at this address.
    fn target(self, address: &str) -> String {
        let scheme = if self.unix { "" } else { "tcp://" };
        format!("{scheme}{address}?framing=ipc&max-message=64MiB")
    }

    async fn run(self) -> Result<()> {
        let folder = tempfile::tempdir()?;
        let folder = folder.path().display().to_string();
        let own = match self.unix {
            true => format!("unix:{folder}/host"),
            false => "127.0.0.1:0".to_owned(),
        };
        let numbers = ["--own", "2", "--other", "1"];
        let (mut host, address) = Node::listen_at(&own, self.carrier, &numbers).await?;

        let options = format!("max-frame={CAP}&max-message=64MiB");
        let listen = format!("{}://127.0.0.1:0?{options}", self.between);
        let far = Gateway::start(&listen, &self.target(&address)).await?;
        let way = Way {
            message_cap: Some(CAP),
            ..Way::default()
        };
        let path = BadPath::start(&far.address, Weather::both_ways(way)).await?;
        let to = format!("{}://{}?{options}", self.between, path.address());
        let near = Gateway::start(&self.listen(&folder), &to).await?;

        let address = near.address.trim_start_matches("tcp://");
        let mut window = Node::connect(self.carrier, address, &[])?;
        window.opened().await?;
        host.opened().await?;
        calls(&mut window, &mut host).await?;
        window.stop().await?;
        host.hear("closed").await?;
        host.stop().await?;

        let counts = path.until(|counts| counts.open == 0).await;
        for way in [counts.from_client, counts.from_target] {
            ensure!(way.blocked == 0, "{} messages were too large", way.blocked);
            ensure!(way.bytes > LARGE as u64, "not all came by: {way:?}");
        }
        near.stop().await?;
        far.stop().await
    }
}

/// Calls both ways: every kind of value, 20 MB, an error, a cancellation, calls inside calls, many at once.
async fn calls(window: &mut Node, host: &mut Node) -> Result<()> {
    let buffer = bytes(LARGE, 7);
    for node in [&mut *window, &mut *host] {
        for (method, args, expected) in [
            (
                "$echo",
                json!([{"a": [1, "é漢🚢\n"], "": null}]),
                json!({"a": [1, "é漢🚢\n"], "": null}),
            ),
            ("$echo", json!([seeded(1_000, 3)]), told(&bytes(1_000, 3))),
            ("$digest", json!([seeded(LARGE, 7)]), digest(&buffer)),
            ("$buffer", json!([LARGE, 7]), told(&buffer)),
            ("$down", json!([20]), json!(20)),
        ] {
            is(method, node.call(method, args).await?, Ok(expected))?;
        }
        let thrown = node.call("$throw", json!(["no"])).await?;
        is("$throw", thrown, Err(json!("no")))?;
        let call = node
            .begin("$untilCancelled", json!([]), Token::Live)
            .await?;
        // The other side has seen the cancellation once it has answered a later call.
        is(
            "$add",
            node.call("$add", json!([1, 2])).await?,
            Ok(json!(3)),
        )?;
        node.cancel(call).await?;
        is(
            "$untilCancelled",
            node.outcome(call).await?,
            Ok(json!("cancelled")),
        )?;
    }
    let (ours, theirs) = (window.begin_many(MANY).await?, host.begin_many(MANY).await?);
    ensure!(window.right(ours).await? == MANY && host.right(theirs).await? == MANY);
    Ok(())
}

fn is(method: &str, outcome: Result<Value, Value>, expected: Result<Value, Value>) -> Result<()> {
    ensure!(
        outcome == expected,
        "{method}: {outcome:?} instead of {expected:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop vscode"]
async fn both_ends_of_vscode_stand_on_two_sides_of_a_capped_path() {
    for row in ROWS {
        let start = std::time::Instant::now();
        row.run()
            .await
            .unwrap_or_else(|error| panic!("{row:?}: {error:#}"));
        println!("{row:?}: {:.1} s", start.elapsed().as_secs_f64());
    }
}

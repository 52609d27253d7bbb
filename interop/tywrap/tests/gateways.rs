//! A tywrap host whose bridge command is `breakbulk gateway`; the bridge in Python is behind a path of 128 KB
//! and a second gateway.
//!
//! `cargo xtask interop tywrap` runs it.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use breakbulk::net::process::Program;
use breakbulk::tywrap::python::{INTERPRETER, SOURCE};
use breakbulk::tywrap::{CallError, Config, Host};
use breakbulk_testkit::bad_path::{BadPath, Way, Weather};
use interop_ahp::program::{Gateway, breakbulk};

/// The largest message that the path lets through.
const CAP: u64 = 131_072;

/// Bytes of data in a frame of the bridge: a size that the path lets through, and the default, which the
/// gateways cut again.
const FRAMES: [usize; 2] = [16 << 10, 1 << 20];

const MESSAGE: usize = 64 << 20;
const LARGE: usize = 20_000_000;
const PARALLEL: usize = 20;

/// The bridge's command for the far gateway, with the variables that a host on the same machine would set.
fn bridge(source: &Path, frame: usize) -> String {
    let source = source.display();
    format!(
        "exec:env TYWRAP_TRANSPORT_CHUNKING=1 TYWRAP_REQUEST_MAX_BYTES={MESSAGE} TYWRAP_CODEC_MAX_BYTES={MESSAGE} \
         {INTERPRETER} -u '{source}' --tywrap-max-frame-bytes {frame}?max-message=64MiB"
    )
}

async fn calls(host: &Host) -> Result<()> {
    let text = format!("\"{}\"", r#"0123456789 \\ \" \n"#.repeat(LARGE / 19));
    for (module, function, args, expected) in [
        ("math", "sqrt", "[16]".to_owned(), "4.0".to_owned()),
        ("builtins", "str", format!("[{text}]"), text.clone()),
        (
            "operator",
            "mul",
            format!("[\"0123456789\", {}]", LARGE / 10),
            format!("\"{}\"", "0123456789".repeat(LARGE / 10)),
        ),
    ] {
        let result = host.call(module, function, args, None).await?;
        ensure!(
            result.json() == expected,
            "{module}.{function} returned {} bytes, and not the {} that were expected",
            result.json().len(),
            expected.len()
        );
    }
    let raised = host.call("math", "sqrt", "[-1]", None).await;
    ensure!(
        matches!(&raised, Err(CallError::Raised(error)) if error.to_string().contains("ValueError")),
        "{raised:?}"
    );
    let sizes = (0..PARALLEL).map(|number| 10_000 * number);
    let running: Vec<_> = sizes
        .map(|size| {
            let host = host.clone();
            tokio::spawn(async move {
                let text = format!("\"{}\"", "x".repeat(size));
                let result = host
                    .call("builtins", "str", format!("[{text}]"), None)
                    .await?;
                ensure!(result.json() == text, "not what was sent");
                Ok(())
            })
        })
        .collect();
    for call in running {
        call.await??;
    }
    Ok(())
}

async fn check(frame: usize) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let source = folder.path().join("bridge.py");
    std::fs::write(&source, SOURCE)?;
    let options = format!("tunnel=always&max-frame={CAP}&max-message=64MiB");
    let listen = format!("ws://127.0.0.1:0?{options}");
    let far = Gateway::start(&listen, &bridge(&source, frame)).await?;
    let way = Way {
        message_cap: Some(CAP),
        ..Way::default()
    };
    let path = BadPath::start(&far.address, Weather::both_ways(way)).await?;

    let to = format!("ws://{}?{options}", path.address());
    let listen = "stdio:?max-message=64MiB";
    let words = ["gateway", "--listen", listen, "--to", &to].map(OsString::from);
    let program = Program::new([breakbulk()?.into_os_string()].into_iter().chain(words));
    let config = Config::default()
        .with(|config| config.limits.frame = frame)
        .with(|config| config.limits.message = MESSAGE)
        .with(|config| config.timeout = Some(Duration::from_secs(120)));
    let host = Host::new(program, config);
    ensure!(host.start().await?.frame == Some(frame), "no frames");
    calls(&host).await?;

    // A bridge that ends takes its gateway with it, and the next call starts another.
    let exited = host.call("os", "abort", "[]", None).await;
    ensure!(
        matches!(exited, Err(CallError::Exited { .. })),
        "{exited:?}"
    );
    let again = host.call("math", "sqrt", "[16]", None).await?;
    ensure!((again.json(), host.starts()) == ("4.0", 2), "{again:?}");
    host.stop().await;

    let counts = path.until(|counts| counts.open == 0).await;
    for way in [counts.from_client, counts.from_target] {
        ensure!(way.blocked == 0, "{way:?}");
        ensure!(way.bytes > LARGE as u64, "{way:?}");
    }
    far.stop().await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop tywrap"]
async fn a_host_calls_python_on_the_other_side_of_a_capped_path() {
    for frame in FRAMES {
        let start = Instant::now();
        let checked = check(frame).await;
        checked.unwrap_or_else(|error| panic!("frames of {frame}: {error:#}"));
        println!("frames of {frame}: {:.1} s", start.elapsed().as_secs_f64());
    }
}

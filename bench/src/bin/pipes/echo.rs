//! Measures sending a large text to Python and back: in frames of 1 MiB, and as plain lines over a
//! pipe.

use std::path::Path;
use std::time::{Duration, Instant};

use breakbulk::tywrap::python::INTERPRETER;
use breakbulk::tywrap::{Config, Host};
use bytes::Bytes;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::plain::Plain;
use crate::{Outcome, memory};

/// The size of the text in bytes, unless `BREAKBULK_ECHO_BYTES` is set.
const LARGE: usize = 200_000_000;

const ROUNDS: usize = 3;

/// The smallest acceptable part of the plain rate, and the largest acceptable memory as a multiple
/// of the text.
const LEAST: f64 = 0.5;
const MOST: f64 = 2.5;

pub(crate) async fn measure() -> Outcome {
    let large = match std::env::var("BREAKBULK_ECHO_BYTES") {
        Ok(bytes) => bytes.parse()?,
        Err(_) => LARGE,
    };
    let text: String = (0..large)
        .map(|at| char::from(b'a' + u8::try_from(at % 23).unwrap_or(0)))
        .collect();
    let args = Bytes::from(format!("[\"{text}\"]"));
    drop(text);
    let digest = Sha256::digest(&args[1..args.len() - 1]);
    let config = Config::default()
        .with(|config| config.limits.message = large + (1 << 20))
        .with(|config| config.timeout = Some(Duration::from_secs(300)));
    let host = Host::python(Path::new(INTERPRETER), config);
    host.call("builtins", "str", "[\"warm\"]", None).await?;

    let before = memory("self", "VmRSS")? * 1024 - args.len() as u64;
    // Resets the peak of resident memory.
    std::fs::write("/proc/self/clear_refs", "5")?;
    let mut framed = f64::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let result = host.call("builtins", "str", args.clone(), None).await?;
        framed = framed.min(start.elapsed().as_secs_f64());
        if Sha256::digest(result.json().as_bytes()) != digest {
            return Err("the text came back changed".into());
        }
    }
    let peak = (memory("self", "VmHWM")? * 1024).saturating_sub(before);
    host.stop().await;

    let mut line =
        br#"{"method":"call","params":{"module":"builtins","functionName":"str","args":"#.to_vec();
    line.extend_from_slice(&args);
    line.extend_from_slice(b"},\"id\":1,\"protocol\":\"tywrap/1\"}\n");
    let mut bare = Plain::start()?;
    let mut plain = f64::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let answer = bare.exchange(&line)?;
        plain = plain.min(start.elapsed().as_secs_f64());
        if answer.len() < large {
            return Err("a plain line came back short".into());
        }
    }
    let (part, times) = (plain / framed, peak as f64 / large as f64);
    let mark = |good: bool| if good { "ok" } else { "MISSED" };
    let rate = |seconds: f64| large as f64 / seconds / 1e6;
    let text = format!(
        "{} MB to Python and back, digest equal, best of {ROUNDS}\n\
         in frames of 1 MiB {:.0} MB/s, as one plain line over a bare pipe {:.0} MB/s: {part:.2} of it {} (at least {LEAST})\n\
         the host's memory at its highest: {times:.2} x the text {} (at most {MOST})\n",
        large / 1_000_000,
        rate(framed),
        rate(plain),
        mark(part >= LEAST),
        mark(times <= MOST),
    );
    let value = json!({ "bytes": large, "seconds": framed, "plainSeconds": plain, "part": part, "memory": times });
    Ok((text, value))
}

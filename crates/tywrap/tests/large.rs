//! A large text to Python and back arrives unchanged, in no more memory than request and answer need.

#![cfg(all(feature = "net", target_os = "linux"))]
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::Duration;

use breakbulk_tywrap::python::INTERPRETER;
use breakbulk_tywrap::{Config, Host};
use bytes::Bytes;
use sha2::{Digest, Sha256};

/// Bytes of the text, unless `BREAKBULK_ECHO_BYTES` says otherwise.
const LARGE: usize = 20_000_000;

/// Bytes of memory of this process: `VmRSS` now, `VmHWM` the highest so far.
fn memory(figure: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with(figure))
        .unwrap();
    let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}

#[tokio::test]
async fn a_large_echo_is_equal_and_its_memory_bounded() {
    let large = std::env::var("BREAKBULK_ECHO_BYTES").map_or(LARGE, |it| it.parse().unwrap());
    let before = memory("VmRSS");
    let args = Bytes::from(format!("[\"{}\"]", "0123456789abcdef".repeat(large / 16)));
    let digest = Sha256::digest(&args[1..args.len() - 1]);
    let config = Config::default()
        .with(|config| config.limits.message = large + (1 << 20))
        .with(|config| config.timeout = Some(Duration::from_secs(300)));
    let host = Host::python(Path::new(INTERPRETER), config);
    let about = host.start().await.unwrap();
    assert_eq!(about.frame, Some(1 << 20));
    // On a busy machine the writer may wake late, and holds the request while the answer comes: the best
    // of three counts.
    let mut least = f64::INFINITY;
    for _ in 0..3 {
        // Resets `VmHWM`, the highest memory so far.
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        let result = host
            .call("builtins", "str", args.clone(), None)
            .await
            .unwrap();
        assert_eq!(Sha256::digest(result.json().as_bytes()), digest);
        let peak = memory("VmHWM") - before;
        let times = peak as f64 / large as f64;
        println!("{large} bytes: {times:.2} times as much memory at its highest");
        least = least.min(times);
    }
    assert!(least <= 2.5, "{least:.2}");
    host.stop().await;
}

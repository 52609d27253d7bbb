//! `cargo xtask bench`.

use anyhow::Result;

use crate::command::{cargo, output, root};

fn bench(json: bool) -> std::process::Command {
    let mut command = cargo(&[
        "run",
        "--quiet",
        "--release",
        "--package",
        "breakbulk-bench",
        "--",
    ]);
    if json {
        command.arg("--json");
    }
    command
}

pub(crate) fn run(json: bool, record: bool) -> Result<()> {
    if !record {
        return crate::command::run(&mut bench(json));
    }
    let table = output(&mut bench(false))?;
    print!("{table}");
    std::fs::write(root().join("bench/RESULTS.md"), results(&table))?;
    Ok(())
}

fn results(table: &str) -> String {
    format!(
        "# Results\n\nMade by `cargo xtask bench --record` on {}, {} cores, {}. One thread; the best of many runs; both sides in one run.\n\n\
         *limit* is the sum of the kernels of others that a wire's rules demand: AHP base64 (`base64`, SIMD) out and in, `simdutf8`, one borrowed `serde_json` parse; \
         tywrap escape and unescape by the faster of `json-escape-simd` and `serde_json`, `simdutf8`; CEP-22 those and SHA-256 (`sha2`) twice; loro and VSCode a copy out and a copy in. \
         *times* is ours as a multiple of it: split and join together. Trust the multiples, not the rates.\n\n```\n{}```\n",
        processor(),
        std::thread::available_parallelism().map_or(0, usize::from),
        today(),
        table
    )
}

fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        info.lines()
            .find(|line| line.starts_with(name))
            .and_then(|line| line.split(": ").nth(1))
            .unwrap_or("?")
            .to_owned()
    };
    let flags = field("flags");
    let has: Vec<_> = ["avx2", "avx512bw", "sha_ni"]
        .into_iter()
        .filter(|flag| flags.split(' ').any(|one| one == *flag))
        .collect();
    format!("{} ({})", field("model name"), has.join(", "))
}

/// The date, as the system's own `date` tells it.
pub(crate) fn today() -> String {
    let output = std::process::Command::new("date").arg("+%Y-%m-%d").output();
    output
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        .unwrap_or_default()
}

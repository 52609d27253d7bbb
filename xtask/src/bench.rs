//! `cargo xtask bench`: runs the benchmarks, and records the results.

use anyhow::Result;

use crate::command::{cargo, output, root};
use crate::interop;

/// How glibc allocates the buffers for assembled messages, on both sides of a comparison.
struct Memory {
    key: &'static str,
    about: &'static str,
    settings: &'static [(&'static str, &'static str)],
}

const MEMORY: [Memory; 2] = [
    Memory {
        key: "fresh",
        about: "fresh from the system in every run",
        settings: &[("MALLOC_MMAP_THRESHOLD_", "1048576")],
    },
    Memory {
        key: "again",
        about: "used before",
        settings: &[
            ("MALLOC_MMAP_MAX_", "0"),
            ("MALLOC_TRIM_THRESHOLD_", "17179869184"),
        ],
    },
];

fn bench(package: &str, name: &str, json: bool, settings: &[(&str, &str)]) -> Result<String> {
    let mut command = cargo(&[
        "run",
        "--quiet",
        "--profile=dist",
        "--package",
        package,
        "--bin",
        name,
        "--",
    ]);
    command
        .args(json.then_some("--json"))
        .envs(settings.iter().copied());
    output(&mut command)
}

pub(crate) fn run(json: bool, record: bool) -> Result<()> {
    let mut tables = String::new();
    let mut values = serde_json::Map::new();
    for memory in MEMORY {
        let printed = bench("breakbulk-bench", "breakbulk-bench", json, memory.settings)?;
        if json {
            values.insert(memory.key.to_owned(), serde_json::from_str(&printed)?);
            continue;
        }
        let table = format!("Memory {}: {printed}\n", memory.about);
        print!("{table}");
        tables.push_str(&table);
    }
    // `gateways` starts the program, so it is built first.
    output(&mut cargo(&[
        "build",
        "--quiet",
        "--profile=dist",
        "--package=breakbulk-cli",
    ]))?;
    for (package, name, about) in [
        (
            "breakbulk-bench",
            "escapes",
            "Escaping and unescaping JSON strings",
        ),
        ("breakbulk-bench", "pieces", "Ten times the pieces"),
        ("breakbulk-bench", "sockets", "Real sockets"),
        ("breakbulk-bench", "pipes", "Real pipes"),
        ("breakbulk-bench", "gateways", "Two gateways and two socat"),
        ("breakbulk-bench", "watched", "What watching costs"),
        ("interop-contextvm", "contextvm-bench", "Nostr relays"),
        (
            "interop-vscode",
            "vscode-bench",
            "VSCode's own code in node",
        ),
    ] {
        if let Some(peer) = package.strip_prefix("interop-") {
            if let Some(why) = interop::unavailable(peer) {
                eprintln!("{name} is skipped: {why}");
                continue;
            }
            interop::install(peer)?;
        }
        let printed = bench(package, name, json, &[])?;
        if json {
            values.insert(name.to_owned(), serde_json::from_str(&printed)?);
            continue;
        }
        let table = format!("{about}: {printed}\n");
        print!("{table}");
        tables.push_str(&table);
    }
    if json {
        println!("{}", serde_json::Value::Object(values));
    }
    if record {
        let file = root().join("bench/RESULTS.md");
        let before = std::fs::read_to_string(&file)?;
        std::fs::write(file, results(&tables, &before))?;
    }
    Ok(())
}

const TITLE: &str = "# Results\n";

/// The records with another section before the existing ones.
fn results(tables: &str, before: &str) -> String {
    format!(
        "{TITLE}\n## The wires, {}\n\n\
         Made by `cargo xtask bench --record` on {}, {} cores. One thread; the best of many runs; both sides in one run.\n\n\
         *limit* is the sum of the kernels of others that a wire's rules demand: AHP base64 (the faster of `base64` with SIMD and `base64-turbo`) out and in, `simdutf8`, one borrowed `serde_json` parse; \
         tywrap escape and unescape by the faster of `json-escape-simd` and `serde_json`, `simdutf8`; CEP-22 those and SHA-256 (`sha2`) twice; loro and VSCode a copy out and a copy in. \
         *times* is ours as a multiple of it: split and join together. Messages lie in memory that is fresh from the system, or was used before, for both sides alike. \
         Up to 1 KB a message is one frame, and what counts is the fixed cost of a message: *over ns* is how much longer than the limit it takes. Both sides are in steady use: links and frame buffers are used again, and small messages are timed together. Trust the multiples, not the rates.\n\n\
         ```text\n{}```\n{}",
        today(),
        processor(),
        std::thread::available_parallelism().map_or(0, usize::from),
        tables,
        before.strip_prefix(TITLE).unwrap_or(before),
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

/// The date, from the system's command `date`.
fn today() -> String {
    let output = std::process::Command::new("date").arg("+%Y-%m-%d").output();
    output
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_keeps_those_before_it() {
        let before = "# Results\n\n## Earlier\n\nfigures\n";
        let after = results("new figures\n", before);
        assert!(after.starts_with("# Results\n\n## The wires, "), "{after}");
        assert!(
            after.ends_with("new figures\n```\n\n## Earlier\n\nfigures\n"),
            "{after}"
        );
    }
}

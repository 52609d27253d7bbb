//! What operators install: the unit of systemd, the example of a file, the recipe of a container.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{gateway, run, said};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap()
}

// OPS-9
#[test]
fn the_example_is_accepted() {
    let example = root().join("packaging/gateway.toml").display().to_string();
    let output = run(gateway(&["--check", "--config", &example]), Vec::new());
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(output.stdout, b"nothing is wrong with 2 routes\n");
}

/// The values of a setting of the unit.
fn settings<'a>(unit: &'a str, name: &str) -> Vec<&'a str> {
    let lines = unit.lines().map(str::trim);
    let pairs = lines.filter_map(|line| line.split_once('='));
    pairs
        .filter(|(known, _)| *known == name)
        .map(|(_, value)| value)
        .collect()
}

// OPS-9
#[test]
fn the_unit_says_what_the_program_does() {
    let unit = read("packaging/breakbulk.service");
    // The program says when it is ready, and when it is alive.
    assert_eq!(settings(&unit, "Type"), ["notify"]);
    assert_eq!(settings(&unit, "WatchdogSec"), ["30"]);
    assert_eq!(settings(&unit, "ExecReload"), ["/bin/kill -HUP $MAINPID"]);
    let start = settings(&unit, "ExecStart");
    assert_eq!(
        start,
        ["/usr/bin/breakbulk gateway --config /etc/breakbulk/gateway.toml"]
    );
    let check = settings(&unit, "ExecStartPre");
    assert_eq!(
        check,
        [start[0].replace("gateway --config", "gateway --check --config")]
    );
    // systemd waits longer than the grace time of the example, and 5 s for closing.
    let example = read("packaging/gateway.toml");
    let grace = example
        .lines()
        .find_map(|line| line.strip_prefix("grace = "));
    let grace: u64 = grace.unwrap().parse().unwrap();
    let wait: u64 = settings(&unit, "TimeoutStopSec")[0].parse().unwrap();
    assert!(wait > grace + 5, "{wait} s for {grace} s");
    for (name, value) in [
        ("User", "breakbulk"),
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
        ("ProtectHome", "yes"),
        ("PrivateTmp", "yes"),
        ("PrivateDevices", "yes"),
        ("CapabilityBoundingSet", ""),
        ("SystemCallFilter", "@system-service"),
        (
            "RestrictAddressFamilies",
            "AF_INET AF_INET6 AF_UNIX AF_NETLINK",
        ),
        ("StateDirectory", "breakbulk"),
        ("Restart", "on-failure"),
    ] {
        assert_eq!(settings(&unit, name), [value], "{name}");
    }
}

// OPS-9
#[test]
fn systemd_understands_the_unit() {
    let folder = tempfile::tempdir().unwrap();
    let unit = read("packaging/breakbulk.service");
    // systemd looks for the program.
    let unit = unit.replace("/usr/bin/breakbulk", env!("CARGO_BIN_EXE_breakbulk"));
    let file = folder.path().join("breakbulk.service");
    std::fs::write(&file, unit).unwrap();
    // `.ci/run` installs it.
    let output = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(&file)
        .output()
        .unwrap();
    let told = said(&output);
    let about_us: Vec<&str> = told
        .lines()
        .filter(|line| line.contains("breakbulk"))
        .collect();
    assert!(output.status.success() && about_us.is_empty(), "{told}");
}

// OPS-9
#[test]
fn the_container_runs_as_nobody_and_is_built_from_the_lock_file() {
    let recipe = read("Dockerfile");
    let lines: Vec<&str> = recipe
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    let stages = lines
        .iter()
        .filter(|line| line.starts_with("FROM "))
        .count();
    assert_eq!(stages, 2, "one that builds, and one that runs");
    let last = lines
        .iter()
        .rposition(|line| line.starts_with("FROM "))
        .unwrap();
    assert!(
        lines[last..]
            .iter()
            .any(|line| line.starts_with("USER 65532"))
    );
    assert!(recipe.contains("--locked"));
    assert!(lines[0].starts_with("FROM rust:1-slim"), "{}", lines[0]);
    // What is copied is there.
    for line in lines
        .iter()
        .filter(|line| line.starts_with("COPY ") && !line.contains("--from"))
    {
        let words: Vec<&str> = line.split_whitespace().skip(1).collect();
        for source in &words[..words.len() - 1] {
            assert!(root().join(source).exists(), "{source}");
        }
    }
}

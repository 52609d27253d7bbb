//! Tells the program which commit it was built from.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=BREAKBULK_COMMIT");
    println!("cargo:rerun-if-changed=build.rs");
    let commit = given().or_else(packaged).or_else(checked_out);
    let commit = commit.unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=BREAKBULK_BUILT_FROM={commit}");
    link_small();
}

/// In programs that are published, equal functions are one: a tenth of the size. It takes longer to link, and a
/// backtrace may name another function of the same code.
fn link_small() {
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|it| it == value);
    // There rustc links by lld, which knows the option.
    if is("TARGET", "x86_64-unknown-linux-gnu") && is("OPT_LEVEL", "s") {
        println!("cargo:rustc-link-arg-bins=-Wl,--icf=all");
    }
}

/// The commit in `BREAKBULK_COMMIT`, which a build can be given where git or its folder is missing, as in a
/// container.
fn given() -> Option<String> {
    let commit = std::env::var("BREAKBULK_COMMIT").ok()?;
    short(&commit)
}

/// The commit that cargo wrote into a published package.
fn packaged() -> Option<String> {
    let text = std::fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let (_, rest) = text.split_once("\"sha1\"")?;
    short(rest.split('"').nth(1)?)
}

fn checked_out() -> Option<String> {
    // Git is asked only in this repository: an unpacked package may lie in a repository of somebody else.
    if !Path::new("../../crates/cli/build.rs").is_file() {
        return None;
    }
    // Git adds a line to this file with each commit and each checkout.
    println!(
        "cargo:rerun-if-changed={}",
        git(&["rev-parse", "--git-path", "logs/HEAD"])?
    );
    short(&git(&["rev-parse", "HEAD"])?)
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// The first 12 digits, if it is a commit's name.
fn short(commit: &str) -> Option<String> {
    let commit = commit.get(..12)?;
    let is_name = commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_name.then(|| commit.to_owned())
}

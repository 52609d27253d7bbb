//! Fuzzing: replays the committed seeds of every target, then fuzzes each.
//!
//! This is libFuzzer on stable Rust: flags enable the compiler's coverage pass, so neither nightly nor
//! cargo-fuzz is needed. A C++ compiler is needed, since libFuzzer itself is built.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail, ensure};

/// How long to fuzz.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mode {
    /// Long enough to see that the targets work and that no bug is obvious.
    Smoke {
        /// The time for each target.
        seconds: u64,
    },
    /// Long enough to find bugs; the corpus is kept for the next run.
    Long {
        /// The time for each target.
        seconds: u64,
    },
}

/// The flags for the coverage that libFuzzer needs. All others are in the profile of `fuzz/Cargo.toml`.
const FLAGS: [&str; 6] = [
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// The options of every run of a target.
const OPTIONS: [&str; 3] = ["-max_len=65536", "-rss_limit_mb=2048", "-timeout=10"];

/// Builds all targets, replays their seeds and fuzzes them; `filter` selects targets whose name
/// contains it.
pub(crate) fn run(mode: Mode, filter: Option<&str>) -> Result<()> {
    let started = Instant::now();
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("xtask has no parent folder")?
        .join("fuzz");
    let targets = targets(&fuzz, filter)?;
    let binaries = build(&fuzz)?;
    println!(
        "fuzz: {} targets built in {:.0} s",
        targets.len(),
        started.elapsed().as_secs_f64()
    );
    let errors = on_all_cores(&targets, |target| {
        let line = Run::new(&fuzz, &binaries, target, mode)?.run()?;
        println!("{line}");
        Ok(())
    });
    for error in &errors {
        eprintln!("{error:#}");
    }
    ensure!(
        errors.is_empty(),
        "{} of {} fuzz targets failed",
        errors.len(),
        targets.len()
    );
    Ok(())
}

/// Why this machine cannot fuzz; `None` if it can. libFuzzer is C++, and the C compiler links.
pub(crate) fn unavailable() -> Option<String> {
    let cxx = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    let runs = |program: &str| {
        let mut command = Command::new(program);
        let quiet = command.arg("--version").stdout(Stdio::null());
        let status = quiet.stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    let missing = [cxx.as_str(), "cc"]
        .into_iter()
        .find(|program| !runs(program))?;
    Some(format!(
        "libFuzzer needs a C++ compiler and a linker, and `{missing}` does not run; install g++"
    ))
}

/// The names of the targets, sorted: each is a file.
fn targets(fuzz: &Path, filter: Option<&str>) -> Result<Vec<String>> {
    let mut targets: Vec<String> = files(&fuzz.join("fuzz_targets"))?
        .iter()
        .filter_map(|path| path.file_stem()?.to_str().map(str::to_owned))
        .filter(|name| filter.is_none_or(|part| name.contains(part)))
        .collect();
    targets.sort();
    ensure!(
        !targets.is_empty(),
        "no fuzz target is named {:?}",
        filter.unwrap_or_default()
    );
    Ok(targets)
}

/// Builds all targets, and returns the folder of the programs.
fn build(fuzz: &Path) -> Result<PathBuf> {
    if let Some(why) = unavailable() {
        bail!("{why}");
    }
    let (target_dir, host) = (fuzz.join("target"), host()?);
    let status = Command::new(cargo())
        .args(["build", "--quiet", "--release", "--locked"])
        .arg("--manifest-path")
        .arg(fuzz.join("Cargo.toml"))
        // With an explicit target, the flags do not apply to build scripts, which could not link.
        .args(["--target", &host])
        .env("CARGO_TARGET_DIR", &target_dir)
        .env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\x1f"))
        .env_remove("RUSTFLAGS")
        .status()
        .context("cargo cannot be started")?;
    ensure!(
        status.success(),
        "the fuzz targets do not build; the compiler's errors are above"
    );
    Ok(target_dir.join(host).join("release"))
}

/// The target triple that this compiler builds for by default.
fn host() -> Result<String> {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let output = Command::new(&rustc)
        .arg("-vV")
        .output()
        .with_context(|| format!("`{rustc} -vV` cannot be run"))?;
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .find_map(|line| line.strip_prefix("host: ").map(str::to_owned))
        .with_context(|| format!("`{rustc} -vV` names no host"))
}

fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

/// Runs several targets at once, since each uses one core. Returns the errors.
fn on_all_cores(
    targets: &[String],
    work: impl Fn(&str) -> Result<()> + Sync,
) -> Vec<anyhow::Error> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let (waiting, errors) = (Mutex::new(targets.iter()), Mutex::new(Vec::new()));
    let next = || waiting.lock().ok()?.next();
    thread::scope(|scope| {
        for _ in 0..cores.min(targets.len()) {
            scope.spawn(|| {
                while let Some(target) = next() {
                    if let Err(error) = work(target)
                        && let Ok(mut errors) = errors.lock()
                    {
                        errors.push(error);
                    }
                }
            });
        }
    });
    errors.into_inner().unwrap_or_default()
}

/// The run of one target.
struct Run<'a> {
    target: &'a str,
    program: PathBuf,
    seeds: PathBuf,
    corpus: PathBuf,
    artifacts: PathBuf,
    seconds: u64,
    seed: u32,
}

impl<'a> Run<'a> {
    /// Copies the seeds to a folder where the fuzzer may add inputs.
    fn new(fuzz: &Path, binaries: &Path, target: &'a str, mode: Mode) -> Result<Self> {
        // A smoke run uses a fixed seed, so that it tries the same inputs each time: it checks a
        // change, while the long run searches for bugs.
        let (kind, seconds, seed) = match mode {
            Mode::Smoke { seconds } => ("smoke", seconds, 1),
            // With 0, libFuzzer chooses a seed.
            Mode::Long { seconds } => ("long", seconds, 0),
        };
        let run = Self {
            target,
            program: binaries.join(target),
            seeds: fuzz.join("seeds").join(target),
            corpus: fuzz.join("target/corpus").join(kind).join(target),
            artifacts: fuzz.join("target/artifacts").join(target),
            seconds,
            seed,
        };
        if matches!(mode, Mode::Smoke { .. }) && run.corpus.exists() {
            // A smoke run begins with only the committed seeds, whatever ran before.
            fs::remove_dir_all(&run.corpus).with_context(|| shown(&run.corpus))?;
        }
        for folder in [&run.corpus, &run.artifacts] {
            fs::create_dir_all(folder).with_context(|| shown(folder))?;
        }
        for seed in files(&run.seeds)? {
            let name = seed.file_name().unwrap_or_default();
            fs::copy(&seed, run.corpus.join(name)).with_context(|| shown(&seed))?;
        }
        Ok(run)
    }

    /// Replays the seeds, then fuzzes; returns the line to print.
    fn run(&self) -> Result<String> {
        let seeds = files(&self.seeds)?.len();
        ensure!(
            seeds > 0,
            "{}: no seeds in {}",
            self.target,
            shown(&self.seeds)
        );
        self.fuzz(&self.seeds, &["-runs=0"])?;
        let started = Instant::now();
        let runs = self.fuzz(
            &self.corpus,
            &[
                &format!("-max_total_time={}", self.seconds),
                &format!("-seed={}", self.seed),
            ],
        )?;
        Ok(format!(
            "fuzz: {:<16} {seeds:>3} seeds {runs:>9} runs {:>4.0} s",
            self.target,
            started.elapsed().as_secs_f64()
        ))
    }

    /// Runs the program once, and returns how many inputs it tried.
    fn fuzz(&self, corpus: &Path, options: &[&str]) -> Result<u64> {
        let output = Command::new(&self.program)
            .arg(corpus)
            .args(OPTIONS)
            .args(options)
            .arg("-print_final_stats=1")
            .arg(format!("-artifact_prefix={}/", self.artifacts.display()))
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("{} cannot be started", self.program.display()))?;
        let log = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            return Err(self.failure(&log));
        }
        Ok(log
            .lines()
            .find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))
            .and_then(|number| number.trim().parse().ok())
            .unwrap_or_default())
    }

    /// The error for a person: what failed, on which input, and how to reproduce it.
    fn failure(&self, log: &str) -> anyhow::Error {
        let artifact = log
            .lines()
            .find_map(|line| line.split("Test unit written to ").nth(1));
        let Some(artifact) = artifact else {
            let end: Vec<&str> = log.lines().rev().take(20).collect();
            let end: Vec<&str> = end.into_iter().rev().collect();
            return anyhow!(
                "{}: failed without naming an input\n{}",
                self.target,
                end.join("\n")
            );
        };
        // The panic's message is on the line after the one with the location.
        let lines = log.lines().skip_while(|line| !line.contains("panicked at"));
        let reason: Vec<&str> = lines
            .take_while(|line| !line.starts_with("stack backtrace"))
            .filter(|line| !line.starts_with("note: "))
            .take(8)
            .collect();
        anyhow!(
            "{}: {}\n  input:  {artifact}\n  replay: {} {artifact}\n  then fix it and keep the input in {}",
            self.target,
            reason.join("\n  "),
            self.program.display(),
            shown(&self.seeds),
        )
    }
}

/// The files of a folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| shown(folder))? {
        let path = entry?.path();
        if path.is_file() {
            files.push(path);
        }
    }
    Ok(files)
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

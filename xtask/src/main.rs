//! The project's own commands; `cargo xtask` lists them.

mod against;
mod bench;
mod carry;
mod command;
mod counts;
mod examples;
mod fuzz;
mod installable;
mod interop;
mod long;
mod packages;
mod recording;
mod rules;
mod shared;
mod steps;
mod test;
mod vectors;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The project's own commands.
#[derive(Parser)]
#[command(name = "cargo xtask", arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Everything that must hold: format, lints, docs, rules, tests, vectors, fuzz smoke, round trips.
    Test {
        /// A skipped step is a failure.
        #[arg(long)]
        strict: bool,
    },
    /// Run the recorded cases of all formats in a folder.
    Vectors {
        /// A folder with one folder per format.
        dir: PathBuf,
    },
    /// Measure speed as a multiple of the limit.
    Bench {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// Write bench/RESULTS.md too.
        #[arg(long)]
        record: bool,
        /// Compare the wires with those of this commit: both are built, and run in turns.
        #[arg(long, value_name = "COMMIT", conflicts_with_all = ["json", "record"])]
        against: Option<String>,
        /// With --against: how often each is run.
        #[arg(long, default_value = "10", requires = "against")]
        rounds: usize,
        /// With --against: only these wires.
        #[arg(requires = "against")]
        wires: Vec<String>,
    },
    /// Count the instructions of a fixed set of work by callgrind, and compare with bench/instructions.txt.
    Counts,
    /// The live tests of one protocol: ahp, mcp, contextvm, loro, vscode, tywrap; or page, that of the admin page in
    /// a browser.
    Interop {
        /// Which; all if absent.
        name: Option<String>,
    },
    /// Draw what a demo prints as docs/pictures/demo.svg, for the README.
    Recording {
        /// Which demo.
        #[arg(default_value = "ahp")]
        demo: String,
        /// The program to run, if it need not be built.
        #[arg(long)]
        program: Option<PathBuf>,
    },
    /// Pack the program for npm, PyPI and Debian, install it from the packed files and run it.
    Packages,
    /// All seeds, big sizes, long fuzzing. Its outcome belongs into docs/TRUST.md.
    Long {
        /// One part: seeds, carry, ahp, tywrap, mcp, contextvm, loro, fleet, soak, package, fuzz; all if absent.
        name: Option<String>,
        /// Seconds for each fuzz target.
        #[arg(long, default_value = "600")]
        fuzz_seconds: u64,
        /// Only fuzz targets with this in their name.
        #[arg(long)]
        fuzz_target: Option<String>,
    },
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Test { strict } => test::run(strict),
        Command::Vectors { dir } => vectors::run(&dir),
        Command::Bench {
            against: Some(commit),
            rounds,
            wires,
            ..
        } => against::run(&commit, rounds, &wires),
        Command::Bench { json, record, .. } => bench::run(json, record),
        Command::Counts => counts::by_hand(),
        Command::Interop { name } => interop::run(name.as_deref()),
        Command::Recording { demo, program } => recording::record(&demo, program),
        Command::Packages => shared::program().and_then(|program| installable::check(&program)),
        Command::Long {
            name,
            fuzz_seconds,
            fuzz_target,
        } => long::run(name.as_deref(), fuzz_seconds, fuzz_target.as_deref()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cargo xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

//! The program `breakbulk`: parses the command line and runs one command.

#![forbid(unsafe_code)]

mod call;
mod caps;
mod check;
mod columns;
mod demo;
mod echo;
mod explain;
mod failure;
mod frames;
mod gateway;
mod guests;
mod help;
mod inspect;
mod join;
mod key;
mod log;
mod loro;
mod memory;
mod number;
mod options;
mod output;
mod probe;
mod progress;
mod record;
mod relay;
mod safe_json;
mod shells;
mod signals;
mod size;
mod split;
mod tap;
mod terminal;
mod token;
mod version;

use std::process::ExitCode;

use breakbulk::net::process::{set_supervisor, supervise};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use failure::Failure;

/// Carries large RPC messages over paths whose frames are capped.
#[derive(Parser)]
#[command(name = "breakbulk", version, long_version = version::long(), arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Cut a message into frames: one per line, or (loro) each behind a u32 big-endian length.
    Split(split::Split),
    /// Put frames together again. The inverse of split.
    Join(join::Join),
    /// List the frames, transfers and messages of a capture, and what is wrong with them.
    Inspect(inspect::Inspect),
    /// Carry the messages of programs over a capped path, or add segments for AHP programs that lack them.
    Gateway(Box<gateway::Gateway>),
    /// Follow a running gateway: each frame and message as it passes.
    Tap(tap::Tap),
    /// List what services, servers and receivers let through, with the source of each figure.
    Caps(caps::Caps),
    /// Find out what a path lets through, to the byte, and which options keep a gateway within it.
    Probe(probe::Probe),
    /// Call a function in another process, with arguments and results of any size.
    Call(call::Call),
    /// Serve loro documents over four transports, or pull, push and watch one.
    Loro(loro::Loro),
    /// Make a key for Nostr: the secret half goes to a file, the public half is printed (npub, then hex).
    Keygen(key::Keygen),
    /// Run a capped relay on this machine, to try out what happens at its cap.
    Relay(relay::Relay),
    /// Run an MCP server whose results have any size, or ask one for such a result.
    Echo(echo::Echo),
    /// End the process groups that are named on the standard input, once it ends.
    #[command(hide = true)]
    Supervise,
    /// Tell what a close code, error, HTTP status, exit code or message means, and what to do.
    Explain(explain::Explain),
    /// Show how each format carries a message that is over the cap of its path.
    Demo(demo::Demo),
    /// Print the script by which a shell completes command lines of this program.
    Completions(shells::Completions),
    /// Write the man pages of this program.
    Man(shells::Man),
}

fn main() -> ExitCode {
    let command = help::complete(Cli::command());
    let matches = command.clone().try_get_matches();
    let cli = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version come as errors too; clap knows which stream to print them to.
            let code = if error.use_stderr() { 2 } else { 0 };
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    if let Ok(program) = std::env::current_exe() {
        let mut supervisor = std::process::Command::new(program);
        supervisor.arg("supervise");
        set_supervisor(supervisor);
    }
    let outcome = match cli.command {
        Command::Split(split) => split.run(),
        Command::Join(join) => join.run(),
        Command::Inspect(inspect) => inspect.run(),
        Command::Gateway(gateway) => gateway.run(),
        Command::Tap(tap) => tap.run(),
        Command::Caps(caps) => caps.run(),
        Command::Probe(probe) => probe.run(),
        Command::Call(call) => call.run(),
        Command::Loro(loro) => loro.run(),
        Command::Keygen(keygen) => keygen.run(),
        Command::Relay(relay) => relay.run(),
        Command::Echo(echo) => echo.run(),
        Command::Supervise => {
            supervise(std::io::stdin().lock());
            Ok(())
        }
        Command::Explain(explain) => explain.run(),
        Command::Demo(demo) => demo.run(),
        Command::Completions(completions) => completions.run(command),
        Command::Man(man) => man.run(command),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Pipe) => ExitCode::from(1),
        Err(failure) => {
            log::failure(&failure);
            ExitCode::from(failure.exit_code())
        }
    }
}

//! `breakbulk completions` and `breakbulk man`: what a shell and `man` know about this program.

use std::io;
use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::failure::Failure;
use crate::output::Output;

#[derive(Args)]
pub(crate) struct Completions {
    /// The shell to print the script for
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    /// Prints the script that a shell reads.
    pub(crate) fn run(self, mut command: Command) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "breakbulk", &mut script);
        let mut out = Output::open(None)?;
        out.write(&script)?;
        out.finish()
    }
}

#[derive(Args)]
pub(crate) struct Man {
    /// The folder to write the pages to; it must exist
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Man {
    /// Writes a page for each command.
    pub(crate) fn run(self, command: Command) -> Result<(), Failure> {
        let name = self.folder.display().to_string();
        if !self.folder.is_dir() {
            let why = io::Error::new(
                io::ErrorKind::NotADirectory,
                format!("there is no such folder; make it with mkdir -p {name}"),
            );
            return Err(Failure::Open(name, why));
        }
        let command = command.disable_help_subcommand(true);
        clap_mangen::generate_to(command, &self.folder).map_err(|error| Failure::Io(name, error))
    }
}

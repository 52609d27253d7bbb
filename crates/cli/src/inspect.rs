//! `breakbulk inspect`: what is in a capture.

use std::path::PathBuf;

use clap::Args;

use crate::failure::Failure;

#[derive(Args)]
pub(crate) struct Inspect {
    /// The capture
    file: PathBuf,
}

impl Inspect {
    pub(crate) fn run(self) -> Result<(), Failure> {
        Err(Failure::Usage(format!("{}: not yet", self.file.display())))
    }
}

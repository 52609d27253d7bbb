//! Secret keys of Nostr: new ones, and the one in the environment.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use breakbulk::contextvm::{Keys, npub};
use clap::Args;

use crate::failure::Failure;
use crate::output::Output;

/// The environment variable that may contain a key.
pub(crate) const VARIABLE: &str = "BREAKBULK_NOSTR_KEY";

#[derive(Args)]
pub(crate) struct Keygen {
    /// The file to write the secret key to; an existing file is not changed
    file: std::path::PathBuf,
}

impl Keygen {
    /// Makes a key, and prints its public half: npub, then hex.
    pub(crate) fn run(self) -> Result<(), Failure> {
        if self.file == Path::new("-") {
            return Err(Failure::Usage(
                "a secret key is not printed, since screens and logs keep what they are shown; name a file: \
                 breakbulk keygen relay.key"
                    .to_owned(),
            ));
        }
        let keys = Keys::generate();
        write(&self.file, &keys)?;
        let public = keys.public_key();
        let mut out = Output::open(None)?;
        out.line(&npub(&public))?;
        out.line(&public.to_hex())?;
        out.finish()
    }
}

fn write(path: &Path, keys: &Keys) -> Result<(), Failure> {
    let name = path.display();
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Failure::Usage(format!(
            "{name} exists already, and overwriting a key would destroy it; name another file"
        )),
        _ => Failure::Open(name.to_string(), error),
    })?;
    let written = writeln!(file, "{}", keys.to_secret_hex());
    written.and_then(|()| file.sync_all()).map_err(|error| {
        // A part of a key must not be left behind.
        let _ = std::fs::remove_file(path);
        Failure::Io(name.to_string(), error)
    })
}

/// The key in the environment, if there is one.
pub(crate) fn from_environment() -> Result<Option<Keys>, Failure> {
    match std::env::var(VARIABLE) {
        Ok(text) => Keys::parse(&text)
            .map(Some)
            .map_err(|error| Failure::Usage(format!("{VARIABLE}: {error}"))),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(Failure::Usage(format!("{VARIABLE} is not UTF-8")))
        }
    }
}

//! Files beside a key: their names, and how they are written.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The file beside this key, `KEY.WHAT`.
pub(super) fn beside(key: &Path, what: &str) -> PathBuf {
    let mut name = key.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(what);
    key.with_file_name(name)
}

/// Options by which a new file is its owner's alone.
pub(super) fn private() -> OpenOptions {
    let mut options = File::options();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Writes to another file first and renames it, so that the file is never half written.
pub(super) fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".unfinished-{}", std::process::id()));
    let unfinished = file.with_file_name(name);
    let mut options = private();
    options.write(true).create(true).truncate(true);
    let written = options.open(&unfinished).and_then(|mut out| {
        out.write_all(bytes)?;
        out.sync_all()?;
        fs::rename(&unfinished, file)
    });
    if written.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    written
}

//! Output to standard output, or to a file that appears under its name only once it is complete.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

const BUFFER: usize = 256 << 10;

/// Output that must be finished: an unfinished file is removed.
pub(crate) struct Output {
    writer: BufWriter<Box<dyn Write>>,
    name: String,
    pending: Option<Pending>,
}

/// A file that has no name of its own yet.
struct Pending {
    file: File,
    /// Where it is until it is complete.
    unfinished: PathBuf,
    /// Where it will be.
    target: PathBuf,
}

impl Output {
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path.filter(|path| *path != Path::new("-")) else {
            return Ok(Self::new(
                Box::new(io::stdout().lock()),
                "standard output".into(),
                None,
            ));
        };
        let name = path.display().to_string();
        let failed = |error| Failure::Io(name.clone(), error);
        // For a symlink its target is replaced; a pipe or a device is written to directly.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if fs::metadata(&target).is_ok_and(|metadata| !metadata.is_file()) {
            let file = File::options().write(true).open(&target).map_err(failed)?;
            return Ok(Self::new(Box::new(file), name, None));
        }
        let mut unfinished = target.file_name().unwrap_or_default().to_owned();
        unfinished.push(format!(".unfinished-{}", std::process::id()));
        let unfinished = target.with_file_name(unfinished);
        let file = File::create(&unfinished).map_err(failed)?;
        let writer = file.try_clone().map_err(failed)?;
        let pending = Pending {
            file,
            unfinished,
            target,
        };
        Ok(Self::new(Box::new(writer), name, Some(pending)))
    }

    fn new(writer: Box<dyn Write>, name: String, pending: Option<Pending>) -> Self {
        Self {
            writer: BufWriter::with_capacity(BUFFER, writer),
            name,
            pending,
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let written = self.writer.write_all(bytes);
        written.map_err(|error| self.failed(error))
    }

    /// Writes a line and flushes it.
    pub(crate) fn line(&mut self, line: &str) -> Result<(), Failure> {
        self.write(line.as_bytes())?;
        self.write(b"\n")?;
        let flushed = self.writer.flush();
        flushed.map_err(|error| self.failed(error))
    }

    /// The writer, for code that writes to it directly.
    pub(crate) fn writer(&mut self) -> &mut dyn Write {
        &mut self.writer
    }

    pub(crate) fn failed(&self, error: io::Error) -> Failure {
        Failure::writing(&self.name, error)
    }

    /// Flushes the output, and renames the file to its final name.
    ///
    /// Its content is on the disk before it has the name: after a power failure there is the whole file or
    /// the one before it, never an empty one.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        let flushed = self.writer.flush();
        flushed.map_err(|error| self.failed(error))?;
        if let Some(pending) = &self.pending {
            let named = pending.complete();
            named.map_err(|error| Failure::Io(self.name.clone(), error))?;
        }
        self.pending = None;
        Ok(())
    }
}

impl Pending {
    fn complete(&self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.unfinished, &self.target)?;
        // So that the name is on the disk, too. Where a folder cannot be opened, it is written in time.
        let folder = self.target.parent().filter(|it| !it.as_os_str().is_empty());
        match File::open(folder.unwrap_or(Path::new("."))) {
            Ok(folder) => folder.sync_all(),
            Err(_) => Ok(()),
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(pending) = &self.pending {
            // An error here cannot be reported.
            let _ = fs::remove_file(&pending.unfinished);
        }
    }
}

//! Output to standard output, or to a file that appears under its name only once it is complete.

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::terminal::{self, wrap};

const BUFFER: usize = 256 << 10;

/// Refuses output that would be lost or would spoil a terminal, before any input is waited for.
///
/// # Errors
/// If the file is a folder or in none; if there is no file and standard output is closed, or a terminal and
/// the output binary.
pub(crate) fn check(path: Option<&Path>, binary: bool) -> Result<(), Failure> {
    if let Some(path) = path.filter(|path| *path != Path::new("-")) {
        return check_file(path);
    }
    if is_closed() {
        return Err(Failure::Usage(
            "standard output is closed, so the output would be lost; name a file with --output FILE"
                .to_owned(),
        ));
    }
    if binary && io::stdout().is_terminal() {
        return Err(Failure::Usage(
            "the output is binary, and a terminal cannot show it; name a file with --output FILE, or \
             redirect it: > FILE"
                .to_owned(),
        ));
    }
    Ok(())
}

fn check_file(path: &Path) -> Result<(), Failure> {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    let wrong = match folder {
        _ if path.is_dir() => io::ErrorKind::IsADirectory.into(),
        Some(folder) if !folder.is_dir() => {
            let words = format!("there is no folder {}", folder.display());
            io::Error::new(io::ErrorKind::NotFound, words)
        }
        _ => return Ok(()),
    };
    Err(Failure::Open(path.display().to_string(), wrong))
}

/// Whether the program was started with a closed standard output, where the system tells (Linux). Rust opens
/// /dev/null for reading and writing in its place, where a shell's `> /dev/null` only writes.
fn is_closed() -> bool {
    let is_null = fs::read_link("/proc/self/fd/1").is_ok_and(|it| it == Path::new("/dev/null"));
    let about = fs::read_to_string("/proc/self/fdinfo/1").unwrap_or_default();
    let flags = about.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    is_null && flags.is_some_and(|flags| flags & 0o3 == 0o2)
}

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

    /// Writes a line, broken between words where the terminal is narrower.
    pub(crate) fn wrapped(&mut self, line: &str, indent: usize) -> Result<(), Failure> {
        self.line(&wrap(line, terminal::width(), indent))
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
        // Sync the folder, so that the name is on the disk too. If the folder cannot be opened, the system
        // writes it later.
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

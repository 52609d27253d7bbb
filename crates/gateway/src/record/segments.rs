//! The files of a record: pcapng segments in one folder, bounded together by size and age. The oldest is
//! deleted first.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::entry::{Entry, Point, Way};
use super::pcapng::{self, Flow};
use super::{FILE_END, FILE_START, RecordError, RecordOptions, time};

/// How many segments a full record has.
const SEGMENTS: u64 = 16;

/// The largest segment.
const SEGMENT_MAX: u64 = 64 << 20;

/// How many bytes of records are written at once.
const BUFFER: usize = 64 << 10;

/// Room in a segment for what surrounds the body of a packet.
const AROUND: u64 = 8 << 10;

/// The file by whose lock a folder belongs to one gateway.
const LOCK: &str = "breakbulk.lock";

/// The segments of one record, and the one that is written.
pub(super) struct Segments {
    folder: PathBuf,
    size: u64,
    age: Duration,
    segment: u64,
    current: Option<Segment>,
    /// Holds the lock of the folder.
    _lock: File,
}

struct Segment {
    file: File,
    path: PathBuf,
    began: SystemTime,
    /// How many bytes were written or wait in the buffer.
    length: u64,
    buffer: Vec<u8>,
    /// The interface in this segment of each point, by the point's number.
    interfaces: BTreeMap<u64, u32>,
}

impl Segments {
    /// Makes the folder if there is none, and takes it for this process alone.
    pub(super) fn open(options: &RecordOptions, now: SystemTime) -> Result<Self, RecordError> {
        let folder = options.folder.clone();
        let failed = |error| RecordError::Folder {
            folder: folder.clone(),
            error,
        };
        make_folder(&folder).map_err(failed)?;
        let lock = private(&folder.join(LOCK), false).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(RecordError::Taken { folder }),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let segments = Self {
            segment: (options.size / SEGMENTS).min(SEGMENT_MAX),
            size: options.size,
            age: options.age,
            current: None,
            _lock: lock,
            folder: folder.clone(),
        };
        segments.prune(now).map_err(failed)?;
        Ok(segments)
    }

    /// Writes a record of a point; `number` is the point's own number.
    pub(super) fn write(
        &mut self,
        now: SystemTime,
        (number, point): (u64, &Point),
        entry: &Entry,
    ) -> io::Result<()> {
        let room = self.segment.saturating_sub(AROUND);
        let body = &entry.body[..entry.body.len().min(room as usize)];
        let is_full = self.current.as_ref().is_some_and(|segment| {
            segment.length + body.len() as u64 + AROUND > self.segment
                || segment.is_old(now, self.age)
        });
        if is_full {
            self.flush()?;
            self.current = None;
        }
        let segment = match &mut self.current {
            Some(segment) => segment,
            None => {
                self.prune(now)?;
                self.current.insert(Segment::begin(&self.folder, now)?)
            }
        };
        segment.add(number, point, entry, body)?;
        Ok(())
    }

    /// Writes out what waits in the buffer.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match &mut self.current {
            Some(segment) => segment.flush(),
            None => Ok(()),
        }
    }

    /// Deletes what is too old when nothing was written for a while.
    pub(super) fn idle(&mut self, now: SystemTime) -> io::Result<()> {
        let is_old = |segment: &Segment| segment.is_old(now, self.age);
        if self.current.as_ref().is_some_and(is_old) {
            // The segment that is written is never deleted.
            self.flush()?;
            self.current = None;
        }
        self.prune(now)
    }

    /// Deletes segments that are too old, and the oldest ones until there is room for another.
    pub(super) fn prune(&self, now: SystemTime) -> io::Result<()> {
        let current = self.current.as_ref().map(|segment| &segment.path);
        let mut files = segment_files(&self.folder)?;
        files.retain(|path| Some(path) != current);
        let mut kept = Vec::new();
        for path in files {
            let about = match fs::metadata(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                about => about?,
            };
            let old = now
                .duration_since(about.modified().unwrap_or(now))
                .unwrap_or_default();
            match old > self.age {
                true => remove(&path)?,
                false => kept.push((path, about.len())),
            }
        }
        let mut total: u64 = kept.iter().map(|(_, length)| length).sum();
        for (path, length) in kept {
            if total + self.segment <= self.size {
                break;
            }
            remove(&path)?;
            total -= length;
        }
        Ok(())
    }
}

impl Segment {
    fn begin(folder: &Path, now: SystemTime) -> io::Result<Self> {
        let mut micros = time::micros(now);
        // Two segments may begin within a microsecond, or after the clock was set back.
        let (path, file) = loop {
            let name = format!("{FILE_START}{}{FILE_END}", time::file_name(micros));
            let path = folder.join(name);
            match private(&path, true) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => micros += 1,
                opened => break (path, opened?),
            }
        };
        let mut segment = Self {
            file,
            path,
            began: now,
            length: 0,
            buffer: Vec::with_capacity(BUFFER),
            interfaces: BTreeMap::new(),
        };
        let application = concat!("breakbulk ", env!("CARGO_PKG_VERSION"));
        pcapng::write_section(&mut segment.buffer, application);
        segment.length = segment.buffer.len() as u64;
        Ok(segment)
    }

    /// Whether the next segment should begin, so that old records are deleted in small steps.
    fn is_old(&self, now: SystemTime, age: Duration) -> bool {
        let lasted = now.duration_since(self.began).unwrap_or_default();
        lasted > age / SEGMENTS as u32
    }

    fn add(&mut self, number: u64, point: &Point, entry: &Entry, body: &[u8]) -> io::Result<()> {
        let before = self.buffer.len();
        let next = self.interfaces.len() as u32;
        let buffer = &mut self.buffer;
        let interface = *self.interfaces.entry(number).or_insert_with(|| {
            let about = serde_json::to_string(point).unwrap_or_default();
            pcapng::write_interface(buffer, &point.name(), &about);
            next
        });
        let comment = serde_json::to_string(&entry.note).unwrap_or_default();
        pcapng::write_packet(
            buffer,
            &pcapng::Outgoing {
                interface,
                micros: entry.micros,
                flow: entry.way.map(|way| match way {
                    Way::In => Flow::In,
                    Way::Out => Flow::Out,
                }),
                info: &entry.note.summary(),
                dissector: match body.first() {
                    Some(b'{' | b'[') => "json",
                    _ => "data",
                },
                body,
                length: entry.length(),
                comment: &comment,
            },
        );
        self.length += (self.buffer.len() - before) as u64;
        match self.buffer.len() >= BUFFER {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all(&self.buffer)?;
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER);
        Ok(())
    }
}

/// The segments in a folder, the oldest first.
pub(super) fn segment_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for file in fs::read_dir(folder)? {
        let file = file?;
        let name = file.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(FILE_START) && name.ends_with(FILE_END) && file.file_type()?.is_file() {
            files.push(file.path());
        }
    }
    // Their names begin with their times.
    files.sort();
    Ok(files)
}

/// Deletes a file, unless somebody else has.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn make_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    builder.create(folder)
}

/// Opens a file that only its owner can read.
fn private(path: &Path, is_new: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).create_new(is_new);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options.open(path)
}

//! Reads records from files. A file may come from anybody: memory is bounded, and what cannot be read as a
//! record is reported and skipped.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::entry::{Entry, Note, Point, Way};
use super::pcapng::{Block, BlockReader, Damage, Flow, Packet};
use super::segments::segment_files;

/// The first bytes of every pcapng file.
pub const MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// The longest description of a point that is read.
const POINT_MAX: usize = 16 << 10;

/// The longest note that is read.
const NOTE_MAX: usize = 16 << 10;

/// The files of a record: those of a folder, the oldest first, or one file.
///
/// # Errors
/// If the folder cannot be read.
pub fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
    match path.is_dir() {
        true => segment_files(path),
        false => Ok(vec![path.to_owned()]),
    }
}

/// What a reader finds.
#[derive(Debug)]
pub enum Found {
    /// A record.
    Entry(Arc<Point>, Box<Entry>),
    /// A packet or an interface that no gateway of this kind wrote.
    Foreign,
}

/// Reads the records of one file, in the order in which they were written.
pub struct RecordReader<R> {
    blocks: BlockReader<R>,
    /// The points of the section, by the numbers of their interfaces; `None` for those of others.
    points: Vec<Option<Arc<Point>>>,
}

impl RecordReader<BufReader<File>> {
    /// Opens a file.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self::new(BufReader::with_capacity(
            256 << 10,
            File::open(path)?,
        )))
    }
}

impl<R: Read> RecordReader<R> {
    /// Reads from here.
    pub fn new(from: R) -> Self {
        Self {
            blocks: BlockReader::new(from),
            points: Vec::new(),
        }
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// If the file is damaged here or ends within a record. It cannot be read further then.
    pub fn read_next(&mut self) -> Result<Option<Found>, Damage> {
        loop {
            let Some(block) = self.blocks.next()? else {
                return Ok(None);
            };
            match block {
                Block::Section => self.points.clear(),
                Block::Interface(about) => {
                    let point = Some(about)
                        .filter(|about| about.len() <= POINT_MAX)
                        .and_then(|about| serde_json::from_str(&about).ok());
                    self.points.push(point.map(Arc::new));
                }
                Block::Packet(packet) => {
                    let point = self.points.get(packet.interface as usize);
                    let entry = entry(packet);
                    return Ok(Some(match (point.cloned().flatten(), entry) {
                        (Some(point), Some(entry)) => Found::Entry(point, Box::new(entry)),
                        _ => Found::Foreign,
                    }));
                }
                Block::Other => {}
            }
        }
    }
}

fn entry(packet: Packet) -> Option<Entry> {
    if packet.comment.len() > NOTE_MAX {
        return None;
    }
    let note: Note = serde_json::from_str(&packet.comment).ok()?;
    Some(Entry {
        micros: packet.micros,
        way: packet.flow.map(|flow| match flow {
            Flow::In => Way::In,
            Flow::Out => Way::Out,
        }),
        note,
        body: Bytes::from(packet.body),
    })
}

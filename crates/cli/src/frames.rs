//! Reads messages, and frames from files: one per line, or each after a u32 big-endian length.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

use breakbulk::link::Frame;
use bytes::Bytes;

use crate::failure::Failure;
use crate::size::show;

const BUFFER: usize = 256 << 10;

/// An open input: its bytes, its length if known, and its name for error texts.
pub(crate) struct Input {
    pub(crate) reader: Box<dyn Read>,
    pub(crate) length: Option<u64>,
    pub(crate) name: String,
}

/// Standard input, or a file.
pub(crate) fn open(path: Option<&Path>) -> Result<Input, Failure> {
    match path {
        Some(path) if path != Path::new("-") => {
            let name = path.display().to_string();
            let file = open_file(path)?;
            let length = file
                .metadata()
                .ok()
                .filter(|metadata| metadata.is_file())
                .map(|metadata| metadata.len());
            Ok(Input {
                reader: Box::new(file),
                length,
                name,
            })
        }
        _ => Ok(Input {
            reader: Box::new(io::stdin().lock()),
            length: None,
            name: "standard input".to_owned(),
        }),
    }
}

/// Opens a file. A folder can be opened too, and fails only when it is read.
pub(crate) fn open_file(path: &Path) -> Result<File, Failure> {
    let opened = match path.is_dir() {
        true => Err(io::ErrorKind::IsADirectory.into()),
        false => File::open(path),
    };
    opened.map_err(|error| Failure::Open(path.display().to_string(), error))
}

/// Bytes at the beginning of an input that are used to detect its format.
const PREFIX: usize = 1 << 20;

/// An input whose beginning was read.
pub(crate) struct Opened {
    pub(crate) rest: Box<dyn Read>,
    /// Its name, for messages.
    pub(crate) name: String,
    /// Its size, if known.
    pub(crate) length: Option<u64>,
    /// Its first bytes.
    pub(crate) prefix: Vec<u8>,
    /// Whether that is all of it.
    pub(crate) whole: bool,
}

impl Opened {
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, Failure> {
        let Input {
            reader: mut rest,
            length,
            name,
        } = open(path)?;
        let mut prefix = Vec::new();
        (&mut rest)
            .take(PREFIX as u64)
            .read_to_end(&mut prefix)
            .map_err(|error| Failure::Io(name.clone(), error))?;
        let whole = prefix.len() < PREFIX;
        Ok(Self {
            rest,
            name,
            length,
            prefix,
            whole,
        })
    }

    /// All its bytes, from the beginning.
    pub(crate) fn reader(self) -> BufReader<Box<dyn Read>> {
        let all: Box<dyn Read> = Box::new(Cursor::new(self.prefix).chain(self.rest));
        BufReader::with_capacity(BUFFER, all)
    }
}

/// Reads a whole message; fails if it is longer than `limit`.
pub(crate) fn read_message(path: Option<&Path>, limit: usize) -> Result<Bytes, Failure> {
    let Input {
        reader,
        length,
        name,
    } = open(path)?;
    let mut message = Vec::new();
    if let Some(length) = length.and_then(|length| usize::try_from(length).ok()) {
        message.reserve_exact(length.min(limit));
    }
    reader
        .take((limit as u64).saturating_add(1))
        .read_to_end(&mut message)
        .map_err(|error| Failure::Io(name.clone(), error))?;
    if message.len() > limit {
        return Err(Failure::Input(format!(
            "{name}: the message is over the limit of {limit} bytes ({}); raise --max-message",
            show(limit)
        )));
    }
    Ok(message.into())
}

/// Reads frames of at most `limit` bytes from a stream.
pub(crate) struct FrameReader {
    reader: BufReader<Box<dyn Read>>,
    name: String,
    binary: bool,
    limit: usize,
    /// Whether the last line had no line break at its end.
    pub(crate) cut_off: bool,
    /// Frames read so far.
    pub(crate) count: u64,
    /// Bytes read so far, framing included.
    pub(crate) bytes: u64,
}

impl FrameReader {
    pub(crate) fn new(opened: Opened, binary: bool, limit: usize) -> Self {
        Self {
            name: opened.name.clone(),
            reader: opened.reader(),
            binary,
            limit,
            cut_off: false,
            count: 0,
            bytes: 0,
        }
    }

    /// The next frame; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, Failure> {
        let frame = if self.binary {
            self.next_binary()?
        } else {
            self.next_line()?
        };
        self.count += u64::from(frame.is_some());
        Ok(frame)
    }

    fn next_line(&mut self) -> Result<Option<Frame>, Failure> {
        let mut line = Vec::new();
        let most = self.limit.saturating_add(1) as u64;
        let read = (&mut self.reader)
            .take(most)
            .read_until(b'\n', &mut line)
            .map_err(|error| self.io(error))?;
        self.bytes += read as u64;
        if read == 0 {
            return Ok(None);
        }
        self.cut_off = line.last() != Some(&b'\n');
        if self.cut_off && line.len() > self.limit {
            return Err(self.too_long());
        }
        // A frame never ends in a line break itself, so both kinds can be removed.
        line.pop_if(|last| *last == b'\n');
        line.pop_if(|last| *last == b'\r');
        Ok(Some(Frame::Text(line.into())))
    }

    fn next_binary(&mut self) -> Result<Option<Frame>, Failure> {
        let mut prefix = Vec::with_capacity(4);
        (&mut self.reader)
            .take(4)
            .read_to_end(&mut prefix)
            .map_err(|error| self.io(error))?;
        let length = match <[u8; 4]>::try_from(prefix.as_slice()) {
            Ok(prefix) => u32::from_be_bytes(prefix) as usize,
            Err(_) if prefix.is_empty() => return Ok(None),
            Err(_) => return Err(self.truncated("a length prefix", 4, prefix.len())),
        };
        if length > self.limit {
            return Err(self.too_long());
        }
        let mut frame = Vec::new();
        (&mut self.reader)
            .take(length as u64)
            .read_to_end(&mut frame)
            .map_err(|error| self.io(error))?;
        if frame.len() < length {
            return Err(self.truncated("a frame", length, frame.len()));
        }
        self.bytes += 4 + length as u64;
        Ok(Some(Frame::Binary(frame.into())))
    }

    fn io(&self, error: io::Error) -> Failure {
        Failure::Io(self.name.clone(), error)
    }

    fn too_long(&self) -> Failure {
        Failure::Input(format!(
            "frame {}: frame-too-large: longer than the limit of {} bytes; raise --max-frame to accept it",
            self.count + 1,
            self.limit
        ))
    }

    fn truncated(&self, what: &str, want: usize, have: usize) -> Failure {
        Failure::Input(format!(
            "frame {}: truncated: the input ends after {have} of {want} bytes of {what}",
            self.count + 1
        ))
    }
}

/// What to write before and after a frame, so that [`FrameReader`] can read it.
pub(crate) fn delimiters(frame: &[u8], binary: bool) -> Result<([u8; 4], &'static [u8]), Failure> {
    match (binary, u32::try_from(frame.len())) {
        (false, _) => Ok(([0; 4], b"\n")),
        (true, Ok(length)) => Ok((length.to_be_bytes(), b"")),
        (true, Err(_)) => Err(Failure::Input(format!(
            "a frame of {} bytes does not fit behind a u32 length; lower --max-frame",
            frame.len()
        ))),
    }
}

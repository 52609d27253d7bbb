//! The events that were heard at relays, kept in a file beside the key, so that a relay cannot repeat
//! them after a restart.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use breakbulk_contextvm::{EventId, Heard, Journal, PublicKey};
use breakbulk_link::lock;

use super::files;

/// The bytes of one event: its author, its id, its time.
const RECORD: usize = 32 + 32 + 8;

/// The most events that are read.
const LONGEST: u64 = 1 << 18;

/// A file of records of a fixed size, the latest last.
pub(super) struct HeardFile {
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    /// Opened for appending, when there is something to append.
    file: Option<File>,
    /// Records that were added since the file was written anew, and how many there were then.
    added: usize,
    written: usize,
    /// Whether the last write failed: repeated failures are logged once.
    failed: bool,
}

impl HeardFile {
    /// The file beside this key, `KEY.heard`.
    pub(super) fn beside(key: &Path) -> Self {
        Self {
            path: files::beside(key, "heard"),
            state: Mutex::new(State {
                file: None,
                added: 0,
                written: 0,
                failed: false,
            }),
        }
    }

    /// Opens the file to append records, behind the last whole one: a full disk may have cut one off.
    fn open(&self) -> io::Result<File> {
        let file = files::private()
            .append(true)
            .create(true)
            .open(&self.path)?;
        let length = file.metadata()?.len();
        let rest = length % RECORD as u64;
        if rest > 0 {
            file.set_len(length - rest)?;
        }
        Ok(file)
    }

    fn told(&self, state: &mut State, done: io::Result<()>) {
        match done {
            Ok(()) => state.failed = false,
            Err(error) if !state.failed => {
                state.failed = true;
                state.file = None;
                tracing::error!(
                    file = %self.path.display(),
                    %error,
                    "the file of received events cannot be written: after a restart of this gateway a relay may deliver events a second time; free disk space or correct the file's permissions"
                );
            }
            Err(_) => state.file = None,
        }
    }
}

impl Journal for HeardFile {
    fn load(&self) -> Option<Vec<Heard>> {
        read(&self.path)
            .inspect_err(|error| {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::error!(
                        file = %self.path.display(),
                        %error,
                        "the file of received events cannot be read: a listener refuses events from before its start; correct its permissions"
                    );
                }
            })
            .ok()
    }

    fn add(&self, heard: &Heard) -> bool {
        let mut state = lock(&self.state);
        let opened = match state.file.take() {
            Some(file) => Ok(file),
            None => self.open(),
        };
        let done = opened.and_then(|mut file| {
            // A single write, so that a crash or a full disk leaves at most a part of the last record.
            file.write_all(&record(heard))?;
            state.file = Some(file);
            Ok(())
        });
        self.told(&mut state, done);
        state.added += 1;
        // The file gets at most twice as long as it must be, or 1,024 records longer if that is more.
        state.added > state.written.max(1024)
    }

    fn replace(&self, all: Vec<Heard>) {
        let mut state = lock(&self.state);
        state.file = None;
        (state.added, state.written) = (0, all.len());
        let bytes: Vec<u8> = all.iter().flat_map(record).collect();
        let done = files::replace(&self.path, &bytes);
        self.told(&mut state, done);
    }
}

fn record(heard: &Heard) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    record[..32].copy_from_slice(&heard.author.to_bytes());
    record[32..64].copy_from_slice(&heard.id.to_bytes());
    record[64..].copy_from_slice(&heard.created_at.to_be_bytes());
    record
}

fn read(path: &Path) -> io::Result<Vec<Heard>> {
    let mut bytes = Vec::new();
    let longest = LONGEST * RECORD as u64;
    File::open(path)?.take(longest).read_to_end(&mut bytes)?;
    // A record that was cut off by a crash is the last.
    let records = bytes.chunks_exact(RECORD);
    let heard = records.filter_map(|record| {
        let (author, rest) = record.split_first_chunk::<32>()?;
        let (id, rest) = rest.split_first_chunk::<32>()?;
        let (created_at, _) = rest.split_first_chunk::<8>()?;
        Some(Heard {
            author: PublicKey::from_byte_array(*author),
            id: EventId::from_byte_array(*id),
            created_at: u64::from_be_bytes(*created_at),
        })
    });
    Ok(heard.collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;

    use breakbulk_testkit::log::{Level, Log};

    use super::*;

    fn heard(number: u64) -> Heard {
        let mut id = [7; 32];
        id[..8].copy_from_slice(&number.to_be_bytes());
        Heard {
            author: PublicKey::from_byte_array([9; 32]),
            id: EventId::from_byte_array(id),
            created_at: 1_700_000_000 + number,
        }
    }

    // CEP22-18
    #[test]
    fn what_was_heard_outlives_the_process_and_stays_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let (key, path) = (folder.path().join("key"), folder.path().join("key.heard"));
        let file = HeardFile::beside(&key);
        assert_eq!(file.load(), None);
        file.replace(vec![heard(0)]);
        for number in 1..10 {
            assert!(!file.add(&heard(number)));
        }
        let all: Vec<Heard> = (0..10).map(heard).collect();
        assert_eq!(HeardFile::beside(&key).load().as_ref(), Some(&all));
        // The process ended within a record.
        let mut bytes = fs::read(&path).unwrap();
        bytes.extend_from_slice(&[1; RECORD - 1]);
        fs::write(&path, &bytes).unwrap();
        let file = HeardFile::beside(&key);
        assert_eq!(file.load().as_ref(), Some(&all));
        // What is added to it then, is added behind the last whole record.
        file.add(&heard(10));
        let more: Vec<Heard> = (0..11).map(heard).collect();
        assert_eq!(file.load().as_ref(), Some(&more));
        // Whoever loads it writes it anew, without the half of a record.
        file.replace(all);
        let mut rewritten = 0;
        for number in 10..10_000 {
            if file.add(&heard(number)) {
                rewritten += 1;
                file.replace((number - 100..=number).map(heard).collect());
            }
        }
        assert!((5..20).contains(&rewritten), "{rewritten}");
        let size = fs::metadata(&path).unwrap().len();
        assert!(size <= (1200 * RECORD) as u64, "{size}");
        let kept = HeardFile::beside(&key).load().unwrap();
        assert!(kept.contains(&heard(9_999)));
        #[cfg(unix)]
        {
            let mode = std::os::unix::fs::PermissionsExt::mode(
                &fs::metadata(&path).unwrap().permissions(),
            );
            assert_eq!(mode & 0o777, 0o600);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_cannot_be_written_stops_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let log = Log::capture();
        let file = HeardFile::beside(&folder.path().join("none").join("key"));
        assert_eq!(file.load(), None);
        file.replace(vec![heard(0)]);
        assert!(!file.add(&heard(1)));
        let error = ["the file of received events cannot be written", "none/key"];
        log.assert_line(Level::ERROR, &error);
    }
}

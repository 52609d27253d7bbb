//! What servers at relays support, kept in a file beside the key, so that a large first request need not
//! wait for an answer about it.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use breakbulk_contextvm::{Learned, Memory, PublicKey, public_key};
use breakbulk_link::lock;

use super::files;

/// The most servers that are remembered; the ones learned of last stay.
const SERVERS: usize = 1000;

/// The most bytes of the file that are read.
const LONGEST: u64 = 256 << 10;

/// A file with a line for each server, its key and what it supports, the latest last.
pub(super) struct KnownServers {
    file: PathBuf,
    servers: Mutex<Vec<(PublicKey, Learned)>>,
}

impl KnownServers {
    /// The file beside this key, `KEY.servers`.
    pub(super) fn beside(key: &Path) -> Self {
        let file = files::beside(key, "servers");
        // If the file cannot be read, the servers are asked again.
        let servers = read(&file).unwrap_or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!(file = %file.display(), %error, "the file of known servers cannot be read; they are asked again");
            }
            Vec::new()
        });
        Self {
            file,
            servers: Mutex::new(servers),
        }
    }

    fn servers(&self) -> MutexGuard<'_, Vec<(PublicKey, Learned)>> {
        lock(&self.servers)
    }
}

impl Memory for KnownServers {
    fn recall(&self, peer: &PublicKey) -> Option<Learned> {
        let servers = self.servers();
        let known = servers.iter().find(|(server, _)| server == peer);
        known.map(|(_, learned)| *learned)
    }

    fn keep(&self, peer: &PublicKey, learned: Learned) {
        let mut servers = self.servers();
        if servers.contains(&(*peer, learned)) {
            return;
        }
        // Another process with the same key may have added servers since. If the file is there and cannot be read,
        // it must not lose those of this process.
        let mut all = read(&self.file).unwrap_or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Vec::new(),
            _ => servers.clone(),
        });
        all.retain(|(server, _)| server != peer);
        all.push((*peer, learned));
        all.drain(..all.len().saturating_sub(SERVERS));
        if let Err(error) = write(&self.file, &all) {
            tracing::warn!(file = %self.file.display(), %error, "the file of known servers cannot be written; this server will be asked again");
        }
        *servers = all;
    }
}

fn read(file: &Path) -> io::Result<Vec<(PublicKey, Learned)>> {
    let mut text = String::new();
    fs::File::open(file)?
        .take(LONGEST)
        .read_to_string(&mut text)?;
    let line = |line: &str| {
        let (server, learned) = line.split_once(' ')?;
        Some((public_key(server).ok()?, learned.trim().parse().ok()?))
    };
    let mut servers: Vec<_> = text.lines().filter_map(line).collect();
    servers.drain(..servers.len().saturating_sub(SERVERS));
    Ok(servers)
}

fn write(file: &Path, servers: &[(PublicKey, Learned)]) -> io::Result<()> {
    let lines = servers.iter();
    let lines = lines.map(|(server, learned)| format!("{} {learned}\n", server.to_hex()));
    files::replace(file, lines.collect::<String>().as_bytes())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use breakbulk_contextvm::Keys;

    use super::*;

    #[test]
    fn what_was_learned_outlives_the_process_and_stays_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("key");
        let file = folder.path().join("key.servers");
        let (first, second) = (Keys::generate().public_key(), Keys::generate().public_key());
        let learned = |text: &str| text.parse::<Learned>().unwrap();
        let known = KnownServers::beside(&key);
        assert_eq!(known.recall(&first), None);
        known.keep(&first, learned("oversized"));
        known.keep(&second, learned("nothing"));
        known.keep(&first, learned("oversized,encryption"));
        let lines = format!(
            "{} nothing\n{} oversized,encryption\n",
            second.to_hex(),
            first.to_hex()
        );
        assert_eq!(fs::read_to_string(&file).unwrap(), lines);

        // Invalid lines are ignored.
        fs::write(
            &file,
            format!("# a word\n{lines}rubbish\n{} flying\n", second.to_hex()),
        )
        .unwrap();
        let known = KnownServers::beside(&key);
        assert_eq!(known.recall(&first), Some(learned("oversized,encryption")));
        assert_eq!(known.recall(&second), Some(learned("nothing")));

        let many: String = (0..SERVERS)
            .map(|_| format!("{} oversized\n", Keys::generate().public_key().to_hex()))
            .collect();
        fs::write(&file, format!("{lines}{many}")).unwrap();
        let known = KnownServers::beside(&key);
        let third = Keys::generate().public_key();
        known.keep(&third, learned("oversized"));
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(text.lines().count(), SERVERS);
        assert!(text.ends_with(&format!("{} oversized\n", third.to_hex())));
        assert_eq!(known.recall(&first), None);
        // A file that cannot be read loses nothing of what this process knows.
        fs::write(&file, [0xff]).unwrap();
        known.keep(&second, learned("oversized"));
        let again = KnownServers::beside(&key);
        assert_eq!(again.recall(&third), Some(learned("oversized")));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}

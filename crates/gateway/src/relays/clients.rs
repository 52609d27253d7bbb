//! Which clients at relays are known, in a file beside the key. Anybody can make any number of keys, so
//! unknown clients share only a part of the places for sessions.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use breakbulk_contextvm::{PublicKey, public_key};
use breakbulk_link::lock;
use tokio::time::Instant;

use super::files;

/// The most clients that are known; those that were known first are forgotten first.
const KNOWN: usize = 1000;

/// The most unknown clients whose first session is remembered.
const OTHERS: usize = 1000;

/// A client is known once it had sessions over this time, unlike the keys that are made for a flood.
const KNOWN_AFTER: Duration = Duration::from_secs(3600);

/// The most bytes of the file that are read.
const LONGEST: u64 = 256 << 10;

/// A file with the public key of a client in each line, hex or npub, the latest last.
pub(super) struct KnownClients {
    /// `None`: they are not kept.
    file: Option<PathBuf>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    known: Vec<PublicKey>,
    /// When the others began their first session, and in which order they did.
    first: BTreeMap<PublicKey, Instant>,
    order: VecDeque<PublicKey>,
}

impl KnownClients {
    /// Reads the clients in the file beside this key, `KEY.clients`.
    pub(super) fn beside(key: Option<&Path>) -> Self {
        let file = key.map(|key| files::beside(key, "clients"));
        let known = file.as_deref().and_then(read).unwrap_or_default();
        Self {
            file,
            state: Mutex::new(State {
                known,
                ..State::default()
            }),
        }
    }

    /// All that are known.
    pub(super) fn all(&self) -> Vec<PublicKey> {
        self.state().known.clone()
    }

    pub(super) fn contains(&self, client: &PublicKey) -> bool {
        self.state().known.contains(client)
    }

    /// A session of this client begins or ends now.
    pub(super) fn seen(&self, client: PublicKey, now: Instant) {
        let mut state = self.state();
        if state.known.contains(&client) {
            return;
        }
        let Some(first) = state.first.get(&client).copied() else {
            state.first.insert(client, now);
            state.order.push_back(client);
            while state.order.len() > OTHERS {
                if let Some(oldest) = state.order.pop_front() {
                    state.first.remove(&oldest);
                }
            }
            return;
        };
        if now.saturating_duration_since(first) < KNOWN_AFTER {
            return;
        }
        state.first.remove(&client);
        state.order.retain(|other| *other != client);
        let Some(file) = &self.file else {
            add(&mut state.known, client);
            return;
        };
        // Somebody may have written to it since. If it cannot be read, it must not lose those of this process.
        let mut known = read(file).unwrap_or_else(|| state.known.clone());
        add(&mut known, client);
        let lines = known.iter().map(|known| format!("{}\n", known.to_hex()));
        if let Err(error) = files::replace(file, lines.collect::<String>().as_bytes()) {
            tracing::warn!(file = %file.display(), %error, "the file of known clients cannot be written; this client is unknown after a restart");
        }
        state.known = known;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn add(known: &mut Vec<PublicKey>, client: PublicKey) {
    known.retain(|other| *other != client);
    known.push(client);
    known.drain(..known.len().saturating_sub(KNOWN));
}

/// The clients of a file; none of one that is not there. `None`: it cannot be read.
fn read(file: &Path) -> Option<Vec<PublicKey>> {
    let mut text = String::new();
    let opened = File::open(file).and_then(|file| file.take(LONGEST).read_to_string(&mut text));
    if let Err(error) = opened
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(file = %file.display(), %error, "the file of known clients cannot be read; those in it are unknown");
        return None;
    }
    let mut known = Vec::new();
    for client in text.lines().filter_map(|line| public_key(line).ok()) {
        add(&mut known, client);
    }
    Some(known)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use breakbulk_contextvm::{Keys, npub};

    use super::*;

    // CEP22-19
    #[test]
    fn who_comes_again_after_an_hour_is_known_and_a_flood_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("key");
        let file = folder.path().join("key.clients");
        let [named, friend, stranger] = [(); 3].map(|()| Keys::generate().public_key());
        std::fs::write(&file, format!("# by hand\n{}\n", npub(&named))).unwrap();
        let clients = KnownClients::beside(Some(&key));
        let begin = Instant::now();
        assert!(clients.contains(&named) && !clients.contains(&friend));
        clients.seen(friend, begin);
        clients.seen(friend, begin + KNOWN_AFTER - Duration::from_secs(1));
        assert!(!clients.contains(&friend));
        clients.seen(stranger, begin + KNOWN_AFTER);
        clients.seen(friend, begin + KNOWN_AFTER);
        assert!(clients.contains(&friend) && !clients.contains(&stranger));
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(text, format!("{}\n{}\n", named.to_hex(), friend.to_hex()));

        for _ in 0..3 * OTHERS {
            clients.seen(Keys::generate().public_key(), begin + KNOWN_AFTER);
        }
        assert_eq!(clients.state().first.len(), OTHERS);
        assert_eq!(clients.all(), [named, friend]);
        assert_eq!(KnownClients::beside(Some(&key)).all(), [named, friend]);
        // A file that cannot be read loses nothing of what this process knows.
        std::fs::write(&file, [0xff]).unwrap();
        let late = Keys::generate().public_key();
        clients.seen(late, begin);
        clients.seen(late, begin + KNOWN_AFTER);
        let again = KnownClients::beside(Some(&key));
        assert_eq!(again.all(), [named, friend, late]);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}

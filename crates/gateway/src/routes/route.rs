//! One route, and whether two of them are the same.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::endpoint::Endpoint;
use crate::plan::Config;

/// How much of a file is compared, from its beginning.
const LONGEST: u64 = 1 << 20;

/// A listener and its target, with a name.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Route {
    /// The name in the log and in errors. Each route has another one.
    pub name: String,
    /// The end that clients connect to.
    pub listen: Endpoint,
    /// The end that their messages go to.
    pub to: Endpoint,
    /// Whether its name stands before each line of the log that is about it.
    pub named_in_log: bool,
    /// Its limits. [`Config::memory`] does not count here: all routes share one memory, which
    /// [`Routes`](crate::Routes) is told.
    pub config: Config,
}

impl Route {
    /// A route of this name between two ends.
    pub fn new(name: impl Into<String>, listen: Endpoint, to: Endpoint, config: Config) -> Self {
        Self {
            name: name.into(),
            listen,
            to,
            named_in_log: true,
            config,
        }
    }

    /// The route with the digests of its files, to be compared with a later version of it.
    pub(super) fn started(&self) -> Started {
        let files = self.listen.files(true).into_iter();
        let files = files.chain(self.to.files(false));
        #[cfg(feature = "nats")]
        let files = files.chain(self.config.fleet.iter().flat_map(|fleet| fleet.files()));
        Started {
            route: self.clone(),
            files: files.map(|file| (digest(&file), file)).collect(),
        }
    }
}

/// A route, and what was in its files when it was started.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) route: Route,
    /// The files that are read once, at the start: certificates, keys, and the tokens of targets. (A
    /// listener's tokens are read again when their file changes, without touching its sessions.)
    files: Vec<(Option<[u8; 32]>, PathBuf)>,
}

impl Started {
    /// Whether starting the other one would make no difference.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let (one, two) = (&self.route, &other.route);
        one.name == two.name
            && one.listen == two.listen
            && one.to == two.to
            && is_same(&one.config, &two.config)
            && self.files == other.files
    }
}

/// The digest of a file; `None` if it is none that can be read twice, such as a pipe.
fn digest(path: &Path) -> Option<[u8; 32]> {
    let file = File::open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut content = Vec::new();
    file.take(LONGEST).read_to_end(&mut content).ok()?;
    Some(Sha256::digest(&content).into())
}

/// Whether two configurations of a route are the same, but for the memory that all routes share.
fn is_same(one: &Config, two: &Config) -> bool {
    // Every field is named, so that a new one is decided here.
    let Config {
        max_frame,
        max_message,
        fragment,
        preset,
        memory: _,
        max_sessions,
        per_address,
        handshakes,
        allowed_origins,
        allowed_hosts,
        #[cfg(unix)]
        allowed_users,
        allow_remote,
        probes,
        check,
        grace,
        resume_for,
        learned_caps,
        #[cfg(feature = "nats")]
        fleet,
        #[cfg(feature = "nats")]
        fleet_secret,
        // The watch and the traces are the same for all routes of a process; the caller compares the names.
        watch: _,
        route: _,
        #[cfg(feature = "otlp")]
            traces: _,
        token,
        #[cfg(feature = "nostr")]
        key,
    } = one;
    #[cfg(unix)]
    if *allowed_users != two.allowed_users {
        return false;
    }
    #[cfg(feature = "nats")]
    if *fleet != two.fleet || *fleet_secret != two.fleet_secret {
        return false;
    }
    #[cfg(feature = "nostr")]
    if *key != two.key {
        return false;
    }
    *max_frame == two.max_frame
        && *max_message == two.max_message
        && *fragment == two.fragment
        && *preset == two.preset
        && *max_sessions == two.max_sessions
        && *per_address == two.per_address
        && *handshakes == two.handshakes
        && *allowed_origins == two.allowed_origins
        && *allowed_hosts == two.allowed_hosts
        && *allow_remote == two.allow_remote
        && *probes == two.probes
        && *check == two.check
        && *grace == two.grace
        && *resume_for == two.resume_for
        && Arc::ptr_eq(learned_caps, &two.learned_caps)
        && *token == two.token
}

#[cfg(all(test, feature = "process"))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    // OPS-4
    #[test]
    fn a_route_is_changed_by_what_it_says_and_by_what_its_files_hold() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            path.display().to_string()
        };
        let (cert, tokens) = (file("cert", "one"), file("tokens", "anna a1"));
        let listen = format!("wss://8443?cert={cert}&key={cert}&token-file={tokens}");
        let to = format!("ws://h:1?token-file={tokens}");
        let config = Config::default();
        let route = |listen: &str, to: &str, change: fn(&mut Config)| {
            let config = config.clone().with(change);
            Route::new("a", listen.parse().unwrap(), to.parse().unwrap(), config).started()
        };
        let (before, plain) = (
            route(&listen, "exec:cat", |_| {}),
            route(&listen, &to, |_| {}),
        );
        assert!(before.is_same(&route(&listen, "exec:cat", |_| {})));
        // The same command in another spelling, and another memory (which all routes share): no change.
        assert!(before.is_same(&route(&listen, "exec: 'cat'", |config| config.memory = 7)));
        assert!(!before.is_same(&route(&listen, "exec:cat -u", |_| {})));
        assert!(!before.is_same(&route(&listen, "exec:cat", |config| config.max_sessions = 7)));
        // The tokens of a listener are read again by themselves, those of a target are not.
        file("tokens", "anna a2");
        assert!(before.is_same(&route(&listen, "exec:cat", |_| {})));
        assert!(!plain.is_same(&route(&listen, &to, |_| {})));
        file("cert", "two");
        assert!(!before.is_same(&route(&listen, "exec:cat", |_| {})));
        file("cert", "one");
        assert!(before.is_same(&route(&listen, "exec:cat", |_| {})));
    }
}

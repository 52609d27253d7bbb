//! What was learned about paths, in memory and in a file: the largest frame that each lets through.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use breakbulk_link::lock;
use serde_json::{Map, Value, json};

/// The format of the file.
const VERSION: u64 = 1;

/// So many paths are remembered; the oldest are forgotten.
const PATHS: usize = 256;

/// The largest file that is read; a larger one is not one of these.
const FILE_MAX: u64 = 1 << 20;

/// The caps that gateways learned, by path, each way.
#[derive(Debug, Default)]
pub struct LearnedCaps {
    file: Option<PathBuf>,
    paths: Mutex<BTreeMap<String, Learned>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Learned {
    /// The largest frame that passes from this side.
    out: Option<usize>,
    /// The largest frame that passes towards this side, as the other end found out.
    incoming: Option<usize>,
    /// When that was learned, in seconds since 1970.
    at: u64,
}

impl Learned {
    fn to_json(self) -> Value {
        let mut members = Map::new();
        let caps = [("out", self.out), ("in", self.incoming)];
        for (name, cap) in caps {
            if let Some(cap) = cap {
                members.insert(name.to_owned(), cap.into());
            }
        }
        members.insert("learned".to_owned(), self.at.into());
        members.into()
    }
}

/// Why the file of learned caps cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be used: {why}; it is ignored, and replaced when something is learned", file.display())]
pub struct BrokenFile {
    file: PathBuf,
    why: String,
}

impl LearnedCaps {
    /// What was learned, kept in memory alone.
    pub fn in_memory() -> Self {
        Self::default()
    }

    /// Keeps learned caps in a file. A file that does not exist yet is made when something is learned. If the
    /// file cannot be read, the error says why, and no caps are known.
    pub fn in_file(file: PathBuf) -> (Self, Option<BrokenFile>) {
        let (paths, broken) = match read(&file) {
            Ok(paths) => (paths, None),
            Err(why) => {
                let file = file.clone();
                (BTreeMap::new(), Some(BrokenFile { file, why }))
            }
        };
        let caps = Self {
            file: Some(file),
            paths: Mutex::new(paths),
        };
        (caps, broken)
    }

    /// The largest frame that a path lets through from this side, as far as it is known.
    pub fn of(&self, path: &str) -> Option<usize> {
        lock(&self.paths).get(path)?.out
    }

    /// The largest frame that a path lets through towards this side, as far as it is known.
    pub fn of_incoming(&self, path: &str) -> Option<usize> {
        lock(&self.paths).get(path)?.incoming
    }

    /// All paths of which something is known, and the largest frame that each lets through from this side.
    pub fn all(&self) -> Vec<(String, usize)> {
        let paths = lock(&self.paths);
        let all = paths
            .iter()
            .filter_map(|(path, learned)| Some((path.clone(), learned.out?)));
        all.collect()
    }

    /// Remembers the cap of frames that this side sends.
    ///
    /// # Errors
    /// If the file cannot be written; the cap is remembered until the end of the process then.
    pub fn learn(&self, path: &str, cap: usize) -> io::Result<()> {
        self.change(path, |learned| learned.out = Some(cap))
    }

    /// Remembers the cap of frames that come to this side.
    ///
    /// # Errors
    /// As for [`learn`](Self::learn).
    pub fn learn_incoming(&self, path: &str, cap: usize) -> io::Result<()> {
        self.change(path, |learned| learned.incoming = Some(cap))
    }

    fn change(&self, path: &str, change: impl Fn(&mut Learned)) -> io::Result<()> {
        let at = SystemTime::now().duration_since(UNIX_EPOCH);
        let at = at.map_or(0, |since| since.as_secs());
        let changed = |paths: &mut BTreeMap<String, Learned>| {
            let mut learned = paths.get(path).copied().unwrap_or_default();
            change(&mut learned);
            insert(paths, path, Learned { at, ..learned });
        };
        changed(&mut lock(&self.paths));
        let Some(file) = &self.file else {
            return Ok(());
        };
        // Another gateway may have written what it learned in the meantime.
        let mut paths = read(file).unwrap_or_default();
        changed(&mut paths);
        write(file, &paths)
    }
}

fn insert(paths: &mut BTreeMap<String, Learned>, path: &str, learned: Learned) {
    paths.insert(path.to_owned(), learned);
    while paths.len() > PATHS {
        let others = paths.iter().filter(|(name, _)| *name != path);
        let oldest = others.min_by_key(|(_, learned)| learned.at);
        let Some(oldest) = oldest.map(|(name, _)| name.clone()) else {
            return;
        };
        paths.remove(&oldest);
    }
}

fn read(file: &Path) -> Result<BTreeMap<String, Learned>, String> {
    let text = match fs::metadata(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(error.to_string()),
        Ok(found) if found.len() > FILE_MAX => {
            return Err(format!("it has {} bytes, over {FILE_MAX}", found.len()));
        }
        Ok(_) => fs::read_to_string(file).map_err(|error| error.to_string())?,
    };
    let value: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    if value["version"] != VERSION {
        return Err(format!("it has no version {VERSION}"));
    }
    let paths = value["paths"].as_object().ok_or("it has no paths")?;
    let mut known = BTreeMap::new();
    for (path, value) in paths {
        let number = |name: &str| value[name].as_u64();
        let cap = |name: &str| match &value[name] {
            Value::Null => Some(None),
            _ => number(name)
                .and_then(|cap| usize::try_from(cap).ok())
                .filter(|cap| *cap >= super::LEAST_CAP)
                .map(Some),
        };
        let learned = match (cap("out"), cap("in"), number("learned")) {
            (Some(out), Some(incoming), Some(at)) if out.or(incoming).is_some() => {
                Learned { out, incoming, at }
            }
            _ => {
                return Err(format!(
                    "its entry for {path:?} has no size of at least {}",
                    super::LEAST_CAP
                ));
            }
        };
        insert(&mut known, path, learned);
    }
    Ok(known)
}

/// Replaces the file as a whole, so that nobody ever reads a part of it.
fn write(file: &Path, paths: &BTreeMap<String, Learned>) -> io::Result<()> {
    let each = paths
        .iter()
        .map(|(path, learned)| (path.clone(), learned.to_json()));
    let each: Map<String, Value> = each.collect();
    let text = format!("{:#}\n", json!({ "version": VERSION, "paths": each }));
    if let Some(folder) = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        fs::create_dir_all(folder)?;
    }
    let mut new = file.as_os_str().to_owned();
    new.push(format!(".{}", std::process::id()));
    fs::write(&new, text)?;
    fs::rename(&new, file).inspect_err(|_| drop(fs::remove_file(&new)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    // TUN-8
    #[test]
    fn what_is_learned_outlives_the_process_and_stays_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state/breakbulk/caps.json");
        let (caps, broken) = LearnedCaps::in_file(file.clone());
        assert!(broken.is_none());
        assert_eq!(caps.of("ws://a/"), None);
        caps.learn("ws://a/", 100_003).unwrap();
        // Another process learns about another path.
        let (other, _) = LearnedCaps::in_file(file.clone());
        assert_eq!(other.of("ws://a/"), Some(100_003));
        other.learn("ws://b/", 5000).unwrap();
        caps.learn("ws://a/", 50_000).unwrap();
        let (again, broken) = LearnedCaps::in_file(file.clone());
        assert!(broken.is_none());
        assert_eq!(
            (again.of("ws://a/"), again.of("ws://b/")),
            (Some(50_000), Some(5000))
        );
        // The caps of both directions are kept separately.
        again.learn_incoming("ws://a/", 7000).unwrap();
        let (both, _) = LearnedCaps::in_file(file.clone());
        assert_eq!(
            (both.of("ws://a/"), both.of_incoming("ws://a/")),
            (Some(50_000), Some(7000))
        );
        for number in 0..2 * PATHS {
            again.learn(&format!("ws://{number}/"), 5000).unwrap();
        }
        let (again, _) = LearnedCaps::in_file(file.clone());
        assert_eq!(lock(&again.paths).len(), PATHS);
        assert_eq!(again.of("ws://511/"), Some(5000));
        let left: Vec<_> = fs::read_dir(file.parent().unwrap()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    // TUN-8
    #[test]
    fn a_file_that_cannot_be_read_is_reported_and_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("caps.json");
        for (text, words) in [
            ("", "EOF"),
            ("{}", "no version 1"),
            (r#"{"version":2,"paths":{}}"#, "no version 1"),
            (r#"{"version":1}"#, "no paths"),
            (
                r#"{"version":1,"paths":{"ws://a/":{"out":1,"learned":1}}}"#,
                "has no size of at least 4096",
            ),
            (
                r#"{"version":1,"paths":{"ws://a/":{"out":"x","learned":1}}}"#,
                "has no size of at least 4096",
            ),
        ] {
            fs::write(&file, text).unwrap();
            let (caps, broken) = LearnedCaps::in_file(file.clone());
            let broken = broken.unwrap().to_string();
            assert!(broken.contains(words), "{text}: {broken}");
            assert!(broken.contains("it is ignored"), "{broken}");
            assert_eq!(caps.of("ws://a/"), None);
            caps.learn("ws://a/", 5000).unwrap();
            assert!(LearnedCaps::in_file(file.clone()).1.is_none());
        }
        let memory = LearnedCaps::in_memory();
        memory.learn("ws://a/", 5000).unwrap();
        assert_eq!(memory.of("ws://a/"), Some(5000));
    }
}

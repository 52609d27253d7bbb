//! A secret key of Nostr in a file that nobody but its owner can read.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use breakbulk_contextvm::{KeyError, Keys};

/// The most bytes of the file that are read; a key is far shorter.
const LONGEST: u64 = 1024;

/// Why there is no key in a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyFileError {
    /// There is no such file.
    #[error("key {}: there is no such file", .0.display())]
    NotFound(PathBuf),
    /// It is a folder or the like.
    #[error("key {} is no file; name the file with the key", .0.display())]
    NotFile(PathBuf),
    /// Others can read it or write to it.
    #[error(
        "key {file} is open to others (mode {mode:04o}), who could act under it; chmod 600 {file}",
        file = file.display()
    )]
    OpenToOthers {
        /// The file.
        file: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It cannot be read.
    #[error("key {}: {error}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// What is in it is no key.
    #[error("key {}: {error}", file.display())]
    Bad {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        error: KeyError,
    },
}

/// The key in a file, if the file is its owner's alone.
pub(super) fn from_file(path: &Path) -> Result<Keys, KeyFileError> {
    let file = || path.to_owned();
    let wrong = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => KeyFileError::NotFound(file()),
        _ => KeyFileError::Read {
            file: file(),
            error,
        },
    };
    let opened = File::open(path).map_err(wrong)?;
    let metadata = opened.metadata().map_err(wrong)?;
    if !metadata.is_file() {
        return Err(KeyFileError::NotFile(file()));
    }
    #[cfg(unix)]
    {
        let mode = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o777;
        if mode & 0o077 != 0 {
            return Err(KeyFileError::OpenToOthers { file: file(), mode });
        }
    }
    let mut text = String::new();
    opened
        .take(LONGEST)
        .read_to_string(&mut text)
        .map_err(wrong)?;
    Keys::parse(&text).map_err(|error| KeyFileError::Bad {
        file: file(),
        error,
    })
}

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    // PROG-12
    #[test]
    fn a_key_is_read_from_a_file_of_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let made = Keys::generate();
        std::fs::write(&path, made.to_secret_hex()).unwrap();
        let set = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        for (mode, words) in [
            (0o600, None),
            (0o400, None),
            (0o640, Some("is open to others (mode 0640)")),
            (0o604, Some("is open to others (mode 0604)")),
            (0o620, Some("chmod 600")),
            (0o777, Some("is open to others (mode 0777)")),
        ] {
            set(mode);
            match (from_file(&path), words) {
                (Ok(keys), None) => assert_eq!(keys, made),
                (Err(error), Some(words)) => {
                    assert!(error.to_string().contains(words), "{error}");
                }
                (read, words) => panic!("{mode:o}: {:?}, and not {words:?}", read.map(drop)),
            }
        }
        set(0o600);
        for (text, words) in [
            (
                "",
                "this is no secret key; write it as 64 hex digits or as nsec1…",
            ),
            ("not a key\n", "this is no secret key"),
            (&"0".repeat(64), "this is no secret key"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = from_file(&path).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
            assert!(text.is_empty() || !error.contains(text.trim()), "{error}");
        }
        let none = folder.path().join("none");
        let error = from_file(&none).unwrap_err();
        assert!(
            matches!(&error, KeyFileError::NotFound(file) if *file == none),
            "{error}"
        );
        let error = from_file(folder.path()).unwrap_err();
        assert!(matches!(error, KeyFileError::NotFile(_)), "{error}");
    }
}

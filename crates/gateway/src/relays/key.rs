//! A secret key in a file that nobody but its owner can read.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use breakbulk_contextvm::Keys;

/// A key is far shorter.
const LONGEST: u64 = 1024;

/// The key in a file, if it is the owner's alone.
pub(super) fn from_file(path: &Path) -> Result<Keys, String> {
    let name = path.display();
    let wrong = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => {
            format!("key {name}: there is no such file; make one with breakbulk keygen {name}")
        }
        _ => format!("key {name}: {error}"),
    };
    let file = File::open(path).map_err(wrong)?;
    let metadata = file.metadata().map_err(wrong)?;
    if !metadata.is_file() {
        return Err(format!("key {name} is no file; name the file with the key"));
    }
    #[cfg(unix)]
    {
        let mode = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o777;
        if mode & 0o077 != 0 {
            return Err(format!(
                "key {name} is open to others (mode {mode:04o}), and who has it can pass for you; chmod 600 {name}, or make another with breakbulk keygen"
            ));
        }
    }
    let mut text = String::new();
    file.take(LONGEST)
        .read_to_string(&mut text)
        .map_err(wrong)?;
    Keys::parse(&text).map_err(|error| format!("key {name}: {error}"))
}

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

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
                (Err(error), Some(words)) => assert!(error.contains(words), "{error}"),
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
            let error = from_file(&path).unwrap_err();
            assert!(error.contains(words), "{error}");
            assert!(text.is_empty() || !error.contains(text.trim()), "{error}");
        }
        let error = from_file(&folder.path().join("none")).unwrap_err();
        assert!(error.contains("make one with breakbulk keygen"), "{error}");
        let error = from_file(folder.path()).unwrap_err();
        assert!(error.contains("is no file"), "{error}");
    }
}

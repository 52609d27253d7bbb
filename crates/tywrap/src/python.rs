//! The Python bridge, embedded in this crate: a machine needs only Python 3.9 or later.
//!
//! The source is passed as an argument (`python3 -u -c SOURCE`): no file has to be written or cleaned up,
//! and modules of the working directory can be imported. It is kept well below every system's limit on
//! command lines.

use std::ffi::OsString;
use std::path::Path;

/// The bridge as Python source.
pub const SOURCE: &str = include_str!("python/bridge.py");

/// The default interpreter.
pub const INTERPRETER: &str = if cfg!(windows) { "python" } else { "python3" };

/// The command line and the environment that make an interpreter (a name in PATH, or a path such as that
/// of a virtual environment's interpreter) a bridge. A host appends its arguments.
pub fn command(interpreter: &Path) -> (Vec<OsString>, Vec<(String, String)>) {
    let words = vec![
        interpreter.as_os_str().to_owned(),
        "-u".into(),
        "-c".into(),
        SOURCE.into(),
    ];
    let env = [
        ("PYTHONUTF8", "1"),
        ("PYTHONIOENCODING", "UTF-8"),
        ("PYTHONUNBUFFERED", "1"),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
    (words, env.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_fits_a_command_line() {
        // Windows takes 32,767 characters for all words, and each quote costs a backslash.
        let quoted = SOURCE.len() + SOURCE.matches(['"', '\\']).count();
        assert!(quoted < 29_000, "{quoted}");
        assert!(SOURCE.is_ascii() && !SOURCE.contains('\r'));
    }
}

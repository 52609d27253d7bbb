//! The Python side, carried along: a machine needs nothing but Python 3.9 or later.
//!
//! The source is handed over as an argument (`python3 -u -c SOURCE`): no file has to be written, found
//! again or cleaned up, and modules of the working directory can be imported. It is kept well below
//! what a command line may hold on every system.

use std::ffi::OsString;
use std::path::Path;

/// The bridge as Python source.
pub const SOURCE: &str = include_str!("python/bridge.py");

/// The interpreter where nobody names another.
pub const INTERPRETER: &str = if cfg!(windows) { "python" } else { "python3" };

/// The words and the environment by which an interpreter (a name in PATH, or the path of a virtual
/// environment's own) becomes a bridge. A host appends its arguments.
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

//! Where a gateway keeps what it learned about paths.

use std::env;
use std::path::{Path, PathBuf};

use breakbulk::gateway::LearnedCaps;

/// The word for no file.
const NONE: &str = "none";

/// What was learned before, from the file that was asked for or the usual one.
pub(super) fn learned_caps(asked: Option<&Path>) -> LearnedCaps {
    let file = match asked {
        Some(file) if file == Path::new(NONE) => None,
        Some(file) => Some(file.to_owned()),
        None => usual(env::var_os("XDG_STATE_HOME"), env::var_os("HOME")),
    };
    let Some(file) = file else {
        return LearnedCaps::in_memory();
    };
    let (caps, broken) = LearnedCaps::in_file(file);
    if let Some(broken) = broken {
        tracing::warn!("--state: {broken}");
    }
    caps
}

/// The usual file, as the XDG Base Directory Specification says: a relative path there is invalid.
fn usual(
    state_home: Option<impl Into<PathBuf>>,
    home: Option<impl Into<PathBuf>>,
) -> Option<PathBuf> {
    let state_home = state_home.map(Into::into).filter(|home| home.is_absolute());
    let of_home = || Some(home?.into()).filter(|home| home.is_absolute());
    let folder = state_home.or_else(|| of_home().map(|home: PathBuf| home.join(".local/state")));
    Some(folder?.join("breakbulk/caps.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_file() {
        for (state_home, home, file) in [
            (Some("/s"), Some("/h"), Some("/s/breakbulk/caps.json")),
            (
                None,
                Some("/h"),
                Some("/h/.local/state/breakbulk/caps.json"),
            ),
            (
                Some(""),
                Some("/h"),
                Some("/h/.local/state/breakbulk/caps.json"),
            ),
            (Some("relative"), Some("relative"), None),
            (None, None, None),
        ] {
            assert_eq!(usual(state_home, home), file.map(PathBuf::from));
        }
    }
}

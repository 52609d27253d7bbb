//! `breakbulk --version`: the version, the commit, and what this program was built with.

use std::sync::LazyLock;

use crate::terminal::wrap;

/// The commit that this program was built from, or `unknown`; `build.rs` finds it.
const COMMIT: &str = env!("BREAKBULK_BUILT_FROM");

/// Everything that a report of a fault should say about the program.
pub(crate) fn long() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(text);
    &TEXT
}

fn text() -> String {
    let features = format!("features: {}", breakbulk::FEATURES.join(", "));
    format!(
        "{}\ncommit:   {COMMIT}\nsystem:   {}-{}\n{}",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH,
        std::env::consts::OS,
        wrap(&features, Some(80), 10)
    )
}

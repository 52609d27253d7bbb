//! Sizes: read as the library reads them, shown for people.

pub(crate) use breakbulk::gateway::Size;

/// Formats a size for people.
pub(crate) fn show(bytes: usize) -> String {
    let bytes = bytes as f64;
    match bytes {
        _ if bytes >= 1e9 => format!("{:.2} GB", bytes / 1e9),
        _ if bytes >= 1e6 => format!("{:.2} MB", bytes / 1e6),
        _ if bytes >= 1e3 => format!("{:.1} KB", bytes / 1e3),
        _ => format!("{bytes} B"),
    }
}

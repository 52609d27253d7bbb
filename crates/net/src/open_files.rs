//! The system's limit on open files.

/// Raises the limit of open files of this process as far as the system allows, and returns it; `None`
/// if it is not known, or there is none.
pub fn raise_open_files() -> Option<usize> {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        if limit.current != limit.maximum
            && let Err(error) = setrlimit(Resource::Nofile, raised)
        {
            tracing::debug!(%error, "raising the limit of open files failed");
        }
        let limit = getrlimit(Resource::Nofile).current?;
        Some(usize::try_from(limit).unwrap_or(usize::MAX))
    }
    #[cfg(not(unix))]
    None
}

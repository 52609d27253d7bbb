//! The settings of an end over HTTP, checked: the headers of a target, when idle sessions end, and what was
//! learned about tools.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue};
use breakbulk_net::http::{ClientOptions, ConnectError, HttpTarget};
use tokio::sync::OnceCell;

use super::tools::ToolHeaders;
use crate::endpoint::{Endpoint, WsAddress};
use crate::error::EndError;
use crate::plan::End;
use crate::pump::Side;
use crate::token::{self, TokenError};

/// A session ends after this much time without a message.
const IDLE: Duration = Duration::from_secs(1800);

/// Headers that belong to the protocol, or to HTTP itself.
const RESERVED: &[&str] = &[
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "transfer-encoding",
    "mcp-session-id",
    "mcp-protocol-version",
    "mcp-method",
    "mcp-name",
];

/// Why there are no headers in a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeadersError {
    /// The file cannot be read.
    #[error("headers-file {}: {error}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        error: String,
    },
    /// Others than its owner can read or change it.
    #[error(
        "headers-file {} is open to others (mode {mode:04o}); do: chmod 600 {}", file.display(), file.display()
    )]
    OpenToOthers {
        /// The file.
        file: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// A line is no header.
    #[error(
        "headers-file {}: line {line} is no header; write NAME: VALUE on each line, in visible ASCII characters", file.display()
    )]
    Line {
        /// The file.
        file: PathBuf,
        /// The number of the line.
        line: usize,
    },
    /// A header that the gateway sets itself.
    #[error(
        "headers-file {}: line {line} sets {name}, which the gateway sets itself; leave it out", file.display()
    )]
    Reserved {
        /// The file.
        file: PathBuf,
        /// The number of the line.
        line: usize,
        /// The name.
        name: String,
    },
}

/// The further settings of an end over HTTP. Clones share what was learned, and the connections.
#[derive(Clone, Debug)]
pub(crate) struct HttpEnd {
    /// What a target is sent beside the headers of the protocol.
    headers: Vec<(String, String)>,
    pub(super) idle: Duration,
    pub(super) tools: Arc<Mutex<ToolHeaders>>,
    server: Arc<OnceCell<HttpTarget>>,
}

impl Default for HttpEnd {
    fn default() -> Self {
        Self {
            headers: Vec::new(),
            idle: IDLE,
            tools: Arc::default(),
            server: Arc::default(),
        }
    }
}

impl HttpEnd {
    pub(crate) fn new(endpoint: &Endpoint, is_listener: bool) -> Result<Self, EndError> {
        let options = &endpoint.options;
        let wrong = match is_listener {
            true => (
                options.headers_file.is_some().then_some("headers-file"),
                Side::To,
            ),
            false => (options.idle.is_some().then_some("idle"), Side::Listen),
        };
        if let (Some(option), side) = wrong {
            return Err(EndError::OnlyFor { option, side });
        }
        let headers = match &options.headers_file {
            Some(file) => read(file)?,
            None => Vec::new(),
        };
        Ok(Self {
            headers,
            idle: options.idle.unwrap_or(IDLE),
            ..Self::default()
        })
    }

    /// The server of a target: one set of sockets for all sessions.
    pub(super) async fn server(
        &self,
        end: &End,
        address: &WsAddress,
    ) -> Result<HttpTarget, ConnectError> {
        let open = async || {
            let options = ClientOptions {
                bearer: end.token.clone(),
                headers: self.headers.clone(),
                roots: end.roots.clone(),
                identity: end.identity.clone(),
                #[cfg(unix)]
                unix_socket: address.socket.clone(),
                ..ClientOptions::new("")
            };
            HttpTarget::new(&address.url(), &options).await
        };
        self.server.get_or_try_init(open).await.cloned()
    }
}

/// The headers in a file that only its owner can read: `NAME: VALUE` on each line, `#` begins a comment.
fn read(file: &Path) -> Result<Vec<(String, String)>, HeadersError> {
    let (text, _) = token::read(file).map_err(|error| match error {
        TokenError::Read { file, error } => {
            let error = error.to_string();
            HeadersError::Read { file, error }
        }
        TokenError::OpenToOthers { file, mode } => HeadersError::OpenToOthers { file, mode },
        TokenError::Bad { file, error } => {
            let error = error.to_string();
            HeadersError::Read { file, error }
        }
    })?;
    let mut headers = Vec::new();
    for (index, line) in text.lines().map(str::trim).enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = || HeadersError::Line {
            file: file.to_owned(),
            line: index + 1,
        };
        let (name, value) = line.split_once(':').ok_or_else(wrong)?;
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
        HeaderName::try_from(&name).map_err(|_| wrong())?;
        HeaderValue::from_str(value).map_err(|_| wrong())?;
        if RESERVED.contains(&&*name) {
            return Err(HeadersError::Reserved {
                file: file.to_owned(),
                line: index + 1,
                name,
            });
        }
        headers.push((name, value.to_owned()));
    }
    Ok(headers)
}

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    // MCPH-10
    #[test]
    fn headers_are_read_from_a_file_of_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("headers");
        let read = |text: &str, mode: u32| {
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            read(&file).map_err(|error| {
                let path = file.display().to_string();
                error.to_string().replace(&path, "FILE")
            })
        };
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        for (text, mode, expected) in [
            (
                "# a comment\nX-Api-Key: a b\n\nauthorization:Basic eA==\n",
                0o600,
                Ok(vec![
                    pair("x-api-key", "a b"),
                    pair("authorization", "Basic eA=="),
                ]),
            ),
            ("", 0o600, Ok(vec![])),
            (
                "a: b",
                0o644,
                Err("headers-file FILE is open to others (mode 0644); do: chmod 600 FILE"),
            ),
            (
                "secret",
                0o600,
                Err(
                    "headers-file FILE: line 1 is no header; write NAME: VALUE on each line, in visible ASCII characters",
                ),
            ),
            (
                "a: b\nHost: c",
                0o600,
                Err(
                    "headers-file FILE: line 2 sets host, which the gateway sets itself; leave it out",
                ),
            ),
        ] {
            let expected = expected.map_err(ToOwned::to_owned);
            assert_eq!(read(text, mode), expected, "{text}");
        }
    }
}

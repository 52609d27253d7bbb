//! Bearer tokens: checked, and read from files.

use std::io;
use std::path::{Path, PathBuf};

use breakbulk_net::ws::Bearer;

/// Why a text is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadToken {
    /// Nothing is there.
    #[error("the token is empty; put a token there or leave it out")]
    Empty,
    /// It cannot travel in an HTTP header.
    #[error("this is no token: use visible ASCII characters, without spaces")]
    Characters,
}

/// Why there is no token in a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The file cannot be read.
    #[error("token-file {}: {error}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// What is in it is no token.
    #[error("token-file {}: {error}", file.display())]
    Bad {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        error: BadToken,
    },
}

/// The token in a file, without the spaces and line breaks around it.
pub fn token_from_file(file: &Path) -> Result<Bearer, TokenError> {
    let text = std::fs::read_to_string(file).map_err(|error| TokenError::Read {
        file: file.to_owned(),
        error,
    })?;
    token(text.trim()).map_err(|error| TokenError::Bad {
        file: file.to_owned(),
        error,
    })
}

/// A token, if it can travel in an HTTP header.
pub fn token(text: &str) -> Result<Bearer, BadToken> {
    match text {
        "" => Err(BadToken::Empty),
        _ if text.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(Bearer::new(text)),
        _ => Err(BadToken::Characters),
    }
}

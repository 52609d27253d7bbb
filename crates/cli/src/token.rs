//! Tokens: from a file or from the environment, never from the command line, which others can see.

use std::path::Path;

use breakbulk::net::ws::Bearer;

/// The token in the environment, if there is one.
pub(crate) fn from_environment() -> Result<Option<Bearer>, String> {
    match std::env::var("BREAKBULK_TOKEN") {
        Ok(token) => bearer(&token)
            .map(Some)
            .map_err(|error| format!("BREAKBULK_TOKEN {error}")),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(error) => Err(format!("BREAKBULK_TOKEN: {error}")),
    }
}

/// The token in a file.
pub(crate) fn from_file(file: &Path) -> Result<Bearer, String> {
    let token = std::fs::read_to_string(file)
        .map_err(|error| format!("token-file {}: {error}", file.display()))?;
    bearer(token.trim()).map_err(|error| format!("token-file {} {error}", file.display()))
}

fn bearer(token: &str) -> Result<Bearer, String> {
    match token {
        "" => Err("is empty; put a token there or leave it out".to_owned()),
        _ if token.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(Bearer::new(token)),
        _ => Err("is no token: use visible ASCII characters, without spaces".to_owned()),
    }
}

//! Bearer tokens: checked, and read from files.

use std::path::Path;

use breakbulk_net::ws::Bearer;

/// The token in a file.
pub fn token_from_file(file: &Path) -> Result<Bearer, String> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("token-file {}: {error}", file.display()))?;
    token(text.trim()).map_err(|error| format!("token-file {} {error}", file.display()))
}

/// A token, if it can travel in an HTTP header.
pub fn token(text: &str) -> Result<Bearer, String> {
    match text {
        "" => Err("is empty; put a token there or leave it out".to_owned()),
        _ if text.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(Bearer::new(text)),
        _ => Err("is no token: use visible ASCII characters, without spaces".to_owned()),
    }
}

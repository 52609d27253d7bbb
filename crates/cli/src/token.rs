//! The token in the environment: never on the command line, which others can see.

use breakbulk::gateway::token;
use breakbulk::net::ws::Bearer;

/// The token in the environment, if there is one.
pub(crate) fn from_environment() -> Result<Option<Bearer>, String> {
    match std::env::var("BREAKBULK_TOKEN") {
        Ok(text) => token(&text)
            .map(Some)
            .map_err(|error| format!("BREAKBULK_TOKEN {error}")),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(error) => Err(format!("BREAKBULK_TOKEN: {error}")),
    }
}

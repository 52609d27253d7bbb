//! The token in the environment: never on the command line, which others can see.

use breakbulk::gateway::token;
use breakbulk::net::ws::Bearer;

use crate::failure::Failure;

/// The token in the environment, if there is one.
pub(crate) fn from_environment() -> Result<Option<Bearer>, Failure> {
    match std::env::var("BREAKBULK_TOKEN") {
        Ok(text) => token(&text)
            .map(Some)
            .map_err(|error| Failure::Usage(format!("BREAKBULK_TOKEN: {error}"))),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(error) => Err(Failure::Usage(format!("BREAKBULK_TOKEN: {error}"))),
    }
}

//! Opens the log that a text names.

use super::{Limits, LogError, NatsLog, ReplayLog};
use breakbulk_net::nats::journal::JournalOptions;

/// Opens the replay log at `place`: a file of this machine (feature `redb`), or `nats://HOST:PORT/STREAM`, a
/// stream that several hosts share (see [`NatsLog::open`]).
pub async fn open(place: &str, limits: Limits) -> Result<Box<dyn ReplayLog>, LogError> {
    if JournalOptions::is_address(place) {
        return Ok(Box::new(NatsLog::open(place, limits).await?));
    }
    #[cfg(feature = "redb")]
    {
        let place = place.to_owned();
        let opened = tokio::task::spawn_blocking(move || super::DiskLog::open(place, limits));
        let opened = opened.await.map_err(|error| LogError::Address {
            reason: error.to_string(),
        })?;
        Ok(Box::new(opened?))
    }
    #[cfg(not(feature = "redb"))]
    Err(LogError::Address {
        reason: format!(
            "{place}: this program keeps no log in files; give nats://HOST:PORT/STREAM"
        ),
    })
}

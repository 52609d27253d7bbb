//! The options of one route, on the command line and in a file.

use std::time::Duration;

use breakbulk::gateway::caps::preset;
use breakbulk::gateway::{Config, FleetError};
use clap::Args;

use super::FLEET_SECRET;
use crate::guests::GuestOptions;
use crate::number::whole;
use crate::size::Size;

/// What a route may say beside its two ends. A file has the same names (`config/keys.rs`).
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RouteOptions {
    /// The largest frame where messages are cut: at endpoints of ahp+, loro+ and cep22+ [default: 900KB; of
    /// relays 64KiB, or what they say]
    #[arg(long, value_name = "SIZE")]
    pub(super) max_frame: Option<Size>,
    /// The largest message that is carried; a larger request is answered with an error [default: 32MiB]
    #[arg(long, value_name = "SIZE")]
    pub(super) max_message: Option<Size>,
    /// The largest WebSocket fragment that is sent; a larger frame travels in several [default: 8MiB]
    #[arg(long, value_name = "SIZE")]
    pub(super) fragment: Option<Size>,
    /// The limits of a known path, as aws-api-gateway (breakbulk caps lists them); give it to both
    /// gateways
    #[arg(long, value_name = "NAME")]
    pub(super) preset: Option<String>,
    /// The most sessions at a time [default: 256]
    #[arg(long, value_name = "NUMBER", value_parser = whole::<usize>)]
    pub(super) max_sessions: Option<usize>,
    #[command(flatten)]
    pub(super) guests: GuestOptions,
    /// Listen beyond this machine without a token
    #[arg(long)]
    pub(super) allow_remote: bool,
    /// Do not answer breakbulk probe
    #[arg(long)]
    pub(super) no_probe: bool,
    /// Listen although the target cannot be reached yet
    #[arg(long)]
    pub(super) no_check: bool,
    /// After a signal to stop: how long queued messages may take to be sent, and open requests to be
    /// answered, in seconds; closing may take 5 more [default: 10]
    #[arg(long, value_name = "SECONDS", value_parser = whole::<u64>)]
    pub(super) grace: Option<u64>,
    /// How long a tunnel that lost its connection waits for another one, in seconds; 0 ends it at once. The
    /// smaller value of both gateways applies [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = whole::<u64>)]
    pub(super) resume_for: Option<u64>,
    /// The fleet that this gateway is a member of: nats://HOST:PORT,…?name=NAME&secret-file=FILE
    #[arg(long, value_name = "ADDRESS")]
    pub(super) fleet: Option<String>,
}

impl RouteOptions {
    /// The most sessions at a time.
    pub(super) fn sessions(&self) -> usize {
        self.max_sessions.unwrap_or(Config::default().max_sessions)
    }

    /// The configuration, but for what the limit of open files and the other routes decide.
    ///
    /// # Errors
    /// Which option is wrong, and what follows its name in the words that say so.
    pub(super) fn config(&self) -> Result<Config, (&'static str, String)> {
        let mut config = Config::default();
        let preset = self.preset.as_deref().map(preset).transpose();
        config.preset = preset.map_err(|error| ("preset", format!(": {error}")))?;
        if let Some(fleet) = &self.fleet {
            let wrong = |error: FleetError| ("fleet", format!(": {error}"));
            // The text itself is not repeated, since it may contain a secret.
            config.fleet = Some(fleet.parse().map_err(wrong)?);
            config.fleet_secret = std::env::var(FLEET_SECRET).ok();
        }
        config.max_frame = self.max_frame.map(|size| size.0);
        config.max_message = self.max_message.map(|size| size.0);
        config.fragment = self.fragment.map(|size| size.0);
        config.max_sessions = self.sessions();
        config.per_address = self.guests.per_address(self.sessions());
        config.allowed_origins = self.guests.origins();
        config.allowed_hosts = self.guests.hosts();
        #[cfg(unix)]
        {
            config.allowed_users = self.guests.users().to_vec();
        }
        config.allow_remote = self.allow_remote;
        config.probes = !self.no_probe;
        config.check = !self.no_check;
        config.grace = self.grace.map_or(config.grace, Duration::from_secs);
        config.resume_for = self
            .resume_for
            .map_or(config.resume_for, Duration::from_secs);
        Ok(config)
    }
}

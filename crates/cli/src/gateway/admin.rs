//! The admin port of `breakbulk gateway`.

use std::path::{Path, PathBuf};

use breakbulk::gateway::Stop;
use breakbulk::gateway::admin::{Admin, AdminAddress};
use breakbulk::gateway::watch::{Watch, WatchOptions};
use breakbulk::gateway::{token, token_from_file};
use breakbulk::net::ws::Bearer;
use clap::Args;
use tokio::task::JoinHandle;

use crate::failure::Failure;
use crate::log;

/// The variable with the token, for whoever has no file.
const TOKEN: &str = "BREAKBULK_ADMIN_TOKEN";

/// How much of each message is shown with `--show-bodies`.
const BODY: usize = 2 << 10;

#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AdminOptions {
    /// Serve the admin port (a page, JSON, metrics) over HTTP at this address: PORT (of this machine) or
    /// HOST:PORT. Beyond this machine it needs a token
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<AdminAddress>,
    /// A file that holds nothing but the token of the admin port, and that only its owner can read
    /// [default: the value of BREAKBULK_ADMIN_TOKEN]. Tokens of listeners are not accepted there
    #[arg(long, value_name = "FILE", requires = "admin")]
    admin_token_file: Option<PathBuf>,
    /// Show the beginning (2 KiB) of the last messages of each session at the admin port, not only their
    /// method, id and size
    #[arg(long, requires = "admin")]
    show_bodies: bool,
}

impl AdminOptions {
    /// The options that a file asks for.
    pub(super) fn of_file(
        address: AdminAddress,
        token_file: Option<PathBuf>,
        show_bodies: bool,
    ) -> Self {
        Self {
            admin: Some(address),
            admin_token_file: token_file,
            show_bodies,
        }
    }

    /// Whether there is an admin port.
    pub(crate) fn is_on(&self) -> bool {
        self.admin.is_some()
    }

    /// The watch, which keeps more if there is an admin port to show it.
    pub(crate) fn watch(&self) -> Watch {
        match (&self.admin, self.show_bodies) {
            (None, _) => Watch::default(),
            (Some(_), false) => Watch::new(WatchOptions::default()),
            (Some(_), true) => Watch::new(WatchOptions::default().with(|it| it.bodies = BODY)),
        }
    }

    /// Opens the admin port and tells where it is; it answers until the handle is ended.
    pub(crate) async fn open(&self, watch: &Watch) -> Result<Option<Serving>, Failure> {
        let Some(address) = &self.admin else {
            return Ok(None);
        };
        let wrong = |error: &dyn std::fmt::Display| Failure::Usage(format!("--admin: {error}"));
        let token = admin_token(self.admin_token_file.as_deref())?;
        let has_token = token.is_some();
        let admin = Admin::bind(address, token).await;
        let admin = admin.map_err(|error| wrong(&error))?;
        if has_token && !admin.address().ip().to_canonical().is_loopback() {
            tracing::warn!(
                "the admin port has no TLS: its token can be read on the way; put a proxy with TLS before it, or listen at 127.0.0.1"
            );
        }
        log::address("admin on", &format!("http://{}/", admin.address()));
        let (stop, watch) = (Stop::new(), watch.clone());
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            if let Err(error) = admin.serve(watch, &stopped).await {
                tracing::error!(%error, "the admin port is closed; the gateway goes on without it");
            }
        });
        Ok(Some(Serving { stop, task }))
    }
}

/// The token of an admin port: in this file, or in the environment.
pub(crate) fn admin_token(file: Option<&Path>) -> Result<Option<Bearer>, Failure> {
    if let Some(file) = file {
        let read = token_from_file(file)
            .map_err(|error| Failure::Usage(format!("--admin-token-file: {error}")));
        return read.map(Some);
    }
    match std::env::var(TOKEN) {
        Ok(text) => token(&text)
            .map(Some)
            .map_err(|error| Failure::Usage(format!("{TOKEN}: {error}"))),
        Err(std::env::VarError::NotPresent) => Ok(None),
        // The token itself is not repeated.
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(Failure::Usage(format!("{TOKEN} is not UTF-8")))
        }
    }
}

/// An admin port that answers.
pub(crate) struct Serving {
    stop: Stop,
    task: JoinHandle<()>,
}

impl Serving {
    /// Closes it, once the requests in progress are answered or a second has passed.
    pub(crate) async fn end(mut self) {
        self.stop.stop();
        let second = std::time::Duration::from_secs(1);
        if tokio::time::timeout(second, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

//! `breakbulk probe`: finds out what a path lets through.

mod report;

use std::cell::Cell;
use std::time::Duration;

use breakbulk::gateway::probe::{self, Content, Direction, ProbeError, Progress, Target};
use breakbulk::gateway::{Config, Event, RunError, Stop};
use clap::Args;
use indicatif::ProgressBar;
use tracing::Level;

use crate::failure::Failure;
use crate::gateway::explained;
use crate::guests::{GuestOptions, Room};
use crate::log::LogOptions;
use crate::number::whole;
use crate::output::Output;
use crate::progress;
use crate::signals;
use crate::size::{self, Size};
use crate::{log, token};

const RULES: &str = "\
Run breakbulk probe --listen ENDPOINT at one end of the path and breakbulk probe
ENDPOINT at the other, or probe a gateway that listens there: a gateway answers
a probe of a client that it lets in anyway (with the right token, if it has
one), within 8 MiB/s for all probes together, and never with --no-probe.

For each direction, for text and for binary messages, the largest message is
found to the byte, whether larger ones pass in several WebSocket frames, and
what happens to one byte more: a close with 1009 or another code, silence, a
message that was cut off, the end of the connection, a reset, a TLS alert. With
http:// or https:// it is the body of a POST and of its response, which may be
refused with a status such as 413 or 503; there breakbulk probe --listen
http://PORT answers (for https:// behind a proxy), or a gateway that listens at
http:// or ahp+http://. With nats:// it is one message: NATS says how large it
may be (max_payload), and what really passes is tried. A connection that breaks
by chance is tried again. The last lines name the options of breakbulk gateway
that keep within what was found, and the rows of breakbulk caps that fit.

The token of a listener comes from ?token-file=FILE or BREAKBULK_TOKEN, as for
breakbulk gateway.

Examples:
  breakbulk probe --listen ws://8080
  breakbulk probe wss://relay.example/path --up-to 4MiB";

#[derive(Args, Debug)]
#[command(after_long_help = RULES, after_help = "See --help for what is measured, and examples.")]
pub(crate) struct Probe {
    /// The end of the path that answers: ws://HOST:PORT/PATH, wss://…, ws+unix:PATH, http://…, https://…
    /// or nats://HOST:PORT/SUBJECT
    #[arg(value_name = "ENDPOINT", required_unless_present = "listen")]
    endpoint: Option<String>,
    /// Answer probes here, until a signal comes
    #[arg(long, value_name = "ENDPOINT", conflicts_with = "endpoint")]
    listen: Option<String>,
    /// The largest message to try
    #[arg(long, value_name = "SIZE", default_value = "16MiB")]
    up_to: Size,
    /// How long to wait for an answer before it counts as silence, in milliseconds; the time that the path
    /// was measured to take is added
    #[arg(long, value_name = "MILLISECONDS", value_parser = whole::<u64>, default_value_t = 1000)]
    patience: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    guests: GuestOptions,
    /// Listen beyond this machine without a token
    #[arg(long)]
    allow_remote: bool,
    #[command(flatten)]
    log: LogOptions,
}

impl Probe {
    pub(crate) fn run(self) -> Result<(), Failure> {
        // Besides the report, only errors are logged, unless this process serves clients.
        let usual = match self.listen {
            Some(_) => Level::INFO,
            None => Level::ERROR,
        };
        self.log.start(usual)?;
        let runtime = tokio::runtime::Runtime::new()
            .map_err(|error| Failure::Io("cannot start threads".to_owned(), error))?;
        let parse = |text: &str| {
            if !text.contains(':') {
                return Err(Failure::Usage(
                    "there is no colon; a probe is for ws://HOST:PORT/PATH, wss://…, ws+unix:PATH, http://…, \
                     https://… and nats://HOST:PORT/SUBJECT"
                        .to_owned(),
                ));
            }
            let parsed = text.parse::<Target>();
            // The text itself is not repeated, since it may contain a secret.
            parsed.map_err(|error| Failure::Usage(error.to_string()))
        };
        match (&self.listen, &self.endpoint) {
            (Some(listen), _) => runtime.block_on(self.listen(parse(listen)?)),
            (None, Some(endpoint)) => runtime.block_on(self.ask(parse(endpoint)?)),
            (None, None) => Err(Failure::Usage("give an endpoint to probe".to_owned())),
        }
    }

    async fn ask(&self, endpoint: Target) -> Result<(), Failure> {
        let mut config = probe::Config::default();
        config.most = self.up_to.0;
        config.patience = Duration::from_millis(self.patience);
        config.token = token::from_environment()?;
        let bar = progress::waiting("probing");
        let asked = Cell::new(false);
        let outcome = probe::run(endpoint, config, |progress| {
            asked.set(true);
            show(&bar, progress);
        });
        let outcome = outcome.await;
        bar.finish_and_clear();
        let report = outcome.map_err(|error| {
            let is_unreachable = !asked.get()
                && matches!(
                    error,
                    ProbeError::Connect(_)
                        | ProbeError::Nats(_)
                        | ProbeError::Unauthorized
                        | ProbeError::NoEcho
                        | ProbeError::Closed(_)
                );
            match is_unreachable || error.is_usage() {
                true => Failure::Usage(error.to_string()),
                false => Failure::Session(error.to_string()),
            }
        })?;
        let mut out = Output::open(None)?;
        match self.json {
            true => out.line(&report::object(&report).to_string())?,
            false => report::print(&report, &mut out)?,
        }
        out.finish()?;
        match report.is_usable() {
            true => Ok(()),
            false => Err(Failure::Session(
                "text messages do not pass in both directions: the path is broken, or carries no text messages"
                    .to_owned(),
            )),
        }
    }

    async fn listen(&self, endpoint: Target) -> Result<(), Failure> {
        let room = Room::make(64, 1, None);
        let mut config = Config::default();
        config.max_sessions = room.connections;
        config.handshakes = room.handshakes;
        config.per_address = self.guests.per_address(room.connections);
        config.allowed_origins = self.guests.origins();
        config.allowed_hosts = self.guests.hosts();
        #[cfg(unix)]
        {
            config.allowed_users = self.guests.users().to_vec();
        }
        config.allow_remote = self.allow_remote;
        config.token = token::from_environment()?;
        let signals = signals::Stop::on_signals();
        let signals =
            signals.map_err(|error| Failure::Io("cannot watch for signals".to_owned(), error))?;
        let stop = Stop::new();
        let stopping = async {
            signals.asked().await;
            stop.stop();
            std::future::pending::<()>().await;
        };
        let tell = |event| {
            if let Event::Listening(address) = event {
                log::address("listening on", &address);
            }
        };
        tokio::select! {
            outcome = probe::listen(endpoint, config, &stop, tell) => outcome.map_err(failure),
            () = stopping => Ok(()),
        }
    }
}

fn failure(error: RunError) -> Failure {
    match error.is_setup() {
        true => Failure::Usage(explained(&error)),
        false => Failure::Session(error.to_string()),
    }
}

fn show(bar: &ProgressBar, progress: Progress) {
    let question = progress.question;
    let direction = match question.direction {
        Direction::Up => "up",
        Direction::Down => "down",
    };
    let content = match question.content {
        Content::Text => "text",
        Content::Binary => "binary",
    };
    let frames = match question.fragment {
        Some(fragment) => format!(" in frames of {fragment}"),
        None => String::new(),
    };
    bar.set_message(format!(
        "{direction}, {content}: {}{frames}, {} messages so far",
        size::show(question.size),
        progress.answered
    ));
}

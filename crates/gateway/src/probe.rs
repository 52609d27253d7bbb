//! Finds out what a path lets through: [`run`] asks, [`listen`] or any gateway at the other end answers.
//!
//! The largest message is found to the byte, in each direction, for text and binary messages, in one
//! WebSocket frame and in several, together with what the path does to a larger one. Everything that is
//! decided is decided without IO, in `course.rs`, `search.rs`, `pace.rs` and `advice.rs`.

mod advice;
mod course;
mod echo;
mod outcome;
mod pace;
mod search;
mod words;
mod ws;

use std::time::Duration;

use breakbulk_link::{Budget, Carries, Closed};
use breakbulk_net::plain_text;
use breakbulk_net::ws::{Bearer, ConnectError, Listener};
use tokio::task::JoinSet;

use crate::endpoint::{At, Endpoint};
use crate::error::{EndError, RunError};
use crate::open;
use crate::plan::{self, End, Guests};
use crate::pump::Side;
use crate::serve::{Event, ws as door};
use crate::stop::Stop;
pub use advice::Advice;
pub use course::{Content, Direction, Limits, Question, Way};
use course::{Course, Scope};
pub(crate) use echo::{Echo, EchoLimits};
pub use outcome::{Outcome, Refusal};
use pace::Pace;
pub use search::Finding;
pub(crate) use words::PROBE;
use ws::WebSockets;

/// How often the round trip is measured before the first question.
const ROUND_TRIPS: u32 = 3;

/// How a probe asks.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The largest message to try, in bytes.
    pub most: usize,
    /// The least time to wait for an answer until it counts as silence. The measured round trip and rate
    /// of the path are added.
    pub patience: Duration,
    /// The bearer token, if the endpoint names no file with one.
    pub token: Option<Bearer>,
}

breakbulk_link::with!(Config);

impl Default for Config {
    fn default() -> Self {
        Self {
            most: 16 << 20,
            patience: Duration::from_secs(1),
            token: None,
        }
    }
}

/// What a probe found.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// From the probe to the other end.
    pub up: Way,
    /// From the other end to the probe.
    pub down: Way,
    /// The shortest round trip of a small message.
    pub round_trip: Duration,
    /// The bytes per second of the largest message that passed up.
    pub up_rate: Option<f64>,
    /// The same down.
    pub down_rate: Option<f64>,
    /// How many messages were sent to find this out.
    pub questions: u32,
    /// How many connections that took.
    pub connections: u32,
    /// What to do with it.
    pub advice: Advice,
}

impl Report {
    /// Whether text passes in both directions.
    pub fn is_usable(&self) -> bool {
        let passes = |way: &Way| way.text.message.passes().is_some();
        passes(&self.up) && passes(&self.down)
    }
}

/// How far a probe is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// The question that is being asked.
    pub question: Question,
    /// How many were answered before.
    pub answered: u32,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The endpoint cannot be used.
    #[error(transparent)]
    End(#[from] EndError),
    /// A transport that has no probe.
    #[error("a probe is for ws://, wss:// and ws+unix:")]
    Transport,
    /// No connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The other end answers no probes.
    #[error(
        "the other end answers no probes; start breakbulk probe --listen there, or a gateway (without --no-probe)"
    )]
    NoEcho,
    /// The other end closed the connection, or the path did, before anything was asked.
    #[error("the connection was closed with {} {}", .0.code, plain_text(&.0.reason))]
    Closed(Closed),
    /// Nothing came.
    #[error("a connection was made, and nothing came over it")]
    Silent,
}

impl ProbeError {
    /// Whether the probe could not begin because of how it was called.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::End(_) | Self::Transport)
    }
}

/// What became of a question.
struct Answer {
    outcome: Outcome,
    took: Duration,
}

/// A path that questions can be asked over.
trait Ask {
    /// Connects; returns the largest message that the other end takes part in.
    async fn open(&mut self) -> Result<usize, ProbeError>;

    /// How long a small message and its answer take.
    async fn round_trip(&mut self, patience: Duration) -> Result<Duration, ProbeError>;

    /// Asks one question. A new connection is made after each refusal.
    async fn ask(&mut self, question: &Question, patience: Duration) -> Result<Answer, ProbeError>;

    /// How many connections were made.
    fn connections(&self) -> u32;
}

/// Probes the path to an endpoint. The function is called before each question.
///
/// # Errors
/// If the endpoint cannot be reached, or answers no probes.
pub async fn run(
    endpoint: Endpoint,
    config: Config,
    tell: impl Fn(Progress),
) -> Result<Report, ProbeError> {
    let (mut path, scope) = web_sockets(endpoint, &config)?;
    measure(&mut path, scope, &config, tell).await
}

fn web_sockets(endpoint: Endpoint, config: &Config) -> Result<(WebSockets, Scope), ProbeError> {
    let At::Ws(address) = endpoint.at.clone() else {
        return Err(ProbeError::Transport);
    };
    address.check_target()?;
    let at = endpoint.at.clone();
    let gateway = plan::Config::default();
    let budget = Budget::unlimited();
    let mut end = End::new(endpoint, Some(&at), &gateway, Carries::Text, &budget)?;
    end.token = end.token.or_else(|| config.token.clone());
    let options = open::connect_options(&end, &address);
    let scope = Scope {
        most: config.most,
        frames: true,
        binary: true,
    };
    let path = WebSockets::new(address.url(), options, config.most);
    Ok((path, scope))
}

async fn measure(
    path: &mut impl Ask,
    scope: Scope,
    config: &Config,
    tell: impl Fn(Progress),
) -> Result<Report, ProbeError> {
    let most = path.open().await?.min(scope.most);
    let mut pace = Pace::new(config.patience);
    for _ in 0..ROUND_TRIPS {
        let patience = config.patience.max(Duration::from_secs(10));
        pace.returned(path.round_trip(patience).await?);
    }
    let mut course = Course::new(Scope { most, ..scope });
    let mut answered = 0;
    while let Some(question) = course.next() {
        tell(Progress { question, answered });
        let answer = path.ask(&question, pace.patience(&question)).await?;
        if answer.outcome == Outcome::Passed {
            pace.passed(&question, answer.took);
        }
        tracing::debug!(?question, outcome = ?answer.outcome, took = ?answer.took, "probed");
        course.handle(&question, answer.outcome);
        answered += 1;
    }
    // All questions are answered, so both directions are known.
    let (up, down) = course.finish().ok_or(ProbeError::Silent)?;
    Ok(Report {
        round_trip: pace.round_trip().unwrap_or_default(),
        up_rate: pace.bytes_per_second(Direction::Up),
        down_rate: pace.bytes_per_second(Direction::Down),
        questions: answered,
        connections: path.connections(),
        advice: Advice::new(&up, &down),
        up,
        down,
    })
}

/// Answers probes at an endpoint until `stop` fires, and does nothing else.
///
/// # Errors
/// If it cannot listen there.
pub async fn listen(
    endpoint: Endpoint,
    config: plan::Config,
    stop: &Stop,
    tell: impl Fn(Event) + Send + Sync,
) -> Result<(), RunError> {
    let wrong = |error: EndError| RunError::Open {
        side: Side::Listen,
        error: error.into(),
    };
    let At::Ws(address) = endpoint.at.clone() else {
        return Err(wrong(EndError::NoProbe));
    };
    let budget = Budget::new(config.memory);
    let end = End::new(endpoint, None, &config, Carries::Text, &budget).map_err(wrong)?;
    end.may_listen(&address, config.allow_remote)
        .map_err(wrong)?;
    let echo = Echo::new(EchoLimits::ALONE, budget);
    let connections = config.max_sessions;
    let guests = Guests::new(&config);
    let options = door::listen_options(&end, &guests, connections, &address, Some(&echo));
    let mut listener: Listener = door::bind(&guests, &address, options).await?;
    tell(Event::Listening(door::heard_at(
        &address,
        listener.address(),
    )));
    let mut probes = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let accepted = accepted.map_err(RunError::Accept)?;
                let echo = echo.clone();
                probes.spawn(async move { echo.serve(accepted.websocket).await });
            }
            Some(_) = probes.join_next() => {}
            () = stop.stopped() => break,
        }
    }
    listener.close().await;
    Ok(())
}

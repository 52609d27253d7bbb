//! Finds out what a path lets through: [`run`] asks, [`listen`] or any gateway at the other end answers.
//!
//! The largest message is found to the byte, in each direction, for text and binary messages, in one
//! WebSocket frame and in several (or the largest body of an HTTP request and response), together with what
//! the path does to a larger one. Everything that is
//! decided is decided without IO, in `course.rs`, `search.rs`, `pace.rs` and `advice.rs`.

mod advice;
mod connected;
mod course;
mod echo;
mod http;
#[cfg(feature = "http")]
mod http_door;
mod http_echo;
mod http_words;
#[cfg(feature = "nats")]
mod nats;
mod outcome;
mod pace;
mod search;
mod words;
mod ws;

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use breakbulk_link::{Budget, Closed};
#[cfg(feature = "nats")]
use breakbulk_net::nats::{NatsError, NatsListener};
use breakbulk_net::plain_text;
use breakbulk_net::ws::{Bearer, ConnectError, ListenError, Listener, Tokens};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

#[cfg(feature = "nats")]
use crate::endpoint::NatsAddress;
use crate::endpoint::{At, Endpoint, EndpointError, WsAddress};
use crate::error::{EndError, RunError};
use crate::open;
use crate::plan::{self, Carried, End, Guests};
use crate::pump::Side;
use crate::serve::{Event, Sockets, bind, ws as door};
use crate::stop::Stop;
pub use advice::Advice;
use connected::Connected;
pub use course::{Content, Direction, Limits, Question, Way};
use course::{Course, Scope};
pub(crate) use echo::{Echo, EchoLimits};
use http::Posts;
#[cfg(feature = "http")]
pub(crate) use http_door::HttpEcho;
use http_echo::Doorman;
pub use outcome::{Outcome, Refusal};
use pace::Pace;
pub use search::Finding;
pub(crate) use words::PROBE;
use ws::WebSockets;

/// How long accepting pauses after an error, so that a lack of file descriptors makes no busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The most connections of a listener for HTTP.
const CONNECTIONS: usize = 64;

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

/// The end of a path, as text: an [`Endpoint`] of WebSockets, `nats://HOST:PORT/SUBJECT` for messages at a
/// NATS server, or `http://HOST:PORT/PATH` for the bodies of HTTP requests and responses (and so
/// `ahp+http://HOST:PORT/PATH`, a tunnel of such bodies).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The endpoint; `ws` stands here for `http` too.
    endpoint: Endpoint,
    /// Whether it is asked by HTTP requests.
    is_http: bool,
}

impl FromStr for Target {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let bodies = text.strip_prefix("ahp+").unwrap_or(text);
        let (is_http, text) = match bodies.strip_prefix("http") {
            // Addresses and options of HTTP are written like those of WebSockets, so they are parsed as
            // those.
            Some(rest) if rest.starts_with(':') => (true, format!("ws{rest}")),
            Some(rest) if rest.starts_with("s:") => (true, format!("wss{}", &rest[1..])),
            _ => (false, text.to_owned()),
        };
        Ok(Self {
            endpoint: text.parse()?,
            is_http,
        })
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
    /// The bytes per second of the largest message that passed down.
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
    #[error("a probe is for ws://, wss://, ws+unix:, http://, https:// and nats://")]
    Transport,
    /// No connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// No session at NATS.
    #[cfg(feature = "nats")]
    #[error(transparent)]
    Nats(#[from] NatsError),
    /// The other end answers no probes.
    #[error(
        "the other end answers no probes; start breakbulk probe --listen there, or a gateway (without --no-probe)"
    )]
    NoEcho,
    /// The other end closed the connection, or the path did, before anything was asked.
    #[error("the connection was closed with {}", with_reason(.0))]
    Closed(Closed),
    /// Not even a small request was answered.
    #[error("a small request was not answered: {0}")]
    Broken(Refusal),
    /// The token is missing or wrong.
    #[error("the other end answers 401: it does not accept this bearer token, or none was given")]
    Unauthorized,
    /// Nothing came in this time.
    #[error(
        "a connection was made, and nothing arrived over it within {} s; is a gateway or breakbulk probe --listen at the other end?", .0.as_secs_f64()
    )]
    Silent(Duration),
}

fn with_reason(closed: &Closed) -> String {
    match plain_text(&closed.reason) {
        reason if reason.is_empty() => closed.code.to_string(),
        reason => format!("{}: {reason}", closed.code),
    }
}

impl ProbeError {
    /// Whether the probe could not begin because of how it was called.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::End(_) | Self::Transport)
    }
}

/// How a question ended, and how long that took.
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

/// Probes the path to its other end. The function is called before each question.
///
/// # Errors
/// If the other end cannot be reached, or answers no probes.
pub async fn run(
    target: Target,
    config: Config,
    tell: impl Fn(Progress),
) -> Result<Report, ProbeError> {
    let Target { endpoint, is_http } = target;
    let at = endpoint.at.clone();
    at.check_target()?;
    let (gateway, budget) = (plan::Config::default(), Budget::unlimited());
    let mut end = End::new(endpoint, Some(&at), &gateway, Carried::Text, &budget)?;
    end.token = end.token.or_else(|| config.token.clone());
    if end.shows_token() {
        tracing::warn!(
            "the token travels in clear text, and whoever sees it can use it; use wss:// or https://"
        );
    }
    let scope = Scope {
        most: config.most,
        frames: at.is_ws() && !is_http,
        binary: at.is_ws() && !is_http,
    };
    match at {
        At::Ws(address) if is_http => {
            let options = open::connect_options(&end, &address);
            let query = address.query.map(|query| format!("?{query}"));
            let path = format!("{}{}", address.path, query.unwrap_or_default());
            let (secure, host) = (address.secure, address.authority);
            let mut path = Posts::new(secure, host, path, options, config.most);
            measure(&mut path, scope, &config, tell).await
        }
        At::Ws(address) => {
            let options = open::connect_options(&end, &address);
            let path = WebSockets::new(address.url(), options, config.most);
            measure(&mut Connected::new(path), scope, &config, tell).await
        }
        #[cfg(feature = "nats")]
        At::Nats(address) => {
            let path = nats::Sessions(open::nats::options(&end, &address));
            measure(&mut Connected::new(path), scope, &config, tell).await
        }
        #[cfg(any(
            feature = "http",
            feature = "loro",
            feature = "process",
            feature = "nostr"
        ))]
        _ => Err(ProbeError::Transport),
    }
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
    let (up, down) = course.finish().ok_or(ProbeError::Silent(config.patience))?;
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

/// Answers probes at an end until `stop` fires, and does nothing else.
///
/// # Errors
/// If it cannot listen there.
pub async fn listen(
    target: Target,
    config: plan::Config,
    stop: &Stop,
    tell: impl Fn(Event) + Send + Sync,
) -> Result<(), RunError> {
    let Target { endpoint, is_http } = target;
    let wrong = |error: EndError| RunError::Open {
        side: Side::Listen,
        error: error.into(),
    };
    #[cfg(feature = "nats")]
    if let At::Nats(address) = endpoint.at.clone() {
        let budget = Budget::new(config.memory);
        let end = End::new(endpoint, None, &config, Carried::Text, &budget).map_err(wrong)?;
        let echo = Echo::new(EchoLimits::ALONE, budget);
        return listen_nats(&end, &address, &config, &echo, stop, tell).await;
    }
    let Some(address) = endpoint.at.ws().cloned() else {
        return Err(wrong(EndError::NoProbe));
    };
    if is_http && (address.secure || address.socket.is_some()) {
        return Err(wrong(EndError::NoProbe));
    }
    let budget = Budget::new(config.memory);
    let end = End::new(endpoint, None, &config, Carried::Text, &budget).map_err(wrong)?;
    end.may_listen(&config).map_err(wrong)?;
    let echo = Echo::new(EchoLimits::ALONE, budget);
    if is_http {
        return listen_http(&end, &address, echo, stop, tell).await;
    }
    let guests = Guests::new(&config);
    let connections = config.max_sessions;
    let options = door::listen_options(&end, &guests, connections, &address, Some(&echo));
    let sockets = Sockets::default();
    let mut listener: Listener = door::listener(&sockets, &guests, &address, options).await?;
    tell(Event::Listening(bind::heard_at(
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

/// Answers probes in the sessions of a subject.
#[cfg(feature = "nats")]
async fn listen_nats(
    end: &End,
    address: &NatsAddress,
    config: &plan::Config,
    echo: &Arc<Echo>,
    stop: &Stop,
    tell: impl Fn(Event) + Send + Sync,
) -> Result<(), RunError> {
    let options = open::nats::options(end, address);
    let listener = NatsListener::bind(&options, config.max_sessions).await;
    let mut listener = listener.map_err(RunError::ListenNats)?;
    tell(Event::Listening(address.name()));
    let mut probes = JoinSet::new();
    loop {
        tokio::select! {
            session = listener.accept() => {
                let session = session.map_err(RunError::Nats)?;
                let echo = echo.clone();
                probes.spawn(async move { echo.serve_session(session).await });
            }
            Some(_) = probes.join_next() => {}
            () = stop.stopped() => break,
        }
    }
    listener.close().await;
    Ok(())
}

async fn listen_http(
    end: &End,
    address: &WsAddress,
    echo: Arc<Echo>,
    stop: &Stop,
    tell: impl Fn(Event) + Send + Sync,
) -> Result<(), RunError> {
    let (host, port) = address.listen_at().map_err(|error| RunError::Open {
        side: Side::Listen,
        error: error.into(),
    })?;
    let cannot = |error| {
        let address = format!("{host}:{port}");
        RunError::Listen(ListenError::Bind { address, error })
    };
    let listener = TcpListener::bind((host.as_str(), port)).await;
    let listener = listener.map_err(&cannot)?;
    let at = listener.local_addr().map_err(&cannot)?;
    tell(Event::Listening(format!("http://{at}{}", address.path)));
    let doorman = Arc::new(Doorman {
        bearer: end.token.clone(),
        tokens: end.tokens.clone().map(|tokens| tokens as Arc<dyn Tokens>),
        path: address.path.clone(),
    });
    let mut requests = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if requests.len() < CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    let (echo, doorman) = (echo.clone(), doorman.clone());
                    requests.spawn(async move { http_echo::serve(&echo, &doorman, stream).await });
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = requests.join_next() => {}
            () = stop.stopped() => return Ok(()),
        }
    }
}

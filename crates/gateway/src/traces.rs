//! Traces of requests for OpenTelemetry: a span for each request that passes, sent to a collector over
//! OTLP/HTTP.
//!
//! ```no_run
//! use breakbulk_gateway::{Config, Traces, TracesConfig};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let (traces, exporter) = Traces::new(TracesConfig::new("http://127.0.0.1:4318"));
//! let exporting = tokio::spawn(exporter.open().await?.run());
//! let config = Config::default().with(|config| config.traces = Some(traces.clone()));
//! // Run a gateway with it, and then:
//! traces.finish();
//! exporting.await?;
//! # Ok(())
//! # }
//! ```

mod export;
mod span;
mod traced;

use std::fmt;
use std::sync::Arc;

use breakbulk_link::Budget;
use breakbulk_net::http::ConnectError;
use tokio::sync::{mpsc, watch};

use self::export::{Exporter, QUEUE, Tally};
use self::span::{Resource, Span};
use self::traced::Traced;
use crate::pump::Passing;

/// Where the path of a collector ends.
const PATH: &str = "v1/traces";

/// Where spans go.
#[derive(Clone)]
#[non_exhaustive]
pub struct TracesConfig {
    /// The collector's address. Without a path to `…/v1/traces` that path is added, as for
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub url: String,
    /// Headers of each request, as a token.
    pub headers: Vec<(String, String)>,
    /// `service.name`.
    pub service: String,
}

breakbulk_link::with!(TracesConfig);

impl TracesConfig {
    /// Spans go to this address.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            headers: Vec::new(),
            service: "breakbulk".to_owned(),
        }
    }

    fn endpoint(&self) -> String {
        let url = self.url.trim_end_matches('/');
        match url.ends_with(PATH) {
            true => url.to_owned(),
            false => format!("{url}/{PATH}"),
        }
    }
}

impl fmt::Debug for TracesConfig {
    /// Leaves out the headers, which may hold a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TracesConfig")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

/// Takes the spans of gateways. Clones share it.
#[derive(Clone, Debug)]
pub struct Traces(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// At most [`QUEUE`] spans wait.
    spans: mpsc::Sender<Span>,
    tally: Tally,
    ending: watch::Sender<bool>,
}

impl Traces {
    /// Makes a handle for gateways and the exporter that sends their spans. Until the exporter runs, at most
    /// 4,096 spans are kept.
    pub fn new(config: TracesConfig) -> (Self, TracesExporter) {
        let (spans, waiting) = mpsc::channel(QUEUE);
        let (ending, ends) = watch::channel(false);
        let tally = Tally::default();
        let exporter = TracesExporter {
            config,
            waiting,
            tally: tally.clone(),
            ends,
        };
        let shared = Shared {
            spans,
            tally,
            ending,
        };
        (Self(Arc::new(shared)), exporter)
    }

    /// How many spans were dropped, since there were too many or the collector did not take them, and how
    /// many the collector took.
    pub fn counts(&self) -> (u64, u64) {
        self.0.tally.read()
    }

    /// Ends the exporter: it sends the spans that wait, for at most 5 s.
    pub fn finish(&self) {
        self.0.ending.send_replace(true);
    }

    /// A handle for the requests of one route.
    pub(crate) fn of_route(self, route: &str) -> RouteTraces {
        RouteTraces {
            traces: self,
            route: route.to_owned(),
        }
    }

    fn ended(&self, span: Span) {
        if self.0.spans.try_send(span).is_err() {
            self.dropped(1);
        }
    }

    fn dropped(&self, spans: usize) {
        self.0.tally.dropped(spans);
    }
}

/// Takes the spans of one route.
#[derive(Clone, Debug)]
pub(crate) struct RouteTraces {
    traces: Traces,
    route: String,
}

impl RouteTraces {
    /// Makes spans of the requests of a session. Those that are open are charged to the budget.
    pub(crate) fn of_session(
        &self,
        session: &str,
        budget: Option<Budget>,
        passing: Box<dyn Passing>,
    ) -> Box<dyn Passing> {
        let traces = self.traces.clone();
        let traced = Traced::new(passing, traces, &self.route, session, budget.as_ref());
        Box::new(traced)
    }
}

/// Sends the spans to the collector, once it runs.
pub struct TracesExporter {
    config: TracesConfig,
    waiting: mpsc::Receiver<Span>,
    tally: Tally,
    ends: watch::Receiver<bool>,
}

impl TracesExporter {
    /// Checks the address and reads the certificates to trust. Nothing is sent yet.
    ///
    /// # Errors
    /// If the address or a header is wrong.
    pub async fn open(self) -> Result<OpenTracesExporter, ConnectError> {
        let resource = Resource {
            service: self.config.service.clone(),
            instance: instance(),
        };
        let endpoint = self.config.endpoint();
        let exporter = Exporter::new(
            &endpoint,
            self.config.headers,
            resource,
            self.waiting,
            self.tally,
            self.ends,
        );
        Ok(OpenTracesExporter(exporter.await?))
    }
}

/// An exporter that can run.
pub struct OpenTracesExporter(Exporter);

impl OpenTracesExporter {
    /// Sends spans until [`Traces::finish`] was called.
    pub async fn run(self) {
        self.0.run().await;
    }
}

/// A name for this process, unlikely to be another one's.
fn instance() -> String {
    let mut random = [0; 8];
    // If there are no random numbers, zeros are a name too.
    let _ = getrandom::fill(&mut random);
    random.iter().map(|byte| format!("{byte:02x}")).collect()
}

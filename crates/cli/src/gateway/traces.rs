//! `--otlp`, or `[traces]` in a file: spans of requests for a collector.

use std::time::Duration;

use breakbulk::gateway::{Traces, TracesConfig, TracesExporter};
use clap::Args;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::explain::Spelling;
use crate::failure::Failure;

/// Headers of requests to a collector, as every exporter takes them: NAME=VALUE, with commas.
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";

/// The name of this service, as every exporter takes it.
const SERVICE: &str = "OTEL_SERVICE_NAME";

/// How long the exporter may take at the end; it gives up a little earlier by itself.
const LAST: Duration = Duration::from_secs(6);

#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TracesOptions {
    /// Send a span of each request to this OpenTelemetry collector, by OTLP over HTTP with JSON, as
    /// http://127.0.0.1:4318; OTEL_EXPORTER_OTLP_HEADERS and OTEL_SERVICE_NAME apply
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
}

impl TracesOptions {
    /// The options that a file asks for.
    ///
    /// # Errors
    /// If it is no address of a collector.
    pub(super) fn of_file(url: String) -> Result<Self, String> {
        let is_web = ["http://", "https://"].iter().any(|it| url.starts_with(it));
        match is_web {
            true => Ok(Self { otlp: Some(url) }),
            false => Err("a collector is http://HOST:PORT or https://HOST:PORT".to_owned()),
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.otlp.is_some()
    }

    /// Where spans go, if that was asked for.
    pub(super) fn open(&self) -> Result<Option<(Traces, TracesExporter)>, Failure> {
        let Some(url) = &self.otlp else {
            return Ok(None);
        };
        let headers = std::env::var(HEADERS).unwrap_or_default();
        let headers = headers_of(&headers).ok_or_else(|| {
            // The text itself is not repeated, since it may contain a secret.
            Failure::Usage(format!("{HEADERS}: give NAME=VALUE, several with commas"))
        })?;
        let config = TracesConfig::new(url).with(|config| {
            config.headers = headers;
            if let Ok(service) = std::env::var(SERVICE)
                && !service.is_empty()
            {
                config.service = service;
            }
        });
        Ok(Some(Traces::new(config)))
    }
}

/// An exporter at work, if there is one.
pub(super) struct Exporting(Option<(Traces, JoinHandle<()>)>);

impl Exporting {
    pub(super) async fn start(
        traces: Option<(Traces, TracesExporter)>,
        spelling: Spelling,
    ) -> Result<Self, Failure> {
        let Some((traces, exporter)) = traces else {
            return Ok(Self(None));
        };
        let exporter = exporter.open().await;
        let exporter = exporter.map_err(|error| {
            let name = match spelling {
                Spelling::CommandLine => "--otlp",
                Spelling::File => "[traces] or --otlp",
            };
            Failure::Usage(format!("{name}: {error}"))
        })?;
        Ok(Self(Some((traces, tokio::spawn(exporter.run())))))
    }

    /// Sends the spans that wait, and ends the exporter.
    pub(super) async fn finish(self) {
        if let Self(Some((traces, task))) = self {
            traces.finish();
            // What it could not send in this time is lost, which it has told.
            let _ = timeout(LAST, task).await;
        }
    }
}

/// Reads `NAME=VALUE,…`, with values in percent-encoding.
fn headers_of(text: &str) -> Option<Vec<(String, String)>> {
    let items = text.split(',').map(str::trim);
    items
        .filter(|item| !item.is_empty())
        .map(|item| {
            let (name, value) = item.split_once('=')?;
            let name = name.trim();
            let value = decoded(value.trim())?;
            (!name.is_empty()).then(|| (name.to_owned(), value))
        })
        .collect()
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, others)) = rest.split_first() {
        rest = others;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let (digits, others) = rest.split_at_checked(2)?;
        let digits = std::str::from_utf8(digits).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = others;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_other_exporters_do() {
        let pairs = |pairs: &[(&str, &str)]| {
            let owned = pairs
                .iter()
                .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()));
            Some(owned.collect::<Vec<_>>())
        };
        for (text, expected) in [
            ("", pairs(&[])),
            ("a=b", pairs(&[("a", "b")])),
            (" a = b , c=d=e,", pairs(&[("a", "b"), ("c", "d=e")])),
            (
                "authorization=Bearer%20x%2Cy",
                pairs(&[("authorization", "Bearer x,y")]),
            ),
            ("a", None),
            ("=b", None),
            ("a=%2", None),
            ("a=%zz", None),
            ("a=%ff", None),
        ] {
            assert_eq!(headers_of(text), expected, "{text}");
        }
    }
}

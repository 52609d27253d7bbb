//! Tests of the program's admin port: what it says must equal what was carried.

mod counts;
mod operate;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{Listening, PATIENCE, gateway};

/// A gateway with an admin port at any free port.
fn with_admin(arguments: &[&str]) -> Command {
    let mut command = gateway(arguments);
    command.env_remove("BREAKBULK_ADMIN_TOKEN");
    command.args(["--admin", "0"]);
    command
}

/// A gateway that listens, and its admin port.
fn listening(arguments: &[&str]) -> (Listening, Admin) {
    let gateway = Listening::start(with_admin(arguments));
    let admin = Admin::of(&gateway.before);
    (gateway, admin)
}

/// Waits between two requests, since only a limited number is answered per second.
fn pause() {
    std::thread::sleep(Duration::from_millis(50));
}

/// An admin port.
struct Admin {
    address: String,
    token: Option<&'static str>,
}

impl Admin {
    /// The admin port whose address is in these log lines.
    fn of(lines: &[String]) -> Self {
        let address = lines.iter().find_map(|line| {
            let rest = line.strip_prefix("admin on http://")?;
            rest.strip_suffix('/')
        });
        Self {
            address: address.unwrap_or_else(|| panic!("{lines:?}")).to_owned(),
            token: None,
        }
    }

    /// Sends a request; returns the status and the body.
    fn ask(&self, line: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let token = self
            .token
            .map(|token| format!("Authorization: Bearer {token}\r\n"));
        let request = format!(
            "{line} HTTP/1.1\r\nHost: {}\r\n{}Connection: close\r\n\r\n",
            self.address,
            token.unwrap_or_default()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, body.to_owned())
    }

    fn get(&self, path: &str) -> String {
        let (status, body) = self.ask(&format!("GET {path}"));
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    fn json(&self, path: &str) -> Value {
        serde_json::from_str(&self.get(path)).unwrap()
    }

    fn metrics(&self) -> Metrics {
        let text = self.get("/metrics");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let series = lines.filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().unwrap()))
        });
        Metrics(series.collect())
    }

    /// Waits until the metrics are as they should be.
    fn until(&self, what: &str, enough: impl Fn(&Metrics) -> bool) -> Metrics {
        let since = Instant::now();
        loop {
            let metrics = self.metrics();
            if enough(&metrics) {
                return metrics;
            }
            assert!(since.elapsed() < PATIENCE, "{what}: {:#?}", metrics.0);
            pause();
        }
    }
}

/// The value of each series.
struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    /// The one value of a metric whose labels include these, as `side="to"`.
    fn of(&self, name: &str, labels: &[&str]) -> f64 {
        let mut found = self.0.iter().filter(|(series, _)| {
            let (known, rest) = series.split_once('{').unwrap_or((series, ""));
            known == name && labels.iter().all(|label| rest.contains(label))
        });
        let value = found.next().map(|(_, value)| *value);
        assert!(
            found.next().is_none(),
            "{name} {labels:?} is not one series"
        );
        value.unwrap_or_else(|| panic!("no {name} {labels:?}: {:#?}", self.0))
    }

    /// A metric of one direction at one end.
    fn flow(&self, name: &str, side: &str, direction: &str) -> f64 {
        let name = format!("breakbulk_{name}_total");
        let side = format!("side=\"{side}\"");
        let direction = format!("direction=\"{direction}\"");
        self.of(&name, &[&side, &direction])
    }
}

//! `/metrics`: what is watched, in Prometheus' text format.
//!
//! Labels are bounded by the configuration: the route, the end of it, the direction, and reasons that this
//! program knows. Nothing that a peer chooses becomes a label.
//!
//! A scrape fills a recorder of its own with what the watch counted, so nothing is kept between scrapes.
//! Histograms are written here: the exporter's own keep every value until somebody scrapes, which nobody may
//! ever do.

use std::fmt::Write;

use metrics::{Key, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};

use crate::watch::{BUCKETS, FlowView, RouteState, RouteView, StateView, TimesView, Watch};

/// Where the recorder is told that metrics come from.
const METADATA: Metadata<'static> = Metadata::new("breakbulk", Level::INFO, None);

/// The name of the histogram.
const QUEUE: &str = "breakbulk_queue_seconds";

/// A label and its value.
type Pair<'a> = (&'static str, &'a str);

/// All metrics of a watch.
pub fn render(watch: &Watch) -> String {
    let page = Page(PrometheusBuilder::new().build_recorder());
    let mut state = watch.totals();
    page.process(&state);
    state.routes = newest(state.routes);
    for route in &state.routes {
        page.route(route);
    }
    let mut text = page.0.handle().render();
    histograms(&mut text, &state.routes);
    text
}

/// Keeps the newest route of each name, since a series may appear only once: of a route that a reload
/// changed, the new one is shown, which counts from zero, and not the old one, which drains.
fn newest(routes: Vec<RouteView>) -> Vec<RouteView> {
    let mut newest: Vec<RouteView> = Vec::new();
    for route in routes {
        newest.retain(|known| known.name != route.name);
        newest.push(route);
    }
    newest
}

struct Page(PrometheusRecorder);

impl Page {
    fn counter(&self, name: &'static str, help: &'static str, labels: &[Pair<'_>], value: u64) {
        self.0.describe_counter(name.into(), None, help.into());
        let key = key(name, labels);
        self.0.register_counter(&key, &METADATA).absolute(value);
    }

    fn gauge(&self, name: &'static str, help: &'static str, labels: &[Pair<'_>], value: f64) {
        self.0.describe_gauge(name.into(), None, help.into());
        self.0
            .register_gauge(&key(name, labels), &METADATA)
            .set(value);
    }

    /// Adds the metrics of the process.
    fn process(&self, state: &StateView) {
        self.gauge(
            "breakbulk_build_info",
            "The version of this gateway; the value is always 1.",
            &[("version", state.version)],
            1.0,
        );
        self.gauge(
            "breakbulk_start_time_seconds",
            "When this gateway was started, in seconds since the Unix epoch.",
            &[],
            state.started as f64 / 1e3,
        );
        self.gauge(
            "breakbulk_memory_budget_bytes",
            "The memory that messages and frames may take (--memory).",
            &[],
            state.memory.budget as f64,
        );
        if let Some(recorder) = state.recorder {
            self.gauge(
                "breakbulk_recording",
                "Whether the recorder (--record) still writes: an error of the disk ends it.",
                &[],
                f64::from(u8::from(recorder.records)),
            );
            self.counter(
                "breakbulk_records_missed_total",
                "Records that were not written, since they came faster than the disk took them.",
                &[],
                recorder.missed,
            );
        }
        for owner in &state.memory.owners {
            self.gauge(
                "breakbulk_memory_bytes",
                "The memory that is held of the budget: by messages of sessions, by frames on their way or not acknowledged, by listeners for clients without a session.",
                &[("owner", owner.name)],
                owner.bytes as f64,
            );
        }
    }

    /// Adds the metrics of one route.
    fn route(&self, view: &RouteView) {
        let route = ("route", &*view.name);
        self.gauge(
            "breakbulk_route_up",
            "Whether a route takes clients: 0 before it listens, while it drains, and once its listener has failed.",
            &[route],
            f64::from(u8::from(view.state == RouteState::Listening)),
        );
        self.gauge(
            "breakbulk_sessions",
            "Sessions that are open.",
            &[route],
            view.sessions as f64,
        );
        self.counter(
            "breakbulk_sessions_total",
            "Sessions that began.",
            &[route],
            view.accepted,
        );
        for (how, value) in [("clean", view.ended_clean), ("failed", view.ended_failed)] {
            self.counter(
                "breakbulk_sessions_ended_total",
                "Sessions that ended: clean, with everything sent and answered, or failed.",
                &[route, ("how", how)],
                value,
            );
        }
        for (&reason, &value) in &view.refused {
            self.counter(
                "breakbulk_refused_total",
                "Clients that were refused, by reason.",
                &[route, ("reason", reason)],
                value,
            );
        }
        for (what, value) in [
            ("lost", view.lost),
            ("unanswered", view.unanswered),
            ("incomplete", view.incomplete),
        ] {
            self.counter(
                "breakbulk_losses_total",
                "In sessions that have ended: messages that arrived and were not sent (lost), requests without an answer (unanswered), messages that did not arrive whole (incomplete).",
                &[route, ("what", what)],
                value,
            );
        }
        self.sides(view);
    }

    fn sides(&self, view: &RouteView) {
        let route = ("route", &*view.name);
        for (name, side, received, sent) in [
            ("listen", &view.listen_side, "in", "out"),
            ("to", &view.to_side, "out", "in"),
        ] {
            let side_label = ("side", name);
            for (direction, flow, transfers) in [
                (received, side.flows.received, side.transfers_received),
                (sent, side.flows.sent, side.transfers_sent),
            ] {
                let labels = [route, side_label, ("direction", direction)];
                self.flow(&labels, flow);
                self.gauge(
                    "breakbulk_transfers",
                    "Messages that are on their way in pieces at one end.",
                    &labels,
                    transfers as f64,
                );
            }
            let labels = [route, side_label];
            self.gauge(
                "breakbulk_open_requests",
                "Requests of the program at one end that have no answer yet.",
                &labels,
                side.open_requests as f64,
            );
            self.counter(
                "breakbulk_lines_lost_total",
                "How often a tunnel at one end lost its connection.",
                &labels,
                side.lines_lost,
            );
            self.counter(
                "breakbulk_resumes_total",
                "How often a tunnel at one end went on over a new connection.",
                &labels,
                side.resumes,
            );
            self.counter(
                "breakbulk_faults_total",
                "What went wrong at one end: invalid frames, messages that could not be sent or did not arrive whole, lost connections of tunnels, sessions that failed.",
                &labels,
                side.faults,
            );
        }
    }

    fn flow(&self, labels: &[Pair<'_>], flow: FlowView) {
        self.counter(
            "breakbulk_messages_total",
            "Messages of programs that passed one end: in is from clients to the target, out from the target to clients.",
            labels,
            flow.messages,
        );
        self.counter(
            "breakbulk_message_bytes_total",
            "The bytes of the messages that passed one end.",
            labels,
            flow.bytes,
        );
        self.counter(
            "breakbulk_frames_total",
            "Frames that passed one end, as its transport carries them. Ends at Nostr relays count none.",
            labels,
            flow.frames,
        );
        self.counter(
            "breakbulk_frame_bytes_total",
            "The bytes of the frames that passed one end.",
            labels,
            flow.frame_bytes,
        );
    }
}

fn key(name: &'static str, labels: &[Pair<'_>]) -> Key {
    let labels = labels
        .iter()
        .map(|(name, value)| Label::new(*name, (*value).to_owned()));
    Key::from_parts(name, labels.collect::<Vec<_>>())
}

/// The time of messages in the gateway.
fn histograms(text: &mut String, routes: &[RouteView]) {
    let help = "How long messages were in the gateway, from their arrival until all of their frames were handed to the transport.";
    let mut lines = format!("# HELP {QUEUE} {help}\n# TYPE {QUEUE} histogram\n");
    for route in routes {
        let name = escaped(&route.name);
        for (direction, times) in [("in", &route.inward_times), ("out", &route.outward_times)] {
            let labels = format!("route=\"{name}\",direction=\"{direction}\"");
            // Writing to a text cannot fail.
            let _ = histogram(&mut lines, &labels, times);
        }
    }
    if !routes.is_empty() {
        text.push_str(&lines);
    }
}

fn histogram(text: &mut String, labels: &str, times: &TimesView) -> std::fmt::Result {
    for (bound, within) in BUCKETS.iter().zip(times.within) {
        writeln!(text, "{QUEUE}_bucket{{{labels},le=\"{bound}\"}} {within}")?;
    }
    let TimesView { count, sum, .. } = times;
    writeln!(text, "{QUEUE}_bucket{{{labels},le=\"+Inf\"}} {count}")?;
    writeln!(text, "{QUEUE}_sum{{{labels}}} {sum}")?;
    writeln!(text, "{QUEUE}_count{{{labels}}} {count}")
}

/// The value of a label.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

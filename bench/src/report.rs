//! Prints the results as a table or as JSON.

use serde_json::{Value, json};

use breakbulk_bench::payload::Content;

/// The largest acceptable time of a message.
enum Allowed {
    /// As a multiple of the limit.
    Times(f64),
    /// In nanoseconds over the limit, where the limit is two small copies.
    Over(f64),
}

/// The limit for small messages, and for those of 16 MiB.
fn allowed(wire: &str, size: &str) -> Option<Allowed> {
    match (size, wire) {
        ("256 B" | "1 KB", "loro" | "vscode") => Some(Allowed::Over(200.0)),
        ("256 B" | "1 KB", _) => Some(Allowed::Times(1.3)),
        ("16 MiB", "ahp" | "loro") => Some(Allowed::Times(1.4)),
        ("16 MiB", "tywrap") => Some(Allowed::Times(1.5)),
        ("16 MiB", "cep22") => Some(Allowed::Times(1.25)),
        ("16 MiB", _) => Some(Allowed::Times(1.3)),
        _ => None,
    }
}

/// How many whole messages of 256 bytes per second are enough.
const WHOLE: f64 = 4e6;

/// How long the first frame of a large message may take, in seconds.
const FIRST_FRAME: f64 = 0.05;

/// One measurement.
pub(crate) struct Row {
    pub(crate) wire: &'static str,
    pub(crate) content: Content,
    pub(crate) size: &'static str,
    pub(crate) bytes: usize,
    /// The time of the libraries, in seconds.
    pub(crate) limit: f64,
    /// Our time, in seconds.
    pub(crate) ours: f64,
}

pub(crate) struct Report {
    json: bool,
    rows: Vec<Value>,
    whole: Vec<(String, Value)>,
    first_frames: Vec<Value>,
    memcpy: f64,
    over: Vec<String>,
}

impl Report {
    pub(crate) fn new(json: bool) -> Self {
        Self {
            json,
            rows: Vec::new(),
            whole: Vec::new(),
            first_frames: Vec::new(),
            memcpy: 0.0,
            over: Vec::new(),
        }
    }

    pub(crate) fn memcpy(&mut self, rate: f64) {
        self.memcpy = rate;
        self.print(&format!("memcpy {rate:.1} GB/s\n"));
        self.print(&format!(
            "{:<8} {:<8} {:>8} {:>12} {:>10} {:>10} {:>8}",
            "wire", "content", "size", "limit GB/s", "ours GB/s", "over ns", "times"
        ));
    }

    pub(crate) fn row(&mut self, row: Row) {
        let rate = |seconds: f64| row.bytes as f64 / seconds / 1e9;
        let times = row.ours / row.limit;
        let over = (row.ours - row.limit) * 1e9;
        let good = allowed(row.wire, row.size).map(|most| match most {
            Allowed::Times(most) => times <= most,
            Allowed::Over(most) => over <= most,
        });
        let (wire, content, size) = (row.wire, row.content.name(), row.size);
        self.print(&format!(
            "{wire:<8} {content:<8} {size:>8} {:>12.2} {:>10.2} {over:>10.0} {times:>8.2}{}",
            rate(row.limit),
            rate(row.ours),
            mark(good)
        ));
        if good == Some(false) {
            let text = format!(
                "{wire} {content} {size}: {times:.2} times the limit, {over:.0} ns over it"
            );
            self.over.push(text);
        }
        self.rows.push(json!({
            "wire": wire, "content": content, "bytes": row.bytes, "limitSeconds": row.limit, "seconds": row.ours,
            "times": times, "good": good,
        }));
    }

    pub(crate) fn whole(&mut self, wire: &str, rate: f64) {
        self.print(&format!(
            "{wire:<8} whole 256-byte messages: {:.2} million/s{}",
            rate / 1e6,
            mark(Some(rate >= WHOLE))
        ));
        if rate < WHOLE {
            let text = format!("{wire}: {:.2} million whole messages/s", rate / 1e6);
            self.over.push(text);
        }
        self.whole.push((wire.to_owned(), json!(rate)));
    }

    pub(crate) fn first_frame(&mut self, wire: &str, content: Content, seconds: f64) {
        // CEP-22 wants the digest of the message in its first frame.
        let good = (wire != "cep22").then_some(seconds <= FIRST_FRAME);
        let content = content.name();
        self.print(&format!(
            "{wire:<8} {content:<8} first frame of 256 MB after {:.1} ms{}",
            seconds * 1e3,
            mark(good)
        ));
        if good == Some(false) {
            let text = format!(
                "{wire} {content}: first frame after {:.1} ms",
                seconds * 1e3
            );
            self.over.push(text);
        }
        self.first_frames
            .push(json!({ "wire": wire, "content": content, "seconds": seconds }));
    }

    pub(crate) fn finish(self) {
        if self.json {
            let whole: serde_json::Map<String, Value> = self.whole.into_iter().collect();
            println!(
                "{}",
                json!({ "memcpyGBs": self.memcpy, "rows": self.rows, "wholeMessagesPerSecond": whole, "firstFrames": self.first_frames })
            );
        } else if self.over.is_empty() {
            println!("\nEvery figure is within its bound.");
        } else {
            println!("\nOver the bound: {}", self.over.join("; "));
        }
    }

    fn print(&self, line: &str) {
        if !self.json {
            println!("{line}");
        }
    }
}

fn mark(good: Option<bool>) -> &'static str {
    match good {
        Some(true) => " ok",
        Some(false) => " OVER",
        None => "",
    }
}

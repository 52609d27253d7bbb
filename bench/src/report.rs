//! Prints the results as a table or as JSON.

use serde_json::{Value, json};

use crate::payload::Content;

/// The largest acceptable time for a 16 MiB message, as a multiple of the limit.
fn allowed(wire: &str) -> f64 {
    match wire {
        "ahp" | "loro" => 1.4,
        "tywrap" => 1.5,
        "cep22" => 1.25,
        _ => 1.3,
    }
}

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
    memcpy: f64,
    over: Vec<String>,
}

impl Report {
    pub(crate) fn new(json: bool) -> Self {
        Self {
            json,
            rows: Vec::new(),
            whole: Vec::new(),
            memcpy: 0.0,
            over: Vec::new(),
        }
    }

    pub(crate) fn memcpy(&mut self, rate: f64) {
        self.memcpy = rate;
        self.print(&format!("memcpy {rate:.1} GB/s\n"));
        self.print(&format!(
            "{:<8} {:<8} {:>8} {:>12} {:>10} {:>8}",
            "wire", "content", "size", "limit GB/s", "ours GB/s", "times"
        ));
    }

    pub(crate) fn row(&mut self, row: Row) {
        let rate = |seconds: f64| row.bytes as f64 / seconds / 1e9;
        let times = row.ours / row.limit;
        let most = (row.size == "16 MiB").then(|| allowed(row.wire));
        let mark = match most {
            Some(most) if times > most => " OVER",
            Some(_) => " ok",
            None => "",
        };
        let (wire, content, size) = (row.wire, row.content.name(), row.size);
        self.print(&format!(
            "{wire:<8} {content:<8} {size:>8} {:>12.2} {:>10.2} {times:>8.2}{mark}",
            rate(row.limit),
            rate(row.ours)
        ));
        if most.is_some_and(|most| times > most) {
            self.over
                .push(format!("{wire} {content}: {times:.2} times the limit"));
        }
        self.rows.push(json!({
            "wire": wire, "content": content, "bytes": row.bytes, "limitSeconds": row.limit, "seconds": row.ours,
            "times": times, "allowed": most,
        }));
    }

    pub(crate) fn whole(&mut self, wire: &str, rate: f64) {
        self.print(&format!(
            "{wire:<8} whole 256-byte messages: {:.2} million/s",
            rate / 1e6
        ));
        self.whole.push((wire.to_owned(), json!(rate)));
    }

    pub(crate) fn finish(self) {
        if self.json {
            let whole: serde_json::Map<String, Value> = self.whole.into_iter().collect();
            println!(
                "{}",
                json!({ "memcpyGBs": self.memcpy, "rows": self.rows, "wholeMessagesPerSecond": whole })
            );
        } else if self.over.is_empty() {
            println!("\nEvery figure at 16 MiB is within its bound.");
        } else {
            println!("\nOver the bound at 16 MiB: {}", self.over.join("; "));
        }
    }

    fn print(&self, line: &str) {
        if !self.json {
            println!("{line}");
        }
    }
}

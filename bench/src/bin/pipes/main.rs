//! Measures calls into Python over real pipes, each compared with plain Python and pipes in the
//! same run.

mod echo;
mod plain;
mod small;

use serde_json::{Value, json};

/// The result of a part: a text and JSON.
type Outcome = Result<(String, Value), Box<dyn std::error::Error>>;

type Measure = fn() -> Outcome;

/// A runtime with two threads, one for each end.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let machine = arguments.iter().any(|argument| argument == "--json");
    let wanted = |name: &str| {
        arguments.iter().all(|word| word == "--json") || arguments.iter().any(|word| word == name)
    };
    let parts: [(&str, Measure); 2] = [
        ("echo", || runtime()?.block_on(echo::measure())),
        ("small", || runtime()?.block_on(small::measure())),
    ];
    let mut values = serde_json::Map::new();
    for (name, measure) in parts.into_iter().filter(|(name, _)| wanted(name)) {
        let (text, value) = measure()?;
        if machine {
            values.insert(name.to_owned(), value);
        } else {
            println!("{text}");
        }
    }
    if machine {
        println!("{}", json!(values));
    }
    Ok(())
}

/// A memory figure of this process or another, in KiB: `VmRSS` is the current, `VmHWM` the peak value.
fn memory(process: &str, figure: &str) -> Result<u64, Box<dyn std::error::Error>> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find(|line| line.starts_with(figure));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(number.ok_or("no such figure")?.parse()?)
}

//! Measures speed over real sockets on loopback, each compared with another library in the same run.
//!
//! `sockets [--json] [PART…]` measures these parts, or all but `many`; `sockets many [FILE]` measures many
//! connections at once, and draws a plot to the file.

mod frames;
mod idle;
mod many;
mod payload;
mod ping;
mod pipelined;
mod plot;
mod rate;
mod spread;

use serde_json::{Value, json};

/// A measurement; it returns a text and JSON.
type Measure = fn() -> Result<(String, Value), Box<dyn std::error::Error>>;

/// A runtime with two threads, one for each end of a connection.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("idle-host") => return runtime()?.block_on(idle::host()),
        Some(server @ ("many-ours" | "many-raw")) => {
            return runtime()?.block_on(many::serve(server));
        }
        Some("many") => {
            let file = arguments.get(1).map(String::as_str);
            let (text, _) = runtime()?.block_on(many::measure(file))?;
            print!("{text}");
            return Ok(());
        }
        _ => {}
    }
    let machine = arguments.iter().any(|argument| argument == "--json");
    let mut values = serde_json::Map::new();
    let parts: [(&str, Measure); 5] = [
        ("rate", || runtime()?.block_on(rate::measure())),
        ("frames", || runtime()?.block_on(frames::measure())),
        ("pipelined", || runtime()?.block_on(pipelined::measure())),
        ("ping", || runtime()?.block_on(ping::measure())),
        ("idle", || runtime()?.block_on(idle::measure())),
    ];
    // Other arguments are the names of the parts to run.
    let wanted = |name: &str| {
        arguments.iter().all(|word| word == "--json") || arguments.iter().any(|word| word == name)
    };
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

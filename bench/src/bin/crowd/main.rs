//! Many idle WebSocket clients at one AHP host: memory per client, time to accept all, and how long requests
//! of the few active clients take. Each way to use the cores is measured separately.
//!
//! `crowd [--json] [--clients N] [--active N] [--seconds N] [one|threads|processes…]` measures;
//! `crowd simulate FILE` says what a million connections would take, from the figures in a file that
//! `crowd --json` wrote.

mod clients;
mod host;
mod measure;
mod simulate;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["host", mode, address] => host::run(mode.parse()?, address.parse()?),
        ["clients", url, count, active, seconds] => {
            let plan = clients::Crowd {
                url: url.to_owned(),
                count: count.parse()?,
                active: active.parse()?,
                seconds: seconds.parse()?,
            };
            clients::run(plan)
        }
        ["simulate", file] => simulate::run(file),
        _ => measure::run(&words),
    }
}

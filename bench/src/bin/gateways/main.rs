//! Measures what two gateways add to a path, compared in the same run with two `socat` that move the same
//! bytes, and with other builds of the program.
//!
//! ```text
//! client ── gateway ══ gateway ── server        client ── socat ══ socat ── server
//! ```
//!
//! Client and server are WebSockets of `tokio-tungstenite` in this process; between the two gateways
//! messages are cut into frames of 900 KB. Arguments: `NAME=PROGRAM` for every other build to compare, as
//! `before=PATH`; the program itself is the one beside this file, or `--program PATH`. `--work NAME` (small,
//! stream, large or crowd) measures this alone, `--rounds NUMBER` more or fewer rounds.

mod course;
mod path;

use std::path::PathBuf;

use course::{Figures, Work};
use path::Path;

/// How often every path is measured; the paths take turns, so that noise affects all of them.
const ROUNDS: usize = 10;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    let Asked {
        program,
        others,
        works,
        rounds,
        json,
    } = arguments()?;
    let server = path::serve().await?;
    let mut paths = vec![
        Path::direct(server),
        Path::socat(server).await?,
        Path::gateways("gateways", &program, &[], server).await?,
        Path::gateways("no resuming", &program, &["--resume-for", "0"], server).await?,
    ];
    for (name, program) in others {
        paths.push(Path::gateways(&name, &program, &[], server).await?);
    }
    let mut figures: Vec<Figures> = paths.iter().map(|_| Figures::default()).collect();
    for _ in 0..rounds {
        for (path, figures) in paths.iter().zip(&mut figures) {
            for &work in &works {
                figures.add(work, work.measure(&path.url).await?);
            }
        }
    }
    let names: Vec<&str> = paths.iter().map(|path| path.name.as_str()).collect();
    match json {
        true => println!("{}", course::values(&names, &figures)),
        false => print!("{}", course::table(&names, &figures, &works)),
    }
    Ok(())
}

/// The arguments.
struct Asked {
    program: PathBuf,
    /// Other builds of it, by name.
    others: Vec<(String, PathBuf)>,
    works: Vec<Work>,
    rounds: usize,
    json: bool,
}

fn arguments() -> Result<Asked, Failure> {
    let mut program = std::env::current_exe()?.with_file_name("breakbulk");
    let (mut others, mut works, mut json) = (Vec::new(), Vec::new(), false);
    let mut rounds = ROUNDS;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match (word.as_str(), word.split_once('=')) {
            ("--json", _) => json = true,
            ("--work", _) => {
                let name = words.next().unwrap_or_default();
                let named = Work::ALL.into_iter().find(|work| work.name() == name);
                works.push(named.ok_or("--work needs small, stream, large or crowd")?);
            }
            ("--rounds", _) => rounds = words.next().ok_or("--rounds needs a number")?.parse()?,
            ("--program", _) => program = words.next().ok_or("--program needs a path")?.into(),
            (_, Some((name, path))) => others.push((name.to_owned(), path.into())),
            _ => return Err(format!("{word}: neither NAME=PROGRAM nor an option").into()),
        }
    }
    if works.is_empty() {
        works.extend(Work::ALL);
    }
    if !program.exists() {
        let words = "build it first: cargo build --profile dist, or give --program PATH";
        return Err(format!("{}: not found; {words}", program.display()).into());
    }
    Ok(Asked {
        program,
        others,
        works,
        rounds,
        json,
    })
}

//! `breakbulk demo tywrap`: a result of 24 MB from a Python process whose lines are capped at 1 MB.

use std::path::Path;
use std::time::Instant;

use breakbulk::tywrap::python::INTERPRETER;
use breakbulk::tywrap::{CallError, Config, Host, StartError};

use crate::failure::Failure;
use crate::output::Output;
use crate::size;

const MESSAGE: usize = 24_000_000;

/// The reader's limit on a line.
const LINE: usize = 1_000_000;

/// Data of one frame: ASCII text does not grow in JSON, and the rest of the line is for the envelope.
const FRAME: usize = 900_000;

pub(super) async fn show(out: &mut Output) -> Result<(), Failure> {
    out.line(&format!(
        "A Python function returns {}; a line of its output may have {}.\n",
        size::show(MESSAGE),
        size::show(LINE)
    ))?;

    // With frames larger than the result it comes as one line, as without frames.
    let plain = host(64 << 20);
    out.line("as one line:")?;
    match returned(&plain).await {
        Ok((size, _)) => {
            let size = size::show(size);
            return Err(failed(&format!("a line of {size} came through the limit")));
        }
        Err(CallError::Breach { breach, .. }) => out.line(&format!("  {breach}"))?,
        Err(error) => return Err(explained(error)),
    }
    plain.stop().await;

    out.line(&format!("\nin frames of {}:", size::show(FRAME)))?;
    let framed = host(FRAME);
    let (size, seconds) = returned(&framed).await.map_err(explained)?;
    if size != MESSAGE + 2 {
        return Err(failed(&format!("{size} bytes came back")));
    }
    out.line(&format!(
        "  {} came back whole in {:.0} ms ({:.0} MB/s, Python's own JSON included)",
        size::show(size),
        seconds * 1e3,
        size as f64 / seconds / 1e6
    ))?;
    let small = framed.call("math", "sqrt", "[2]", None).await;
    let small = small.map_err(explained)?;
    out.line(&format!(
        "  and the bridge is ready for the next call: math.sqrt(2) = {}",
        small.json()
    ))?;
    framed.stop().await;
    out.line("\nTry it: breakbulk call python: operator mul '\"ab\"' 12000000 --output result.json")
}

fn host(frame: usize) -> Host {
    let config = Config::default()
        .with(|config| config.limits.message = 2 * MESSAGE)
        .with(|config| {
            config.limits.frame = frame;
            config.limits.line = Some(LINE);
            config.timeout = Some(super::TIMEOUT);
        });
    Host::python(Path::new(INTERPRETER), config)
}

/// Bytes of the result's JSON, and the seconds it took.
async fn returned(host: &Host) -> Result<(usize, f64), CallError> {
    // Started before, so that starting Python is not timed.
    host.start().await?;
    let start = Instant::now();
    let args = format!(r#"["breakbulk ", {}]"#, MESSAGE / 10);
    let result = host.call("operator", "mul", args, None).await?;
    Ok((result.json().len(), start.elapsed().as_secs_f64()))
}

fn explained(error: CallError) -> Failure {
    match error {
        CallError::Start(StartError::Exec(error)) => {
            Failure::Usage(format!("this demo needs Python 3.9 or later: {error}"))
        }
        error => failed(&error.to_string()),
    }
}

fn failed(why: &str) -> Failure {
    Failure::Session(format!("the demo failed: {why}"))
}

//! `breakbulk demo tywrap`: a result of 24 MB from a Python process whose lines are capped at 1 MB.

use std::path::Path;
use std::time::{Duration, Instant};

use breakbulk::tywrap::python::INTERPRETER;
use breakbulk::tywrap::{CallError, Config, Host, StartError};

use super::story::{Story, figures};
use crate::failure::Failure;
use crate::size;

const MESSAGE: usize = 24_000_000;

/// The reader's limit on a line.
const LINE: usize = 1_000_000;

/// Data of one frame: ASCII text does not grow in JSON, and the rest of the line is for the envelope.
const FRAME: usize = 900_000;

pub(super) async fn show(story: &mut Story<'_>) -> Result<(), Failure> {
    // Before anything is printed, since Python may be missing.
    let plain = host(64 << 20);
    plain.start().await.map_err(explained)?;
    story.title(&format!(
        "tywrap: a Python result of {}, where a line may have {}",
        size::show(MESSAGE),
        size::show(LINE)
    ))?;

    // With frames larger than the result it comes as one line, as without frames.
    match returned(&plain).await {
        Ok((size, _)) => {
            let size = size::show(size);
            return Err(failed(&format!("a line of {size} came through the limit")));
        }
        Err(CallError::Breach { breach, .. }) => {
            let why = breach.to_string();
            // The limit stands for that of a pipe, so which of our options raises it is left out.
            let why = why.split_once("; raise").map_or(&*why, |(why, _)| why);
            story.fails("as one", why)?;
        }
        Err(error) => return Err(explained(error)),
    }
    plain.stop().await;

    let framed = host(FRAME);
    let (size, took) = returned(&framed).await.map_err(explained)?;
    if size != MESSAGE + 2 {
        return Err(failed(&format!("{size} bytes came back")));
    }
    // The bridge counts its frames by their data; the last one has the rest.
    let frames = size.div_ceil(FRAME) as u64;
    let figures = figures("frames", frames, FRAME as u64, took);
    story.works("in frames", &figures)?;
    if story.is_full() {
        if framed.call("os", "abort", "[]", None).await.is_ok() {
            return Err(failed("os.abort returned"));
        }
        let small = framed.call("math", "sqrt", "[2]", None).await;
        let small = small.map_err(explained)?;
        story.works(
            "bridge killed",
            &format!(
                "the call that killed it fails, the next call starts a new one: math.sqrt(2) = {}",
                small.json()
            ),
        )?;
    }
    framed.stop().await;
    story.next(&["breakbulk call python: operator mul '\"ab\"' 12000000 -o result.json"])
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

/// Bytes of the result's JSON, and how long it took.
async fn returned(host: &Host) -> Result<(usize, Duration), CallError> {
    // Started before, so that starting Python is not timed.
    host.start().await?;
    let start = Instant::now();
    let args = format!(r#"["breakbulk ", {}]"#, MESSAGE / 10);
    let result = host.call("operator", "mul", args, None).await?;
    Ok((result.json().len(), start.elapsed()))
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
    Failure::Session(format!("demo tywrap: {why}"))
}

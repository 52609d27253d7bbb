//! Calls a Python function, or a function of any bridge that speaks tywrap/1.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use breakbulk::tywrap::python::INTERPRETER;
use breakbulk::tywrap::{CallError, Config, Host, Returned, StartError};
use indicatif::ProgressBar;

use super::{Call, arguments};
use crate::failure::Failure;
use crate::output::Output;
use crate::{frames, progress, size};

pub(super) async fn call(call: &Call, host: impl FnOnce(Config) -> Host) -> Result<(), Failure> {
    let timeout = call.timeout()?;
    let args = match &call.args_from {
        None => arguments::array(&call.arguments).into(),
        Some(path) => frames::read_message(Some(path), call.max_message.0)?,
    };
    let named = arguments::object(&call.named)?.map(Into::into);
    let config = Config::default()
        .with(|config| config.limits.message = call.max_message.0)
        .with(|config| {
            config.limits.frame = call.max_frame.0.max(4);
            config.timeout = timeout;
        });
    let host = host(config);
    let bar = watch(&host);
    let called = host.call(&call.object, &call.function, args, named);
    let outcome = tokio::select! {
        outcome = called => outcome,
        _ = tokio::signal::ctrl_c() => {
            bar.finish_and_clear();
            host.stop().await;
            return Err(Failure::Session("interrupted; the bridge was stopped".to_owned()));
        }
    };
    bar.finish_and_clear();
    let written = match outcome {
        Ok(returned) => write(call, &returned),
        Err(error) => Err(failed(error, call)),
    };
    host.stop().await;
    written
}

/// The interpreter: the default, the given path, or the one in the given virtual environment.
pub(super) fn interpreter(named: Option<&Path>) -> PathBuf {
    let Some(path) = named else {
        return INTERPRETER.into();
    };
    if !path.is_dir() {
        return path.to_owned();
    }
    let inside = if cfg!(windows) {
        "Scripts/python.exe"
    } else {
        "bin/python3"
    };
    path.join(inside)
}

/// Shows the progress of a large message.
fn watch(host: &Host) -> ProgressBar {
    let bar = progress::bar(None, "calling");
    if bar.is_hidden() {
        return bar;
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    let (shown, mut moved) = (bar.clone(), host.progress());
    tokio::spawn(async move {
        while moved.changed().await.is_ok() {
            let now = *moved.borrow_and_update();
            shown.set_message(if now.incoming { "receiving" } else { "sending" });
            if let Some(total) = now.total {
                shown.set_length(total);
            }
            shown.set_position(now.done as u64);
        }
    });
    bar
}

fn write(call: &Call, returned: &Returned) -> Result<(), Failure> {
    let mut out = Output::open(call.output.as_deref())?;
    match raw(call, returned)? {
        Some(raw) => out.write(&raw)?,
        None => {
            out.write(returned.json().as_bytes())?;
            out.write(b"\n")?;
        }
    }
    out.finish()
}

/// The content of a string or of bytes, if `--raw` was given and the result is one.
fn raw<'a>(call: &Call, returned: &'a Returned) -> Result<Option<Cow<'a, [u8]>>, Failure> {
    if !call.raw {
        return Ok(None);
    }
    if let Some(bytes) = returned.bytes() {
        let bytes = bytes.map_err(|error| Failure::Session(error.to_string()))?;
        return Ok(Some(bytes.into()));
    }
    let json = returned.json();
    let string = json
        .starts_with('"')
        .then(|| serde_json::from_str::<String>(json));
    match string {
        None => Ok(None),
        Some(Ok(text)) => Ok(Some(text.into_bytes().into())),
        Some(Err(error)) => Err(Failure::Session(format!(
            "the result cannot be read: {error}"
        ))),
    }
}

/// The error with the options of the command line in place of the library's names.
fn failed(error: CallError, call: &Call) -> Failure {
    match error {
        CallError::Start(StartError::Exec(error)) => Failure::Usage(error.to_string()),
        CallError::BadArguments(why) => Failure::Usage(format!("{why}; look at --args-from")),
        CallError::RequestTooLarge { size, limit } => Failure::Usage(format!(
            "the request has {}, over the limit of {}; raise --max-message",
            size::show(size),
            size::show(limit)
        )),
        CallError::TimedOut { after, stderr, .. } => Failure::Session(format!(
            "{}.{} did not answer within {} s; raise --timeout{}{stderr}",
            call.object,
            call.function,
            after.as_secs_f64(),
            if stderr.is_empty() { "" } else { "\n" },
        )),
        error => Failure::Session(error.to_string().replace("limits.message", "--max-message")),
    }
}

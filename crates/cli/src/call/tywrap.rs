//! Calls a Python function, or a function of any bridge that speaks tywrap/1.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use breakbulk::tywrap::python::INTERPRETER;
use breakbulk::tywrap::{Config, Host, Returned};
use indicatif::ProgressBar;

use super::readable::readable;
use super::{Call, arguments, failure};
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::signals::Stop;
use crate::{frames, progress};

pub(super) async fn call(call: &Call, host: impl FnOnce(Config) -> Host) -> Result<(), Failure> {
    let timeout = call.timeout();
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
            // What the called code prints is for whoever called it, also if the call succeeds.
            config.inherit_stderr = true;
        });
    let stop = Stop::on_signals()
        .map_err(|error| Failure::Io("cannot watch for signals".to_owned(), error))?;
    let host = host(config);
    let bar = watch(&host);
    let outcome = tokio::select! {
        outcome = host.call(&call.object, &call.function, args, named) => outcome,
        () = stop.asked() => {
            bar.finish_and_clear();
            end_now(&host, &stop).await;
            return Err(Failure::Interrupted("interrupted; the bridge was stopped".to_owned()));
        }
    };
    bar.finish_and_clear();
    let written = match outcome {
        Ok(returned) => write(call, &returned),
        Err(error) => Err(failure::explained(error, call)),
    };
    match &written {
        // The bridge still works on a call that nobody waits for any more.
        Err(Failure::TimedOut(_)) => end_now(&host, &stop).await,
        _ => tokio::select! {
            () = host.stop() => {}
            () = stop.asked() => end_now(&host, &stop).await,
        },
    }
    written
}

/// Ends the bridge and its child processes by SIGTERM, and waits for them until a second signal comes.
async fn end_now(host: &Host, stop: &Stop) {
    host.restart();
    tokio::select! {
        () = host.stop() => {}
        () = stop.insisted() => {}
    }
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

/// Shows the progress of a large message, once there is any: until then the lines that the called code
/// prints have the terminal for themselves.
fn watch(host: &Host) -> ProgressBar {
    let bar = progress::later();
    if bar.is_hidden() {
        return bar;
    }
    let (shown, mut moved) = (bar.clone(), host.progress());
    tokio::spawn(async move {
        while moved.changed().await.is_ok() {
            let now = *moved.borrow_and_update();
            let what = if now.incoming { "receiving" } else { "sending" };
            progress::begin(&shown, what, now.total);
            shown.set_position(now.done as u64);
        }
    });
    bar
}

fn write(call: &Call, returned: &Returned) -> Result<(), Failure> {
    let mut out = Output::open(call.output.as_deref())?;
    match raw(call, returned)? {
        Some(raw) => {
            let is_text = std::str::from_utf8(&raw).is_ok();
            output::check(call.output.as_deref(), !is_text)?;
            out.write(&raw)?;
        }
        None => {
            readable(returned.json(), |bytes| out.write(bytes))?;
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

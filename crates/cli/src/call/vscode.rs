//! Calls a method of an actor over VSCode's extension-host RPC.

use std::time::Duration;

use breakbulk::message::vscode::{Args, Reply, RpcId, Text};
use breakbulk::net::tcp;
use breakbulk::vscode::{Answer, CallError, Config, Endpoint};

use super::{Call, arguments};
use crate::failure::Failure;
use crate::frames;
use crate::output::{self, Output};

/// How long a connection may take to open.
const OPENING: Duration = Duration::from_secs(10);

pub(super) async fn call(call: &Call, address: &str, persistent: bool) -> Result<(), Failure> {
    let called = within_time(call, address, persistent);
    let Some(after) = call.timeout() else {
        return called.await;
    };
    match tokio::time::timeout(after, called).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Failure::TimedOut(format!(
            "{} of actor {} did not answer within {} s; raise --timeout",
            call.function,
            call.object,
            after.as_secs_f64()
        ))),
    }
}

async fn within_time(call: &Call, address: &str, persistent: bool) -> Result<(), Failure> {
    if !call.named.is_empty() {
        let why = "--kwarg is for python: and tywrap+exec: targets; the arguments of an actor have no names";
        return Err(Failure::Usage(why.to_owned()));
    }
    let actor = call.object.parse::<usize>().ok();
    let actor = actor.and_then(|id| RpcId::new(id).ok()).ok_or_else(|| {
        Failure::Usage(format!(
            "{:?} is not the number of an actor; give 1 to 255",
            call.object
        ))
    })?;
    let args = match &call.args_from {
        None => arguments::array(&call.arguments).into(),
        Some(path) => frames::read_message(Some(path), call.max_message.0)?,
    };
    let args = std::str::from_utf8(&args)
        .map_err(|_| Failure::Usage("--args-from: the file is not UTF-8".to_owned()))?;
    let args = Args::Json(Text::from(args.to_owned()));

    let stream = tcp::connect(address, OPENING).await;
    let stream = stream.map_err(|error| {
        Failure::Usage(format!(
            "{address}: {error}; is the extension host running, and is this its port?"
        ))
    })?;
    let mut options = Config::default();
    options.rpc.received.message = call.max_message.0;
    options.rpc.sent_message = call.max_message.0;
    let endpoint = if persistent {
        Endpoint::persistent(stream, options)
    } else {
        Endpoint::over_stream(stream, options)
    };
    let called = endpoint
        .remote(actor)
        .cancellable()
        .call_raw(call.function.clone(), args);
    let answer = called.await.map_err(failed)?;
    write(call, &answer)?;
    endpoint.dispose();
    Ok(())
}

/// Writes JSON as it came, and a buffer as raw bytes.
fn write(call: &Call, answer: &Answer) -> Result<(), Failure> {
    let mut out = Output::open(call.output.as_deref())?;
    match answer.raw() {
        Reply::OkBuffer(bytes) => {
            output::check(call.output.as_deref(), true)?;
            out.write(bytes)?;
        }
        Reply::OkEmpty => out.write(b"undefined\n")?,
        Reply::OkJson(json) if call.raw && json.as_str().starts_with('"') => {
            let text: String = serde_json::from_str(json.as_str())
                .map_err(|error| Failure::Session(format!("the result cannot be read: {error}")))?;
            out.write(text.as_bytes())?;
        }
        Reply::OkJson(json) => {
            out.write(json.as_str().as_bytes())?;
            out.write(b"\n")?;
        }
        Reply::OkJsonWithBuffers(value) => {
            // JSON cannot express the buffers that it refers to; they are left out.
            out.write(value.json.as_str().as_bytes())?;
            out.write(b"\n")?;
        }
        // Cannot happen: the endpoint returns these as errors.
        Reply::ErrError(_) | Reply::ErrEmpty => {}
    }
    out.finish()
}

fn failed(error: CallError) -> Failure {
    Failure::Session(error.to_string())
}

//! Starts a bridge process, asks it for `meta`, and sets up frames.

use std::sync::Arc;

use breakbulk_link::{PeerLimits, PeerSupport, lock};
use breakbulk_message::tywrap::{FRAME_PROTOCOL, UNKNOWN_ID};
use breakbulk_net::process::{Framing, Program, Stderr};
use breakbulk_net::{Connection, Observed, Options, fresh_seed};

use super::Startup;
use super::line_watch::LineWatch;
use super::session::{Reply, Session};
use crate::machine::{About, Config, meta_request};
use crate::{CallError, StartError};

/// Starts a bridge and negotiates frames, unless the host is stopped meanwhile.
pub(super) async fn start(startup: &Startup) -> Result<Arc<Session>, StartError> {
    let mut stopped = startup.stopped.subscribe();
    let session = launch(startup)?;
    let outcome = tokio::select! {
        outcome = negotiate(&session, &startup.config) => Some(outcome),
        _ = stopped.wait_for(|stopped| *stopped) => None,
    };
    match outcome {
        Some(outcome) => outcome.map(|()| session),
        None => {
            session.terminate_and_wait().await;
            Err(StartError::Stopped)
        }
    }
}

/// Starts the process.
fn launch(startup: &Startup) -> Result<Arc<Session>, StartError> {
    let config = &startup.config;
    let started =
        with_negotiation(config, &startup.program).start(Framing::Lines, config.line_limit());
    let (exec, _) = started.map_err(|error| StartError::Exec(Arc::new(error)))?;
    let (stopper, tail, line_watch) = (exec.stopper(), exec.stderr(), LineWatch::default());
    let options = Options {
        // A silent pipe is not dead: when the process exits, the pipe ends.
        keepalive: None,
        silence: None,
        grace: config.grace,
        ..Options::default()
    };
    let link = config.link(fresh_seed());
    let unstarted = Connection::prepare(link, Observed::new(exec, line_watch.clone()), options)?;
    Ok(Session::new(startup, unstarted, line_watch, stopper, tail))
}

/// Asks the bridge for `meta`, and sets up frames if it accepts them.
async fn negotiate(session: &Arc<Session>, config: &Config) -> Result<(), StartError> {
    let about = match config.probe_time() {
        None => About {
            meta: None,
            frame: Some(config.limits.frame),
        },
        Some(limit) => {
            let asked = session.exchange(UNKNOWN_ID, meta_request(UNKNOWN_ID));
            match tokio::time::timeout(limit, asked).await {
                Ok(Reply::Done(Ok(result))) => About::read(&result, config.limits.frame),
                // A bridge that does not know `meta` does not accept frames.
                Ok(Reply::Done(Err(CallError::Raised(_)))) | Err(_) => About::default(),
                Ok(Reply::Done(Err(error))) => {
                    session.terminate_and_wait().await;
                    return Err(StartError::Failed(Box::new(error)));
                }
                Ok(Reply::TryAnother) => {
                    let (how, stderr) =
                        (session.connection.closed().await.reason, session.stderr());
                    let error = CallError::Exited { how, stderr };
                    return Err(StartError::Failed(Box::new(error)));
                }
            }
        }
    };
    if let Some(frame) = about.frame {
        session.connection.with(|link| {
            link.set_cap(config.cap());
            link.set_peer(PeerSupport::Yes(PeerLimits {
                frame,
                ..PeerLimits::NONE
            }));
        });
    }
    *lock(&session.about) = about;
    Ok(())
}

/// Adds both negotiations to the program: the argument of version 0.9 and the environment variables
/// of 0.8. Variables that the caller set stay.
fn with_negotiation(config: &Config, program: &Program) -> Program {
    let (frame, message) = (
        config.limits.frame.to_string(),
        config.limits.message.to_string(),
    );
    program
        .clone()
        .arg("--tywrap-max-frame-bytes")
        .arg(&frame)
        .env_default("TYWRAP_TRANSPORT_CHUNKING", "1")
        .env_default("TYWRAP_TRANSPORT_FRAME_PROTOCOL", FRAME_PROTOCOL)
        .env_default("TYWRAP_TRANSPORT_MAX_FRAME_BYTES", frame)
        .env_default("TYWRAP_REQUEST_MAX_BYTES", &message)
        .env_default("TYWRAP_CODEC_MAX_BYTES", message)
        .env_default("PYTHONUTF8", "1")
        .env_default("PYTHONIOENCODING", "UTF-8")
        .env_default("PYTHONUNBUFFERED", "1")
        .stderr(match config.inherit_stderr {
            true => Stderr::Inherit,
            false => Stderr::Keep(config.limits.stderr),
        })
        .terminate_after(config.grace / 2)
        .kill_group_on_exit()
}

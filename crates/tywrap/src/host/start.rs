//! How a bridge is started, and what it is asked first.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use breakbulk_link::{PeerLimits, PeerSupport};
use breakbulk_message::tywrap::{Meta, UNKNOWN_ID};
use breakbulk_net::process::Framing;
use breakbulk_net::{Connection, Options};
use serde_json::value::RawValue;

use super::Config;
use super::request;
use super::returned::Returned;
use super::session::{Reply, Session};
use super::tap::{Tap, Tapped};
use crate::{CallError, StartError};

/// What a bridge said of itself when it was started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// What it is; `None` if it did not say, or nothing that can be read.
    pub meta: Option<Meta<'static>>,
    /// Bytes of data in a frame that goes to it; `None`: it takes no frames, and a request goes out in
    /// one line.
    pub frame: Option<usize>,
}

/// Starts a bridge and asks what it is.
pub(super) async fn start(config: &Config) -> Result<Arc<Session>, StartError> {
    let settings = &config.settings;
    let started = settings
        .dress(&config.program)
        .start(Framing::Lines, settings.line_limit());
    let (exec, _) = started.map_err(|error| StartError::Exec(Arc::new(error)))?;
    let (stopper, tail, tap) = (exec.stopper(), exec.stderr(), Tap::default());
    let options = Options {
        // A pipe that is silent is not lost: its end is told.
        keepalive: None,
        silence: None,
        grace: settings.grace,
    };
    let connection = Connection::open(settings.link(), Tapped(exec, tap.clone()), options);
    let session = Session::new(config, connection, tap, stopper, tail);
    let about = match settings.probe {
        None => About {
            meta: None,
            frame: Some(settings.frame),
        },
        Some(limit) => {
            let asked = session.exchange(UNKNOWN_ID, request::meta(UNKNOWN_ID));
            match tokio::time::timeout(limit, asked).await {
                Ok(Reply::Done(Ok(result))) => read(&result, settings.frame),
                // A bridge that does not know the question takes no frames.
                Ok(Reply::Done(Err(CallError::Raised(_)))) | Err(_) => About::default(),
                Ok(Reply::Done(Err(error))) => {
                    session.retire().await;
                    return Err(StartError::Failed(Box::new(error)));
                }
                Ok(Reply::Again) => {
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
            link.set_cap(settings.cap());
            link.set_peer(PeerSupport::Yes(PeerLimits {
                frame,
                ..PeerLimits::NONE
            }));
        });
    }
    let known = session.about.lock();
    *known.unwrap_or_else(PoisonError::into_inner) = about;
    Ok(session)
}

/// What a bridge says of itself, and the frames that follow from it. Version 0.8 offers them in a
/// block of its own; later ones frame without a word, as they were told by an argument.
fn read(result: &Returned, ours: usize) -> About {
    let Some(meta) = meta(result) else {
        return About::default();
    };
    let members: Option<BTreeMap<String, &RawValue>> = serde_json::from_str(result.json()).ok();
    let is_offered = members.is_some_and(|members| members.contains_key("transport"));
    let frame = match meta.max_frame_bytes {
        Some(theirs) => Some(usize::try_from(theirs).map_or(ours, |theirs| theirs.min(ours))),
        None => (!is_offered).then_some(ours),
    };
    About {
        meta: Some(meta),
        frame,
    }
}

/// The answer to `meta`.
pub(super) fn meta(result: &Returned) -> Option<Meta<'static>> {
    let raw: &RawValue = serde_json::from_str(result.json()).ok()?;
    let meta = Meta::read(raw).ok()?;
    Some(Meta {
        python_version: meta.python_version.into_owned().into(),
        codec_fallback: meta.codec_fallback.into_owned().into(),
        ..meta
    })
}

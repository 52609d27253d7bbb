//! An AHP application for the tests: one session, whose state is its title, and one file.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ahp_types::commands::{
    ContentEncoding, ResourceReadParams, ResourceReadResult, ResourceWriteParams,
};
use breakbulk::ahp::host::{Applied, Call, Dispatch, State};
use breakbulk::ahp::{Application, Host, PublishError, RpcError};
use serde_json::value::RawValue;

use crate::text::{digest, title};

/// The channel of the session.
pub const SESSION: &str = "ahp-session:/live";
/// The channel that every host has.
pub const ROOT: &str = "ahp-root://";

/// The application.
#[derive(Default)]
pub struct App {
    session: Mutex<State>,
    /// The file that was written last: address and content.
    file: Mutex<Option<(String, String)>>,
}

impl App {
    /// A session with this title.
    pub fn new(title: &str) -> Self {
        let app = Self::default();
        app.set_title(title);
        app
    }

    /// Changes the title without an action, as if the session had been like that before.
    pub fn set_title(&self, title: &str) {
        *lock(&self.session) = session(title).unwrap_or_default();
    }
}

/// The smallest session that the real client accepts.
fn session(title: &str) -> serde_json::Result<State> {
    let title = serde_json::to_string(title)?;
    let text = format!(
        r#"{{"provider":"live","title":{title},"status":1,"lifecycle":"ready","activeClients":[],"chats":[]}}"#
    );
    Ok(State::new(RawValue::from_string(text)?))
}

impl Application for App {
    fn snapshot(&self, channel: &str) -> Option<State> {
        match channel {
            SESSION => Some(lock(&self.session).clone()),
            ROOT => {
                let root = RawValue::from_string(r#"{"agents":[]}"#.to_owned());
                root.ok().map(State::new)
            }
            _ => None,
        }
    }

    fn apply(&self, action: &Applied<'_>) {
        if action.channel == SESSION
            && action.rejection.is_none()
            && let Some(title) = title(action.action)
        {
            self.set_title(&title);
        }
    }

    fn dispatched(&self, host: &Host<Self>, dispatch: &Dispatch<'_>) -> Result<(), PublishError> {
        host.accept(dispatch).map(drop)
    }

    async fn request(&self, _host: &Host<Self>, call: Call) -> Result<Box<RawValue>, RpcError> {
        let invalid =
            |error: serde_json::Error| RpcError::new(RpcError::INVALID_PARAMS, error.to_string());
        let answer = match call.method() {
            "resourceWrite" => {
                let params: ResourceWriteParams =
                    serde_json::from_str(call.params()).map_err(invalid)?;
                let answer = serde_json::json!({"sha256": digest([&*params.data])});
                *lock(&self.file) = Some((params.uri, params.data));
                answer.to_string()
            }
            "resourceRead" => {
                let params: ResourceReadParams =
                    serde_json::from_str(call.params()).map_err(invalid)?;
                let file = lock(&self.file).clone();
                let Some((_, data)) = file.filter(|(uri, _)| *uri == params.uri) else {
                    return Err(RpcError::new(
                        RpcError::NOT_FOUND,
                        "nothing was written there",
                    ));
                };
                let result = ResourceReadResult {
                    data,
                    encoding: ContentEncoding::Utf8,
                    content_type: None,
                };
                serde_json::to_string(&result).map_err(invalid)?
            }
            method => return Err(RpcError::method_not_found(method)),
        };
        RawValue::from_string(answer).map_err(invalid)
    }
}

/// Locks the mutex even if a thread panicked while it held the lock: no change is left half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! `breakbulk loro pull`, `push` and `watch`.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use breakbulk::loro::crdt::LoroDoc;
use breakbulk::loro::store::MemoryStore;
use breakbulk::loro::{Backoff, Config, Cut, Cuts, Dial, Doc, Node, Remote, Status};
use indicatif::ProgressBar;
use serde_json::Value;

use super::{Client, content};
use crate::failure::Failure;
use crate::output::Output;
use crate::progress;
use crate::signals::Stop;
use crate::token;

/// How long closing the connection may take.
const GRACE: Duration = Duration::from_secs(5);

/// The most bytes read from standard input or a file.
const INPUT_MAX: u64 = 1 << 30;

/// The most bytes that a document from a server may have uncompressed.
const EXPANDED_MAX: u64 = 4 << 30;

/// A document that is synced with a server.
struct Session {
    node: Node,
    remote: Remote,
    doc: Doc,
}

pub(super) async fn pull(client: &Client) -> Result<(), Failure> {
    let session = Session::open(client).await?;
    session.synced(client, "fetching").await?;
    write(&session.doc, client.file.as_deref())?;
    session.close().await;
    Ok(())
}

pub(super) async fn push(client: &Client) -> Result<(), Failure> {
    let bytes = read(client.file.as_deref())?;
    let name = file_name(client.file.as_deref());
    let wrong = |why: String| Failure::Input(format!("{name}: {why}"));
    let json = match is_json(client.file.as_deref()) {
        true => Some(serde_json::from_slice::<Value>(&bytes).map_err(|error| {
            wrong(format!(
                "it is no JSON ({error}); a snapshot goes by a name that does not end in .json"
            ))
        })?),
        false => None,
    };
    let apply = |doc: &LoroDoc| match &json {
        Some(json) => content::set_json(doc, json),
        None => content::merge(doc, &bytes),
    };
    // Apply to an empty document first, so that invalid input fails before connecting.
    apply(&LoroDoc::new()).map_err(wrong)?;
    let session = Session::open(client).await?;
    // Fetch the document first, so that only the difference is sent.
    match session.sync(client, "fetching").await? {
        Ok(()) | Err(breakbulk::loro::DocError::Unavailable { .. }) => {}
        Err(error) => return Err(session.failed(error.to_string())),
    }
    let loro = session.doc.loro();
    apply(&loro).map_err(wrong)?;
    loro.commit();
    session.synced(client, "pushing").await?;
    session.close().await;
    Ok(())
}

pub(super) async fn watch(client: &Client) -> Result<(), Failure> {
    let stop = Stop::on_signals().map_err(|error| Failure::Io("signals".to_owned(), error))?;
    let session = Session::open(client).await?;
    session.synced(client, "fetching").await?;
    let mut seen = session.doc.watch();
    let mut status = session.remote.status();
    loop {
        seen.borrow_and_update();
        write(&session.doc, client.file.as_deref())?;
        let gave_up = status.wait_for(|status| matches!(status, Status::GaveUp { .. }));
        tokio::select! {
            changed = changed(&mut seen) => if !changed { break },
            _ = gave_up => return Err(session.failed("the server cannot be reached any more".to_owned())),
            () = stop.asked() => break,
        }
    }
    session.close().await;
    Ok(())
}

/// Waits for a change of the document. False: the node is shut down.
async fn changed(seen: &mut tokio::sync::watch::Receiver<breakbulk::loro::DocState>) -> bool {
    let before = seen.borrow().changes;
    seen.wait_for(|seen| seen.changes != before).await.is_ok()
}

impl Session {
    async fn open(client: &Client) -> Result<Self, Failure> {
        let mut config = Config::client("breakbulk");
        config.message = client.max_message.0;
        config.limits.document_bytes = u64::MAX;
        config.limits.expanded_bytes = EXPANDED_MAX;
        if let Some(max) = client.max_frame {
            let cut = Cut::Cap(max.0);
            config.cuts = Cuts {
                web_socket: cut,
                post: cut,
                data_channel: cut,
            };
        }
        let failed = |error: String| Failure::Session(error);
        let node =
            Node::new(config, MemoryStore::new()).map_err(|error| failed(error.to_string()))?;
        let mut dial = Dial::new(&client.url);
        dial.bearer = token::from_environment()?;
        if dial.bearer.is_some() && token::travels_in_clear(&client.url) {
            eprintln!(
                "breakbulk: the token travels in clear text, and whoever sees it can use it; use https:// or wss://"
            );
        }
        // Few and quick attempts: a person at a terminal waits for the error.
        dial.backoff = Backoff {
            tries: 3,
            base: Duration::from_millis(250),
            cap: Duration::from_secs(1),
        };
        let remote = node.dial(dial);
        let doc = node.open(&client.doc).await;
        let doc = doc.map_err(|error| failed(error.to_string()))?;
        Ok(Self { node, remote, doc })
    }

    /// Waits until client and server have the same content.
    async fn synced(&self, client: &Client, what: &'static str) -> Result<(), Failure> {
        let outcome = self.sync(client, what).await?;
        outcome.map_err(|error| self.failed(error.to_string()))
    }

    async fn sync(
        &self,
        client: &Client,
        what: &'static str,
    ) -> Result<Result<(), breakbulk::loro::DocError>, Failure> {
        let bar = Spinner::new(what);
        let mut status = self.remote.status();
        let gave_up = status.wait_for(|status| matches!(status, Status::GaveUp { .. }));
        let late = async {
            match client.timeout() {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        let outcome = tokio::select! {
            outcome = self.doc.sync() => Ok(outcome),
            status = gave_up => Err(match status.as_deref() {
                Ok(Status::GaveUp { reason }) => format!("{}: {reason}", client.url),
                _ => format!("{}: the connection is closed", client.url),
            }),
            () = late => Err(format!(
                "{}: the document is not synced after {} s ({}); raise --timeout, or check whether the server accepts the document",
                client.url, client.timeout, status_text(&self.remote.status().borrow()),
            )),
        };
        drop(bar);
        outcome.map_err(Failure::Session)
    }

    fn failed(&self, why: String) -> Failure {
        Failure::Session(format!("document {:?}: {why}", self.doc.id().to_string()))
    }

    async fn close(self) {
        drop(self.doc);
        self.node.shut_down(GRACE).await;
    }
}

/// The status of the connection, for an error text.
fn status_text(status: &Status) -> String {
    match status {
        Status::Connecting => "connecting".to_owned(),
        Status::Connected => "connected, but the server has not sent its identity".to_owned(),
        Status::Established => "connected".to_owned(),
        Status::Waiting { reason, .. } | Status::GaveUp { reason } => {
            format!("not connected: {reason}")
        }
        _ => "closed".to_owned(),
    }
}

/// A spinner, removed when dropped.
struct Spinner(ProgressBar);

impl Spinner {
    fn new(what: &'static str) -> Self {
        let bar = progress::bar(None, what);
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn is_json(file: Option<&Path>) -> bool {
    file.is_none_or(|file| {
        file == Path::new("-")
            || file
                .extension()
                .is_some_and(|ending| ending.eq_ignore_ascii_case("json"))
    })
}

fn file_name(file: Option<&Path>) -> String {
    file.map_or_else(
        || "standard input".to_owned(),
        |file| file.display().to_string(),
    )
}

fn write(doc: &Doc, file: Option<&Path>) -> Result<(), Failure> {
    let loro = doc.loro();
    let mut out = Output::open(file)?;
    if is_json(file) {
        let json = content::to_json(&loro).map_err(Failure::Session)?;
        out.line(&json.to_string())?;
    } else {
        out.write(&content::to_snapshot(&loro).map_err(Failure::Session)?)?;
    }
    out.finish()
}

fn read(file: Option<&Path>) -> Result<Vec<u8>, Failure> {
    let failed = |error| Failure::Io(file_name(file), error);
    let mut bytes = Vec::new();
    let read = match file.filter(|file| *file != Path::new("-")) {
        None => std::io::stdin()
            .lock()
            .take(INPUT_MAX + 1)
            .read_to_end(&mut bytes),
        Some(file) => std::fs::File::open(file)
            .and_then(|file| file.take(INPUT_MAX + 1).read_to_end(&mut bytes)),
    };
    if read.map_err(failed)? as u64 > INPUT_MAX {
        let name = file_name(file);
        return Err(Failure::Input(format!(
            "{name}: it is larger than {INPUT_MAX} bytes"
        )));
    }
    Ok(bytes)
}

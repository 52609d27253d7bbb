//! A connection to a server, and waiting for it with a spinner, a time limit and the reasons of failures.

use std::cell::Cell;
use std::time::Duration;

use breakbulk::loro::store::MemoryStore;
use breakbulk::loro::{
    Backoff, Config, Cut, Cuts, Dial, Doc, DocError, Limits, Node, Remote, Status,
};
use breakbulk::net::plain_text;
use breakbulk::net::ws::{Identity, Roots};
use indicatif::ProgressBar;
use tokio::sync::watch::Receiver;

use super::Server;
use crate::failure::Failure;
use crate::progress;
use crate::token;

/// How long closing the connection may take.
const GRACE: Duration = Duration::from_secs(5);

/// The most bytes that a document from a server may have uncompressed.
const EXPANDED_MAX: u64 = 4 << 30;

/// Attempts to connect that may fail in a row: a person at a terminal waits for the error.
const TRIES: u32 = 3;

/// How long a command goes on when it loses its server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// A few seconds.
    Short,
    /// For ever, once it was connected.
    Endless,
}

/// A connection to a server.
pub(super) struct Session<'a> {
    server: &'a Server,
    pub(super) node: Node,
    pub(super) remote: Remote,
    /// Whether the server ever answered as one of documents: before that it could not be reached.
    reached: Cell<bool>,
}

impl<'a> Session<'a> {
    pub(super) fn connect(server: &'a Server, patience: Patience) -> Result<Self, Failure> {
        let mut config = Config::client("breakbulk");
        config.message = server.max_message.0;
        config.limits.document_bytes = u64::MAX;
        config.limits.expanded_bytes = EXPANDED_MAX;
        if let Some(max) = server.max_frame {
            let cut = Cut::Cap(max.0);
            config.cuts = Cuts {
                web_socket: cut,
                post: cut,
                data_channel: cut,
            };
        }
        check(server)?;
        let node = Node::new(config, MemoryStore::new());
        let node = node.map_err(|error| Failure::Session(error.to_string()))?;
        let mut dial = Dial::new(&server.url);
        dial.bearer = token::from_environment()?;
        if dial.bearer.is_some() && token::travels_in_clear(&server.url) {
            eprintln!(
                "breakbulk: the token travels in clear text, and whoever sees it can use it; use https:// or wss://"
            );
        }
        dial.roots = server.ca.clone().map_or(Roots::Native, Roots::File);
        let identity = server.cert.clone().zip(server.key.clone());
        dial.identity = identity.map(|(chain, key)| Identity { chain, key });
        dial.backoff = match patience {
            Patience::Short => Backoff {
                tries: TRIES,
                base: Duration::from_millis(250),
                cap: Duration::from_secs(1),
            },
            Patience::Endless => Backoff {
                tries: u32::MAX,
                base: Duration::from_millis(250),
                cap: Duration::from_secs(30),
            },
        };
        let remote = node.dial(dial);
        Ok(Self {
            server,
            node,
            remote,
            reached: Cell::new(false),
        })
    }

    pub(super) fn url(&self) -> &str {
        &self.server.url
    }

    /// Opens a document; it is synced from now on.
    pub(super) async fn open(&self, doc: &str) -> Result<Doc, Failure> {
        let opened = self.node.open(doc).await;
        opened.map_err(|error| failed(doc, &error))
    }

    /// Waits until client and server have the same content.
    pub(super) async fn sync(
        &self,
        doc: &Doc,
        what: &'static str,
    ) -> Result<Result<(), DocError>, Failure> {
        self.wait(what, doc.sync()).await
    }

    /// Waits for `work`, as long as `--timeout` allows and the server can be reached.
    pub(super) async fn wait<T>(
        &self,
        what: &'static str,
        work: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        let _spinner = Spinner::new(what);
        let server = self.server;
        let failed = |why: String| {
            let why = format!("{}: {why}", server.url);
            match self.reached.get() {
                true => Failure::Session(why),
                false => Failure::Usage(why),
            }
        };
        let mut status = self.remote.status();
        status.mark_changed();
        let late = async {
            match server.timeout() {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        let (mut last, mut text, mut ends) = (None, String::new(), 0);
        tokio::pin!(work, late);
        loop {
            tokio::select! {
                done = &mut work => {
                    self.reached.set(true);
                    return Ok(done);
                }
                changed = status.changed() => if changed.is_err() {
                    return Err(failed("the connection is closed".to_owned()));
                },
                () = &mut late => {
                    let last = last.map(|last| format!("; before: {last}")).unwrap_or_default();
                    return Err(Failure::TimedOut(format!(
                        "{}: {what} is not done after {} s ({text}{last}); raise --timeout if it needs longer",
                        server.url, server.timeout
                    )));
                }
            }
            let now = status.borrow_and_update();
            text = status_text(&now);
            match &*now {
                Status::GaveUp { reason } => return Err(failed(reason.to_string())),
                Status::Waiting { reason, .. } => {
                    ends += 1;
                    // The next attempt would end like this one.
                    if ends > TRIES {
                        return Err(failed(reason.to_string()));
                    }
                    last = Some(reason.to_string());
                }
                Status::Established => self.reached.set(true),
                _ => {}
            }
        }
    }

    pub(super) async fn close(self) {
        self.node.shut_down(GRACE).await;
    }
}

/// Refuses an address and files that cannot be used, before anything is tried.
fn check(server: &Server) -> Result<(), Failure> {
    let schemes = ["ws://", "wss://", "http://", "https://"];
    if !schemes.iter().any(|scheme| server.url.starts_with(scheme)) {
        let words = "a server is ws://HOST:PORT/ws, wss://…, http://HOST:PORT or https://…";
        return Err(Failure::Usage(format!("{}: {words}", server.url)));
    }
    let transport = server.url.split_once("transport=");
    let transport = transport.map(|(_, rest)| rest.split('&').next().unwrap_or_default());
    if transport.is_some_and(|name| !["sse", "poll", "webrtc"].contains(&name)) {
        let words = "?transport= is sse, poll or webrtc";
        return Err(Failure::Usage(format!("{}: {words}", server.url)));
    }
    for (option, file) in [
        ("--ca", &server.ca),
        ("--cert", &server.cert),
        ("--key", &server.key),
    ] {
        if let Some(file) = file
            && let Err(error) = std::fs::File::open(file)
        {
            let name = file.display();
            return Err(Failure::Open(format!("{option} {name}"), error));
        }
    }
    Ok(())
}

/// Says when the server is lost and found again; never returns.
pub(super) async fn report_outages(mut status: Receiver<Status>) {
    let mut lost = false;
    loop {
        match &*status.borrow_and_update() {
            Status::Waiting { reason, .. } if !lost => {
                lost = true;
                // The reason may be text of the server.
                let reason = plain_text(reason);
                eprintln!(
                    "breakbulk: the connection to the server is lost ({reason}); connecting again"
                );
            }
            Status::Established if lost => {
                lost = false;
                eprintln!("breakbulk: connected again");
            }
            _ => {}
        }
        if status.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// Refuses a name that no server accepts.
pub(super) fn check_name(doc: &str) -> Result<(), Failure> {
    let (len, limit) = (doc.len(), Limits::default().doc_id);
    if len == 0 || len > limit {
        let error = DocError::Name { len, limit };
        return Err(Failure::Usage(error.to_string()));
    }
    Ok(())
}

/// The failure of a document, with what to do about it.
pub(super) fn failed(doc: &str, error: &DocError) -> Failure {
    let remedy = match error {
        DocError::Refused { status: 403, .. } => {
            "; ask the server's operator for the right (loro serve --right)"
        }
        DocError::Refused { status: 413, .. } => {
            "; the server's limits are options of loro serve (--max-document, --max-message, --memory), this command's are --max-message, and --max-frame for a path that takes smaller frames"
        }
        DocError::Refused { status: 503, .. } => "; the server's log tells why",
        _ => "",
    };
    let name: String = doc.chars().take(80).collect();
    Failure::Session(format!("document {name:?}: {error}{remedy}"))
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
        Self(progress::waiting(what))
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

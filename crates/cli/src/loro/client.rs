//! `breakbulk loro pull`, `push`, `watch`, `list` and `delete`.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use breakbulk::loro::crdt::LoroDoc;
use breakbulk::loro::machine::is_nothing;
use breakbulk::loro::{Doc, DocError, DocId, DocState, Event};
use serde_json::Value;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch::Receiver;

use super::session::{Patience, Session, check_name, failed, report_outages};
use super::{Client, Server, content};
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::safe_json::put_escaped;
use crate::signals::Stop;
use crate::{frames, inspect};

/// The most bytes read from standard input or a file.
const INPUT_MAX: u64 = 1 << 30;

/// A listing of exactly this many names may be followed by another.
const LISTING: usize = 4096;

/// How long to wait for such another listing: a server that answers in one message sends none.
const NEXT_LISTING: Duration = Duration::from_secs(3);

pub(super) async fn pull(client: &Client) -> Result<(), Failure> {
    output::check(client.file.as_deref(), false)?;
    let session = open(client, Patience::Short)?;
    let doc = fetch(&session, client).await?;
    write(&doc, client.file.as_deref())?;
    drop(doc);
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
                "it is no JSON ({error}); if it is a snapshot, give it a name that does not end in .json"
            ))
        })?),
        false => None,
    };
    // Invalid input fails before connecting.
    match &json {
        Some(json) => content::check_json(json),
        None => content::merge(&LoroDoc::new(), &bytes),
    }
    .map_err(wrong)?;
    let session = open(client, Patience::Short)?;
    let doc = session.open(&client.doc).await?;
    // Fetch the document first, so that only the difference is sent.
    match session.sync(&doc, "fetching").await? {
        Ok(()) | Err(DocError::Unavailable { .. }) => {}
        Err(error) => return Err(failed(&client.doc, &error)),
    }
    let loro = doc.loro();
    match &json {
        Some(json) => content::set_json(&loro, json),
        None => content::merge(&loro, &bytes),
    }
    .map_err(wrong)?;
    let pushed = session.sync(&doc, "pushing").await?;
    pushed.map_err(|error| failed(&client.doc, &error))?;
    drop(doc);
    session.close().await;
    Ok(())
}

pub(super) async fn watch(client: &Client) -> Result<(), Failure> {
    let stop = Stop::on_signals()
        .map_err(|error| Failure::Io("cannot watch for signals".to_owned(), error))?;
    output::check(client.file.as_deref(), false)?;
    let session = open(client, Patience::Endless)?;
    let doc = fetch(&session, client).await?;
    let mut seen = doc.watch();
    let outages = report_outages(session.remote.status());
    tokio::pin!(outages);
    loop {
        // Counted before the document is written: what comes meanwhile is another change.
        let counted = {
            let seen = seen.borrow_and_update();
            (seen.changes, seen.answers)
        };
        write(&doc, client.file.as_deref())?;
        tokio::select! {
            next = next(&mut seen, counted) => match next {
                Next::Changed => {}
                Next::Gone => {
                    let doc = client.doc.clone();
                    return Err(failed(&client.doc, &DocError::Unavailable { doc }));
                }
                Next::ShutDown => break,
            },
            () = &mut outages => {}
            () = stop.asked() => break,
        }
    }
    drop(doc);
    session.close().await;
    Ok(())
}

pub(super) async fn list(server: &Server) -> Result<(), Failure> {
    let session = Session::connect(server, Patience::Short)?;
    let names = session.wait("listing", names(&session)).await?;
    let mut out = Output::open(None)?;
    for name in names? {
        out.write(inspect::printable(&name, usize::MAX).as_bytes())?;
        out.write(b"\n")?;
    }
    out.finish()?;
    session.close().await;
    Ok(())
}

/// The names of all documents that the server shows.
async fn names(session: &Session<'_>) -> Result<Vec<DocId>, Failure> {
    let mut events = session.node.events();
    established(session).await?;
    session.node.ask_directory();
    let mut names: Vec<DocId> = Vec::new();
    loop {
        let next = async {
            match names.is_empty() {
                true => Some(events.recv().await),
                false => tokio::time::timeout(NEXT_LISTING, events.recv()).await.ok(),
            }
        };
        match next.await {
            Some(Ok(Event::Directory { docs, .. })) => {
                let last = docs.len() != LISTING;
                names.extend(docs);
                if last {
                    return Ok(names);
                }
            }
            None => return Ok(names),
            Some(Ok(_)) => {}
            // A part of the listing may be lost.
            Some(Err(RecvError::Lagged(_))) => {
                names.clear();
                session.node.ask_directory();
            }
            Some(Err(RecvError::Closed)) => return Err(closed()),
        }
    }
}

pub(super) async fn delete(server: &Server, doc: &str) -> Result<(), Failure> {
    check_name(doc)?;
    let session = Session::connect(server, Patience::Short)?;
    let deleting = async {
        let mut events = session.node.events();
        established(&session).await?;
        session.node.ask_delete(doc);
        loop {
            match events.recv().await {
                Ok(Event::DeleteAnswered { doc: of, deleted }) if *of == *doc => {
                    return Ok(deleted);
                }
                Ok(_) => {}
                // If the answer was among the missed events, the time limit ends this: a second request
                // would be answered with "ignored".
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return Err(closed()),
            }
        }
    };
    let deleted = session.wait("deleting", deleting).await??;
    session.close().await;
    if !deleted {
        let name: String = doc.chars().take(80).collect();
        return Err(Failure::Session(format!(
            "document {name:?} was not deleted: the server has no such document, or this client has no right to delete it (loro serve --right delete:PREFIX gives it)"
        )));
    }
    Ok(())
}

async fn established(session: &Session<'_>) -> Result<(), Failure> {
    let established = session.remote.established().await;
    established.map_err(|error| Failure::Usage(format!("{}: {error}", session.url())))
}

fn closed() -> Failure {
    Failure::Session("the connection is closed".to_owned())
}

fn open(client: &Client, patience: Patience) -> Result<Session<'_>, Failure> {
    check_name(&client.doc)?;
    Session::connect(&client.server, patience)
}

/// Fetches a document, which must exist.
async fn fetch(session: &Session<'_>, client: &Client) -> Result<Doc, Failure> {
    let doc = session.open(&client.doc).await?;
    let fetched = session.sync(&doc, "fetching").await?;
    fetched.map_err(|error| failed(&client.doc, &error))?;
    // A server that may create a document answers for one that does not exist with nothing.
    let nothing = doc.watch().borrow().answer.as_ref().is_none_or(is_nothing);
    if nothing {
        let doc = client.doc.clone();
        return Err(failed(&client.doc, &DocError::Unavailable { doc }));
    }
    Ok(doc)
}

/// What happened to a document that is watched.
enum Next {
    Changed,
    /// The server deleted it, or shows it no more.
    Gone,
    ShutDown,
}

/// Waits for a change after these numbers of changes and answers.
async fn next(seen: &mut Receiver<DocState>, (changes, answers): (u64, u64)) -> Next {
    let gone = |seen: &DocState| seen.answers != answers && seen.answer.is_none();
    match seen
        .wait_for(|seen| seen.changes != changes || gone(seen))
        .await
    {
        Ok(seen) if gone(&seen) => Next::Gone,
        Ok(_) => Next::Changed,
        Err(_) => Next::ShutDown,
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
        put_escaped(&format!("{json}\n"), &mut |bytes| out.write(bytes))?;
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
        Some(file) => frames::open_file(file)?
            .take(INPUT_MAX + 1)
            .read_to_end(&mut bytes),
    };
    if read.map_err(failed)? as u64 > INPUT_MAX {
        let name = file_name(file);
        return Err(Failure::Input(format!(
            "{name}: it is larger than the limit of {INPUT_MAX} bytes"
        )));
    }
    Ok(bytes)
}

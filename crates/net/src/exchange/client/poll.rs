//! Polls the server: one request when little comes, several at a time when much comes.

use std::sync::Arc;

use breakbulk_link::Closed;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use reqwest::{Method, StatusCode};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::super::REQUESTS;
use super::super::body::Records;
use super::super::outbox::SHARED;
use super::repeat::{NoReply, PATIENCE, PAUSE, PAUSE_MAX, Reply, repeat};
use super::{Arrived, Session};

/// An answer that did not come so often, each time with empty ones that did, is taken for refused.
const REFUSED_AFTER: usize = 6;

/// Polls until the session ends.
pub(super) async fn poll_all(session: Arc<Session>, arrived: mpsc::Sender<Arrived>) {
    if let Err(closed) = try_poll_all(&session, arrived).await {
        session.end(closed);
    }
}

async fn try_poll_all(session: &Session, arrived: mpsc::Sender<Arrived>) -> Result<(), Closed> {
    let mut polls = FuturesOrdered::new();
    // The last answer that came, and the last one that was asked for.
    let (mut got, mut asked, mut wanted) = (0u64, 0u64, 1);
    loop {
        while polls.len() < wanted {
            asked += 1;
            polls.push_back(poll(session, asked, got, true));
        }
        let answer = tokio::select! {
            Some(answer) = polls.next() => answer?,
            _ = session.ended() => return Ok(()),
        };
        let Some(body) = answer else {
            wanted = 1;
            polls.push_front(poll(session, got + 1, got, true));
            let _ = arrived.try_send(Arrived::Nothing);
            continue;
        };
        got += 1;
        wanted = match body.len() > SHARED / 2 {
            true => REQUESTS,
            false => 1,
        };
        let records = Records::read(body).map_err(|error| Closed {
            code: 1002,
            reason: format!("the server's answer cannot be read: {error}"),
        })?;
        let is_last = records.has_close();
        if !hand_over(session, &arrived, records, got).await? {
            return Ok(());
        }
        if is_last {
            // The server waits to hear that its last word has come.
            session.disconnect(&[]).await;
            return Ok(());
        }
    }
}

/// Waits until the source takes a body. Meanwhile the server is told that this client is still there.
/// False if the session ended.
async fn hand_over(
    session: &Session,
    arrived: &mpsc::Sender<Arrived>,
    records: Records,
    got: u64,
) -> Result<bool, Closed> {
    loop {
        tokio::select! {
            biased;
            permit = arrived.reserve() => {
                // Without a source the rest is dropped, so that the server is not kept waiting at its end.
                if let Ok(permit) = permit {
                    permit.send(Arrived::Body(records));
                }
                return Ok(true);
            }
            _ = session.ended() => return Ok(false),
            () = sleep(session.wait / 2) => {}
        }
        // It asks for what has come: the answer is empty, and comes at once.
        poll(session, got, got, false).await?;
    }
}

/// One poll; `None` if there was nothing for it. An answer in whose place something else comes again and
/// again, while empty ones pass each time, is refused on the way: the server is told.
async fn poll(
    session: &Session,
    number: u64,
    got: u64,
    waits: bool,
) -> Result<Option<Bytes>, Closed> {
    let gone = |reason| Closed { code: 1006, reason };
    let (mut refused, mut pause, mut fine) = (0, PAUSE, Instant::now());
    loop {
        let why = match try_poll(session, number, got, waits).await {
            Ok(answer) => return Ok(answer),
            // What is too large is a frame of the server, not one of this side.
            Err(NoReply::Over(closed)) => return Err(gone(closed.reason)),
            Err(NoReply::Replaced(why)) => why,
        };
        refused += 1;
        if refused == REFUSED_AFTER {
            session.report_refused(number).await;
            return Err(gone(format!("an answer does not come through: {why}")));
        }
        // It asks for what has come, so that the answer is empty and comes at once: once or twice in turn,
        // or a path that loses every second or third request would look like one that refuses.
        for _ in 0..1 + refused % 2 {
            match try_poll(session, got, got, false).await {
                Ok(_) => fine = Instant::now(),
                Err(NoReply::Over(closed)) => return Err(gone(closed.reason)),
                Err(NoReply::Replaced(why)) if fine.elapsed() >= PATIENCE => return Err(gone(why)),
                Err(NoReply::Replaced(_)) => refused = 0,
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

async fn try_poll(
    session: &Session,
    number: u64,
    got: u64,
    waits: bool,
) -> Result<Option<Bytes>, NoReply> {
    let wait = if waits { session.wait.as_millis() } else { 0 };
    let texts = [number, got, wait as u64, session.answer_max as u64].map(|it| it.to_string());
    let [number, got, wait, max] = &texts;
    let dialect = &session.client.options().dialect;
    let query = [
        ("number", number.as_str()),
        ("got", got),
        (dialect.wait_parameter, wait),
        ("max", max),
    ];
    let request = || session.request(Method::GET, dialect.poll, &query);
    let reply = repeat(session, request, 0, session.answer_max, true).await?;
    let Reply { status, kind, body } = reply;
    match status {
        StatusCode::NO_CONTENT => Ok(None),
        StatusCode::OK if kind == "application/octet-stream" => Ok(Some(body)),
        _ => Err(NoReply::Over(Closed {
            code: 1002,
            reason: format!("a poll was answered with HTTP {status} and {kind:?}"),
        })),
    }
}

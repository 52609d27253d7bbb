//! Gets the server's answers: by an event stream if the path lets one through and answers are small,
//! otherwise by polls: one at a time if answers are small, several if they are large.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use breakbulk_link::{Closed, lock};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use reqwest::StatusCode;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use super::super::REQUESTS;
use super::super::body::Records;
use super::super::events::Event;
use super::super::outbox::SHARED;
use super::losses::small_answers;
use super::repeat::{NoReply, PATIENCE, PAUSE, PAUSE_MAX, Reply, repeat};
use super::stream::{self, Attempts, Broken, EventStream, NoStream};
use super::{Arrived, Session};

/// How long after the last answer of a stream it is acknowledged, so that one request acknowledges
/// several answers.
const ACKNOWLEDGE: Duration = Duration::from_millis(200);

/// Gets answers until the session ends.
pub(super) async fn poll_all(session: Arc<Session>, arrived: mpsc::Sender<Arrived>) {
    let attempts = Attempts::new(session.client.options().event_streams.clone());
    let down = Down {
        session: &session,
        arrived,
        got: 0,
        attempts,
    };
    if let Err(closed) = down.run().await {
        session.end(closed);
    }
}

/// An attempt to open a stream.
type Opening<'a> = Pin<Box<dyn Future<Output = Result<EventStream, NoStream>> + Send + 'a>>;

/// What to do next.
enum Next {
    /// Read this stream.
    Read(EventStream),
    /// Open a stream.
    Open,
    /// Poll for the next answers.
    Poll,
    /// The session is over.
    Nothing,
}

/// Receives the answers of a session.
struct Down<'a> {
    session: &'a Session,
    arrived: mpsc::Sender<Arrived>,
    /// The last answer that came.
    got: u64,
    attempts: Attempts,
}

impl<'a> Down<'a> {
    async fn run(mut self) -> Result<(), Closed> {
        // The first stream is opened while polls go on, so that nothing waits for it if the path holds
        // it back.
        let trial = self.attempts.may_pass();
        let mut opening = trial.then(|| Box::pin(stream::open(self.session, 1, 0)) as Opening<'a>);
        let mut next = Next::Poll;
        loop {
            next = match next {
                Next::Poll => self.poll(&mut opening).await?,
                Next::Open => match stream::open(self.session, self.got + 1, self.got).await {
                    Ok(stream) => Next::Read(stream),
                    Err(error) => {
                        self.attempts.failed(&error);
                        Next::Poll
                    }
                },
                Next::Read(stream) => self.read(stream).await?,
                Next::Nothing => return Ok(()),
            };
        }
    }

    /// Polls until a stream is the better way.
    async fn poll(&mut self, opening: &mut Option<Opening<'a>>) -> Result<Next, Closed> {
        let session = self.session;
        let mut polls = FuturesOrdered::new();
        // The last answer that was asked for.
        let (mut asked, mut wanted) = (self.got, 1);
        loop {
            while polls.len() < wanted {
                asked += 1;
                polls.push_back(poll(session, asked, self.got, true));
            }
            let answer = tokio::select! {
                Some(answer) = polls.next() => answer?,
                opened = opened(opening) => {
                    *opening = None;
                    match opened {
                        Ok(stream) => return Ok(Next::Read(stream)),
                        Err(error) => self.attempts.failed(&error),
                    }
                    continue;
                }
                _ = session.ended() => return Ok(Next::Nothing),
            };
            let streams = opening.is_none() && self.attempts.may_pass();
            let Some(body) = answer else {
                let _ = self.arrived.try_send(Arrived::Nothing);
                if streams {
                    return Ok(Next::Open);
                }
                wanted = 1;
                polls.push_front(poll(session, self.got + 1, self.got, true));
                continue;
            };
            let is_large = body.len() > SHARED / 2;
            wanted = if is_large { REQUESTS } else { 1 };
            if !self.take(body).await? {
                return Ok(Next::Nothing);
            }
            // The polls that were sent ahead are dropped: the server keeps their answers.
            if streams && !is_large {
                return Ok(Next::Open);
            }
        }
    }

    /// Reads a stream to its end.
    async fn read(&mut self, mut stream: EventStream) -> Result<Next, Closed> {
        let session = self.session;
        // When to acknowledge what has come, and the request that acknowledges it.
        let (mut due, mut telling) = (None, None);
        loop {
            let event = tokio::select! {
                biased;
                event = stream.next() => event,
                told = done(&mut telling) => {
                    told?;
                    continue;
                }
                () = until(due), if telling.is_none() => {
                    due = None;
                    telling = Some(Box::pin(poll(session, self.got, self.got, false)));
                    continue;
                }
                _ = session.ended() => return Ok(Next::Nothing),
            };
            match event {
                Ok(Event::Answer(number, body)) if number == self.got + 1 => {
                    self.attempts.worked();
                    if !self.take(body).await? {
                        return Ok(Next::Nothing);
                    }
                    due = Some(Instant::now() + ACKNOWLEDGE);
                }
                // It came by a poll in the meantime.
                Ok(Event::Answer(number, _)) if number <= self.got => {}
                Ok(Event::Answer(number, _)) => {
                    let expected = self.got + 1;
                    return Err(Closed {
                        code: 1002,
                        reason: format!("answer {number} came in place of {expected}"),
                    });
                }
                Ok(Event::End { more }) => {
                    self.attempts.worked();
                    let _ = self.arrived.try_send(Arrived::Nothing);
                    return Ok(if more { Next::Poll } else { Next::Open });
                }
                Ok(Event::Open | Event::Other) => {}
                Err(Broken::Off(why)) => {
                    self.attempts.broke_off(&why);
                    return Ok(Next::Poll);
                }
                Err(Broken::Wrong(why)) => {
                    return Err(Closed {
                        code: 1002,
                        reason: format!("the server's event stream cannot be read: {why}"),
                    });
                }
            }
        }
    }

    /// Passes the next answer on to the source; false if it was the last one, or the session ended.
    async fn take(&mut self, body: Bytes) -> Result<bool, Closed> {
        self.got += 1;
        let records = Records::read(body).map_err(|error| Closed {
            code: 1002,
            reason: format!("the server's answer cannot be read: {error}"),
        })?;
        let is_last = records.has_close();
        if !hand_over(self.session, &self.arrived, records, self.got).await? {
            return Ok(false);
        }
        if is_last {
            // The server waits for the acknowledgement of its close.
            self.session.disconnect(&[]).await;
        }
        Ok(!is_last)
    }
}

/// Waits for the stream that is being opened; for ever if none is.
async fn opened(opening: &mut Option<Opening<'_>>) -> Result<EventStream, NoStream> {
    match opening {
        Some(opening) => opening.await,
        None => std::future::pending().await,
    }
}

/// Waits for a future, and clears it when it is done; waits for ever if there is none.
async fn done<F: Future + Unpin>(doing: &mut Option<F>) -> F::Output {
    let Some(future) = doing else {
        return std::future::pending().await;
    };
    let output = future.await;
    *doing = None;
    output
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Waits until the source takes a body, and meanwhile polls, to show the server that this client is still
/// there. False if the session ended.
async fn hand_over(
    session: &Session,
    arrived: &mpsc::Sender<Arrived>,
    mut records: Records,
    got: u64,
) -> Result<bool, Closed> {
    records.charge_to(session.outbox.budget());
    loop {
        tokio::select! {
            biased;
            permit = arrived.reserve() => {
                // Without a source the body is dropped, so that a server that closes does not have to wait.
                if let Ok(permit) = permit {
                    permit.send(Arrived::Body(records));
                }
                return Ok(true);
            }
            _ = session.ended() => return Ok(false),
            () = sleep(session.wait / 2) => {}
        }
        // This polls for an answer that has come already: the reply is empty, and comes at once.
        poll(session, got, got, false).await?;
    }
}

/// One poll; `None` if there was no answer for it. If something on the way replaces the answer again and
/// again while empty answers pass, the answer is refused for its size, and the server is told.
async fn poll(
    session: &Session,
    number: u64,
    got: u64,
    waits: bool,
) -> Result<Option<Bytes>, Closed> {
    let gone = |reason| Closed { code: 1006, reason };
    let (mut attempt, mut pause, mut fine) = (0, PAUSE, Instant::now());
    loop {
        let why = match try_poll(session, number, got, waits).await {
            Ok(answer) => return Ok(answer),
            // The code is not kept: 1009 would mean that a frame of this side is too large, and not one of
            // the server.
            Err(NoReply::Over(closed)) => return Err(gone(closed.reason)),
            Err(NoReply::Replaced(why)) => why,
        };
        attempt += 1;
        if lock(&session.losses).is_refused(attempt) {
            session.report_refused(number).await;
            return Err(gone(format!(
                "something on the way refuses what the other end sends ({why}), probably for its size"
            )));
        }
        let mut path_is_up = true;
        // These poll for an answer that has come already: the reply is empty, and comes at once.
        for _ in 0..small_answers(attempt) {
            match try_poll(session, got, got, false).await {
                Ok(_) => {
                    fine = Instant::now();
                    lock(&session.losses).came();
                }
                Err(NoReply::Over(closed)) => return Err(gone(closed.reason)),
                Err(NoReply::Replaced(why)) if fine.elapsed() >= PATIENCE => return Err(gone(why)),
                Err(NoReply::Replaced(_)) => {
                    path_is_up = false;
                    lock(&session.losses).lost();
                }
            }
        }
        sleep(pause).await;
        // If small answers pass, a longer pause would not help: only the number of attempts decides.
        if !path_is_up {
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

async fn try_poll(
    session: &Session,
    number: u64,
    got: u64,
    waits: bool,
) -> Result<Option<Bytes>, NoReply> {
    let wait = if waits { session.wait } else { Duration::ZERO };
    let request = || session.ask(number, got, wait, &[]);
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

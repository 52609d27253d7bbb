//! Asks the questions of a probe over connections that carry messages both ways: WebSockets, or sessions at
//! NATS.

use std::pin::pin;
use std::time::Duration;

#[cfg(feature = "nats")]
use breakbulk_net::nats::NatsError;
use breakbulk_net::ws::{ConnectError, Ending};
use breakbulk_net::{Incoming, Lost, Sink, Source};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::course::{Direction, Question};
use super::outcome::{Outcome, Refusal};
use super::words::{self, Word};
use super::{Answer, Ask, ProbeError};

/// How long the other end may take until it says hello.
const HELLO: Duration = Duration::from_secs(10);

/// How often connecting is tried: the path may need a moment after a refusal, and the other end may not
/// have noticed yet that the last connection is over.
const ATTEMPTS: u32 = 8;

/// The wait after the first failed attempt; it doubles with each.
const FIRST_WAIT: Duration = Duration::from_millis(50);

/// How long to wait for the reason once a connection fails while a message is sent.
const REASON: Duration = Duration::from_secs(2);

/// How the connections of a path are made.
pub(super) trait Connect {
    type Source: Tells;
    type Sink: Sends;

    /// Connects to an end that answers probes.
    async fn connect(&self) -> Result<(Self::Source, Self::Sink), ProbeError>;
}

/// The receiving half of such a connection.
pub(super) trait Tells: Source {
    /// How the connection ended, if its transport can tell more than a close code.
    fn ending(&self) -> Option<Ending> {
        None
    }
}

/// The sending half of such a connection.
pub(super) trait Sends: Sink {
    /// The largest WebSocket frame of the next message; `None` for one frame.
    fn set_fragment(&mut self, _fragment: Option<usize>) {}

    /// The largest message that the transport takes at all.
    fn most(&self) -> usize {
        usize::MAX
    }
}

/// A path to an end that answers, and the connection that is open.
pub(super) struct Connected<C: Connect> {
    connect: C,
    line: Option<Line<C>>,
    connections: u32,
}

/// An open connection to an end that answers.
struct Line<C: Connect> {
    source: C::Source,
    sink: C::Sink,
    /// The largest message that the other end takes part in.
    most: usize,
    /// Until then the other end reads nothing.
    pause: Instant,
    /// The number of the last mark.
    mark: u64,
}

impl<C: Connect> Connected<C> {
    pub(super) fn new(connect: C) -> Self {
        Self {
            connect,
            line: None,
            connections: 0,
        }
    }

    /// The connection, or a new one.
    async fn line(&mut self) -> Result<&mut Line<C>, ProbeError> {
        if self.line.is_none() {
            let mut wait = FIRST_WAIT;
            let mut attempt = 1;
            self.line = loop {
                self.connections += 1;
                match greeted(&self.connect).await {
                    Ok(line) => break Some(line),
                    // The first connection is not tried again, unless the other end is busy.
                    Err(error) if attempt == ATTEMPTS || error.is_final() => return Err(error),
                    Err(error) if self.connections == 1 && !error.is_busy() => return Err(error),
                    Err(_) => {}
                }
                sleep(wait).await;
                (wait, attempt) = (wait * 2, attempt + 1);
            };
        }
        self.line.as_mut().ok_or(ProbeError::Silent(HELLO))
    }
}

/// Connects, and hears the first word of the other end.
async fn greeted<C: Connect>(connect: &C) -> Result<Line<C>, ProbeError> {
    let (mut source, sink) = connect.connect().await?;
    let deadline = Instant::now() + HELLO;
    loop {
        match timeout_at(deadline, source.next()).await {
            Ok(Incoming::Frame(frame)) => {
                return match words::read(&frame) {
                    Some(Word::Hello { most, wait }) => Ok(Line {
                        source,
                        sink,
                        most,
                        pause: Instant::now() + words::pause(wait),
                        mark: 0,
                    }),
                    _ => Err(ProbeError::NoEcho),
                };
            }
            Ok(Incoming::Closed(closed) | Incoming::Broken(closed)) => {
                return Err(ProbeError::Closed(closed));
            }
            Ok(_) => {}
            Err(_) => return Err(ProbeError::Silent(HELLO)),
        }
    }
}

impl<C: Connect> Ask for Connected<C> {
    async fn open(&mut self) -> Result<usize, ProbeError> {
        Ok(self.line().await?.most)
    }

    async fn round_trip(&mut self, patience: Duration) -> Result<Duration, ProbeError> {
        let line = self.line().await?;
        sleep_until(line.pause).await;
        let start = Instant::now();
        line.mark += 1;
        let mark = words::write(&Word::Mark(line.mark));
        let sent = line.sink.send(mark).await;
        sent.map_err(|_| ProbeError::Silent(patience))?;
        loop {
            match timeout_at(start + patience, line.source.next()).await {
                Ok(Incoming::Frame(frame))
                    if words::read(&frame) == Some(Word::Marked(line.mark)) =>
                {
                    return Ok(start.elapsed());
                }
                Ok(Incoming::Closed(closed) | Incoming::Broken(closed)) => {
                    return Err(ProbeError::Closed(closed));
                }
                Ok(_) => {}
                Err(_) => return Err(ProbeError::Silent(patience)),
            }
        }
    }

    async fn ask(&mut self, question: &Question, patience: Duration) -> Result<Answer, ProbeError> {
        let line = self.line().await?;
        sleep_until(line.pause).await;
        let start = Instant::now();
        let (outcome, pause) = line.ask(question, start + patience).await;
        let took = start.elapsed();
        line.pause = Instant::now() + pause;
        if outcome != Outcome::Passed {
            self.line = None;
        }
        Ok(Answer { outcome, took })
    }

    fn connections(&self) -> u32 {
        self.connections
    }
}

impl<C: Connect> Line<C> {
    /// Asks one question; returns the outcome, and how long the other end then reads nothing.
    async fn ask(&mut self, question: &Question, deadline: Instant) -> (Outcome, Duration) {
        self.mark += 1;
        let mark = self.mark;
        let Self { source, sink, .. } = self;
        let mut sending = pin!(Some(send(sink, question, mark)));
        let mut deadline = deadline;
        let mut arrived = None;
        loop {
            tokio::select! {
                // What the other end says counts more than a write that fails.
                biased;
                incoming = source.next() => match incoming {
                    Incoming::Frame(frame) => {
                        match heard(words::read(&frame), question, mark, &mut arrived) {
                            Heard::Nothing => {}
                            Heard::End(outcome, pause) => return (outcome, pause),
                        }
                    }
                    Incoming::Closed(closed) => {
                        let outcome = ended(closed.code, closed.reason, source.ending());
                        return (Outcome::Refused(outcome), Duration::ZERO);
                    }
                    Incoming::Broken(closed) => {
                        let refusal = Refusal::Broken(closed.reason);
                        return (Outcome::Refused(refusal), Duration::ZERO);
                    }
                    Incoming::Alive | Incoming::Posted(..) => {}
                },
                sent = next(sending.as_mut()) => {
                    sending.set(None);
                    if sent.is_err() {
                        // The close of the connection, with its reason, may still arrive.
                        deadline = deadline.min(Instant::now() + REASON);
                    }
                }
                () = sleep_until(deadline) => {
                    let refusal = match source.ending() {
                        Some(ending) => ended(1006, String::new(), Some(ending)),
                        None => Refusal::Silence,
                    };
                    return (Outcome::Refused(refusal), Duration::ZERO);
                }
            }
        }
    }
}

async fn send(sink: &mut impl Sends, question: &Question, mark: u64) -> Result<(), Lost> {
    let Question {
        direction,
        content,
        size,
        fragment,
        ..
    } = *question;
    match direction {
        Direction::Up => {
            sink.set_fragment(fragment);
            sink.send(words::measured(content, size)).await?;
            sink.set_fragment(None);
            // If this mark is answered and the message was not, the path dropped the message.
            sink.send(words::write(&Word::Mark(mark))).await
        }
        Direction::Down => {
            let word = Word::Send {
                size,
                content,
                fragment,
            };
            sink.send(words::write(&word)).await
        }
    }
}

/// The output of a future, if there is one.
async fn next<T>(future: std::pin::Pin<&mut Option<impl Future<Output = T>>>) -> T {
    match future.as_pin_mut() {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// What a word means for the question.
enum Heard {
    Nothing,
    End(Outcome, Duration),
}

/// Judges a message of the other end. `arrived` is what became of a message that was asked for;
/// [`Word::Sent`], which follows it, ends the question.
fn heard(
    word: Option<Word>,
    question: &Question,
    mark: u64,
    arrived: &mut Option<Outcome>,
) -> Heard {
    let judged = |size: usize, whole: bool| match whole && size == question.size {
        true => Outcome::Passed,
        false => Outcome::Refused(Refusal::Truncated { arrived: size }),
    };
    let dropped = Outcome::Refused(Refusal::Silence);
    match (question.direction, word) {
        (
            Direction::Up,
            Some(Word::Got {
                arrived,
                whole,
                wait,
            }),
        ) => Heard::End(judged(arrived, whole), words::pause(wait)),
        (Direction::Up, Some(Word::Marked(number))) if number == mark => {
            Heard::End(dropped, Duration::ZERO)
        }
        // The answer to the mark of an earlier question, whose message was answered first.
        (_, Some(Word::Marked(_))) => Heard::Nothing,
        (Direction::Down, Some(Word::Bytes(measured))) => {
            *arrived = Some(judged(measured.arrived, measured.whole));
            Heard::Nothing
        }
        (Direction::Down, Some(Word::Sent { wait })) => {
            Heard::End(arrived.take().unwrap_or(dropped), words::pause(wait))
        }
        _ => Heard::End(
            Outcome::Refused(Refusal::Broken(
                "something else than the answer to a probe".to_owned(),
            )),
            Duration::ZERO,
        ),
    }
}

/// How a connection ended.
fn ended(code: u16, reason: String, ending: Option<Ending>) -> Refusal {
    match (code, ending) {
        (1006, Some(Ending::Reset)) => Refusal::Reset,
        (1006, Some(Ending::TlsAlert(alert))) => Refusal::TlsAlert(alert),
        (1006, Some(Ending::Failed(reason))) => Refusal::Broken(reason),
        (1006, _) => Refusal::Ended,
        (code, _) => Refusal::Close { code, reason },
    }
}

impl ProbeError {
    /// Whether trying again does not help.
    fn is_final(&self) -> bool {
        match self {
            Self::NoEcho => true,
            #[cfg(feature = "nats")]
            Self::Nats(error) => !matches!(error, NatsError::Refused { .. }),
            Self::Connect(error) => matches!(
                error,
                ConnectError::Url { .. }
                    | ConnectError::Header { .. }
                    | ConnectError::NoTls { .. }
                    | ConnectError::Roots { .. }
                    | ConnectError::Identity { .. }
                    | ConnectError::Unauthorized { .. }
            ),
            _ => false,
        }
    }

    /// Whether the other end said to try again later.
    fn is_busy(&self) -> bool {
        match self {
            Self::Closed(closed) => closed.code == 1013,
            #[cfg(feature = "nats")]
            Self::Nats(error) => matches!(error, NatsError::Refused { .. }),
            Self::Connect(ConnectError::Status { status, .. }) => *status == 503,
            _ => false,
        }
    }
}

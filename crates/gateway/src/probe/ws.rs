//! Asks the questions of a probe over WebSockets.

use std::pin::pin;
use std::time::Duration;

use breakbulk_net::ws::{self, ConnectError, ConnectOptions, Ending, WsSink, WsSource};
use breakbulk_net::{Incoming, Lost, Sink, Source, Transport};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::course::{Direction, Question};
use super::outcome::{Outcome, Refusal};
use super::words::{self, PROBE, Word};
use super::{Answer, Ask, ProbeError};

/// How long the first word of the other end may take.
const HELLO: Duration = Duration::from_secs(10);

/// How often connecting is tried: the path may need a moment after a refusal, and the other end may not
/// have noticed yet that the last connection is over.
const ATTEMPTS: u32 = 8;

/// The wait after the first failed attempt; it doubles with each.
const FIRST_WAIT: Duration = Duration::from_millis(50);

/// How long to wait for the reason once a connection fails while a message is sent.
const REASON: Duration = Duration::from_secs(2);

/// A path of WebSockets.
pub(super) struct WebSockets {
    url: String,
    options: ConnectOptions,
    line: Option<Line>,
    connections: u32,
}

/// An open connection to an end that answers.
struct Line {
    source: WsSource,
    sink: WsSink,
    /// The largest message that the other end takes part in.
    most: usize,
    /// Until then the other end reads nothing.
    pause: Instant,
    /// The number of the last mark.
    mark: u64,
}

impl WebSockets {
    pub(super) fn new(url: String, options: ConnectOptions, most: usize) -> Self {
        let options = ConnectOptions {
            subprotocols: vec![PROBE.to_owned()],
            // What is larger than asked for is an answer that no probe gives.
            frame_limit: most.saturating_add(1),
            fragment: None,
            ..options
        };
        Self {
            url,
            options,
            line: None,
            connections: 0,
        }
    }

    /// The connection, or a new one.
    async fn line(&mut self) -> Result<&mut Line, ProbeError> {
        if self.line.is_none() {
            let mut wait = FIRST_WAIT;
            let mut attempt = 1;
            self.line = loop {
                self.connections += 1;
                match connect(&self.url, &self.options).await {
                    Ok(line) => break Some(line),
                    // The first connection must do.
                    Err(error) if attempt == ATTEMPTS || error.is_final() => return Err(error),
                    Err(error) if self.connections == 1 && !error.is_busy() => return Err(error),
                    Err(_) => {}
                }
                sleep(wait).await;
                (wait, attempt) = (wait * 2, attempt + 1);
            };
        }
        self.line.as_mut().ok_or(ProbeError::Silent)
    }
}

async fn connect(url: &str, options: &ConnectOptions) -> Result<Line, ProbeError> {
    let websocket = ws::connect(url, options).await?;
    if websocket.subprotocol() != Some(PROBE) {
        return Err(ProbeError::NoEcho);
    }
    let (mut source, sink) = websocket.split();
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
            Err(_) => return Err(ProbeError::Silent),
        }
    }
}

impl Ask for WebSockets {
    async fn open(&mut self) -> Result<usize, ProbeError> {
        Ok(self.line().await?.most)
    }

    async fn round_trip(&mut self, patience: Duration) -> Result<Duration, ProbeError> {
        let line = self.line().await?;
        sleep_until(line.pause).await;
        let start = Instant::now();
        line.mark += 1;
        let mark = words::write(&Word::Mark(line.mark));
        line.sink.send(mark).await.map_err(|_| ProbeError::Silent)?;
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
                Err(_) => return Err(ProbeError::Silent),
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

impl Line {
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
                // What came in counts before what could not be sent.
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
                        // The reason may still come.
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

async fn send(sink: &mut WsSink, question: &Question, mark: u64) -> Result<(), Lost> {
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
            // If this is answered and the message was not, the message was dropped.
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

/// `arrived` is what became of a message that was asked for; the word behind it ends the question.
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
        // Of an earlier question, whose message arrived before its mark was answered.
        (_, Some(Word::Marked(_))) => Heard::Nothing,
        (Direction::Down, Some(Word::Bytes(measured))) => {
            *arrived = Some(judged(measured.arrived, measured.whole));
            Heard::Nothing
        }
        (Direction::Down, Some(Word::Sent { wait })) => {
            Heard::End(arrived.take().unwrap_or(dropped), words::pause(wait))
        }
        _ => Heard::End(
            Outcome::Refused(Refusal::Broken("not a word of a probe".to_owned())),
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
            Self::Connect(ConnectError::Status { status, .. }) => *status == 503,
            _ => false,
        }
    }
}
